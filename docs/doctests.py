"""For the site: doctests that stand in the text of a docstring are shown as code."""

import re
from typing import Any

import griffe

_BLOCK = re.compile(r"(?:^>>>.*\n?(?:^(?!\s*$).*\n?)*)", re.MULTILINE)


class FencedDoctests(griffe.Extension):
    """Put doctests into fenced blocks, except in an Examples section, where they are recognised anyway."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that has just been read."""
        docstring = obj.docstring
        if docstring is not None and "Examples\n---" not in docstring.value:
            docstring.value = _BLOCK.sub(lambda m: f"```pycon\n{m.group(0).rstrip()}\n```\n", docstring.value)
