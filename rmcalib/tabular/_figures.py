"""Figures of the label-ranking experiments. Each function takes a table and returns a Figure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
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

Rows = list[dict[str, Any]]


def errors_by_k(table: "pd.DataFrame", *, title: str = "", label: str = "calibration error") -> "Figure":
    """Draw error against k, with one panel per family and one line per learner.

    ``table`` has rows of :func:`fold_means` of one data set, notion and protocol. Error bars are ± one
    standard deviation over folds. Dotted lines are null means: the expected error of a calibrated forecast.
    """
    from matplotlib.figure import Figure

    means = _records(table)
    families = [family for family in ("sub", "top") if any(row["family"] == family for row in means)]
    figure = Figure(figsize=(4.6 * len(families) + 1.6, 3.8), layout="constrained", dpi=150)
    grid = figure.subplots(1, len(families), squeeze=False, sharey=True)[0]
    for axes, family in zip(grid, families, strict=True):
        learners = _learners(means)
        for place, learner in enumerate(learners):
            rows = sorted(
                (row for row in means if (row["family"], row["learner"]) == (family, learner)),
                key=lambda row: row["k"],
            )
            if not rows:
                continue
            ks, colour = [row["k"] for row in rows], _colour(learner)
            # Shifted sideways, so that error bars do not hide each other.
            shift = 0.03 * (place - (len(learners) - 1) / 2)
            axes.errorbar(
                [k + shift for k in ks],
                [row["mean"] for row in rows],
                yerr=[row["sd"] for row in rows],
                color=colour,
                marker=_MARKERS.get(_base(learner), "o"),
                markersize=5,
                capsize=3,
                linewidth=1.5,
                linestyle="--" if learner.endswith("+t") else "-",
                label=_name(learner),
            )
            nulls = [(row["k"], row["null_mean"]) for row in rows if not math.isnan(row["null_mean"])]
            if nulls:
                axes.plot(*zip(*nulls, strict=True), color=colour, linewidth=0.8, linestyle=":", zorder=1)
        axes.set_title(f"{family}-k", loc="left", fontsize=11)
        axes.set_xlabel("k")
        axes.set_xticks(sorted({row["k"] for row in means if row["family"] == family}))
        _tidy(axes)
    grid[0].set_ylabel(label)
    if min(row["mean"] for row in means) >= 0:
        grid[0].set_ylim(bottom=0)
    handles, names = _legend(grid)
    handles.append(grid[0].plot([], [], color=_GREY, linewidth=0.8, linestyle=":")[0])
    figure.legend(handles, [*names, "if calibrated"], frameon=False, fontsize=9, loc="outside right center")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def grouped_bars(
    table: "pd.DataFrame", *, panels: Sequence[tuple[str, dict[str, str]]], title: str = "", columns: int = 2
) -> "Figure":
    """Draw one bar per learner for each of sub-2, sub-3, top-2 and top-3.

    Error bars are ± one standard deviation over folds. ``panels`` holds the title of each panel and the
    column values of its rows, such as ("political, exact", {"dataset": "political", "protocol": "exact"}).
    """
    from matplotlib.figure import Figure

    means = _records(table)
    groups = [("sub", 2), ("sub", 3), ("top", 2), ("top", 3)]
    learners = _learners(means)
    n_rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.8 * columns + 1.4, 3.0 * n_rows + 0.3), layout="constrained", dpi=150)
    grid = figure.subplots(n_rows, columns, squeeze=False, sharey=True)
    width = 0.8 / max(len(learners), 1)
    for axes, (name, wanted) in zip(grid.flat, panels, strict=False):
        for place, learner in enumerate(learners):
            for number, (family, k) in enumerate(groups):
                pick = wanted | {"learner": learner, "family": family, "k": k}
                for row in _rows(means, pick):
                    axes.bar(
                        number + (place - (len(learners) - 1) / 2) * width,
                        row["mean"],
                        width,
                        yerr=row["sd"],
                        color=_colour(learner),
                        hatch=_HATCHES.get(_base(learner)),
                        edgecolor="white",
                        linewidth=0,
                        error_kw={"elinewidth": 0.8, "capsize": 1.5},
                        label=_name(learner) if number == 0 else None,
                    )
        axes.set_title(name, loc="left", fontsize=11)
        axes.set_xticks(range(len(groups)), [f"{family}-{k}" for family, k in groups])
        _tidy(axes)
    for row_of_axes in grid:
        row_of_axes[0].set_ylabel("calibration error")
    handles, names = _legend(grid.flat)
    figure.legend(handles, names, frameon=False, fontsize=9, loc="outside right center")
    if title:
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
    from matplotlib.figure import Figure

    points = _records(table)
    figure = Figure(figsize=(6.2, 4.4), layout="constrained", dpi=150)
    axes = figure.subplots()
    for learner in _learners(points):
        chosen = [row for row in points if row["learner"] == learner]
        axes.scatter(
            [row["x"] for row in chosen],
            [row["y"] for row in chosen],
            s=26,
            color=_colour(learner),
            marker=_MARKERS.get(_base(learner), "o"),
            alpha=0.75,
            linewidths=0,
            label=_name(learner),
        )
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    if diagonal:
        ends = [min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])]
        axes.plot(ends, ends, color=_GREY, linewidth=1, linestyle="--", zorder=1)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title, loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9)
    _tidy(axes)
    return figure


def paired_bars(
    table: "pd.DataFrame", *, x_name: str, y_name: str, title: str = "", columns: int = 2
) -> "Figure":
    """Draw "x" and "y" of each data set as two bars, with one panel per learner.

    The table has the columns "dataset", "learner", "x", "y" and "null": the null mean, which is drawn as a
    line, or NaN.
    """
    from matplotlib.figure import Figure

    points = _records(table)
    learners = _learners(points)
    n_rows = -(-len(learners) // columns)
    figure = Figure(figsize=(5.2 * columns, 2.9 * n_rows + 0.5), layout="constrained", dpi=150)
    grid = figure.subplots(n_rows, columns, squeeze=False, sharey=True)
    for axes, learner in zip(grid.flat, learners, strict=False):
        rows = [row for row in points if row["learner"] == learner]
        places = range(len(rows))
        left = axes.bar([i - 0.2 for i in places], [row["x"] for row in rows], 0.4, color="#b9bec6")
        right = axes.bar([i + 0.2 for i in places], [row["y"] for row in rows], 0.4, color=_colour(learner))
        for i, row in enumerate(rows):
            if not math.isnan(row["null"]):
                axes.hlines(row["null"], i - 0.42, i + 0.42, color="black", linewidth=1.2)
        line = axes.plot([], [], color="black", linewidth=1.2)[0]
        axes.set_title(_name(learner), loc="left", fontsize=11)
        axes.set_xticks(list(places), [row["dataset"] for row in rows], rotation=45, ha="right", fontsize=9)
        _tidy(axes)
    names = [x_name, f"{y_name} (in colour)", "if calibrated"]
    figure.legend([left, right, line], names, frameon=False, fontsize=9, ncols=3, loc="outside lower center")
    for axes in list(grid.flat)[len(learners) :]:
        axes.set_visible(False)
    for row_of_axes in grid:
        row_of_axes[0].set_ylabel("calibration error")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def _records(table: "pd.DataFrame") -> Rows:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _rows(table: Rows, wanted: Mapping[str, object]) -> Rows:
    return [row for row in table if all(row[key] == value for key, value in wanted.items())]


def _learners(table: Rows) -> list[str]:
    present = dict.fromkeys(row["learner"] for row in table)
    order = list(LEARNER_NAMES)
    return sorted(present, key=lambda name: (order.index(_base(name)) if _base(name) in order else 99, name))


def _base(learner: str) -> str:
    return learner.removesuffix("+t")


def _name(learner: str) -> str:
    name = LEARNER_NAMES.get(_base(learner), _base(learner))
    return f"{name}, recalibrated" if learner.endswith("+t") else name


def _colour(learner: str) -> str:
    name = _base(learner)
    # The colour of other learners depends on the name alone, so it is the same in all figures.
    return _COLOURS.get(name, _OTHERS[sum(name.encode()) % len(_OTHERS)])


def _legend(grid: Iterable["Axes"]) -> tuple[list["Artist"], list[str]]:
    """Return the handles and names of all panels, each name once."""
    found: dict[str, Artist] = {}
    for axes in grid:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    return list(found.values()), list(found)


def _tidy(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e7ea", linewidth=0.6)
    axes.set_axisbelow(True)
