"""Reliability diagrams: for files, for pages, and from arrays in one call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import ArrayLike

from rmcalib._util.arrays import check_choice
from rmcalib.calibration import Draw
from rmcalib.metrics import Table, isotonic_table, reliability_table
from rmcalib.report._drawing import BLUE, GREY, INK, TIP, figure_svg, plain_axes, shown

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["CURVES", "Curve", "plot_reliability", "reliability_figure", "reliability_svg"]

Curve = Literal["bins", "isotonic"]
CURVES: tuple[Curve, ...] = ("bins", "isotonic")
# Of a panel, of the legend below, and left of the axes (room for counts of six digits), in inches.
_WIDTH, _HEIGHT, _LEGEND, _LEFT = 3.8, 4.5, 0.3, 0.88
_FREQUENCY, _PROBABILITY = "observed frequency", "predicted probability"


def plot_reliability(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    bins: int = 10,
    curve: Curve = "bins",
    groups: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the reliability diagram of binary forecasts.

    It shows the observed frequency against the mean probability of each bin, with a band that contains 95% of
    the points of a calibrated forecast.

    Parameters
    ----------
    probabilities : array (N,)
        Predicted probabilities.
    outcomes : array (N,)
        1 where the event happened, else 0.
    bins : int
        Number of equal-width bins.
    curve : Curve
        "bins", or "isotonic" to add the isotonic (CORP) curve, which needs no bins: the increasing curve that
        fits the outcomes best.
    groups : array (N,), optional
        Prompt of each forecast, if exactly one outcome per prompt is 1; the band then accounts for it. By
        default forecasts are independent.
    ax : Axes, optional
        Axes to draw into; by default a new figure with the counts below the diagram.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> figure = plot_reliability([0.2, 0.3, 0.8, 0.9], [0, 0, 1, 1])
    >>> figure.axes[0].get_ylabel()
    'observed frequency'
    """
    draw: Draw = "independent" if groups is None else "one_per_group"
    rows = reliability_table(probabilities, outcomes, panel="", groups=groups, draw=draw, bins=bins)
    check_choice(curve, "curve", CURVES)
    line = isotonic_table(probabilities, outcomes, panel="") if curve == "isotonic" else []
    if ax is None:
        return reliability_figure(rows, line)
    _draw_diagram(ax, rows, line)
    ax.set_xlabel(_PROBABILITY)
    ax.set_ylabel(_FREQUENCY)
    return ax.figure.canvas.figure  # also if the axes are in a part of the figure


def reliability_figure(table: Table, curve: Table = (), *, columns: int = 3) -> Figure:
    """Draw reliability diagrams, one panel for each value of "panel".

    Parameters
    ----------
    table : Table
        Rows of `rmcalib.metrics.reliability_table` or `reliability_panels`.
    curve : Table
        Rows of `rmcalib.metrics.isotonic_table` or `isotonic_panels`, to draw isotonic curves as well.
    columns : int
        Largest number of panels side by side.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> figure = reliability_figure(reliability_table([0.2, 0.8], [0, 1], panel="all"))
    >>> [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    ['all']
    """
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys(row["panel"] for row in table))
    n_columns = min(columns, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    lines = 2 if curve and n_columns == 1 else 1
    width, height = _WIDTH * n_columns, _HEIGHT * n_rows + _LEGEND * lines
    figure = Figure(figsize=(width, height), dpi=150)
    for number, panel in enumerate(panels):
        corner = (_WIDTH * (number % n_columns), height - _HEIGHT * (1 + number // n_columns))
        _draw_panel(figure, corner, *_of(panel, table, curve), panel, named=number % n_columns == 0)
    # One legend for all panels, below them, where it covers no points.
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        loc="lower left",
        bbox_to_anchor=((_LEFT - 0.07) / width, 0.0),
        ncols=2 if n_columns == 1 else 3,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )
    return figure


def reliability_svg(table: Table, panel: str, curve: Table = (), *, name: str) -> Markup:
    """Return one panel as SVG for a page; ``name`` makes its ids unique."""
    from matplotlib.figure import Figure

    rows, line = _of(panel, table, curve)
    figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=150)
    _draw_panel(figure, (0.0, 0.0), rows, line, panel, named=True)
    seen = ", ".join(f"{row['confidence']:.2f} happened {row['frequency']:.2f}" for row in rows)
    tips = [
        f"{row['count']:,} forecasts of about {row['confidence']:.2f}: {row['frequency']:.2f} happened"
        for row in rows
    ]
    label = f"Reliability diagram, {panel}: predicted {seen}"
    return figure_svg(figure, name, label=label, tips=dict(enumerate(tips)))


def _of(panel: str, table: Table, curve: Table) -> tuple[Table, Table]:
    return [row for row in table if row["panel"] == panel], [row for row in curve if row["panel"] == panel]


def _draw_panel(
    figure: Figure, corner: tuple[float, float], rows: Table, curve: Table, title: str, *, named: bool
) -> None:
    """Draw a diagram with its counts below; ``corner`` and all sizes are in inches.

    Axes are placed by hand, because matplotlib's layout engine takes as long as all the drawing.
    """
    width, height = figure.get_size_inches()
    left, bottom = corner
    wide = _WIDTH - _LEFT - 0.1

    def place(low: float, high: float) -> Axes:
        return figure.add_axes(((left + _LEFT) / width, (bottom + low) / height, wide / width, high / height))

    diagram, counts = place(1.42, _HEIGHT - 1.75), place(0.52, 0.75)
    _draw_diagram(diagram, rows, curve)
    diagram.set_title(shown(title, 40), loc="left", fontsize=11, color=INK)
    diagram.set_xticklabels([])
    _draw_counts(counts, rows)
    if named:
        diagram.set_ylabel(_FREQUENCY)
        counts.set_ylabel("forecasts")
        for axes in (diagram, counts):
            axes.yaxis.set_label_coords(-(_LEFT - 0.2) / wide, 0.5)


def _draw_diagram(axes: Axes, rows: Table, curve: Table) -> None:
    plain_axes(axes)
    x, y = _column(rows, "confidence"), _column(rows, "frequency")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", zorder=1)
    axes.vlines(
        x,
        _column(rows, "band_low"),
        _column(rows, "band_high"),
        color=BLUE,
        alpha=0.25,
        linewidth=9,
        zorder=2,
        label="95% if calibrated",
    )
    axes.plot(x, y, "-", color=BLUE, linewidth=1.5, zorder=3)
    for i, point in enumerate(zip(x, y, strict=True)):
        axes.plot(*point, "o", color=BLUE, markersize=4, zorder=3, gid=f"{TIP}{i}")
    axes.plot([], [], "o-", color=BLUE, markersize=4, label="observed")
    if curve:
        axes.plot(
            _column(curve, "probability"),
            _column(curve, "frequency"),
            "-.",
            color=INK,
            linewidth=1.2,
            zorder=2.5,
            label="isotonic (no bins)",
        )
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)


def _draw_counts(axes: Axes, rows: Table) -> None:
    from matplotlib.ticker import MaxNLocator

    plain_axes(axes)
    axes.bar(
        _column(rows, "low"),
        _column(rows, "count"),
        width=[0.96 * (row["high"] - row["low"]) for row in rows],
        align="edge",
        color=BLUE,
        alpha=0.55,
    )
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel(_PROBABILITY)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_locator(MaxNLocator(2, integer=True))


def _column(rows: Table, name: str) -> Sequence[Any]:
    return [row[name] for row in rows]
