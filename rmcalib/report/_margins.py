"""Histograms of margins: the reward of the correct response minus that of the best wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmcalib.metrics import Table
from rmcalib.report._drawing import BAD, BLUE, INK, figure_svg, plain_axes, shown

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

__all__ = ["margin_figure", "margin_svg"]


def margin_figure(rows: Table, title: str) -> Figure:
    """Draw the histogram of one panel from rows of `margin_panels`; wrong choices, left of 0, are hatched.

    >>> rows = [{"low": -1.0, "high": 0.0, "count": 2}, {"low": 0.0, "high": 1.0, "count": 1}]
    >>> len(margin_figure(rows, "all").axes[0].patches)
    2
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(3.8, 2.3), dpi=150)
    axes = figure.add_axes((0.88 / 3.8, 0.52 / 2.3, 2.82 / 3.8, 1.45 / 2.3))
    plain_axes(axes)
    for right in (True, False):
        mine = [row for row in rows if (row["low"] + row["high"] > 0) is right]
        axes.bar(
            [row["low"] for row in mine],
            [row["count"] for row in mine],
            width=[0.92 * (row["high"] - row["low"]) for row in mine],
            align="edge",
            color=BLUE if right else "none",
            edgecolor=BLUE if right else BAD,
            linewidth=0.6,
            hatch=None if right else "//////",
        )
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_title(shown(title, 40), loc="left", fontsize=11, color=INK)
    axes.set_xlim(rows[0]["low"], rows[-1]["high"])
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.set_xlabel("margin of the correct response")
    axes.set_ylabel("prompts")
    axes.yaxis.set_label_coords(-0.68 / 2.82, 0.5)
    return figure


def margin_svg(table: Table, panel: str, *, name: str) -> Markup:
    """Return one panel as SVG for a page; ``name`` makes its ids unique."""
    rows = [row for row in table if row["panel"] == panel]
    right = sum(row["count"] for row in rows if row["low"] + row["high"] > 0)
    seen = f"{right:,} of {sum(row['count'] for row in rows):,} prompts right of zero"
    return figure_svg(margin_figure(rows, panel), name, label=f"Histogram of margins, {panel}: {seen}")
