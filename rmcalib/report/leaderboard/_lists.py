"""Figures of the leaderboard with one line per model: calibration, categories, changes of rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.display import number
from rmcalib.metrics import OVERALL
from rmcalib.report._drawing import (
    BAD,
    BLUE,
    GOOD,
    GREY,
    INK,
    PAPER,
    plain_axes,
    scale_errors,
    shown,
    shown_names,
)
from rmcalib.report.leaderboard._words import metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rmcalib.report.leaderboard._board import Leaderboard

__all__ = ["best_figure", "calibration_figure", "heat_figure", "heat_words", "rank_figure", "rank_words"]

_ROW = 0.165  # inches per model
_MOST_NUMBERS = 60  # models: with more, the heat map has no numbers; metrics.csv has all of them


def best_figure(board: Leaderboard) -> Figure | None:
    """Draw the ten best models with their intervals."""
    return _forest(board, board.ranked[:10])


def calibration_figure(board: Leaderboard) -> Figure | None:
    """Draw all models with their intervals, the best on top."""
    return _forest(board, board.ranked) if len(board.ranked) > 10 else None


def heat_figure(board: Leaderboard) -> Figure | None:
    """Draw the ECE of each model by category as a heat map, the best model on top; None for one category."""
    import pandas
    import seaborn

    categories = [c for c in board.categories if any(c in row["category_ece"] for row in board.ranked)]
    if len(categories) < 2 or "ece" not in {row["metric"] for row in board.metrics}:
        return None
    rows = [row for row in board.ranked if "ece" in row["values"]]
    names = shown_names(row["model"] for row in rows)
    columns = [OVERALL, *categories]
    frame = pandas.DataFrame(
        [[row["values"]["ece"]["value"], *(_category_ece(row, c) for c in categories)] for row in rows],
        index=[names[row["model"]] for row in rows],
        columns=[shown(c, 14) for c in columns],
    )
    figure, axes = _list_axes(list(names.values()), 1.15 * _ROW, 0.78 * len(columns), 0.3, 0.08)
    seaborn.heatmap(
        frame,
        annot=frame.map(lambda value: "" if np.isnan(value) else number(value))
        if len(rows) <= _MOST_NUMBERS
        else None,
        fmt="",
        annot_kws={"fontsize": 6.5, "in_layout": False},
        cmap="YlOrBr",
        vmin=0.0,
        vmax=_darkest(board),
        cbar=False,
        linewidths=0.8,
        linecolor=PAPER,
        # Seaborn's check for overlapping labels takes a gigabyte for a hundred models.
        xticklabels=False,
        yticklabels=False,
        ax=axes,
    )
    axes.set_xticks(np.arange(len(columns)) + 0.5, list(frame.columns))
    axes.set_yticks(np.arange(len(rows)) + 0.5, list(frame.index))
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", length=0, labelsize=8, labelcolor=INK)
    axes.tick_params(axis="y", length=0, labelsize=7, labelcolor=INK)
    axes.patch.set_visible(False)
    return figure


def _category_ece(row: Any, category: str) -> float:
    return float(row["category_ece"][category]["value"]) if category in row["category_ece"] else np.nan


def heat_words(board: Leaderboard) -> str:
    """Return the caption of :func:`heat_figure`."""
    words = (
        f"ECE of each model in each category, from 0 (lightest) to {number(_darkest(board))} (darkest), in "
        "the order of the first table. Small categories show larger errors by chance."
    )
    many = len(board.ranked) > _MOST_NUMBERS
    return words + (" All numbers are in metrics.csv." if many else "")


def _darkest(board: Leaderboard) -> float:
    """The ECE of the heat map's darkest colour."""
    found = [row["values"]["ece"]["value"] for row in board.ranked if "ece" in row["values"]]
    found += [value["value"] for row in board.ranked for value in row["category_ece"].values()]
    return max(0.05, *found) if found else 0.05


