"""Figures of the label-ranking experiments. Each function takes a table and returns a Figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LEARNER_NAMES", "errors_by_k", "grouped_bars", "paired_bars", "scatter"]

LEARNER_NAMES = {
    "pl": "Plackett-Luce",
    "mallows": "Mallows",
    "rc": "RankClassifier",
    "rpc": "RPC",
    "pl-rpc": "PL-RPC",
}
_COLOURS = {"pl": "#2463a6", "mallows": "#d9822b", "rc": "#3a9266", "rpc": "#8a5fb0", "pl-rpc": "#c23b4b"}
_MARKERS = {"pl": "o", "mallows": "s", "rc": "^", "rpc": "D", "pl-rpc": "v"}
_HATCHES = {"mallows": "///", "rc": "...", "rpc": "xxx", "pl-rpc": "\\\\\\"}
_GREY = "#8a8f98"
_OTHERS = ("#4f6d7a", "#a65e2e", "#6b8e23", "#b04a7a", "#3d3d8f", "#7a6f2f")
# Of the three rows of `_with_ends`, draw the middle one, with an error bar from the lowest to the highest.
_ERRORS: dict[str, Any] = {"estimator": "median", "errorbar": ("pi", 100)}


def errors_by_k(table: "pd.DataFrame", *, title: str = "", label: str = "calibration error") -> "Figure":
    """Draw error against k, with one panel per family and one line per learner.

    ``table`` has rows of :func:`fold_means` of one data set, notion and protocol. Error bars are ± one
    standard deviation over folds. Dotted lines are null means: the expected error of a calibrated forecast.
    """
    import seaborn
    from matplotlib.figure import Figure

    families = [family for family in ("sub", "top") if (table["family"] == family).any()]
    learners, hue = _learners(table), _hue(table)
    figure = Figure(figsize=(4.6 * len(families) + 1.6, 3.8), layout="constrained", dpi=150)
    grid = figure.subplots(1, len(families), squeeze=False, sharey=True)[0]
    for axes, family in zip(grid, families, strict=True):
        own = table[table["family"] == family]
        seaborn.pointplot(
            _with_ends(own, "k"),
            x="k",
            y="value",
            **hue,
            **_ERRORS,
            markers=[_MARKERS.get(_base(learner), "o") for learner in learners],
            linestyles=["--" if learner.endswith("+t") else "-" for learner in learners],
            # Shifted sideways, so that error bars do not hide each other.
            dodge=0.03 * (len(learners) - 1),
            native_scale=True,
            capsize=0.02,
            err_kws={"linewidth": 1.1},
            linewidth=1.5,
            markersize=5,
            ax=axes,
        )
        handles, names = axes.get_legend_handles_labels()
        axes.get_legend().remove()
        nulls: dict[str, Any] = {"linewidth": 0.8, "linestyle": ":", "zorder": 1}
        seaborn.lineplot(own, x="k", y="null_mean", **hue, **nulls, legend=False, ax=axes)
        axes.set_title(f"{family}-k", loc="left", fontsize=11)
        axes.set_xticks(sorted(own["k"].unique()))
        _tidy(axes)
    grid[0].set_ylabel(label)
    if table["mean"].min() >= 0:
        grid[0].set_ylim(bottom=0)
    handles += axes.plot([], [], color=_GREY, **nulls)
    names = [*map(_name, names), "if calibrated"]
    figure.legend(handles, names, frameon=False, fontsize=9, loc="outside right center")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def grouped_bars(
    table: "pd.DataFrame", *, panels: Sequence[tuple[str, dict[str, str]]], title: str = "", columns: int = 2
) -> "Figure":
    """Draw one bar per learner for each of sub-2, sub-3, top-2 and top-3.

    Error bars are ± one standard deviation over folds. ``panels`` holds the title of each panel and the
    column values of its rows, such as ("political, exact", {"dataset": "political", "protocol": "exact"}).
    """
    import seaborn
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    events = ["sub-2", "sub-3", "top-2", "top-3"]
    table = table.assign(events=table["family"] + "-" + table["k"].astype(str))
    learners, hue = _learners(table), _hue(table)
    n_rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.8 * columns + 1.4, 3.0 * n_rows + 0.3), layout="constrained", dpi=150)
    grid = figure.subplots(n_rows, columns, squeeze=False, sharey=True)
    for axes, (name, wanted) in zip(grid.flat, panels, strict=False):
        seaborn.barplot(
            _with_ends(table[(table[list(wanted)] == list(wanted.values())).all(axis=1)], "events"),
            x="events",
            y="value",
            order=events,
            **hue,
            **_ERRORS,
            saturation=1,
            edgecolor="white",
            linewidth=0,
            capsize=0.25,
            err_kws={"linewidth": 0.8, "color": "black"},
            legend=False,
            ax=axes,
        )
        # A panel without rows has no bars.
        for bars, learner in zip(axes.containers, learners, strict=False):
            for bar in bars:
                bar.set_hatch(_HATCHES.get(_base(learner)))
        axes.set_title(name, loc="left", fontsize=11)
        axes.set_xticks(range(len(events)), events)
        axes.set(xlabel="", ylabel="calibration error" if axes in grid[:, 0] else "")
        _tidy(axes)
    handles = [
        Patch(facecolor=_colour(name), hatch=_HATCHES.get(_base(name)), edgecolor="white", label=_name(name))
        for name in learners
    ]
    figure.legend(handles=handles, frameon=False, fontsize=9, loc="outside right center")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def scatter(
    table: "pd.DataFrame",
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    diagonal: bool = False,
    log: bool = False,
) -> "Figure":
    """Draw "y" against "x" as points, with one colour and one marker per learner."""
    import seaborn
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.2, 4.4), layout="constrained", dpi=150)
    axes = figure.subplots()
    learners = _learners(table)
    seaborn.scatterplot(
        table,
        x="x",
        y="y",
        **_hue(table),
        style="learner",
        style_order=learners,
        markers=[_MARKERS.get(_base(learner), "o") for learner in learners],
        s=26,
        alpha=0.75,
        linewidth=0,
        ax=axes,
    )
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    if diagonal:
        ends = [min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])]
        axes.plot(ends, ends, color=_GREY, linewidth=1, linestyle="--", zorder=1)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_title(title, loc="left", fontsize=11)
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles, list(map(_name, names)), frameon=False, fontsize=9)
    _tidy(axes)
    return figure


def paired_bars(
    table: "pd.DataFrame", *, x_name: str, y_name: str, title: str = "", columns: int = 2
) -> "Figure":
    """Draw "x" and "y" of each data set as two bars, with one panel per learner.

    The table has the columns "dataset", "learner", "x", "y" and "null": the null mean, which is drawn as a
    line, or NaN.
    """
    import seaborn
    from matplotlib.figure import Figure

    learners = _learners(table)
    n_rows = -(-len(learners) // columns)
    figure = Figure(figsize=(5.2 * columns, 2.9 * n_rows + 0.5), layout="constrained", dpi=150)
    grid = figure.subplots(n_rows, columns, squeeze=False, sharey=True)
    for axes, learner in zip(grid.flat, learners, strict=False):
        own = table[table["learner"] == learner].reset_index(drop=True)
        seaborn.barplot(
            own[["x", "y"]].melt(ignore_index=False).reset_index(),
            x="index",
            y="value",
            hue="variable",
            palette=["#b9bec6", _colour(learner)],
            saturation=1,
            legend=False,
            ax=axes,
        )
        nulls = own["null"].dropna()
        line = axes.hlines(nulls, nulls.index - 0.42, nulls.index + 0.42, color="black", linewidth=1.2)
        axes.set_title(_name(learner), loc="left", fontsize=11)
        axes.set_xticks(own.index, own["dataset"], rotation=45, ha="right", fontsize=9)
        axes.set(xlabel="", ylabel="calibration error")
        _tidy(axes)
    handles, names = [*axes.containers, line], [x_name, f"{y_name} (in colour)", "if calibrated"]
    figure.legend(handles, names, frameon=False, fontsize=9, ncols=3, loc="outside lower center")
    for axes in grid.flat[len(learners) :]:
        axes.set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def _with_ends(means: "pd.DataFrame", x: str) -> "pd.DataFrame":
    """Return three rows for each: a "value" one standard deviation below, at and above the mean."""
    ends = means.assign(low=means["mean"] - means["sd"], high=means["mean"] + means["sd"])
    return ends.melt(["learner", x], ["low", "mean", "high"])


def _hue(table: "pd.DataFrame") -> dict[str, Any]:
    """Return seaborn's options for one colour per learner."""
    learners = _learners(table)
    return {"hue": "learner", "hue_order": learners, "palette": list(map(_colour, learners))}


def _learners(table: "pd.DataFrame") -> list[str]:
    order = list(LEARNER_NAMES)
    return sorted(
        table["learner"].unique(),
        key=lambda name: (order.index(_base(name)) if _base(name) in order else 99, name),
    )


def _base(learner: str) -> str:
    return learner.removesuffix("+t")


def _name(learner: str) -> str:
    name = LEARNER_NAMES.get(_base(learner), _base(learner))
    return f"{name}, recalibrated" if learner.endswith("+t") else name


def _colour(learner: str) -> str:
    name = _base(learner)
    # The colour of other learners depends on the name alone, so it is the same in all figures.
    return _COLOURS.get(name, _OTHERS[sum(name.encode()) % len(_OTHERS)])


def _tidy(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e7ea", linewidth=0.6)
    axes.set_axisbelow(True)
