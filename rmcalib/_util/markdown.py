"""Text and tables as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rmcalib._util.terminal import clean_line

__all__ = ["markdown_table", "markdown_text"]

# An underscore inside a word, as in `lost_information`, is not markup.
_MARKUP = re.compile(r"[\\`*{}\[\]<>|#!~$&]|(?<![^\W_])_|_(?![^\W_])")
_RULES = {"l": "---", "r": "---:"}


def markdown_text(text: object) -> str:
    r"""Return text on one line, with escapes, so that Markdown shows it unchanged.

    >>> print(markdown_text("a|b_c <script>\n*d*"))
    a\|b_c \<script\> \*d\*
    """
    return _MARKUP.sub(r"\\\g<0>", clean_line(text))


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, align: str = "", escape: bool = True
) -> list[str]:
    """Return the lines of a table.

    Parameters
    ----------
    header : Sequence[str]
        One name per column.
    rows : Sequence[Sequence[object]]
        One cell per column.
    align : str
        One letter per column: "l" for left, "r" for right; all left by default.
    escape : bool
        Escape the cells (`markdown_text`); False if they are already Markdown.

    Examples
    --------
    >>> markdown_table(["model", "ECE"], [["org/rm", 0.1]], align="lr")
    ['| model | ECE |', '| --- | ---: |', '| org/rm | 0.1 |']
    """
    form = markdown_text if escape else str
    rule = [_RULES[letter] for letter in align or "l" * len(header)]
    return [f"| {' | '.join(map(form, line))} |" for line in (header, rule, *rows)]
