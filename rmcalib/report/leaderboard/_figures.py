"""The figures of a leaderboard: each function takes a leaderboard and returns a Figure, or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.display import number
from rmcalib.report._confidence import says_right_figure
from rmcalib.report._drawing import BAD, BLUE, GOOD, GREY, INK, plain_axes, shown, shown_names
from rmcalib.report.leaderboard._lists import best_figure, calibration_figure, heat_figure, rank_figure
from rmcalib.report.leaderboard._scatter import category_figure, protocol_figure, score_figure
from rmcalib.report.leaderboard._training import training_figure
from rmcalib.report.leaderboard._words import metric_name, target_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rmcalib.report.leaderboard._board import Leaderboard

__all__ = ["FIGURES", "draw_figures", "drawn_correlations"]

_COLOURS = (BLUE, GOOD, BAD, INK)
_MARKERS = ("o", "s", "^", "D")
_LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (6, 1)), (0, (1, 1)))


def draw_figures(board: Leaderboard) -> dict[str, Figure]:
    """Draw every figure that the board has data for."""
    drawn = {name: draw(board) for name, draw in FIGURES.items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def drawn_correlations(board: Leaderboard) -> list[dict[str, Any]]:
    """Return the rows that `correlation_figure` draws: split correlations, or else those of one method."""
    split = [row for row in board.split_correlations if row["value"] is not None]
    method = board.correlations[0]["method"] if board.correlations else ""
    return split or [
        row for row in board.correlations if row["value"] is not None and row["method"] == method
    ]


def correlation_figure(board: Leaderboard) -> Figure | None:
    """Draw the coefficients with their intervals: one line per target, one colour and marker per error."""
    rows = drawn_correlations(board)
    if not rows:
        return None
    targets = list(dict.fromkeys(row["target"] for row in rows))
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    figure = _figure(7.2, 0.9 + len(targets) * (0.2 + 0.13 * len(metrics)))
    axes = figure.subplots()
    plain_axes(axes, grid="x")
    for j, metric in enumerate(metrics):
        mine = {row["target"]: row for row in rows if row["metric"] == metric}
        places = [i + 0.2 * (j - (len(metrics) - 1) / 2) for i, t in enumerate(targets) if t in mine]
        found = [mine[t] for t in targets if t in mine]
        colour = _COLOURS[j % len(_COLOURS)]
        axes.hlines(
            places, [r["low"] for r in found], [r["high"] for r in found], color=colour, linewidth=1.6
        )
        axes.plot(
            [r["value"] for r in found],
            places,
            _MARKERS[j % len(_MARKERS)],
            color=colour,
            markersize=5,
            label=metric_name(metric),
        )
        for place, row in zip(places, found, strict=True):
            if len(metrics) == 1:
                axes.annotate(
                    f"{row['value']:.2f}",
                    (row["value"], place),
                    (0, 6),
                    textcoords="offset points",
                    fontsize=7.5,
                    color=INK,
                    ha="center",
                )
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_yticks(
        range(len(targets)), [shown(target_name(board, t), 30) for t in targets], color=INK, fontsize=9
    )
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(targets) - 0.4, -0.6)
    low = min(0.0, *(row["low"] for row in rows))
    axes.set_xlim(low - 0.05, 1.02)
    signs = {"kendall": "Kendall's τ-b", "spearman": "Spearman's ρ", "pearson": "Pearson's r"}
    axes.set_xlabel(f"{signs[rows[0]['method']]}: positive if a smaller error comes with a better score")
    if len(metrics) > 1:
        _legend(figure, axes, len(metrics))
    return figure


def reliability_figure(board: Leaderboard) -> Figure | None:
    """Draw the reliability diagram of every model as small multiples, the best model first.

    All panels are in one set of axes, because a hundred axes would take a minute.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    curves: dict[str, list[Any]] = {}
    for row in board.reliability:
        curves.setdefault(row["model"], []).append((row["confidence"], row["frequency"], row["count"]))
    models = [row for row in board.ranked if row["model"] in curves and "ece" in row["values"]]
    if not models:
        return None
    many = len(models) > 40
    names = shown_names((row["model"] for row in models), longest=24 if many else 26)
    columns = min(8 if many else 6, len(models))
    lines = -(-len(models) // columns)
    wide, tall, size, font = 1.12, 1.36 if many else 1.32, 1.25 if many else 1.62, 5.4 if many else 6.4
    figure = Figure(figsize=(size * columns + 0.1, size * tall / wide * lines + 0.1), dpi=130)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(-0.06, wide * columns)
    axes.set_ylim(-tall * (lines - 1) - 0.08, tall - 0.06)
    frames, diagonals, paths, dots, sizes = [], [], [], [], []
    for i, row in enumerate(models):
        at = np.array([wide * (i % columns), -tall * (i // columns)])
        frames.append(at + np.array([[0, 1], [0, 0], [1, 0]]))
        diagonals.append(at + np.array([[0, 0], [1, 1]]))
        curve = np.array(curves[row["model"]])
        paths.append(at + curve[:, :2])
        dots.append(at + curve[:, :2])
        sizes.append(3 + 22 * np.sqrt(curve[:, 2] / curve[:, 2].max()))
        axes.text(at[0], at[1] + 1.11, names[row["model"]], fontsize=font, color=INK, va="bottom")
        axes.text(
            at[0],
            at[1] + 1.015,
            f"ECE {number(row['values']['ece']['value'])}",
            fontsize=font,
            color=GREY,
            va="bottom",
        )
    axes.add_collection(LineCollection(frames, colors=GREY, linewidths=0.7))
    axes.add_collection(LineCollection(diagonals, colors=GREY, linewidths=0.6, linestyles="dashed"))
    axes.add_collection(LineCollection(paths, colors=BLUE, linewidths=1.1))
    x, y = np.concatenate(dots).T
    axes.scatter(x, y, s=np.concatenate(sizes), color=BLUE, alpha=0.6, linewidths=0)
    return figure


def rejection_figure(board: Leaderboard) -> Figure | None:
    """Draw accuracy against the fraction of the least confident prompts that is dropped; name some models."""
    from matplotlib.collections import LineCollection

    curves: dict[str, list[tuple[float, float]]] = {}
    for row in board.rejection:
        curves.setdefault(row["model"], []).append((row["rejected"], row["accuracy"]))
    models = [row["model"] for row in board.ranked if row["model"] in curves]
    if not models:
        return None
    accurate = sorted(models, key=lambda name: -curves[name][0][1])
    named = list(dict.fromkeys([*models[:2], *accurate[:2], *models[-1:], *accurate[-1:]]))
    names = shown_names(models)
    figure = _figure(7.6, 4.6)
    axes = figure.subplots()
    plain_axes(axes, grid="y")
    axes.add_collection(
        LineCollection(
            [curves[name] for name in models if name not in named], colors=GREY, linewidths=0.6, alpha=0.45
        )
    )
    for i, name in enumerate(named):
        x, y = zip(*curves[name], strict=True)
        axes.plot(x, y, linestyle=_LINES[i], color=_COLOURS[i % 3], linewidth=1.8, label=names[name])
    axes.set_xlim(0, 0.96)
    axes.autoscale(axis="y")
    axes.set_xlabel("fraction of prompts dropped, the least confident first")
    axes.set_ylabel("accuracy on the rest")
    _legend(figure, axes, 2)
    return figure


FIGURES: dict[str, Callable[[Leaderboard], Figure | None]] = {
    "training": lambda board: training_figure(board.training),
    "says_right": lambda board: says_right_figure(board.metrics),
    "best": best_figure,
    "calibration": calibration_figure,
    "correlation": correlation_figure,
    "scores": score_figure,
    "categories": category_figure,
    "heatmap": heat_figure,
    "reliability": reliability_figure,
    "ranks": rank_figure,
    "rejection": rejection_figure,
    "protocols": protocol_figure,
}
"""Every figure, by the name of its file."""


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=130, layout="constrained")


def _legend(figure: Figure, axes: Axes, columns: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper left", ncols=columns, frameon=False, fontsize=7.5, labelcolor=INK
    )
