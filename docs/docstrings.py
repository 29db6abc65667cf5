"""For the site: show doctests in the text of a docstring as code, and entries of sections in full."""

import re
from typing import Any

import griffe

_BLOCK = re.compile(r"(?:^>>>.*\n?(?:^(?!\s*$).*\n?)*)", re.MULTILINE)
_ROLE = re.compile(r":(?:func|meth|class|mod|attr):(?=`)")
_SECTION = re.compile(r"^((?:Parameters|Attributes|Returns|Yields)\n-+\n)((?:.+\n?)+)", re.MULTILINE)
_ENTRY = re.compile(r"^(\*{0,2}\w[\w, ]*?)( ?): (.+)\n?((?:^ .*\n?)*)", re.MULTILINE)


class ReadableDocstrings(griffe.Extension):
    """Change docstrings, before they are parsed, to what the numpydoc parser understands."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that has just been read."""
        docstring = obj.docstring
        if docstring is None:
            return
        if "Examples\n---" not in docstring.value:  # there, doctests are recognised anyway
            docstring.value = _BLOCK.sub(lambda m: f"```pycon\n{m.group(0).rstrip()}\n```\n", docstring.value)
        docstring.value = _ROLE.sub("", docstring.value)
        docstring.value = _SECTION.sub(lambda m: m.group(1) + _ENTRY.sub(_entry, m.group(2)), docstring.value)


def _entry(match: re.Match[str]) -> str:
    """Turn 'name: meaning' into a name with an indented meaning; 'name : type' stays as it is.

    The parser takes the text after a colon for a type, and drops it if there is no space before the colon.
    """
    names, space, text, more = match.groups()
    is_meaning = not space or text.endswith(".") or more.lstrip()[:1].islower()
    return f"{names}\n    {text}\n{more}" if is_meaning else match.group(0)
