"""Figures: each function takes a table and returns a matplotlib Figure; nothing is computed here."""

import io
import math
import warnings
from typing import TYPE_CHECKING

from rmcalib.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["figure_png", "reliability_figure"]

_BLUE, _GREY = "#2463a6", "#8a8f98"
_BAND_ALPHA = 0.25


def reliability_figure(table: Table, *, columns: int = 3) -> "Figure":
    """Draw reliability diagrams, one panel for each value of "panel", from ``reliability_table`` rows.

    Above, how often it happened against the mean probability of each bin, with the band in which a
    calibrated forecast's points would lie; below, how many forecasts fell into each bin.

    >>> from rmcalib.report.tables import reliability_table
    >>> figure = reliability_figure(reliability_table([0.2, 0.8], [0, 1], panel="all"))
    >>> [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    ['all']
    """
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys(row["panel"] for row in table))
    n_columns = min(columns, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    figure = Figure(figsize=(3.6 * n_columns, 4.3 * n_rows), layout="constrained", dpi=150)
    grid = figure.subplots(
        2 * n_rows, n_columns, squeeze=False, gridspec_kw={"height_ratios": [3, 1] * n_rows}
    )
    for number, panel in enumerate(panels):
        rows = [row for row in table if row["panel"] == panel]
        place, column = 2 * (number // n_columns), number % n_columns
        _draw_diagram(grid[place][column], rows, panel)
        _draw_counts(grid[place + 1][column], rows)
        if column == 0:
            grid[place][0].set_ylabel("how often it happened")
            grid[place + 1][0].set_ylabel("forecasts")
    # One legend for all panels, where it covers no point.
    marks, names = grid[0][0].get_legend_handles_labels()
    figure.legend(marks, names, loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    for number in range(len(panels), n_rows * n_columns):
        place, column = 2 * (number // n_columns), number % n_columns
        grid[place][column].set_visible(False)
        grid[place + 1][column].set_visible(False)
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
    axes.spines[["top", "right"]].set_visible(False)


def _title(text: str, longest: int = 40) -> str:
    """Shorten a panel's name, and keep matplotlib from reading mathematics into it."""
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(sign if sign.isprintable() else "�" for sign in short).replace("$", r"\$")
