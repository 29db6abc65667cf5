"""Scatter plots with the names of models: calibration against scores, and the two protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib.report._drawing import BAD, BLUE, INK, TIP, plain_axes, scale_errors, shown, shown_names
from rmcalib.report._labels import label_points
from rmcalib.report.leaderboard._words import metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rmcalib.report.leaderboard._board import Leaderboard

__all__ = ["category_figure", "protocol_figure", "scatter_tips", "score_figure"]

Point = tuple[float, float, str, bool]  # x, y, model, not on a Bradley-Terry scale
_FEWEST = 3  # points: a plot of two models adds nothing to the table


def score_figure(board: Leaderboard) -> Figure | None:
    """Draw calibration against the score over all categories, with as many names as fit."""
    points = [
        (row["values"][board.metric]["value"], row["score"], row["model"], row["scale"] == "no")
        for row in board.ranked
        if row["score"] is not None
    ]
    if len(points) < _FEWEST:
        return None
    return _one(points, metric_name(board.metric), board.score_name, _coefficient(board, "leaderboard"))


def category_figure(board: Leaderboard, *, columns: int = 2) -> Figure | None:
    """Draw calibration against each category's score, one panel per category; None if there is only one."""
    from matplotlib.figure import Figure

    panels = []
    for category in board.categories:
        points = [
            (row["values"][board.metric]["value"], score, row["model"], row["scale"] == "no")
            for row in board.ranked
            if (score := row["category_scores"].get(category)) is not None
        ]
        if len(points) >= _FEWEST:
            panels.append((category, points))
    if len(panels) < 2:
        return None
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width, height = 4.4, 3.3
    figure = Figure(figsize=(width * columns + 0.1, height * rows + 0.1), dpi=130)
    inner = (width - 0.75, height - 0.85)
    for i, (category, points) in enumerate(panels):
        left = 0.55 + width * (i % columns)
        bottom = 0.5 + height * (rows - 1 - i // columns)
        axes = figure.add_axes(_share(left, bottom, *inner, figure))
        _scatter(axes, points, most=14)
        axes.set_title(
            f"{shown(category, 30)}   {_coefficient(board, category)}", loc="left", fontsize=9, color=INK
        )
        axes.set_xlabel(metric_name(board.metric))
    return figure


def protocol_figure(board: Leaderboard) -> Figure | None:
    """Draw the ECE of the exact protocol against the number that the reference protocol calls ECE."""
    points = [
        (
            row["values"]["ece"]["value"],
            row["values"]["reference_top_1"]["value"],
            row["model"],
            row["scale"] == "no",
        )
        for row in board.ranked
        if "ece" in row["values"] and "reference_top_1" in row["values"]
    ]
    if len(points) < _FEWEST:
        return None
    return _one(points, "exact: ECE", "reference: 1 − mean P(chosen)", "")


def scatter_tips(board: Leaderboard) -> dict[int, str]:
    """Return the tooltips of the points of every scatter plot: the full names of the models."""
    return {i: row["model"] for i, row in enumerate(board.ranked)}


def _one(points: Sequence[Point], x: str, y: str, title: str) -> Figure:
    from matplotlib.figure import Figure

    size, inner = (8.8, 5.8), (8.0, 4.9)
    figure = Figure(figsize=size, dpi=130)
    axes = figure.add_axes(_share(0.62, 0.55, *inner, figure))
    _scatter(axes, points, most=60)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if title:
        axes.set_title(title, loc="left", fontsize=9, color=INK)
    return figure


def _share(left: float, bottom: float, width: float, height: float, figure: Figure) -> Any:
    whole_width, whole_height = figure.get_size_inches()
    return (left / whole_width, bottom / whole_height, width / whole_width, height / whole_height)


def _scatter(axes: Axes, points: Sequence[Point], *, most: int) -> None:
    """Draw points with as many names as fit."""
    plain_axes(axes)
    values = np.array([point[:2] for point in points], dtype=np.float64)
    low, high = values.min(axis=0), values.max(axis=0)
    margin = np.where(high > low, 0.07 * (high - low), np.maximum(np.abs(high), 1) * 0.05)
    low, high = low - margin, high + margin
    if scale_errors(axes, values[:, 0].tolist()):
        low[0], high[0] = 0.0, high[0] * 1.5
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    for i, (x, y, _, off_scale) in enumerate(points):
        colour = BAD if off_scale else BLUE
        face = "none" if off_scale else colour
        # One artist per model, so that each has its own tooltip on the page.
        axes.plot(
            [x],
            [y],
            "o",
            markersize=4.5,
            markerfacecolor=face,
            markeredgecolor=colour,
            alpha=0.85,
            gid=f"{TIP}{i}",
        )
    order = _from_the_edges(values)
    names = shown_names(point[2] for point in points)
    labels = [names[points[i][2]][:34] for i in order[: max(most * 2, 40)]]
    label_points(axes, values[order], labels, most=most)


def _from_the_edges(values: Any) -> Any:
    """Order points from the edges inwards: the smallest and largest in either direction come first."""
    ranks = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable")
    from_edge = np.minimum(ranks, len(values) - 1 - ranks).min(axis=1)
    return np.argsort(from_edge, kind="stable")


def _coefficient(board: Leaderboard, target: str) -> str:
    row = next((r for r in board.correlations if r["target"] == target and r["metric"] == board.metric), None)
    if row is None or row["value"] is None:
        return ""
    sign = {"kendall": "τ", "spearman": "ρ", "pearson": "r"}[row["method"]]
    return f"{sign} = {row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
