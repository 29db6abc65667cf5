"""A neutral document: what a result says, before it is drawn as a page, on a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Block",
    "Cell",
    "Column",
    "Document",
    "Drawing",
    "Information",
    "Section",
    "Table",
    "Tile",
    "Words",
]


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
    """One cell of a table: its text, the number to sort by, a tone ("good", "bad", "soft") and a tooltip."""

    text: str
    value: float | None = None
    tone: str = ""
    tip: str = ""


@dataclass(frozen=True)
class Column:
    """The heading of a column, what it means, whether it holds text, and whether only pages have room for it."""

    label: str
    meaning: str = ""
    text: bool = False
    page_only: bool = False


@dataclass(frozen=True)
class Table:
    """A table. The first column names the rows. Sortable tables have buttons on the page."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    sortable: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure: a function that draws it, a text for those who cannot see it, and a caption."""

    name: str
    draw: Callable[[], Figure | None]
    label: str
    caption: str = ""


@dataclass(frozen=True)
class Information:
    """Kept + lost = usable information, as one bar."""

    kept: float
    usable: float


@dataclass(frozen=True)
class Words:
    """Paragraphs; as a list if ``listed``, as source text if ``verbatim``."""

    sentences: Sequence[str]
    listed: bool = False
    verbatim: bool = False


Block = Table | Drawing | Information | Words


@dataclass(frozen=True)
class Section:
    """A folded section. ``widget`` is a part of the page that a script fills: "slider" or "prompts".

    Terminal and Markdown show sections that are ``brief``.
    """

    name: str
    title: str
    blocks: Sequence[Block] = ()
    widget: str = ""
    brief: bool = False


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
        The rest of the first screen.
    sections : sequence of Section
        Details, folded on the page; left out on the terminal.
    notes : sequence of str
        Warnings and remarks.
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
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    footer: str = ""
    data: Mapping[str, Any] | None = field(default=None, repr=False)
