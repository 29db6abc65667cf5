"""The result of ``run_prolr``: its tables and its figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.files import write_csv, write_file
from rmcalib._util.storage import as_path
from rmcalib.tabular._datasets import Dataset
from rmcalib.tabular._evaluation import STAGEWISE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rmcalib.tabular._experiment import Plan

_KEYS = ("dataset", "learner", "family", "notion", "k", "protocol", "discrepancy", "training", "truth")
# The name, colour and marker of each learner in figures.
_LOOKS = {
    "pl": ("Plackett-Luce", "#2463a6", "o"),
    "mallows": ("Mallows", "#d9822b", "s"),
    "rc": ("RankClassifier", "#3a9266", "^"),
    "rpc": ("RPC", "#8a5fb0", "D"),
    "pl-rpc": ("PL-RPC", "#c23b4b", "v"),
}
_GREY = "#8a8f98"
_DOTTED: dict[str, Any] = {"linewidth": 0.8, "linestyle": ":", "zorder": 1}
_OTHERS = ("#4f6d7a", "#a65e2e", "#6b8e23", "#b04a7a", "#3d3d8f", "#7a6f2f")
_REPAIRS = {"t": ", temperature", "u": ", with uniform", "pl": ", with Plackett-Luce"}


@dataclass(frozen=True, eq=False, repr=False)
class ProlrResult:
    """The results of :func:`run_prolr`.

    Attributes
    ----------
    datasets : tuple of Dataset
        The data.
    plan : Plan
        The plan of the experiment.
    table : pandas DataFrame
        One row per measure, learner and fold, with the columns of ``results.csv``.

    Examples
    --------
    >>> from rmcalib.tabular import Plan, Questions, run_prolr
    >>> plan = Plan(learners=("mallows",), folds=2, questions=Questions(sub=(2,), top=(), resamples=0))
    >>> result = run_prolr("wine", plan)
    >>> result.table[["dataset", "learner", "notion"]].values.tolist()[0]
    ['wine', 'mallows', 'kendall_tau']
    """

    datasets: tuple[Dataset, ...]
    plan: "Plan"
    table: "pd.DataFrame"

    def __repr__(self) -> str:
        """Show what was measured, not the rows."""
        names = ", ".join(data.name for data in self.datasets)
        return f"ProlrResult({names}; {', '.join(self.plan.learners)}: {len(self.table):,} rows)"

    @cached_property
    def summary(self) -> "pd.DataFrame":
        """Means over folds: one row per data set, learner and measure, as in ``summary.csv``."""
        return fold_means(self.table[self.table["notion"] != STAGEWISE])

    @property
    def stages(self) -> "pd.DataFrame":
        """The first k whose error is too large (NaN if none is), for each data set, learner, fold and family.

        ``examined`` is the last k that was evaluated. Empty unless the plan asks for ``stagewise``.
        """
        rows = self.table[self.table["notion"] == STAGEWISE]
        columns = {"k": "examined", "value": "uncalibrated_from"}
        return rows[["dataset", "learner", "fold", "family", "protocol", *columns]].rename(columns=columns)

    def figure(self, name: str) -> "Figure":
        """Draw the error against k for the data set ``name``, with the plan's first notion and protocol.

        Error bars are one standard deviation over folds. Dotted lines are null means: the expected error of a
        calibrated forecast. The full-rank error is drawn as excess over its null mean if it has one.
        """
        rows = self._drawn(name)
        if rows.empty:
            have = ", ".join(dataset.name for dataset in self.datasets if not self._drawn(dataset.name).empty)
            raise ValueError(f"name: no errors to draw for {name!r} (have: {have or 'none'})")
        questions = self.plan.questions
        title = f"{name}: {questions.notions[0]} error, {questions.protocols[0]} protocol"
        if questions.notions[0] == "full-rank" and rows["excess"].notna().any():
            excess = rows.assign(mean=rows["excess"], null_mean=rows["null_mean"] * 0)
            return errors_by_k(excess, title=title, label="excess over the null mean")
        return errors_by_k(rows, title=title)

    def write(self, folder: str | Path) -> list[Path]:
        """Write results.csv, summary.csv and a figure per data set; return their paths."""
        out = as_path(folder)
        paths = [
            write_csv(out / "results.csv", self.table),
            write_csv(out / "summary.csv", self.summary),
        ]
        for data in self.datasets:
            if not self._drawn(data.name).empty:
                # The file does not name matplotlib's version, so the same figure has the same bytes.
                save = partial(self.figure(data.name).savefig, format="png", metadata={"Software": None})
                paths.append(write_file(out / f"{data.name}.png", save))
        return paths

    def _drawn(self, name: str) -> "pd.DataFrame":
        means, questions = self.summary, self.plan.questions
        return means[
            (means["dataset"] == name)
            & (means["notion"] == questions.notions[0])
            & (means["protocol"] == questions.protocols[0])
            & means["discrepancy"].isin(questions.shown)
        ]


def fold_means(table: "pd.DataFrame") -> "pd.DataFrame":
    """Return means over folds: one row per data set, learner and measure.

    Columns: ``mean``, ``sd`` and ``se`` of the value over ``folds``; ``null_mean``, the expected value for a
    calibrated forecast, averaged over folds; ``rejected``, the fraction of folds with p < 0.05; ``excess``,
    the mean of value − null_mean. The last three are NaN if there is no null distribution.

    >>> import pandas as pd
    >>> row = dict.fromkeys(_KEYS, "x") | {"value": 0.1, "null_mean": 0.05, "p_value": 0.01}
    >>> fold_means(pd.DataFrame([row, row | {"value": 0.3}]))[["mean", "excess", "rejected"]].values.tolist()
    [[0.2, 0.15, 1.0]]
    """
    rejected = (table["p_value"] < 0.05).where(table["p_value"].notna()).astype(float)
    groups = table.assign(rejected=rejected).groupby(list(_KEYS), sort=False, dropna=False)
    means = groups.agg(
        mean=("value", "mean"),
        sd=("value", "std"),
        folds=("value", "size"),
        null_mean=("null_mean", "mean"),
        rejected=("rejected", "mean"),
    )
    means.insert(2, "se", means["sd"] / np.sqrt(means["folds"]))
    means["excess"] = (means["mean"] - means["null_mean"]).round(12)
    means["mean"] = means["mean"].round(12)
    return means.reset_index()


def errors_by_k(table: "pd.DataFrame", *, title: str = "", label: str = "calibration error") -> "Figure":
    """Draw error against k, with one panel per family and one line per learner.

    ``table`` has rows of :func:`fold_means` of one data set, notion and protocol.
    """
    from matplotlib.figure import Figure

    families = [family for family in ("sub", "top") if (table["family"] == family).any()]
    figure = Figure(figsize=(4.6 * len(families) + 1.6, 3.8), layout="constrained", dpi=150)
    grid = figure.subplots(1, len(families), squeeze=False, sharey=True)[0]
    for axes, family in zip(grid, families, strict=True):
        draw_errors(axes, table[table["family"] == family], learners_of(table))
        axes.set_title(f"{family}-k", loc="left", fontsize=11)
        axes.set_xlabel("k")
    grid[0].set_ylabel(label)
    if table["mean"].min() >= 0:
        grid[0].set_ylim(bottom=0)
    if table["null_mean"].notna().any():
        grid[0].plot([], [], color=_GREY, label="if calibrated", **_DOTTED)
    handles, names = grid[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=9, loc="outside right center")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def draw_errors(axes: "Axes", table: "pd.DataFrame", learners: Sequence[str]) -> None:
    """Draw error against k with ± one standard deviation over folds; dotted lines are null means."""
    for number, learner in enumerate(learners):
        rows = table[table["learner"] == learner].sort_values("k")
        name, colour, marker = look(learner)
        # Shifted sideways, so that learners do not hide each other.
        shifted = rows["k"] + 0.04 * (number - (len(learners) - 1) / 2)
        line = "--" if _parts(learner)[1] else "-"
        drawn: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": line, "capsize": 2}
        axes.errorbar(shifted, rows["mean"], rows["sd"], label=name, linewidth=1.5, markersize=5, **drawn)
        axes.plot(rows["k"], rows["null_mean"], color=colour, **_DOTTED)
    axes.set_xticks(sorted(table["k"].unique()))
    tidy(axes)


def learners_of(table: "pd.DataFrame") -> list[str]:
    """Return the learners of a table, the built-in ones first."""
    order = list(_LOOKS)

    def place(name: str) -> tuple[int, str]:
        base = _parts(name)[0]
        return (order.index(base) if base in order else len(order), name)

    return sorted(table["learner"].unique(), key=place)


def _parts(learner: str) -> tuple[str, str]:
    """Split a name such as "rc+pl" into the learner and its repair, which is empty if there is none."""
    base, _, repair = learner.rpartition("+")
    return (base, repair) if base and repair in _REPAIRS else (learner, "")


def look(learner: str) -> tuple[str, str, str]:
    """Return the name, the colour and the marker of a learner in figures."""
    base, repair = _parts(learner)
    other = (base, _OTHERS[sum(base.encode()) % len(_OTHERS)], "o")
    name, colour, marker = _LOOKS.get(base, other)
    return name + _REPAIRS.get(repair, ""), colour, marker


def tidy(axes: "Axes") -> None:
    """Remove what distracts from a plot."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e7ea", linewidth=0.6)
    axes.set_axisbelow(True)
