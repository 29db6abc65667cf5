"""Figures of the gap: confidence against accuracy of models, and the gap of groups of prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib.metrics import OVERALL, Table
from rmcalib.report._drawing import BAD, BLUE, GREY, INK, LINE, TIP, plain_axes, shown, shown_names
from rmcalib.report._headline import direction, leaves_out_zero
from rmcalib.report._labels import label_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["groups_figure", "says_right_figure", "says_right_points"]

_NEITHER = "no more than chance explains"
# Shape and colour both show the direction.
_STYLES = {"over-confident": ("v", BAD), "under-confident": ("^", BLUE), _NEITHER: ("o", GREY)}
_MOST_LABELS = 40


def says_right_figure(table: Table) -> Figure | None:
    """Draw what each model says (mean confidence) against how often it is right (accuracy).

    Each model is one point, with intervals in both directions.

    Parameters
    ----------
    table : Table
        Tidy rows (model, category, metric, value, low, high) of `mean_confidence`, `accuracy` and
        `overconfidence`, for one model or many; other rows are ignored.

    Returns
    -------
    matplotlib Figure or None
        None if no model has both numbers.

    Examples
    --------
    >>> rows = [{"model": "m", "category": "overall", "metric": name, "value": value, "low": value - 0.1,
    ...          "high": value + 0.1} for name, value in [("mean_confidence", 0.8), ("accuracy", 0.5)]]
    >>> axes = says_right_figure(rows).axes[0]
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('says: mean probability of its first choice', 'right: accuracy of its first choice')
    """
    import pandas
    import seaborn
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    points = says_right_points(table)
    if not points:
        return None
    figure = Figure(figsize=(6.8, 6.8), dpi=130)
    axes = figure.add_axes((0.11, 0.08, 0.86, 0.86))
    plain_axes(axes)
    _draw_halves(axes)
    for point in points:
        for name, draw, other in (("x", axes.hlines, "y"), ("y", axes.vlines, "x")):
            low, high = point[f"{name}_low"], point[f"{name}_high"]
            if low is not None:
                draw(point[other], low, high, color=GREY, linewidth=0.8, alpha=0.7)
    frame = pandas.DataFrame(points)
    for i, (kind, x, y) in enumerate(zip(frame.kind, frame.x, frame.y, strict=True)):
        # One artist per model, so that each has its own tooltip on the page.
        marker, colour = _STYLES[kind]
        axes.plot([x], [y], marker, color=colour, markersize=6.5, gid=f"{TIP}{i}", zorder=4)
    seaborn.scatterplot(
        frame,
        x="x",
        y="y",
        style="kind",
        hue="kind",
        markers={kind: marker for kind, (marker, _) in _STYLES.items()},
        palette={kind: colour for kind, (_, colour) in _STYLES.items()},
        hue_order=[kind for kind in _STYLES if (frame.kind == kind).any()],
        style_order=[kind for kind in _STYLES if (frame.kind == kind).any()],
        s=44,
        linewidth=0,
        ax=axes,
    )
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_xlabel("says: mean probability of its first choice")
    axes.set_ylabel("right: accuracy of its first choice")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axis.label.set(color=INK, fontsize=9)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, frameon=False, fontsize=8, labelcolor=INK)
    names = shown_names(point["model"] for point in points)
    # The largest gaps are labelled first. Labels must not cover any point.
    order = sorted(points, key=lambda point: -abs(point["x"] - point["y"]))
    places = np.array([(point["x"], point["y"]) for point in order])
    labels = [names[point["model"]] for point in order]
    label_points(axes, places, labels, most=_MOST_LABELS, font=7.5 if len(order) <= 20 else 6.3, gap=0.08)
    return figure


def says_right_points(table: Table) -> list[dict[str, Any]]:
    """Return one row per model: x (says) and y (right) with their intervals, and the kind of its gap."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in table:
        if row["category"] == OVERALL and row["value"] is not None:
            found.setdefault(row["model"], {})[row["metric"]] = row
    points = []
    for model, rows in found.items():
        if "mean_confidence" in rows and "accuracy" in rows:
            says, right, gap = rows["mean_confidence"], rows["accuracy"], rows.get("overconfidence")
            sure = gap is not None and leaves_out_zero(gap)
            points.append(
                {
                    "model": model,
                    "x": says["value"],
                    "x_low": says["low"],
                    "x_high": says["high"],
                    "y": right["value"],
                    "y_low": right["low"],
                    "y_high": right["high"],
                    "kind": direction(says["value"] - right["value"]) if sure else _NEITHER,
                }
            )
    return points


def groups_figure(rows: Table) -> Figure | None:
    """Draw the gap of each group of prompts with its interval; None without rows.

    Rows are those of `rmcalib.metrics.audit`: group_by, group, n, gap, low, high, flagged.

    >>> row = {"group_by": "category", "group": "code", "n": 90, "gap": 0.12, "low": 0.05, "high": 0.19}
    >>> [text.get_text() for text in groups_figure([row | {"flagged": True}]).axes[0].get_yticklabels()]
    ['code (category)']
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    if not rows:
        return None
    names = [shown(f"{row['group']} ({row['group_by']})", 44) for row in rows]
    left, plot, row_height = 0.3 + 0.062 * max(map(len, names)), 4.6, 0.24
    width, height = left + plot + 0.2, 0.35 + 0.5 + row_height * len(rows)
    figure = Figure(figsize=(width, height), dpi=130)
    axes = figure.add_axes((left / width, 0.5 / height, plot / width, row_height * len(rows) / height))
    plain_axes(axes, grid="x")
    for i, row in enumerate(rows):
        colour = INK if not row["flagged"] else (BAD if row["gap"] > 0 else BLUE)
        marker = "o" if not row["flagged"] else ("v" if row["gap"] > 0 else "^")
        if row["low"] is not None:
            axes.hlines(i, row["low"], row["high"], color=colour, linewidth=1.6 if row["flagged"] else 0.9)
        face = colour if row["flagged"] else "none"
        axes.plot([row["gap"]], [i], marker, color=colour, markerfacecolor=face, markersize=6)
    axes.axvline(0, color=GREY, linewidth=0.9)
    axes.set_yticks(range(len(rows)), names, color=INK, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=""))
    axes.set_xlabel("gap in points: ← under-confident | over-confident →")
    return figure


def _draw_halves(axes: Axes) -> None:
    """Shade and label the two halves: below the diagonal models are over-confident."""
    axes.fill_between([0, 1], [0, 1], [0, 0], color=LINE, alpha=0.35, linewidth=0, zorder=0)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", zorder=1)
    options: dict[str, Any] = {"color": GREY, "fontsize": 10, "style": "italic", "zorder": 1}
    axes.text(0.98, 0.03, "over-confident: says more than it is right", ha="right", **options)
    axes.text(0.02, 0.96, "under-confident: right more than it says", ha="left", va="top", **options)
