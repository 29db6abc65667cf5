"""Numbers, names and tables as text, the same on pages, in the terminal and in Markdown.

Text from data, models and files is cleaned before it is shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

NOTHING = "–"
_CLOSE = 1e-9  # relative: a p-value this close to its floor is at the floor
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


def count(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural if necessary.

    >>> count(1, "worker"), count(1200, "worker")
    ('1 worker', '1,200 workers')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


HUGE = 1e12
"""Numbers from here on are shown with a power of ten."""


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with up to ``digits`` decimals, and three significant digits beyond 1.

    Numbers that would be rounded to 0 are shown as below the smallest one, or as about 0 if negative. Huge ones
    are shown with a power of ten.

    >>> [number(value) for value in (0.12345, 0.0, 0.0002, -0.0002, 3.8123, 77.123, 1234.5, 1e60, None)]
    ['0.123', '0.000', '<0.001', 'about 0', '3.81', '77.1', '1,234', '1.00e+60', '–']
    """
    if value is None or math.isnan(value):
        return NOTHING
    size = abs(value)
    if size >= HUGE:
        return f"{value:.2e}"
    if size > 1:
        digits = min(digits, max(0, 2 - math.floor(math.log10(size))))
    least = 10.0**-digits
    if 0 < size < least / 2:
        return f"<{least:.{digits}f}" if value > 0 else "about 0"
    text = f"{value:,.{digits}f}"
    return text if float(text.replace(",", "")) else text.lstrip("-")


def signed(value: float | None, digits: int = 3) -> str:
    """Return a number with its sign; small ones as :func:`number` shows them.

    >>> [signed(value) for value in (0.1234, -0.5, 0.0, 0.0002)]
    ['+0.123', '-0.500', '0.000', '<0.001']
    """
    text = number(value, digits)
    return f"+{text}" if value is not None and value > 0 and text[0].isdigit() else text


def percent(fraction: float | None) -> str:
    """Return a fraction as a percentage: whole numbers, with a decimal below 1% and above 99%.

    >>> [percent(fraction) for fraction in (0.9, 0.2234, 0.996, 0.9999, 1.0, 0.004, 0.0)]
    ['90%', '22%', '99.6%', '>99.9%', '100%', '0.4%', '0%']
    """
    if fraction is None:
        return NOTHING
    if fraction in (0.0, 1.0):
        return f"{fraction:.0%}"
    if fraction > 0.99:
        return ">99.9%" if fraction >= 0.9995 else f"{fraction:.1%}"
    if fraction < 0.01:
        return "<0.1%" if fraction < 0.0005 else f"{fraction:.1%}"
    return f"{fraction:.0%}"


def points(row: Mapping[str, Any] | None, *, sign: bool = True, unit: str = "") -> str:
    """Return the value of a row as percentage points with its interval, if it has one.

    Without ``sign``, a negative value and its interval are shown without the sign.

    >>> points({"value": 0.678, "low": 0.64, "high": 0.72})
    '+68 [+64, +72]'
    >>> points({"value": 0.02, "low": -0.01, "high": 0.05})
    '+2.0 [-1.0, +5.0]'
    >>> points({"value": -0.138, "low": -0.17, "high": -0.11}, sign=False, unit=" points")
    '14 points [11, 17]'
    """
    if row is None or row["value"] is None:
        return NOTHING
    values = [row["value"], row.get("low"), row.get("high")]
    if not sign and row["value"] < 0:
        values = [None if value is None else -value for value in (values[0], values[2], values[1])]
    # One decimal for small gaps, and where an end of the interval would be rounded to 0.
    small = abs(row["value"]) < 0.0995 or any(value and abs(value) < 0.005 for value in values)
    digits = 1 if small else 0
    texts = [None if value is None else _points(value, digits, sign=sign) for value in values]
    return f"{texts[0]}{unit}" + ("" if texts[1] is None else f" [{texts[1]}, {texts[2]}]")


def _points(value: float, digits: int, *, sign: bool) -> str:
    form = ".2e" if abs(100 * value) >= HUGE else f".{digits}f"
    text = f"{100 * value:{'+' if sign else ''}{form}}"
    return text if float(text) else text.lstrip("+-")


def bracketed(row: Mapping[str, Any] | None, form: Callable[[float | None], str] = number) -> str:
    """Return the value of a row of metrics with its interval, if it has one.

    >>> bracketed({"value": 0.2, "low": 0.1, "high": 0.25}), bracketed({"value": 0.2, "low": None})
    ('0.200 [0.100, 0.250]', '0.200')
    """
    if row is None or row["value"] is None:
        return NOTHING
    limits = "" if row["low"] is None else f" [{form(row['low'])}, {form(row['high'])}]"
    return f"{form(row['value'])}{limits}"


def p_value(value: float | None, floor: float | None = None) -> str:
    """Return a p-value; ``floor`` is the smallest value that its number of draws allows.

    >>> p_value(0.25), p_value(1 / 201, 1 / 201), p_value(1 / 1001, 1 / 1001), p_value(1e-9)
    ('0.250', '<0.005', '<0.001', '<0.001')
    """
    if value is None:
        return NOTHING
    if floor is not None and value <= floor * (1 + _CLOSE):
        digits = -math.floor(math.log10(floor))
        # Rounded up to one significant digit, so that the statement is true.
        return "<" + f"{math.ceil(floor * 10**digits) / 10**digits:.{digits}f}".rstrip("0")
    return "<0.001" if value < 0.0005 else f"{value:.3f}"


def temperature_text(value: float | None) -> str:
    """Return a temperature with three significant digits.

    >>> [temperature_text(value) for value in (16.234, 0.0451, 0.0, math.inf, None)]
    ['16.2', '0.0451', '0', '∞', '–']
    """
    if value is None:
        return NOTHING
    return "∞" if math.isinf(value) else f"{value:.3g}"


def shortened(text: str, longest: int = 46) -> str:
    """Shorten a text in the middle, and replace characters that cannot be printed.

    >>> shortened("x" * 50, longest=9)
    'xxxx…xxxx'
    """
    half = (longest - 1) // 2
    short = text if len(text) <= longest else f"{text[:half]}…{text[len(text) - half :]}"
    return "".join(sign if sign.isprintable() else REPLACEMENT for sign in short)


def short_names(models: Iterable[str]) -> dict[str, str]:
    """Return a short name for each model: without its organisation where that stays unique.

    >>> short_names(["a/rm", "b/rm", "c/other"])
    {'a/rm': 'a/rm', 'b/rm': 'b/rm', 'c/other': 'other'}
    """
    names = list(models)
    last = [name.rpartition("/")[2] or name for name in names]
    return {
        name: shortened(short if last.count(short) == 1 else name, longest=40)
        for name, short in zip(names, last, strict=True)
    }


# An underscore inside a word, as in `lost_information`, is not markup.
_MARKUP = re.compile(r"[\\`*{}\[\]<>|#!~$&]|(?<![^\W_])_|_(?![^\W_])")
# A name after @ would be notified, and a bare address would become a link: an invisible sign prevents both.
_CALLS = re.compile(r"(?<!\w)@(?=\w)|\w(?=://)|\bwww(?=\.)")
_RULES = {"l": "---", "r": "---:"}


def markdown_text(text: object) -> str:
    r"""Return text on one line, with escapes, so that Markdown shows it unchanged.

    >>> print(markdown_text("a|b_c <script>\n*d*"))
    a\|b_c \<script\> \*d\*
    >>> ascii(markdown_text("@org, http://x.org"))
    "'@\\u2060org, http\\u2060://x.org'"
    """
    return _CALLS.sub("\\g<0>\u2060", _MARKUP.sub(r"\\\g<0>", clean_line(text)))


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


# The terminal


def open_console(*, stderr: bool = False, widest: int | None = None) -> Console:
    """Return a rich console that cleans everything it prints. All output for users goes through one.

    Square brackets are not markup, and numbers are not coloured. ``widest`` limits the width, so that text
    stays readable in a wide window.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class CleanConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(clean(segment.text), segment.style)

    console = CleanConsole(stderr=stderr, highlight=False, markup=False)
    if widest is not None and console.width > widest:
        console.width = widest
    return console


def print_table(
    terminal: Console,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    gap: int = 2,
    texts: bool = False,
    soft: Collection[int] = (),
) -> None:
    """Print a table without lines: a column of names, and columns of numbers, or of ``texts``.

    Names take several lines if the window is narrow; numbers are never cut or wrapped, so the table is at least 80
    characters wide. Headings may have several lines. ``gap`` is the number of spaces between columns, and
    ``soft`` are the rows that are drawn in a soft colour.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    # rich only shrinks columns that may wrap.
    listed = [[clean_line(name), *cells] for name, *cells in rows]
    least = min(NAME_WIDTH, max(map(cell_len, [header[0], *(row[0] for row in listed)])))
    table.add_column(header[0], overflow="fold", min_width=least)
    for name in header[1:]:
        table.add_column(name, justify="left" if texts else "right", no_wrap=not texts)
    for i, (name, *cells) in enumerate(listed):
        table.add_row(Text(name, overflow="fold"), *cells, style="dim" if i in soft else "")
    width = terminal.width
    numbers = [] if texts else range(1, len(header))
    lines = ([*header[column].split("\n"), *(row[column] for row in listed)] for column in numbers)
    terminal.width = max(80, width, least + gap + sum(gap + max(map(cell_len, cells)) for cells in lines))
    terminal.print(table, crop=False)
    terminal.width = width
