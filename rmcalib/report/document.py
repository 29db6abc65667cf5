"""A neutral document of a result, and three ways to draw it: HTML, text for the terminal, Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rmcalib._util.display import bracketed, clean, markdown_table, markdown_text, open_console, print_table
from rmcalib._util.texts import script_json, source_hash

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure
    from rich.console import Console

_WIDEST = 110  # characters on a terminal
_MOST_ROWS = 20  # of a table on a terminal


@dataclass(frozen=True)
class Tile:
    """One number of the first screen: its name, value, interval and meaning. ``key`` names it for the slider."""

    name: str
    value: str
    interval: str = ""
    meaning: str = ""
    key: str = ""


@dataclass(frozen=True)
class Cell:
    """One cell of a table: its text, the number to sort by, a tone ("good", "bad", "soft") and a tooltip.

    ``short`` is its text on a terminal, if that is another one; ``note`` stands under it on a page, and so does a bar
    between the two fractions ``ends``, with a mark at the first.
    """

    text: str
    value: float | None = None
    tone: str = ""
    tip: str = ""
    short: str = ""
    note: str = ""
    ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class Column:
    """The heading of a column, what it means, and whether only pages have room for it."""

    label: str
    meaning: str = ""
    page_only: bool = False


@dataclass(frozen=True)
class Table:
    """A table. The first column names the rows. On a page, readers can sort it; ``legend`` explains its bars there."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    legend: str = ""

    @property
    def texts(self) -> list[bool]:
        """Which columns hold text: the first one, and those without numbers."""
        return [i == 0 or all(row[i].value is None for row in self.rows) for i in range(len(self.columns))]

    def narrow(self) -> Table:
        """Return the table without the columns that only pages have room for."""
        kept = [i for i, column in enumerate(self.columns) if not column.page_only]
        rows = [[row[i] for i in kept] for row in self.rows]
        return replace(self, columns=[self.columns[i] for i in kept], rows=rows)


Columns = dict[str | Column, Callable[[Any], Cell | str]]
"""The columns of a table: a heading, and a function from a row to its cell."""


def entry(key: str, form: Callable[[Any], str] = str) -> Callable[[Any], Cell]:
    """Return what makes a cell of one entry of a row; numbers are shown by ``form`` and sorted by value."""

    def cell(row: Any) -> Cell:
        value = row[key]
        return Cell(form(value), None if isinstance(value, str) else value)

    return cell


def ranged(key: str, form: Callable[[Any], str] = bracketed) -> Callable[[Any], Cell]:
    """Return what makes a cell of one entry of a row with the row's interval, low to high."""
    return lambda row: Cell(form({**row, "value": row[key]}), row[key])


def table_of(name: str, rows: Iterable[Any], columns: Columns, caption: str = "") -> Table:
    """Return a table of rows: each column has a heading, and a function from a row to its cell."""
    heads = [column if isinstance(column, Column) else Column(column) for column in columns]
    body = [
        [made if isinstance(made := cell(row), Cell) else Cell(made) for cell in columns.values()]
        for row in rows
    ]
    return Table(name, heads, body, caption)


@dataclass(frozen=True)
class Drawing:
    """A figure: a function that draws it, a text for those who cannot see it, and a caption.

    ``slider``: the page has a temperature under it, which moves its points.
    """

    name: str
    draw: Callable[..., Figure | None]
    label: str
    caption: str = ""
    slider: bool = False


@dataclass(frozen=True)
class Information:
    """Kept + lost = usable information, as one bar."""

    kept: float
    usable: float


@dataclass(frozen=True)
class Words:
    """A paragraph, or a list of several; source text if ``verbatim``."""

    sentences: Sequence[str]
    verbatim: bool = False


@dataclass(frozen=True)
class Step:
    """What to do next, and perhaps the command that does it."""

    words: str
    command: str = ""


Block = Table | Drawing | Information | Words


@dataclass(frozen=True)
class Section:
    """A section, folded unless it is ``open``. ``widget`` is a part of the page that a script fills: "prompts".

    Terminal and Markdown show sections that are ``brief``, and print the title of an open one.
    """

    name: str
    title: str
    blocks: Sequence[Block] = ()
    widget: str = ""
    brief: bool = False
    open: bool = False


def section_of(name: str, title: str, rows: Iterable[Any], columns: Columns, caption: str = "") -> Section:
    """Return a folded section with one table."""
    return Section(name, title, [table_of(title, rows, columns, caption)])


@dataclass(frozen=True)
class Document:
    """A result, ready to be drawn.

    Attributes
    ----------
    title, subtitle : str
        What this is about.
    sentences : sequence of str
        The result; the first one is the verdict.
    tiles : sequence of Tile
        The numbers of the first screen.
    first : sequence of Block
        The rest of the first screen; figures stand side by side.
    steps : sequence of Step
        What to do next.
    sections : sequence of Section
        Details, folded on the page; left out on the terminal.
    notes : sequence of str
        Warnings and remarks.
    links : mapping
        Names and addresses of further pages beside this one.
    footer : str
        How it was computed.
    data : mapping, optional
        What the page's script shows: prompts with their rewards.
    """

    title: str
    subtitle: str
    sentences: Sequence[str]
    tiles: Sequence[Tile] = ()
    first: Sequence[Block] = ()
    steps: Sequence[Step] = ()
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    footer: str = ""
    data: Mapping[str, Any] | None = field(default=None, repr=False)


