"""Figures of results/, as the paper draws them. Each function takes a table and returns a Figure."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import seaborn
from matplotlib.figure import Figure
from scipy.stats import kendalltau

from rmcalib.tabular._prolr import colour, learners_of, tidy

NAMES = {"pl": "PL", "mallows": "MM", "rc": "RC", "rpc": "RPC", "pl-rpc": "PL-RPC"}


def panels_by_k(table: pd.DataFrame, *, title: str) -> Figure:
    """Draw the appendix's 2 × 2 figure of one data set: rankwise and full-rank, sub-k and top-k.

    ``table`` has rows of fold means with the columns family, notion, k, learner, mean and sd.
    """
    figure = Figure(figsize=(9.5, 6), layout="constrained", dpi=130)
    grid = figure.subplots(2, 2, sharey="row")
    for axes_row, notion in zip(grid, ("rankwise", "full-rank"), strict=True):
        for axes, family in zip(axes_row, ("sub", "top"), strict=True):
            own = table[(table["family"] == family) & table["notion"].str.startswith(notion)]
            for learner in learners_of(own):
                rows = own[own["learner"] == learner].sort_values("k")
                axes.errorbar(
                    rows["k"], rows["mean"], rows["sd"], color=colour(learner), label=NAMES[learner],
                    marker="o", markersize=4, capsize=2, linewidth=1.3,
                )  # fmt: skip
            axes.set_title(f"{notion} {family}-k", loc="left", fontsize=10)
            axes.set_xticks(sorted(own["k"].unique()))
            tidy(axes)
        axes_row[0].set_ylabel("ECE")
        axes_row[0].set_ylim(bottom=0)
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, loc="outside right center")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def bars(table: pd.DataFrame, *, panels: Sequence[tuple[str, dict[str, str]]], title: str) -> Figure:
    """Draw one bar per learner for each of sub-2, sub-3, top-2 and top-3, with a panel per selection."""
    events = ["sub-2", "sub-3", "top-2", "top-3"]
    table = table.assign(events=table["family"] + "-" + table["k"].astype(str))
    learners = learners_of(table)
    figure = Figure(figsize=(11, 3.0 * (len(panels) // 2) + 0.4), layout="constrained", dpi=130)
    grid = figure.subplots(len(panels) // 2, 2, squeeze=False, sharey=True)
    for axes, (name, wanted) in zip(grid.flat, panels, strict=True):
        own = table[(table[list(wanted)] == list(wanted.values())).all(axis=1)]
        for number, learner in enumerate(learners):
            rows = own[own["learner"] == learner].set_index("events").reindex(events)
            places = [place + 0.16 * (number - 2) for place in range(4)]
            axes.bar(
                places, rows["mean"], 0.15, yerr=rows["sd"], color=colour(learner), label=NAMES[learner],
                error_kw={"linewidth": 0.8},
            )  # fmt: skip
        axes.set_title(name, loc="left", fontsize=11)
        axes.set_xticks(range(4), events)
        tidy(axes)
    for axes in grid[:, 0]:
        axes.set_ylabel("calibration error")
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, loc="outside right center")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def abs_against_jeffreys(points: pd.DataFrame, *, title: str) -> tuple[Figure, pd.DataFrame]:
    """Draw "y" (Jeffreys) against "x" (absolute) with a panel per k, and return Kendall's tau of each."""
    ks = sorted(points["k"].unique())
    figure = Figure(figsize=(2.9 * len(ks) + 0.8, 3.2), layout="constrained", dpi=130)
    rows = []
    for axes, k in zip(figure.subplots(1, len(ks), squeeze=False)[0], ks, strict=True):
        own = points[points["k"] == k]
        order = learners_of(own)
        seaborn.scatterplot(
            own, x="x", y="y", hue="learner", hue_order=order, palette=list(map(colour, order)), s=22,
            linewidth=0, legend=False, ax=axes,
        )  # fmt: skip
        tau = kendalltau(own["x"], own["y"])
        rows.append({"k": k, "n": len(own), "tau": tau.statistic, "p_value": tau.pvalue})
        axes.set_title(f"sub-{k}: tau = {tau.statistic:.2f}", loc="left", fontsize=10)
        axes.set(xlabel="|f − c|", ylabel="Jeffreys, mapped to [0, 1)" if k == ks[0] else "")
        tidy(axes)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure, pd.DataFrame(rows)


def paired(table: pd.DataFrame, *, x_name: str, y_name: str, title: str) -> Figure:
    """Draw "x" and "y" of each data set as two bars, with a panel per learner; "null" is a line."""
    learners = learners_of(table)
    n_rows = -(-len(learners) // 2)
    figure = Figure(figsize=(10.4, 2.9 * n_rows + 0.5), layout="constrained", dpi=130)
    grid = figure.subplots(n_rows, 2, squeeze=False, sharey=True)
    drawn: list[Any] = []
    for axes in grid.flat[len(learners) :]:
        axes.set_visible(False)
    for axes, learner in zip(grid.flat, learners, strict=False):
        own = table[table["learner"] == learner].reset_index(drop=True)
        drawn = [
            axes.bar(own.index - 0.2, own["x"], 0.38, color="#b9bec6"),
            axes.bar(own.index + 0.2, own["y"], 0.38, color=colour(learner)),
            axes.hlines(own["null"], own.index - 0.42, own.index + 0.42, color="black", linewidth=1.2),
        ]
        axes.set_title(NAMES[learner], loc="left", fontsize=11)
        axes.set_xticks(own.index, own["dataset"], rotation=45, ha="right", fontsize=9)
        tidy(axes)
    figure.legend(
        drawn, [x_name, f"{y_name} (in colour)", "if calibrated"], frameon=False, ncols=3,
        loc="outside lower center",
    )  # fmt: skip
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure
