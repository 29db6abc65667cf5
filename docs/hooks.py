"""For the site: files outside `docs/` are named, not linked, because the site does not hold them."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace links to files of the repository by their names."""
    return _OUTSIDE.sub(r"\1 (`\2`)", markdown)
