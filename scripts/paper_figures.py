"""Figures of results/, as the paper draws them. Each function takes a table and returns a Figure."""

from collections.abc import Sequence

import pandas as pd
import seaborn
from matplotlib.figure import Figure

from rmcalib.tabular._results import draw_errors, learners_of, look, tidy

EVENTS = ("sub-2", "sub-3", "top-2", "top-3")
GREY = "#b9bec6"


def panels_by_k(table: pd.DataFrame, *, title: str) -> Figure:
    """Draw the appendix's 2 × 2 figure of one data set: rankwise and full-rank, sub-k and top-k.

    ``table`` has rows of fold means with the columns family, notion, k, learner, mean, sd and null_mean.
    """
    figure = Figure(figsize=(9.5, 6), layout="constrained", dpi=130)
    grid = figure.subplots(2, 2, sharey="row")
    learners = learners_of(table)
    for axes_row, notion in zip(grid, ("rankwise", "full-rank"), strict=True):
        for axes, family in zip(axes_row, ("sub", "top"), strict=True):
            own = table[(table["family"] == family) & table["notion"].str.startswith(notion)]
            draw_errors(axes, own, learners)
            axes.set_title(f"{notion} {family}-k", loc="left", fontsize=10)
            axes.set_xlabel("k")
        axes_row[0].set_ylabel("calibration error")
        axes_row[0].set_ylim(bottom=0)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), frameon=False, loc="outside right center")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def bars(table: pd.DataFrame, *, panels: Sequence[tuple[str, dict[str, str]]], title: str) -> Figure:
    """Draw one bar per learner for each of sub-2, sub-3, top-2 and top-3, with a panel per selection."""
    table = table.assign(events=table["family"] + "-" + table["k"].astype(str))
    learners = learners_of(table)
    figure = Figure(figsize=(11, 3.0 * (len(panels) // 2) + 0.4), layout="constrained", dpi=130)
    grid = figure.subplots(len(panels) // 2, 2, squeeze=False, sharey=True)
    for axes, (heading, wanted) in zip(grid.flat, panels, strict=True):
        own = table[(table[list(wanted)] == list(wanted.values())).all(axis=1)]
        for number, learner in enumerate(learners):
            rows = own[own["learner"] == learner].set_index("events").reindex(EVENTS)
            places = [place + 0.16 * (number - 2) for place in range(len(EVENTS))]
            name, colour, _ = look(learner)
            thin = {"linewidth": 0.8}
            axes.bar(places, rows["mean"], 0.15, yerr=rows["sd"], color=colour, label=name, error_kw=thin)
        axes.set_title(heading, loc="left", fontsize=11)
        axes.set_xticks(range(len(EVENTS)), EVENTS)
        tidy(axes)
    for axes in grid[:, 0]:
        axes.set_ylabel("calibration error")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), frameon=False, loc="outside right center")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def abs_against_jeffreys(points: pd.DataFrame, taus: pd.DataFrame, *, title: str) -> Figure:
    """Draw "jeffreys" against "abs" with a panel per k and a point per data set and learner."""
    figure = Figure(figsize=(11, 6.4), layout="constrained", dpi=130)
    *grid, legend = figure.subplots(2, len(taus) // 2 + 1).flat
    order = learners_of(points)
    names, colours, _ = zip(*map(look, order), strict=True)
    options = {"hue_order": order, "palette": list(colours), "s": 30, "linewidth": 0}
    for axes, row in zip(grid, taus.to_dict("records"), strict=False):
        own = points[points["k"] == row["k"]]
        seaborn.scatterplot(own, x="abs", y="jeffreys", hue="learner", ax=axes, **options)
        axes.set_title(f"sub-{row['k']}: Kendall's tau {row['tau']:.2f}", loc="left", fontsize=10)
        axes.set(xlabel="|f − c|", ylabel="Jeffreys, in [0, 1)")
        tidy(axes)
        handles = axes.get_legend_handles_labels()[0]
        axes.get_legend().remove()
    legend.axis("off")
    legend.legend(handles, names, frameon=False, loc="center left")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def paired(table: pd.DataFrame, names: Sequence[str], *, title: str) -> Figure:
    """Draw two columns of each data set as two bars, with a panel per learner; "null_mean" is a line."""
    learners = learners_of(table)
    across = 3 if len(learners) == 3 else 2
    down = -(-len(learners) // across)
    figure = Figure(figsize=(5.2 * across, 2.9 * down + 0.5), layout="constrained", dpi=130)
    left, right = names
    for axes, learner in zip(
        figure.subplots(down, across, squeeze=False, sharey=True).flat, learners, strict=True
    ):
        own = table[table["learner"] == learner].reset_index(drop=True)
        name, colour, _ = look(learner)
        drawn = [
            axes.bar(own.index - 0.2, own[left], 0.38, color=GREY),
            axes.bar(own.index + 0.2, own[right], 0.38, color=colour),
            axes.hlines(own["null_mean"], own.index - 0.42, own.index + 0.42, color="black", linewidth=1.2),
        ]
        axes.set_title(name, loc="left", fontsize=11)
        axes.set_xticks(own.index, own["dataset"], rotation=45, ha="right", fontsize=9)
        tidy(axes)
    texts = [left, f"{right} (in colour)", "if calibrated"]
    figure.legend(drawn, texts, frameon=False, ncols=3, loc="outside lower center")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure
