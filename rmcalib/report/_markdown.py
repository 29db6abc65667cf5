"""Text and tables as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rmcalib._util.terminal import clean_line

__all__ = ["markdown_table", "markdown_text"]


def markdown_text(text: str) -> str:
    """Escape characters that Markdown or HTML would read as markup.

    >>> markdown_text("a|b <c>")
    'a\\\\|b &lt;c>'
    """
    plain = clean_line(text).replace("&", "&amp;").replace("<", "&lt;")
    return plain.replace("|", "\\|").replace("`", "\\`").replace("[", "\\[")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table.

    >>> markdown_table(["model"], [["org/rm"]])
    ['| model |', '| --- |', '| org/rm |']
    """
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(markdown_text(cell) for cell in line) + " |" for line in lines]
