"""The figure of the best temperatures: one line per model and benchmark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rmcalib.report._drawing import BAD, BLUE, GOOD, GREY, INK, plain_axes, shown, shown_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["temperatures_figure"]

_COLOURS, _MARKERS = (BLUE, BAD, GOOD, INK, GREY), ("o", "s", "^", "D", "v", "P", "X")
_ROW = 0.17  # inches of one benchmark


def temperatures_figure(rows: Sequence[dict[str, Any]]) -> Figure | None:
    """Draw the best temperature of each model on each benchmark with its interval, on a log scale.

    Rows have model, benchmark, temperature, low and high. Intervals without an end are drawn to the edge of
    the figure, and infinite temperatures (a uniform guess is best) as arrows there. None if no temperature is
    finite.

    >>> row = {"model": "m", "benchmark": "b", "temperature": 2.0, "low": 1.5, "high": math.inf}
    >>> temperatures_figure([row]).axes[0].get_xscale()
    'log'
    """
    from matplotlib.figure import Figure

    finite = [row for row in rows if 0 < row["temperature"] < math.inf]
    if not finite:
        return None
    models = list(dict.fromkeys(row["model"] for row in rows))
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    names = shown_names(models)
    ends = [row[key] for row in rows for key in ("low", "temperature", "high") if 0 < row[key] < math.inf]
    left, right = min(*ends, 1.0) / 1.3, max(*ends, 1.0) * 1.3
    block = _ROW * len(benchmarks) + 0.12
    margin = 0.3 + 0.075 * max(map(len, names.values()))
    width, height = margin + 4.6, 0.9 + block * len(models)
    figure = Figure(figsize=(width, height), dpi=130)
    axes = figure.add_axes((margin / width, 0.5 / height, 4.4 / width, block * len(models) / height))
    plain_axes(axes, grid="x")
    axes.axvline(1, color=GREY, linewidth=0.9, linestyle="--")
    for j, benchmark in enumerate(benchmarks):
        colour, marker = _COLOURS[j % len(_COLOURS)], _MARKERS[j % len(_MARKERS)]
        mine = [row for row in rows if row["benchmark"] == benchmark]
        places = [models.index(row["model"]) * block + _ROW * (j + 0.5) for row in mine]
        for row, y in zip(mine, places, strict=True):
            axes.hlines(y, max(row["low"], left), min(row["high"], right), color=colour, linewidth=1.5)
            arrow = ">" if row["temperature"] == math.inf else "<" if row["temperature"] == 0 else marker
            x = min(max(row["temperature"], left), right)
            axes.plot([x], [y], arrow, color=colour, markersize=5, clip_on=False)
        axes.plot([], [], marker, color=colour, markersize=5, label=shown(benchmark, 30))
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.xaxis.set_major_formatter("{x:g}")
    middles = [block * i + _ROW * len(benchmarks) / 2 for i in range(len(models))]
    axes.set_yticks(middles, [names[model] for model in models], color=INK, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(block * len(models), -0.1)
    axes.set_xlabel("best temperature: above 1, rewards are too large")
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=min(3, len(benchmarks)),
        frameon=False,
        fontsize=8,
        labelcolor=INK,
    )
    return figure
