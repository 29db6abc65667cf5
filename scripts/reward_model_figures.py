"""Figures about real reward models, drawn from the rows that `report_reward_models.py` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rmcalib._util.display import short_names

Row = dict[str, Any]
INK, GREY, LINE, BLUE, RED, GREEN = "#1c2430", "#5b6675", "#d9dee6", "#2463a6", "#a3352f", "#20714b"
COLOURS = (BLUE, RED, GREEN, "#8a5a00", "#6b3fa0", "#007a87", "#b0447c", INK, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=GREY, labelsize=8)
    axes.grid(color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)


def repair_figure(rows: Sequence[Row]) -> Figure:
    """Draw the gap of each model before and after a temperature that was fitted on the other half."""
    names = short_names([row["model"] for row in rows])
    figure = Figure(figsize=(7.6, 0.6 + 0.36 * len(rows)), dpi=130, layout="constrained")
    axes = figure.subplots()
    _plain(axes)
    for name, colour, marker, label, shift in (
        ("before", RED, "v", "rewards as they are", -0.13),
        ("after", GREEN, "o", "at the temperature of the other half", 0.13),
    ):
        places = [i + shift for i in range(len(rows))]
        for y, row in zip(places, rows, strict=True):
            axes.hlines(y, row[f"gap_{name}_low"], row[f"gap_{name}_high"], color=colour, linewidth=1.6)
        axes.plot(
            [row[f"gap_{name}"] for row in rows], places, marker, color=colour, markersize=5, label=label
        )
    axes.axvline(0, color=GREY, linewidth=0.9)
    axes.set_yticks(range(len(rows)), [names[row["model"]] for row in rows], color=INK, fontsize=8)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=""))
    axes.set_xlabel("gap in points: ← under-confident | over-confident →", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    return figure


def sizes_figure(rows: Sequence[Row]) -> Figure:
    """Draw gap, lost information and ECE of each model with 2, 4 and 10 responses."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    names = short_names(models)
    figure = Figure(figsize=(9.6, 4.2), dpi=130, layout="constrained")
    panels = (("overconfidence", "gap"), ("lost_information", "lost information"), ("ece", "pooled ECE"))
    for axes, (metric, title) in zip(figure.subplots(1, 3), panels, strict=True):
        _plain(axes)
        for i, model in enumerate(models):
            own = [row for row in rows if row["model"] == model and row["metric"] == metric]
            style: dict[str, Any] = {
                "color": COLOURS[i],
                "marker": MARKERS[i],
                "markersize": 4.5,
                "linewidth": 1.2,
            }
            axes.plot(range(len(own)), [row["value"] for row in own], label=names[model], **style)
            for x, row in enumerate(own):
                axes.vlines(x, row["value_low"], row["value_high"], color=COLOURS[i], linewidth=1)
        axes.set_xticks(range(3), ["2", "4", "10"])
        axes.set_title(title, fontsize=10, color=INK)
        axes.set_xlabel("responses", fontsize=9)
        if metric == "lost_information":
            axes.set_yscale("symlog", linthresh=0.1)
            axes.set_ylim(bottom=-0.005)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7.5, frameon=False
    )
    return figure


def curves_figure(rows: Sequence[Row]) -> Figure:
    """Draw best-of-k: the probability that the choice among k of ten responses is correct."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    names = short_names(models)
    figure = Figure(figsize=(7.6, 4.6), dpi=130, layout="constrained")
    axes = figure.subplots()
    _plain(axes)
    for i, model in enumerate(models):
        own = [row for row in rows if row["model"] == model]
        k = [row["k"] for row in own]
        axes.fill_between(
            k, [r["right_low"] for r in own], [r["right_high"] for r in own], color=COLOURS[i], alpha=0.12
        )
        axes.plot(k, [row["right"] for row in own], label=names[model], **_line(i))
    axes.axhline(0.1, color=GREY, linewidth=1, linestyle="--")
    axes.text(10.15, 0.102, "a random\nchoice", fontsize=7.5, color=GREY, va="bottom")
    axes.set_xlim(0.8, 11.2)
    axes.set_xticks(range(1, 11))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("k: responses to choose from, drawn from the ten", fontsize=9)
    axes.set_ylabel("the choice is correct", fontsize=9)
    axes.legend(fontsize=7.5, frameon=False)
    return figure


def steps_figure(rows: Sequence[Row]) -> Figure:
    """Draw what process reward models say against how often they are right, by how steps are combined."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    ways = list(dict.fromkeys(row["steps"] for row in rows))
    figure = Figure(figsize=(9.6, 3.2), dpi=130, layout="constrained")
    every = figure.subplots(1, len(models), sharex=True, sharey=True, squeeze=False)[0]
    for axes, model in zip(every, models, strict=True):
        _plain(axes)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.9, linestyle="--")
        for i, way in enumerate(ways):
            (row,) = [row for row in rows if row["model"] == model and row["steps"] == way]
            axes.vlines(row["says"], row["right_low"], row["right_high"], color=COLOURS[i], linewidth=1)
            axes.plot(
                [row["says"]], [row["right"]], MARKERS[i], color=COLOURS[i], label=way.replace("_", " ")
            )
        axes.set_title(model, fontsize=9, color=INK)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 0.6)
        axes.set_xlabel("says", fontsize=9)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    every[0].set_ylabel("right", fontsize=9)
    figure.legend(
        *every[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8, frameon=False
    )
    return figure


def ratings_figure(rows: Sequence[Row]) -> Figure:
    """Draw how often judges that rate share their largest rating, and how often it is right."""
    figure = Figure(figsize=(7.6, 3.6), dpi=130, layout="constrained")
    axes = figure.subplots()
    _plain(axes)
    for i, row in enumerate(rows):
        axes.vlines(row["shared"], row["right_low"], row["right_high"], color=COLOURS[i], linewidth=1)
        axes.hlines(row["right"], row["shared_low"], row["shared_high"], color=COLOURS[i], linewidth=1)
        axes.plot(
            [row["shared"]], [row["right"]], MARKERS[i], color=COLOURS[i], markersize=5, label=row["model"]
        )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("problems where several responses share the largest rating", fontsize=9)
    axes.set_ylabel("right (ties count in parts)", fontsize=9)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize=8, frameon=False)
    return figure


def _line(i: int) -> dict[str, Any]:
    """Return how model ``i`` is drawn: colour and marker, so that colour is not the only signal."""
    return {"color": COLOURS[i], "marker": MARKERS[i], "markersize": 4, "linewidth": 1.2}
