"""For the site: files outside `docs/` are named, not linked, because the site does not hold them."""

import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to files of the repository by their names."""
    depth = page.file.src_uri.count("/")

    def named(link: re.Match[str]) -> str:
        outside = link[2].count("../") > depth
        return f"{link[1]} (`{link[3]}`)" if outside else link[0]

    return _LINK.sub(named, markdown)
