"""``rmcalib prolr``: cross-validated calibration of label-ranking learners."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from rmcalib._util.terminal import add_row, open_console, print_table, table
from rmcalib.cli.options import MAIN, MORE, Common, Folder, Fresh, InputFile, Names, Seed, at_least, refuse
from rmcalib.cli.screen import following, messages, print_json, print_lines, progress, say

if TYPE_CHECKING:
    from rmcalib.tabular import Dataset, Plan
    from rmcalib.tabular._results import ProlrResult


@Parameter(name="*", group=MAIN)
@dataclass(frozen=True)
class Experiment:
    """What is trained and measured."""

    dataset: Annotated[Names, Parameter(metavar="NAMES")] = ()
    """Data sets, separated by commas; default iris, which like wine needs no network."""
    learner: Annotated[Names, Parameter(metavar="NAMES")] = ("pl", "mallows", "rc", "rpc", "pl-rpc")
    """Learners, separated by commas."""
    k: Annotated[Names, Parameter(metavar="LIST")] = ("1", "2", "3")
    """Lengths, separated by commas, or 'all'; sub-k from 2, top-k from 1."""
    notion: Annotated[Names, Parameter(metavar="NAMES")] = ("rankwise", "rankwise-95")
    """rankwise, rankwise-95 (frequent events only), full-rank, full-rank-95 (reference protocol only)."""
    protocol: Literal["exact", "reference", "both"] = "exact"
    """How to measure: by the definition, or as the paper's public code does."""
    training: Literal["exact", "reference"] = "exact"
    """How to train: as the paper says, or as its public code does."""
    output: Annotated[Folder | None, Parameter(alias="-o")] = None
    """Folder for the results; default runs/prolr/<data set>."""
    data: Annotated[InputFile | None, Parameter(group=MORE)] = None
    """Your own CSV file, instead of --dataset."""
    labels: Annotated[Names, Parameter(metavar="NAMES", group=MORE)] = ()
    """Columns of --data with the ranks, from 1: names separated by commas, or a common prefix; default L."""
    folds: Annotated[int, Parameter(metavar="N", group=MORE, validator=at_least(2))] = 5
    """Folds of the cross-validation."""
    discrepancy: Annotated[Names, Parameter(metavar="NAMES", group=MORE)] = ("abs", "jeffreys_unit")
    """How rankwise errors differ: abs, kl, jeffreys, jeffreys_unit."""
    bandwidth: Annotated[float | None, Parameter(metavar="H", group=MORE)] = None
    """Bandwidth of the kernel of full-rank; by default it is chosen."""
    recalibrate: Annotated[bool, Parameter(group=MORE)] = False
    """Also fit repairs on a fifth of each training fold: a temperature, and mixtures."""
    stagewise: Annotated[bool, Parameter(group=MORE)] = False
    """Test each k in turn, and stop where the error is too large for a calibrated forecast."""
    resamples: Annotated[int, Parameter(metavar="N", group=MORE, validator=at_least(0, 100_000))] = 100
    """Resamples for intervals and p-values; 0 for none."""
    processes: Annotated[int, Parameter(metavar="N", group=MORE, validator=at_least(1))] = 1
    """Folds to train at the same time."""
    fresh: Fresh = False
    seed: Seed = 0

    def plan(self, largest: int) -> Plan:
        """Return the plan, for at most `largest` labels."""
        from rmcalib.tabular import Plan, Questions

        lengths = _lengths(self.k, largest)
        protocols: Any = ("exact", "reference") if self.protocol == "both" else (self.protocol,)
        discrepancies: Any = self.discrepancy
        questions = Questions(
            sub=tuple(length for length in lengths if length >= 2),
            top=lengths,
            notions=self.notion,
            protocols=protocols,
            discrepancies=discrepancies,
            bandwidth=self.bandwidth,
            resamples=self.resamples,
            stagewise=self.stagewise,
        )
        return Plan(
            self.learner,
            self.folds,
            self.seed,
            self.training,
            recalibrate=self.recalibrate,
            questions=questions,
        )