# HTML.


def to_html(document: Document) -> str:
    """Return a page: one self-contained file without network access, under a strict content policy."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {source_hash(style)}; script-src {source_hash(script)}; base-uri 'none'; "
        "form-action 'none'"
    )
    template, data = _environment().get_template("page.html"), script_json(document.data)
    return template.render(document=document, policy=policy, style=style, script=script, data=data)


def to_fragment(document: Document) -> str:
    """Return the first screen for a notebook."""
    first = _environment().get_template("first.html").render(document=document)
    return f'<div class="rmcalib"><style>{_asset("page.css")}</style>{first}</div>'


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def without_controls(value: Any) -> Any:
        return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=PackageLoader("rmcalib.report"),
        autoescape=True,
        finalize=without_controls,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["svg"] = _svg
    return environment


def _svg(block: Drawing) -> Any:
    from rmcalib.report.figures import figure_svg

    figure = block.draw()
    return "" if figure is None else figure_svg(figure, block.name, clean(block.label))


@lru_cache
def _asset(name: str) -> str:
    return files("rmcalib.report").joinpath("templates", name).read_text(encoding="utf-8").strip()


# Terminal.


def print_document(document: Document) -> None:
    """Print a document: its sentences, the tables of the first screen and of brief sections, and notes."""
    from rich.text import Text

    console = open_console(widest=_WIDEST)
    console.print(Text(document.title, style="bold"))
    if document.subtitle:
        console.print(Text(document.subtitle, style="dim"))
    for i, sentence in enumerate(document.sentences):
        console.print(Text(sentence, style="bold" if i == 0 else ""))
    for block in document.first:
        _print_block(console, block)
    for section in document.sections:
        if section.open:
            console.print(Text(f"\n{section.title}", style="bold"))
        for block in section.blocks if section.brief else ():
            _print_block(console, block)
    for note in document.notes:
        console.print(Text(f"Note: {note}", style="dim"))
    for step in document.steps:
        console.print()
        console.print(Text(f"Next: {step.words}"))
        if step.command:
            console.print(Text(f"  {step.command}", style="bold"), soft_wrap=True)  # so that it can be copied


def _print_block(console: Console, block: Block) -> None:
    from rich.text import Text

    if isinstance(block, Words) and not block.verbatim:
        for sentence in block.sentences:
            console.print(Text(sentence))
    if not isinstance(block, Table) or not block.rows:
        return
    table = block.narrow()
    shown = table.rows[:_MOST_ROWS]
    texts = [[cell.short or cell.text for cell in row] for row in shown]
    heads = [
        _folded(column.label, [row[i] for row in texts]) if i else column.label
        for i, column in enumerate(table.columns)
    ]
    soft = [i for i, row in enumerate(shown) if row[0].tone == "soft"]
    console.print()
    print_table(console, heads, texts, gap=1, soft=soft)
    if table.caption:
        console.print(Text(table.caption, style="dim"))
    if len(table.rows) > _MOST_ROWS:
        console.print(Text(f"… and {len(table.rows) - _MOST_ROWS} more on the page", style="dim"))


def _folded(heading: str, cells: Sequence[str]) -> str:
    """Return a heading in lines no longer than the cells below it, if its words are no longer."""
    widest = max(map(len, [*heading.split(), *cells]))
    return "\n".join(wrap(heading, widest, break_on_hyphens=False))


# Markdown.


def to_markdown(document: Document, *, level: int = 1, sections: bool = False) -> str:
    """Return a document as Markdown: sentences, tables and notes; with ``sections`` the folded ones, too."""
    lines = [f"{'#' * level} {markdown_text(document.title)}", ""]
    if document.subtitle:
        lines += [markdown_text(document.subtitle), ""]
    lines += [markdown_text(" ".join(document.sentences)), ""]
    for block in document.first:
        lines += _markdown_block(block)
    for section in document.sections:
        if not (sections or section.brief):
            continue
        blocks = [line for block in section.blocks for line in _markdown_block(block)]
        if blocks:
            lines += [f"{'#' * (level + 1)} {markdown_text(section.title)}", "", *blocks]
    if document.notes:
        lines += [*(f"- {markdown_text(note)}" for note in document.notes), ""]
    if document.footer:
        lines += [markdown_text(document.footer), ""]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_block(block: Block) -> list[str]:
    if isinstance(block, Words) and not block.verbatim:
        start = "- " if len(block.sentences) > 1 else ""
        return [*(f"{start}{markdown_text(sentence)}" for sentence in block.sentences), ""]
    if not isinstance(block, Table) or not block.rows:
        return []
    table = block.narrow()
    align = "".join("l" if is_text else "r" for is_text in table.texts)
    caption = [markdown_text(block.caption), ""] if block.caption else []
    rows = [[cell.text for cell in row] for row in table.rows]
    return [*caption, *markdown_table([column.label for column in table.columns], rows, align=align), ""]
