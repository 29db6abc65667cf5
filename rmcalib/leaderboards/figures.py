"""The paper's two figures of reward models: the most calibrated models, and what calibration correlates with.

`top_10_rows` and `correlated_rows` choose the rows of a leaderboard; the other functions draw rows and compute nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmcalib._util.display import short_names
from rmcalib.leaderboards.correlation import LEADERBOARD, SAME_PROMPTS, SPLIT_HALVES
from rmcalib.leaderboards.measure import Board
from rmcalib.metrics.catalogue import catalogue
from rmcalib.report.figures import BLUE, GREY, INK, Table, plain_axes, shown_text
from rmcalib.report.sentences import metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEWEST_MODELS = 10
"""With fewer models, neither figure is drawn, and correlations are not shown."""
SHOWN_MODELS = 10
"""How many models the first figure has."""
MOST_CATEGORIES = 12
"""How many categories pages and figures show; files have all."""
_WIDTH = 4.0  # inches: text of 8 points stays readable in a column of 3.3 inches
_SIZE = 8  # points
_DPI = 300
_LOOKS = {SPLIT_HALVES: (BLUE, 0.85), SAME_PROMPTS: (GREY, 0.55)}  # colour and opacity of bars
_OVERALL = (LEADERBOARD, "accuracy")  # targets that are not categories
_AXIS_NAMES = {"ece_score": "ece_score: 1 − mean P(chosen)"}


# The rows of a leaderboard.


def calibration_error(board: Board) -> str:
    """Return the error that the figures are about: what models are sorted by if that is an error, else the ECE."""
    metric = catalogue().get(board.metric)
    return "ece" if metric is not None and metric.better == "high" else board.metric


def error_name(metric: str) -> str:
    """Return the name of an error on an axis."""
    return shown_text(_AXIS_NAMES.get(metric, metric_name(metric)), 40)


def marks_of(row: Mapping[str, Any]) -> str:
    """Return the marks of a model: † not significantly better than a guess, * not on a Bradley-Terry scale."""
    guess, other_scale = row["better_than_guess"] is False, row.get("scale") in ("rating", "none")
    return f"{'†' if guess else ''}{'*' if other_scale else ''}"


def top_10_rows(board: Board) -> list[dict[str, Any]]:
    """Return the ten best models by the calibration error; none if there are fewer, or steps of one training.

    Rows have model, value, low, high and null_mean (the expected error of a calibrated model), which may be None, and
    the marks of `marks_of`.
    """
    error = calibration_error(board)

    def rank(row: Mapping[str, Any]) -> int | None:
        place: int | None = row["rank"] if error == board.metric else row["ranks"].get(error)
        return place

    ranked = sorted((row for row in board.models if rank(row) is not None), key=lambda row: rank(row) or 0)
    if len(ranked) < FEWEST_MODELS or board.training:
        return []
    names = short_names(row["model"] for row in board.models)
    rows = []
    for row in ranked[:SHOWN_MODELS]:
        null = row["values"].get(f"{error}_null_mean", {}).get("value")
        limits = {end: row["values"][error][end] for end in ("value", "low", "high")}
        rows.append({"model": names[row["model"]], **limits, "null_mean": null, "marks": marks_of(row)})
    return rows


def correlated_rows(board: Board) -> list[dict[str, Any]]:
    """Return the correlations of the calibration error with scores, from split halves first.

    In each part, the score over all categories comes first, then up to twelve categories, the largest correlation
    first.
    """
    if not top_10_rows(board):
        return []
    error, targets = calibration_error(board), {*_OVERALL, *board.categories[:MOST_CATEGORIES]}
    rows = [
        row
        for row in [*board.split_correlations, *board.correlations]
        if row["metric"] == error and row["target"] in targets and row["value"] is not None
    ]
    return sorted(
        rows, key=lambda row: (row["source"] == SAME_PROMPTS, row["target"] not in _OVERALL, -row["value"])
    )


# Figures.


def top_10_figure(rows: Table, *, error: str = "ece", n_models: int) -> Figure:
    """Draw the most calibrated models, the best first.

    Parameters
    ----------
    rows : rows of model, value, low, high, null_mean
        Up to ten models. An interval (low, high), and the expected error of a calibrated model (null_mean), are
        drawn where they are not None. The text ``marks`` is added to the name, if there is one.
    error : str
        The metric.
    n_models : int
        From how many models these are.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> rows = [{"model": "org/rm", "value": 0.02, "low": 0.01, "high": 0.03, "null_mean": 0.01}]
    >>> top_10_figure(rows, n_models=12).axes[0].get_xlabel()
    'ECE (all responses)'
    """
    figure = _figure(1.1 + 0.22 * len(rows))
    axes = figure.subplots()
    draw_top_10(axes, rows, error=error, n_models=n_models)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower right", ncols=2, frameon=False, fontsize=_SIZE, labelcolor=INK)
    return figure


def draw_top_10(axes: Axes, rows: Table, *, error: str, n_models: int) -> None:
    """Draw the bars of `top_10_figure`."""
    _draw_bars(axes, [f"{row['model']} {row.get('marks', '')}".rstrip() for row in rows], rows, (BLUE, 0.85))
    ticks = [(i, row["null_mean"]) for i, row in enumerate(rows) if row.get("null_mean") is not None]
    if ticks:
        places, nulls = zip(*ticks, strict=True)
        axes.plot(nulls, places, "|", color=INK, markersize=9, label="if calibrated")
    axes.set_xlabel(error_name(error))
    axes.set_title(f"{len(rows)} best of {n_models} models", loc="left", fontsize=_SIZE + 1, color=INK)


def correlations_figure(rows: Table, *, error: str = "ece") -> Figure:
    """Draw rank correlations of a calibration error with scores, with a panel for each source of the numbers.

    Parameters
    ----------
    rows : rows of source, target, value, low, high, n
        Kendall's tau with the score over all categories and with each category, as in ``correlations.csv`` and
        ``split_correlations.csv``: positive if models with a small error have good scores. ``source`` is "split
        halves" (error and accuracy from different prompts) or "same prompts"; ``n`` is the number of models. Rows
        with a ``note``, such as too few families of models, have no interval.
    error : str
        The metric.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> row = {"source": "same prompts", "target": "Math", "value": 0.5, "low": 0.3, "high": 0.7, "n": 12}
    >>> correlations_figure([row]).axes[0].get_title(loc="left")
    'same prompts: 12 models'
    """
    panels = [part for source in _LOOKS if (part := [row for row in rows if row["source"] == source])]
    heights = [len(part) + 1.5 for part in panels]
    figure = _figure(0.5 + 0.22 * sum(heights))
    grid = figure.subplots(len(panels), 1, height_ratios=heights, sharex=True, squeeze=False)[:, 0]
    for axes, part in zip(grid, panels, strict=True):
        draw_correlations(axes, part, error=error)
        axes.label_outer()
    smallest = min(row["value"] if row["low"] is None else row["low"] for row in rows)
    grid[-1].set_xlim(min(0.0, math.floor(4 * smallest) / 4), 1)
    return figure


def draw_correlations(axes: Axes, rows: Table, *, error: str) -> None:
    """Draw one panel of `correlations_figure`."""
    source, n_models = rows[0]["source"], rows[0]["n"]
    _draw_bars(axes, [row["target"] for row in rows], rows, _LOOKS[source])
    title = f"{source}: {n_models} models"
    if families := rows[0].get("families"):
        title += f", {families} {'family' if families == 1 else 'families'}"
    axes.set_title(title, loc="left", fontsize=_SIZE + 1, color=INK)
    axes.set_xlabel(f"Kendall's tau with the ranking by {shown_text(metric_name(error), 30)}")


def _draw_bars(axes: Axes, names: Sequence[str], rows: Table, look: tuple[str, float]) -> None:
    """Draw one bar per row, from top to bottom, with its interval, and its value at the right."""
    import seaborn
    from matplotlib.ticker import MaxNLocator

    colour, opacity = look
    places = list(range(len(rows)))
    values = [row["value"] for row in rows]
    # Bars are placed by number: two models may have the same short name.
    options = {"color": colour, "alpha": opacity, "saturation": 1, "width": 0.68, "orient": "h"}
    seaborn.barplot(x=values, y=places, native_scale=True, errorbar=None, ax=axes, **options)
    for place, row in enumerate(rows):
        if row["low"] is not None and not row.get("note"):
            axes.hlines(place, row["low"], row["high"], color=INK, linewidth=0.9)
        beside = axes.get_yaxis_transform()  # right of the axes, at the height of the bar
        text = axes.text(1.02, place, f"{row['value']:.3f}", va="center_baseline", transform=beside)
        text.set(fontsize=_SIZE, color=INK)
    plain_axes(axes)
    axes.spines["left"].set_visible(False)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.set_yticks(places, [shown_text(name, 34) for name in names], color=INK)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(labelsize=_SIZE)
    axes.xaxis.label.set(fontsize=_SIZE)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_ylabel("")


def _figure(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH, height), dpi=_DPI, layout="constrained")
