"""Print text and tables on a terminal. Text from data, models and files is cleaned first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


REPLACEMENT = "�"
NAME_WIDTH = 12
# C0 and C1 controls (ESC and OSC start escape sequences), lone surrogates, and characters that change the
# direction of text or start a new line.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    r"""Replace control characters, bidirectional overrides and lone surrogates by `�`; keep `\n` and `\t`.

    >>> clean("a\x1b[31mb\u202ec\nd")
    'a�[31mb�c\nd'
    """
    return _UNSAFE.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def clean_line(text: object) -> str:
    r"""Return `clean` text on one line, with single spaces.

    >>> clean_line("two\n  lines\x9b")
    'two lines�'
    """
    return clean(" ".join(str(text).split()))


def count(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, in the plural if necessary.

    >>> count(1, "worker"), count(1200, "worker"), count(2, "pass", "passes")
    ('1 worker', '1,200 workers', '2 passes')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def open_console(*, stderr: bool = False, widest: int | None = None) -> Console:
    """Return a rich console that cleans everything it prints. All output for users goes through one.

    Square brackets are not markup, and numbers are not coloured. ``widest`` limits the width, so that text
    stays readable in a wide window.
    """
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class CleanConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(clean(segment.text), segment.style)

    found = CleanConsole(stderr=stderr, highlight=False, markup=False)
    if widest is not None and found.width > widest:
        found.width = widest
    return found


def table(first: str, *numbers: str, title: str | None = None, gap: int = 2) -> Table:
    """Return a table without lines: a column of names, and columns of numbers.

    Names are shortened if the window is narrow; numbers are never cut or wrapped. Headings may have several
    lines. ``gap`` is the number of spaces between columns.
    """
    from rich.table import Table

    found = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), title=title, title_justify="left")
    # rich only shrinks columns that may wrap.
    found.add_column(first, overflow="ellipsis", min_width=NAME_WIDTH)
    for name in numbers:
        found.add_column(name, justify="right", no_wrap=True)
    return found


def add_row(rows: Table, name: str, *numbers: str, style: str = "") -> None:
    """Add a row to a :func:`table`; a name that is too long is shortened, not wrapped."""
    from rich.text import Text

    rows.add_row(Text(clean_line(name), no_wrap=True, overflow="ellipsis"), *numbers, style=style)


def print_table(terminal: Console, rows: Table, *, least: int = 80) -> None:
    """Print a table at least ``least`` characters wide. In a narrow window, its rows wrap."""
    width = terminal.width
    terminal.width = max(least, width)
    terminal.print(rows, crop=False)
    terminal.width = width