def command(*, experiment: Experiment = Experiment(), common: Common = Common()) -> int:
    """Run an experiment, or continue it, and write results.csv, summary.csv and figures."""
    from rmcalib.tabular import run_prolr

    datasets = _datasets(experiment)
    plan = experiment.plan(max(one.n_items for one in datasets))
    folder = experiment.output or Path("runs/prolr") / "+".join(one.name for one in datasets)
    for line in () if common.quiet else plan.costs(datasets):
        say(line)
    total, done = len(datasets) * len(plan.learners) * plan.folds, 0
    with messages(quiet=common.quiet), progress("folds", quiet=common.quiet) as draw:

        def on_done(_: str) -> None:
            nonlocal done
            done += 1
            if draw is not None:
                draw(done, total, 0)

        result = run_prolr(
            datasets,
            plan,
            folder=folder,
            processes=experiment.processes,
            fresh=experiment.fresh,
            on_done=on_done,
        )
    results, _, *figures = result.write(folder)
    verdicts = result.verdicts if experiment.stagewise else []
    if common.json:
        print_json(
            {
                "results": str(results),
                "figures": [str(path) for path in figures],
                "stagewise": verdicts,
                "summary": result.summary.to_dict("records"),
            }
        )
    elif not common.quiet:
        for data in result.datasets:
            _print(result, data)
        print_lines(*verdicts)
        following({"Results": folder}, "the same command with --recalibrate (does a repair help?)")
    return 0


def _datasets(experiment: Experiment) -> list[Dataset]:
    from rmcalib.tabular import load_dataset, read_csv

    if experiment.data is None:
        refuse({"--labels": experiment.labels}, "a data set by name knows its labels; it belongs to --data")
        return [load_dataset(name) for name in experiment.dataset or ("iris",)]
    refuse({"--dataset": experiment.dataset}, "the data are those of --data")
    labels = experiment.labels or ("L",)
    return [read_csv(experiment.data, labels[0] if len(labels) == 1 else list(labels))]


def _lengths(given: tuple[str, ...], largest: int) -> tuple[int, ...]:
    if given == ("all",):
        return tuple(range(1, largest + 1))
    try:
        lengths = tuple(sorted({int(part) for part in given}))
    except ValueError:
        raise ValueError(
            f"--k {','.join(given)}: neither 'all' nor whole numbers separated by commas"
        ) from None
    if lengths[0] > largest:
        raise ValueError(f"--k {lengths[0]}: more than the {largest} labels that there are to rank")
    return lengths


def _print(result: ProlrResult, data: Dataset) -> None:
    """Print the mean over folds of each measure and learner, and in brackets that of a calibrated forecast."""
    means = result.summary
    own = means[
        (means["dataset"] == data.name) & means["discrepancy"].isin(("", *result.plan.questions.shown))
    ]
    learners = list(own["learner"].unique())
    cells: dict[str, dict[str, str]] = {}
    for row in own.to_dict("records"):
        cells.setdefault(_measure(row), {})[row["learner"]] = _cell(row)
    title = f"{data.name}: {len(data):,} rows, {data.n_items} labels; mean over folds (if calibrated)"
    rows = table("measure", *learners, title=title)
    for measure, found in cells.items():
        add_row(rows, measure, *(found.get(name, "–") for name in learners))
    print_table(open_console(), rows)


def _measure(row: dict[Any, Any]) -> str:
    if not row["family"]:
        return str(row["notion"]).replace("_", " ")
    reference = ", reference" if row["protocol"] == "reference" else ""
    notion = {"rankwise": "", "rankwise-95": " 95%", "full-rank-95": " full-rank 95%"}.get(
        row["notion"], f" {row['notion']}"
    )
    if row["notion"] == "full-rank" and not math.isnan(row["null_mean"]):
        notion += " excess"
    return f"{row['family']}-{row['k']}{notion}{reference}"


def _cell(row: dict[Any, Any]) -> str:
    if math.isnan(row["null_mean"]):
        return f"{row['mean']:.3f}"
    if row["notion"] == "full-rank":
        return f"{row['excess']:+.3f}"
    return f"{row['mean']:.3f} ({row['null_mean']:.3f})"
