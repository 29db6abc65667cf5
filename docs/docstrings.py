"""For the site: docstrings in the form that the reference is made from.

Our docstrings say `name : meaning`. The reference takes what follows the colon as a type, unless it is moved
to a line of its own. Doctests outside an Examples section are shown as code, and roles such as
:func:`rmcalib.score` as plain code.
"""

import re
from typing import Any

import griffe

_BLOCK = re.compile(r"(?:^>>>.*\n?(?:^(?!\s*$).*\n?)*)", re.MULTILINE)
_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([^`]+)`")
_NAMED = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: ?: (.+))?")  # one or several names, and what they are
_RETURNED = re.compile(r"([A-Za-z][\w\[\]|., ]{0,40}): (.+)")  # a type, and what it is
_SHORT = 80  # a longer first line goes on in the next, so it is no type with a description below


def items_apart(text: str) -> str:
    r"""Move the meaning of parameters, attributes and results to lines of their own.

    >>> print(items_apart("Parameters\n----------\na, b : numbers to add.\n\nReturns\n-------\nThe sum."))
    Parameters
    ----------
    a
        numbers to add.
    b
        numbers to add.
    <BLANKLINE>
    Returns
    -------
    :
        The sum.
    """
    lines, section = text.split("\n"), ""
    result: list[str] = []
    sentence = False  # whether the last line was a sentence about the result, which may go on
    for i, line in enumerate(lines):
        after = lines[i + 1] if i + 1 < len(lines) else ""
        if line and after == "-" * len(line):
            section = line
        described = after.startswith("    ") and len(line) < _SHORT
        is_item = bool(line) and not line.startswith((" ", "-")) and line != section
        if not is_item or section not in ("Parameters", "Attributes", "Returns", "Yields"):
            sentence = False
            result.append(line)
        elif section in ("Parameters", "Attributes"):
            named = _NAMED.fullmatch(line)
            if named is None:
                result.append(line)
            else:
                below = lines[i + 1 : _end_of_item(lines, i + 1)]
                names = named[1].split(", ")  # one item each, because their types and defaults may differ
                heads = [_head(name, named[2], described) for name in names]
                for head in heads[:-1]:
                    result += [*head, *below]
                result += heads[-1]
        elif sentence:
            result.append(f"    {line}")
        elif described:
            result.append(line)
        else:
            sentence = True
            returned = _RETURNED.fullmatch(line)
            result += [returned[1], f"    {returned[2]}"] if returned else [":", f"    {line}"]
    return "\n".join(result)


def _head(name: str, what: str | None, described: bool) -> list[str]:
    """Return the first lines of an item: its name, and what it is, as its type if a description follows."""
    if what is None:
        return [name]
    return [f"{name} : {what}"] if described else [name, f"    {what}"]


def _end_of_item(lines: list[str], start: int) -> int:
    """Return the number of the first line from `start` on that is not indented."""
    return next((i for i in range(start, len(lines)) if not lines[i].startswith(" ")), len(lines))


class Docstrings(griffe.Extension):
    """Change docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that has just been read."""
        docstring = obj.docstring
        if docstring is None:
            return
        text = items_apart(_ROLE.sub(r"`\1`", docstring.value))
        if "Examples\n---" not in text:  # doctests in an Examples section are recognised anyway
            text = _BLOCK.sub(lambda m: f"```pycon\n{m.group(0).rstrip()}\n```\n", text)
        docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
