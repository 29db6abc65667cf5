"""Figures of the leaderboard with a line for every model: by calibration, by category, ranks compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib.metrics import OVERALL
from rmcalib.report._drawing import BAD, BLUE, GOOD, GREY, INK, plain_axes, short_names, shown
from rmcalib.report.leaderboard._words import metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rmcalib.report.leaderboard._board import Leaderboard

__all__ = ["best_figure", "calibration_figure", "heat_figure", "heat_words", "rank_figure", "rank_words"]

_ROW = 0.165  # inches a model takes
_MOST_NUMBERS = 60  # models whose numbers are written into the heat map; metrics.csv has them all


def best_figure(board: Leaderboard) -> Figure | None:
    """Draw the ten best calibrated models with their intervals."""
    return _forest(board, board.ranked[:10])


def calibration_figure(board: Leaderboard) -> Figure | None:
    """Draw all models by calibration, with intervals, best on top."""
    return _forest(board, board.ranked) if len(board.ranked) > 10 else None


def heat_figure(board: Leaderboard) -> Figure | None:
    """Draw each model's ECE by category as a heat map, best calibrated on top."""
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    categories = [c for c in board.categories if any(c in row["category_ece"] for row in board.ranked)]
    if not categories or "ece" not in {row["metric"] for row in board.metrics}:
        return None
    rows = [row for row in board.ranked if "ece" in row["values"]]
    columns = [OVERALL, *categories]
    table = np.array(
        [
            [row["values"]["ece"]["value"]]
            + [row["category_ece"][c]["value"] if c in row["category_ece"] else np.nan for c in categories]
            for row in rows
        ]
    )
    names = short_names(row["model"] for row in rows)
    figure, axes = _list_axes(list(names.values()), 1.15 * _ROW, 0.78 * len(columns), 0.3, 0.08)
    scale, colours = Normalize(0.0, _darkest(board)), colormaps["YlOrBr"]
    axes.pcolormesh(
        np.ma.masked_invalid(table), cmap=colours, norm=scale, edgecolors="#fefefe", linewidth=0.8
    )
    for (i, j), value in np.ndenumerate(table):
        if np.isfinite(value) and len(rows) <= _MOST_NUMBERS:
            ink = (
                "#ffffff" if scale(value) > 0.62 else "#000001"
            )  # not the page's ink: cells keep their colour
            axes.text(
                j + 0.5,
                i + 0.5,
                f"{value:.3f}",
                ha="center",
                va="center",
                fontsize=6.5,
                color=ink,
                in_layout=False,
            )
    axes.set_xticks(np.arange(len(columns)) + 0.5, [shown(c, 14) for c in columns], color=INK, fontsize=8)
    axes.xaxis.tick_top()
    axes.set_yticks(np.arange(len(rows)) + 0.5, [names[row["model"]] for row in rows], color=INK, fontsize=7)
    axes.tick_params(length=0)
    axes.invert_yaxis()
    axes.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def heat_words(board: Leaderboard) -> str:
    """Say what the colours of :func:`heat_figure` are, and where its numbers are if they are not in it."""
    told = (
        f"ECE of each model in each category, from 0 (lightest) to {_darkest(board):.3f} (darkest); the best "
        "calibrated model is on top. Small categories show larger errors by chance."
    )
    many = len(board.ranked) > _MOST_NUMBERS
    return told + (" All numbers are in metrics.csv." if many else "")


def _darkest(board: Leaderboard) -> float:
    """The ECE that the heat map's darkest colour stands for."""
    found = [row["values"]["ece"]["value"] for row in board.ranked if "ece" in row["values"]]
    found += [value["value"] for row in board.ranked for value in row["category_ece"].values()]
    return max(0.05, *found) if found else 0.05


