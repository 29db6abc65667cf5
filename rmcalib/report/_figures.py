"""Figures: each function takes a table and returns a matplotlib Figure; nothing is computed here."""

import io
import math
import warnings
from typing import TYPE_CHECKING

from rmcalib.metrics import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["figure_png", "reliability_figure"]

_BLUE, _GREY = "#2463a6", "#8a8f98"
_BAND_ALPHA = 0.25
# Of a panel, of the legend below, and left of the axes (room for counts of six digits), in inches.
_WIDTH, _HEIGHT, _LEGEND, _LEFT = 3.8, 4.5, 0.3, 0.88


def reliability_figure(table: Table, *, columns: int = 3) -> "Figure":
    """Draw reliability diagrams, one panel for each value of "panel", from ``reliability_table`` rows.

    Above, how often it came true against the mean probability of each bin, with the band in which a
    calibrated forecast's points would lie; below, how many forecasts fell into each bin.

    >>> from rmcalib.metrics import reliability_table
    >>> figure = reliability_figure(reliability_table([0.2, 0.8], [0, 1], panel="all"))
    >>> [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    ['all']
    """
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys(row["panel"] for row in table))
    n_columns = min(columns, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    width, height = _WIDTH * n_columns, _HEIGHT * n_rows + _LEGEND
    figure = Figure(figsize=(width, height), dpi=150)

    def place(left: float, bottom: float, wide: float, high: float) -> "Axes":
        # In inches: solving for a layout would take as long as all the drawing.
        return figure.add_axes((left / width, bottom / height, wide / width, high / height))

    wide = _WIDTH - _LEFT - 0.1
    for number, panel in enumerate(panels):
        rows = [row for row in table if row["panel"] == panel]
        left = _WIDTH * (number % n_columns) + _LEFT
        bottom = height - _HEIGHT * (1 + number // n_columns)
        diagram = place(left, bottom + 1.42, wide, _HEIGHT - 1.75)
        counts = place(left, bottom + 0.52, wide, 0.75)
        _draw_diagram(diagram, rows, panel)
        _draw_counts(counts, rows)
        if number % n_columns == 0:
            diagram.set_ylabel("how often it came true")
            counts.set_ylabel("forecasts")
            for axes in (diagram, counts):
                axes.yaxis.set_label_coords(-(_LEFT - 0.2) / wide, 0.5)
    # One legend for all panels, where it covers no point.
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        loc="lower left",
        bbox_to_anchor=((_LEFT - 0.07) / width, 0.0),
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    return figure


def figure_png(figure: "Figure") -> bytes:
    """Return a figure as the bytes of a PNG, the same ones for the same figure.

    >>> from matplotlib.figure import Figure
    >>> figure_png(Figure())[:4]
    b'\\x89PNG'
    """
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A category's name may be in letters that the font has not: the page has it in full.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _draw_diagram(axes: "Axes", rows: Table, title: str) -> None:
    x = [row["confidence"] for row in rows]
    axes.plot([0, 1], [0, 1], color=_GREY, linewidth=1, linestyle="--", zorder=1)
    axes.vlines(
        x,
        [row["band_low"] for row in rows],
        [row["band_high"] for row in rows],
        color=_BLUE,
        alpha=_BAND_ALPHA,
        linewidth=9,
        zorder=2,
        label="95% if calibrated",
    )
    axes.plot(
        x, [row["frequency"] for row in rows], "o-", color=_BLUE, markersize=4, zorder=3, label="observed"
    )
    axes.set_title(_title(title), loc="left", fontsize=11)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xticklabels([])
    axes.spines[["top", "right"]].set_visible(False)


def _draw_counts(axes: "Axes", rows: Table) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.bar(
        [row["low"] for row in rows],
        [row["count"] for row in rows],
        width=[row["high"] - row["low"] for row in rows],
        align="edge",
        color=_BLUE,
        alpha=0.55,
        edgecolor=axes.get_facecolor(),
    )
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("predicted probability")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    axes.spines[["top", "right"]].set_visible(False)


def _title(text: str, longest: int = 40) -> str:
    """Shorten a panel's name, and keep matplotlib from reading mathematics into it."""
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(sign if sign.isprintable() else "�" for sign in short).replace("$", r"\$")