def rank_figure(board: Leaderboard) -> Figure | None:
    """Draw how ranks change between accuracy, the metric and the ECE (or score and error)."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    by, rows = _ranked_rows(board)
    if len(rows) < 2 or len(by) < 2:
        return None
    # Equal ranks are spread, so that every model has a line and a name. Models without a rank come last.
    places = {key: _places([row["ranks"][key] or math.inf for row in rows]) for key in by}
    names = shown_names(row["model"] for row in rows)
    side = 0.15 + 0.056 * (4 + max(map(len, names.values())))  # inches of a name beside the lines
    step = 2.0
    figure = Figure(figsize=(2 * side + step * (len(by) - 1), 0.4 + _ROW * len(rows)), dpi=130)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    ranked = [row["ranks"][by[-1]] is not None for row in rows]
    # The line of a model without a rank on the right ends before it.
    lines = [
        np.array([(x, places[key][i]) for x, key in enumerate(by if ranked[i] else by[:-1])])
        for i in range(len(rows))
    ]
    shift = _places_gained(rows, by)
    far = _far(sum(ranked))
    colours = [GREY if abs(d) < far else (GOOD if d > 0 else BAD) for d in shift]
    dashes = ["--" if d <= -far else "-" for d in shift]
    widths = [0.8 if abs(d) < far else 1.7 for d in shift]
    axes.add_collection(
        LineCollection(lines, colors=colours, linewidths=widths, linestyles=dashes, alpha=0.85)
    )
    x, y = np.concatenate(lines).T
    dots = [colour for colour, line in zip(colours, lines, strict=True) for _ in line]
    axes.scatter(x, y, s=9, color=dots, zorder=3)
    text: dict[str, Any] = {"fontsize": 6.5, "va": "center", "in_layout": False}
    last = len(by) - 1
    for i, row in enumerate(rows):
        name, first = names[row["model"]], row["ranks"][by[0]]
        axes.text(-0.04, places[by[0]][i], f"{name}  {first}", color=INK, ha="right", **text)
        label = f"{row['ranks'][by[-1]]}  {name}" if ranked[i] else f"–  {name}"
        colour = INK if ranked[i] else GREY
        axes.text(last + 0.04, places[by[-1]][i], label, color=colour, ha="left", **text)
    for x_, key in enumerate(by):
        axes.text(
            x_, -0.6, f"by {_by(key)}", fontsize=8.5, color=INK, ha="center", va="bottom", weight="bold"
        )
    axes.set_xlim(-side / step, last + side / step)
    axes.set_ylim(len(rows) - 0.4, -2.0)
    return figure


def rank_words(board: Leaderboard) -> str:
    """Return the caption of :func:`rank_figure`."""
    by, rows = _ranked_rows(board)
    if len(by) < 2:
        return ""
    ranked = sum(row["ranks"][by[-1]] is not None for row in rows)
    far = math.ceil(_far(ranked))
    words = (
        f"Each line is a model, from its rank by {_by(by[0])} on the left to its rank by {_by(by[-1])} on "
        f"the right; 1 is best. Thick and solid (green): at least {far} places better on the right. Thick "
        f"and dashed (red): at least {far} places worse. Thin: all others."
    )
    if ranked < len(rows):
        words += (
            f" Models with a dash have no rank by {_by(by[-1])}: these prompts do not show that their "
            "rewards have usable information. At a high temperature such rewards give a uniform guess, whose "
            "ECE is near 0."
        )
    if len(rows) < len(board.models):
        words += " Models without all of these numbers are left out."
    return words


def _ranked_rows(board: Leaderboard) -> tuple[list[str], list[Any]]:
    """The ranks that the figure compares, and the models that have all these numbers."""
    by = [key for key in dict.fromkeys(row["by"] for row in board.ranks) if key != "reference_top_1"]
    # A model may have an ECE at the best temperature, but no rank by it.
    return by, [
        row
        for row in board.ranked
        if all(row["ranks"][key] is not None or (key == by[-1] and key in row["values"]) for key in by)
    ]


def _places_gained(rows: list[Any], by: list[str]) -> list[int]:
    """How many places each model is better by the last way of ranking, among the models that have both."""
    both = [i for i, row in enumerate(rows) if row["ranks"][by[-1]] is not None]
    before, after = (_places([rows[i]["ranks"][key] for i in both]) for key in (by[0], by[-1]))
    gained = [0] * len(rows)
    for i, first, second in zip(both, before, after, strict=True):
        gained[i] = first - second
    return gained


def _far(n: int) -> float:
    """The smallest change of rank that is highlighted."""
    return max(3, 0.25 * n)


def _list_axes(names: list[str], row: float, plot: float, top: float, bottom: float) -> tuple[Figure, Axes]:
    """Axes with one line per name, names on the left; sizes are in inches.

    The layout is computed from the lengths of the names, because matplotlib's layout engine draws twice.
    """
    from matplotlib.figure import Figure

    left = 0.15 + 0.058 * max(map(len, names))
    width, height = left + plot + 0.15, top + bottom + row * len(names)
    figure = Figure(figsize=(width, height), dpi=130)
    axes = figure.add_axes((left / width, bottom / height, plot / width, row * len(names) / height))
    return figure, axes


def _forest(board: Leaderboard, rows: list[Any]) -> Figure | None:
    if not rows:
        return None
    names = shown_names(row["model"] for row in rows)
    found = [row["values"][board.metric] for row in rows]
    figure, axes = _list_axes(list(names.values()), 1.15 * _ROW, 4.9, 0.1, 0.5)
    plain_axes(axes, grid="x")
    places = np.arange(len(rows))
    for colour, hollow in ((BLUE, False), (BAD, True)):
        mine = [i for i, row in enumerate(rows) if (row["scale"] == "no") is hollow]
        known = [i for i in mine if found[i]["low"] is not None]
        low, high = [found[i]["low"] for i in known], [found[i]["high"] for i in known]
        axes.hlines(known, low, high, color=colour, linewidth=1.6, alpha=0.7)
        values, face = [found[i]["value"] for i in mine], "none" if hollow else colour
        axes.plot(values, mine, "o", markersize=4, markerfacecolor=face, markeredgecolor=colour)
    hollow_ones = any(row["scale"] == "no" for row in rows)
    nulls = [row["values"].get("ece_null_95") for row in rows]
    label = (
        f"{metric_name(board.metric)} (hollow: not on a Bradley-Terry scale)"
        if hollow_ones
        else metric_name(board.metric)
    )
    if board.metric == "ece" and all(null is not None for null in nulls):
        axes.plot([null["value"] for null in nulls if null], places, "|", color=GREY, markersize=6)
        label += "  ( | : 95th percentile of a calibrated model)"
    axes.set_yticks(places, [names[row["model"]] for row in rows], color=INK, fontsize=7)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    scale_errors(axes, [one["value"] for one in found])
    if not board.metric.endswith("overconfidence"):
        axes.set_xlim(left=0)
    axes.set_xlabel(label)
    return figure


def _places(ranks: Sequence[float]) -> list[int]:
    """Places 0, 1, ... in the order of ranks; equal ranks keep the order of the models."""
    order = np.argsort(ranks, kind="stable")
    places = np.empty(len(ranks), dtype=np.int64)
    places[order] = np.arange(len(ranks))
    return places.tolist()


def _by(key: str) -> str:
    return {"score": "score", "accuracy": "accuracy"}.get(key) or metric_name(key)
