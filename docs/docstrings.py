r"""For the site: docstrings in the form that the reference is made from.

Doctests outside an Examples section are shown as code, and roles such as :func:`rmcalib.score` as plain code.
Several parameters that are described together get an entry each, because their types and defaults may differ:

>>> print(_apart("Parameters\n----------\nseed, level\n    As usual.\n\nReturns\n-------\nfloat\n    It."))
Parameters
----------
seed
    As usual.
level
    As usual.
<BLANKLINE>
Returns
-------
float
    It.
"""

import re
from typing import Any

import griffe

_BLOCK = re.compile(r"(?:^>>>.*\n?(?:^(?!\s*$).*\n?)*)", re.MULTILINE)
_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([^`]+)`")
_SECTION = re.compile(r"^(?:Parameters|Attributes)\n-+\n(?:.+\n?)+", re.MULTILINE)
_TOGETHER = re.compile(r"^(\w+(?:, \w+)+)( : .+)?\n((?: .*\n?)+)", re.MULTILINE)


def _apart(text: str) -> str:
    """Give each of several names that are described together an entry of its own."""

    def entries(found: re.Match[str]) -> str:
        below = found[3].rstrip("\n") + "\n"
        return "".join(f"{name}{found[2] or ''}\n{below}" for name in found[1].split(", "))

    return _SECTION.sub(lambda section: _TOGETHER.sub(entries, section[0]), text)


class Docstrings(griffe.Extension):
    """Change docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that has just been read."""
        docstring = obj.docstring
        if docstring is None:
            return
        text = _apart(_ROLE.sub(r"`\1`", docstring.value))
        if "Examples\n---" not in text:  # doctests in an Examples section are recognised anyway
            text = _BLOCK.sub(lambda m: f"```pycon\n{m.group(0).rstrip()}\n```\n", text)
        docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