def rank_figure(board: Leaderboard) -> Figure | None:
    """Draw how ranks change between accuracy, ECE and ECE after temperature (or score and error)."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    by, rows = _ranked_rows(board)
    if len(rows) < 2 or len(by) < 2:
        return None
    # Equal ranks are spread, so that every model has a line and a name.
    places = {key: _places([row["ranks"][key] for row in rows]) for key in by}
    names = short_names(row["model"] for row in rows)
    side = 0.15 + 0.056 * (4 + max(map(len, names.values())))  # inches of a name beside the lines
    step = 2.0
    figure = Figure(figsize=(2 * side + step * (len(by) - 1), 0.4 + _ROW * len(rows)), dpi=130)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    xs = list(range(len(by)))
    lines = [np.column_stack([xs, [places[key][i] for key in by]]) for i in range(len(rows))]
    shift = np.array([line[0, 1] - line[-1, 1] for line in lines])
    strong = np.abs(shift) >= _far(len(rows))
    colours = [GREY if not s else (GOOD if d > 0 else BAD) for s, d in zip(strong, shift, strict=True)]
    axes.add_collection(
        LineCollection(lines, colors=colours, linewidths=np.where(strong, 1.7, 0.8), alpha=0.85)
    )
    x, y = np.concatenate(lines).T
    axes.scatter(x, y, s=9, color=[c for c in colours for _ in by], zorder=3)
    for i, row in enumerate(rows):
        for place, beside, align in ((lines[i][0], -0.04, "right"), (lines[i][-1], 0.04, "left")):
            rank = row["ranks"][by[0] if align == "right" else by[-1]]
            text = f"{names[row['model']]}  {rank}" if align == "right" else f"{rank}  {names[row['model']]}"
            axes.text(
                place[0] + beside,
                place[1],
                text,
                fontsize=6.5,
                color=INK,
                ha=align,
                va="center",
                in_layout=False,
            )
    for x_, key in zip(xs, by, strict=True):
        axes.text(
            x_, -0.6, f"by {_by(key)}", fontsize=8.5, color=INK, ha="center", va="bottom", weight="bold"
        )
    axes.set_xlim(-side / step, len(by) - 1 + side / step)
    axes.set_ylim(len(rows) - 0.4, -2.0)
    return figure


def rank_words(board: Leaderboard) -> str:
    """Say what the lines and colours of :func:`rank_figure` are."""
    by, rows = _ranked_rows(board)
    if len(by) < 2:
        return ""
    far = math.ceil(_far(len(rows)))
    missing = " Ranks that are missing belong to models without all of these numbers."
    told = (
        f"Each line is a model, from its rank by {_by(by[0])} on the left to its rank by {_by(by[-1])} on "
        f"the right; 1 is best. Green: at least {far} places better on the right than on the left. Red: at "
        f"least {far} places worse. Grey: all others."
    )
    return told + (missing if len(rows) < len(board.models) else "")


def _ranked_rows(board: Leaderboard) -> tuple[list[str], list[Any]]:
    """What the figure of ranks compares, and the models that have all of it."""
    by = [key for key in dict.fromkeys(row["by"] for row in board.ranks) if key != "reference_top_1"]
    return by, [row for row in board.ranked if all(row["ranks"][key] is not None for key in by)]


def _far(n: int) -> float:
    """How many places make a change that stands out."""
    return max(3, 0.25 * n)


def _list_axes(names: list[str], row: float, plot: float, top: float, bottom: float) -> tuple[Figure, Axes]:
    """Axes with a line for each name to the left, measured in inches.

    The layout is reckoned from the names' lengths: for matplotlib to find it means drawing a list twice.
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
    names = short_names(row["model"] for row in rows)
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
    nulls = [row["values"].get("ece_null_95") for row in rows]
    label = metric_name(board.metric)
    if board.metric == "ece" and all(null is not None for null in nulls):
        axes.plot([null["value"] for null in nulls if null], places, "|", color=GREY, markersize=6)
        label += "  ( | : 95% point of a calibrated model)"
    axes.set_yticks(places, [names[row["model"]] for row in rows], color=INK, fontsize=7)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    return figure


def _places(ranks: list[int]) -> list[int]:
    order = np.argsort(ranks, kind="stable")
    places = np.empty(len(ranks), dtype=np.int64)
    places[order] = np.arange(len(ranks))
    return places.tolist()


def _by(key: str) -> str:
    return {"score": "score", "accuracy": "accuracy", "ece_at_temperature": "ECE at best T"}.get(
        key
    ) or metric_name(key)
