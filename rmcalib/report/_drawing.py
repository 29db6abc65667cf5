"""Shared by all figures: the page's colours, short names, and figures as files.

Figures are drawn once, in the colours of the page's light theme. :func:`figure_svg` turns those colours into
the page's variables, so that the same drawing follows light and dark themes. PNG and PDF are for papers.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from rmcalib._util.display import short_names, shortened

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BAD",
    "BLUE",
    "GOOD",
    "GREY",
    "INK",
    "LINE",
    "PAPER",
    "TIP",
    "figure_bytes",
    "figure_png",
    "figure_svg",
    "plain_axes",
    "scale_errors",
    "shown",
    "shown_names",
]

INK, GREY, LINE, BLUE, BAD, GOOD = "#1c2430", "#5b6675", "#d9dee6", "#2463a6", "#a3352f", "#20714b"
_VARIABLES = {INK: "ink", GREY: "soft", LINE: "line", BLUE: "accent", BAD: "bad", GOOD: "good"}
PAPER = "#fefefe"  # becomes the page's background
_ID = re.compile(r'(\bid="|url\(#|href="#)')
TIP = "tip-"
_READABLE = 8.5  # pixels on a screen that the smallest letters need


def figure_bytes(figure: Figure, kind: str, *, transparent: bool = False) -> bytes:
    """Return a figure as the bytes of a "png", "pdf" or "svg" file; the same figure gives the same bytes.

    >>> from matplotlib.figure import Figure
    >>> figure_bytes(Figure(), "pdf")[:4]
    b'%PDF'
    """
    from matplotlib import rc_context

    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[kind]
    buffer = io.BytesIO()
    with warnings.catch_warnings(), rc_context({"svg.fonttype": "none", "svg.hashsalt": "rmcalib"}):
        # The font may lack some letters of a name; the page's table shows it in full.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        if figure.get_layout_engine() is not None:
            # The layout is the same in every format, so compute it once.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        # Pillow's default compression of tall figures takes as long as drawing, and saves a few per cent.
        quick: dict[str, Any] = {"pil_kwargs": {"compress_level": 2}} if kind == "png" else {}
        figure.savefig(buffer, format=kind, metadata=undated, transparent=transparent, **quick)
    return buffer.getvalue()


def figure_png(figure: Figure) -> bytes:
    """Return a figure as the bytes of a PNG file; the same figure gives the same bytes.

    Parameters
    ----------
    figure : Figure
        The figure.

    Returns
    -------
    bytes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> figure_png(Figure())[1:4]
    b'PNG'
    """
    return figure_bytes(figure, "png")


def figure_svg(figure: Figure, name: str, *, label: str, tips: Mapping[int, str] | None = None) -> Markup:
    """Return a figure as SVG for a page: in the page's colours, with unique ids, and with tooltips.

    ``tips`` are the tooltips of artists whose gid is ``tip-<number>``; they are escaped.

    >>> from matplotlib.figure import Figure
    >>> drawing = figure_svg(Figure(), "one", label="A & B")
    >>> drawing[:31], "http" in drawing
    (Markup('<svg role="img" aria-label="A &'), False)
    """
    from markupsafe import Markup, escape

    text = figure_bytes(figure, "svg", transparent=True).decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL
    )  # base.html styles it
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    # Use the page's font. Versions of matplotlib write the font in different ways.
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(r" ?font-family: [^;\"]*;?", "", text)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    assert size is not None
    # The page shows it large enough to read its smallest letters; on a small screen it scrolls sideways.
    smallest = min(map(float, re.findall(r"font-size: ([\d.]+)px", text)), default=_READABLE)
    head = (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {size[1]} {size[2]}" '
        f'style="--points:{float(size[1]):.0f};--least:{_READABLE / smallest:.2f}">'
    )
    text = head + text[text.index(">") + 1 :]
    text = _ID.sub(rf"\g<1>{name}-", text)
    for colour, variable in {**_VARIABLES, PAPER: "paper"}.items():
        text = text.replace(colour, f"var(--{variable})")
    for number, tip in (tips or {}).items():
        mark = f'<g id="{name}-{TIP}{number}">'
        text = text.replace(mark, f"{mark}<title>{escape(tip)}</title>")
    return Markup(re.sub(r"\n\s*", "\n", text))


def shown(text: str, longest: int = 46) -> str:
    """Shorten a text, and escape what matplotlib would read as mathematics.

    >>> shown("a$b"), shown("x" * 50, longest=9)
    ('a\\\\$b', 'xxxx…xxxx')
    """
    return shortened(text, longest).replace("$", r"\$")


def shown_names(models: Iterable[str], longest: int = 40) -> dict[str, str]:
    """Return a short name for each model (`short_names`), escaped for matplotlib.

    >>> shown_names(["org/a$b"])
    {'org/a$b': 'a\\\\$b'}
    """
    return {model: name.replace("$", r"\$") for model, name in short_names(models, longest).items()}


def plain_axes(axes: Axes, *, grid: Literal["", "x", "y"] = "") -> None:
    """Style axes: no box, soft colours, and grid lines along an axis if wanted."""
    for side in ("top", "right", *(("left",) if grid == "x" else ())):
        axes.spines[side].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(GREY)
    axes.patch.set_visible(False)
    axes.tick_params(colors=GREY, labelsize=8)
    axes.xaxis.label.set(color=INK, fontsize=9)
    axes.yaxis.label.set(color=INK, fontsize=9)
    axes.title.set_color(INK)
    if grid:
        axes.grid(axis=grid, color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)


def scale_errors(axes: Axes, values: Iterable[float]) -> bool:
    """Use a logarithmic x axis if a few errors are far larger than the others; return whether it is used."""
    found = sorted(values)
    skewed = bool(found) and found[0] >= 0 and found[-1] > max(1.0, 20 * found[len(found) // 2])
    if skewed:
        axes.set_xscale("symlog", linthresh=max(0.01, found[len(found) // 4]))
    return skewed
