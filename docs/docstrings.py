"""For the site: docstrings in the form that the reference is made from.

Doctests outside an Examples section are shown as code, and roles such as :func:`rmcalib.score` as plain code.
"""

import re
from typing import Any

import griffe

_BLOCK = re.compile(r"(?:^>>>.*\n?(?:^(?!\s*$).*\n?)*)", re.MULTILINE)
_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([^`]+)`")


class Docstrings(griffe.Extension):
    """Change docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that has just been read."""
        docstring = obj.docstring
        if docstring is None:
            return
        text = _ROLE.sub(r"`\1`", docstring.value)
        if "Examples\n---" not in text:  # doctests in an Examples section are recognised anyway
            text = _BLOCK.sub(lambda m: f"```pycon\n{m.group(0).rstrip()}\n```\n", text)
        docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
