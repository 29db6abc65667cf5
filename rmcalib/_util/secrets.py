"""No key and no password of a URL reaches a message, whatever the URL's shape, and whoever repeats a part of it."""

from __future__ import annotations

import os
import re
import sys
from urllib.parse import unquote

# Up to the last @: a key may contain any character but a space, also / and @.
_USER = re.compile(r"(?<=://).+(?=@)")
_QUERY = re.compile(r"(?<=://).*?\?([^'\")].*?)[:,;.)'\"]*$")
_PROXIES = tuple(
    name for one in ("all", "http", "https") for name in (f"{one}_proxy", f"{one}_proxy".upper())
)
_SHORTEST = 3  # characters of a part that is masked wherever it occurs


def masked(text: str) -> str:
    """Replace users and passwords of URLs, and values after a `?`; also parts of them that are repeated alone.

    URLs are looked for in the text, the arguments of this process and its proxies.

    >>> masked("s3://key:se/cret@bucket/x: Invalid bucket name 'key:cret'")
    "s3://***@bucket/x: Invalid bucket name '***:***'"
    >>> masked("az://c/x?sv=1&sig=abcd%3D: cannot be read (abcd=)")
    'az://c/x?***: cannot be read (***)'
    """
    places = [word for word in (*text.split(), *sys.argv) if "://" in word]
    users = [user for place in (*places, *_proxies()) for user in _USER.findall(place)]
    queries = [query for place in places for query in _QUERY.findall(place)]
    if not users and not queries:
        return text
    for query in queries:
        text = text.replace(f"?{query}", "?***")
    for user in users:
        text = text.replace(f"{user}@", "***@")
    parts = [part for user in users for part in (user, *re.split("[:/@]", user))]
    parts += [part for query in queries for part in re.split("[&=]", query)[1::2]]
    forms = {form for part in parts for form in (part, unquote(part)) if len(form) >= _SHORTEST}
    for form in sorted(forms, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", "***", text)
    return text


def _proxies() -> list[str]:
    """Return the addresses of proxies, which may lack the `http://`."""
    given = [os.environ.get(name, "") for name in _PROXIES]
    return [proxy if "://" in proxy else f"http://{proxy}" for proxy in given if proxy]
