"""``rmcalib prolr``: cross-validated calibration of label-ranking learners."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import Parameter
from cyclopts.validators import Number

from rmcalib._util.display import NAME_WIDTH, open_console, print_table
from rmcalib.cli import options
from rmcalib.cli.options import MORE, Common, Names, refuse
from rmcalib.cli.screen import following, print_json, print_lines, session

if TYPE_CHECKING:
    from rmcalib.tabular import Dataset
    from rmcalib.tabular._results import ProlrResult

_MANY_EVENTS = 50_000
_WIDTH = 80  # characters
_REFERENCE = ", reference"


def command(
    *,
    dataset: Annotated[Names, Parameter(metavar="NAMES")] = (),
    learner: Annotated[Names, Parameter(metavar="NAMES")] = ("pl", "mallows", "rc", "rpc", "pl-rpc"),
    k: Annotated[Names, Parameter(metavar="LIST")] = ("1", "2", "3"),
    notion: Annotated[Names, Parameter(metavar="NAMES")] = ("rankwise", "rankwise-95"),
    protocol: Literal["exact", "reference", "both"] = "exact",
    training: Literal["exact", "reference"] = "exact",
    output: Annotated[options.Folder | None, Parameter(alias="-o")] = None,
    data: Annotated[options.InputFile | None, Parameter(group=MORE)] = None,
    labels: Annotated[Names, Parameter(metavar="NAMES", group=MORE)] = (),
    folds: Annotated[int, Parameter(metavar="N", group=MORE, validator=Number(gte=2))] = 5,
    discrepancy: Annotated[Names, Parameter(metavar="NAMES", group=MORE)] = ("abs", "jeffreys_unit"),
    bandwidth: Annotated[float | None, Parameter(metavar="H", group=MORE, validator=Number(gt=0))] = None,
    recalibrate: Annotated[bool, Parameter(group=MORE)] = False,
    stagewise: Annotated[str | None, Parameter(metavar="RULE", group=MORE)] = None,
    resamples: Annotated[int, Parameter(metavar="N", group=MORE, validator=Number(gte=0, lte=100_000))] = 100,
    processes: Annotated[int, Parameter(metavar="N", group=MORE, validator=Number(gte=1))] = 1,
    fresh: options.Fresh = False,
    seed: options.Seed = 0,
    common: Common = Common(),
) -> int:
    """Run an experiment, or continue it, and write results.csv, summary.csv and figures.

    Parameters
    ----------
    dataset
        Data sets, separated by commas; default iris, which like wine needs no network.
    learner
        Learners, separated by commas.
    k
        Lengths, separated by commas, or 'all'; sub-k from 2, top-k from 1.
    notion
        rankwise, rankwise-95 (frequent events only), full-rank, full-rank-95 (reference protocol only).
    protocol
        How to measure: by the definition, or as the paper's public code does.
    training
        How to train: as the paper says, or as its public code does.
    output
        Folder for the results; default runs/prolr/<data set>.
    data
        Your own CSV file, instead of --dataset.
    labels
        Columns of --data with the ranks, from 1: names separated by commas, or a common prefix; default L.
    folds
        Folds of the cross-validation.
    discrepancy
        How rankwise errors differ: abs, kl, jeffreys, jeffreys_unit.
    bandwidth
        Bandwidth of the kernel of full-rank; by default it is chosen.
    recalibrate
        Also fit repairs on a fifth of each training fold: a temperature, and mixtures.
    stagewise
        Also find the first k, from 2 on, whose error is too large: by a 'test', or above a number (the paper's is 0.1).
    resamples
        Resamples for intervals and p-values; 0 for none.
    processes
        Folds to train at the same time.
    """
    from rmcalib.tabular import Plan, Questions, run_prolr

    datasets = _datasets(dataset, data, labels)
    lengths = _lengths(k, max(each.n_items for each in datasets))
    protocols: Any = ("exact", "reference") if protocol == "both" else (protocol,)
    discrepancies: Any = discrepancy
    questions = Questions(
        sub=tuple(length for length in lengths if length >= 2),
        top=lengths,
        notions=notion,
        protocols=protocols,
        discrepancies=discrepancies,
        bandwidth=bandwidth,
        resamples=resamples,
        stagewise=_rule(stagewise),
    )
    plan = Plan(learner, folds, seed, training, recalibrate=recalibrate, questions=questions)
    folder = output or Path("runs/prolr") / "+".join(each.name for each in datasets)
    with session(common) as screen:
        for line in _costs(datasets, lengths, len(learner)):
            screen.say(line)
        total, done = len(datasets) * len(plan.learners) * plan.folds, 0
        with screen.progress("folds") as draw:

            def on_done(_: str) -> None:
                nonlocal done
                done += 1
                draw(done, total)

            result = run_prolr(
                datasets, plan, folder=folder, processes=processes, fresh=fresh, on_done=on_done
            )
        results, _, *figures = result.write(folder)
        if screen.json:
            print_json(
                {
                    "results": str(results),
                    "figures": [str(path) for path in figures],
                    "summary": result.summary.to_dict("records"),
                    "stages": result.stages.to_dict("records"),
                }
            )
        elif screen.prints:
            for number, each in enumerate(result.datasets):
                print_lines(*[""] * (number > 0))
                _print(result, each)
            repaired = recalibrate or training == "reference"  # which has its own temperature
            then = "" if repaired else "the same command with --recalibrate (does a repair help?)"
            following({"Results": folder}, then)
    return 0


def _costs(datasets: list[Dataset], lengths: tuple[int, ...], n_learners: int) -> Iterator[str]:
    """Say what takes long, before it starts."""
    for data in datasets:
        for k in lengths:
            events = math.perm(data.n_items, k)
            millions = events * len(data) * n_learners / 1e6
            if events > _MANY_EVENTS:
                yield f"{data.name}: k = {k} has {events:,} events: {millions:,.0f} million probabilities per family"


def _datasets(names: tuple[str, ...], data: Path | None, labels: tuple[str, ...]) -> list[Dataset]:
    from rmcalib.tabular import load_dataset, read_csv

    if data is None:
        refuse({"--labels": labels}, "the labels of --dataset are built in; use it with --data")
        return [load_dataset(name) for name in names or ("iris",)]
    refuse({"--dataset": names}, "the data are those of --data")
    columns = list(labels) or ["L"]
    return [read_csv(data, columns[0] if len(columns) == 1 else columns)]


def _lengths(given: tuple[str, ...], largest: int) -> tuple[int, ...]:
    if given == ("all",):
        return tuple(range(1, largest + 1))
    if not all(part.isdecimal() for part in given):
        raise ValueError(f"--k {','.join(given)}: expected numbers, or 'all'")
    lengths = tuple(sorted({int(part) for part in given}))
    if lengths[0] > largest:
        raise ValueError(f"--k {lengths[0]}: more than the {largest} labels that there are to rank")
    return lengths


def _rule(given: str | None) -> Any:
    """Return the rule of --stagewise: "test", or a number."""
    if given in (None, "test"):
        return given
    try:
        return float(given or "")
    except ValueError:
        raise ValueError(f"--stagewise {given}: expected 'test', or an error such as 0.1") from None


def _print(result: ProlrResult, data: Dataset) -> None:
    """Print the mean over folds of each measure and learner, and in brackets that of a calibrated forecast.

    There is a table for each notion, with as many learners side by side as 80 characters have room for.
    """
    means = result.summary
    shown = means[
        (means["dataset"] == data.name) & means["discrepancy"].isin(("", *result.plan.questions.shown))
    ]
    brackets = " (if calibrated)" if shown["null_mean"].notna().any() else ""
    print_lines(f"{data.name}: {len(data):,} rows, {data.n_items} labels; mean over folds{brackets}")
    tables: dict[str, dict[str, dict[str, str]]] = {}
    for row in shown.to_dict("records"):
        heading, measure = _measure(row)
        tables.setdefault(heading, {}).setdefault(measure, {})[row["learner"]] = _cell(row)
    for heading, cells in {**tables, **_stages(result, data)}.items():
        for learners in _side_by_side(heading, cells):
            rows = [[line, *(row.get(name, "–") for name in learners)] for line, row in cells.items()]
            print_lines("")
            print_table(open_console(), [heading, *learners], rows, gap=1)


def _side_by_side(heading: str, cells: dict[str, dict[str, str]]) -> list[list[str]]:
    """Split the learners of a table into groups that fit into 80 characters."""
    first = max(NAME_WIDTH, *map(len, [heading, *cells]))
    groups: list[list[str]] = []
    room = 0
    for learner in dict.fromkeys(name for row in cells.values() for name in row):
        width = 1 + max(len(learner), *(len(row.get(learner, "")) for row in cells.values()))
        if width > room:
            groups.append([])
            room = _WIDTH - first
        groups[-1].append(learner)
        room -= width
    return groups


def _stages(result: ProlrResult, data: Dataset) -> dict[str, dict[str, dict[str, str]]]:
    """Return the first k whose error is too large, by family and learner, with numbers of folds if they differ."""
    stages = result.stages[result.stages["dataset"] == data.name]
    tables: dict[str, dict[str, dict[str, str]]] = {}
    for key, of_learner in stages.groupby(["protocol", "family", "learner"], sort=False):
        protocol, family, learner = cast("tuple[str, str, str]", key)
        counts = of_learner["uncalibrated_from"].value_counts(dropna=False).sort_index()
        names = ["none" if math.isnan(k) else f"{k:.0f}" for k in counts.index]
        folds = [f" ({n})" if len(counts) > 1 else "" for n in counts]
        cell = ", ".join(f"{name}{n}" for name, n in zip(names, folds, strict=True))
        heading = f"uncalibrated from k{_REFERENCE if protocol == 'reference' else ''}"
        tables.setdefault(heading, {}).setdefault(f"{family}-k", {})[learner] = cell
    return tables


def _measure(row: dict[Any, Any]) -> tuple[str, str]:
    """Return the table and the line of a measure."""
    if not row["family"]:
        return "", str(row["notion"]).replace("_", " ")
    reference = _REFERENCE if row["protocol"] == "reference" else ""
    return f"{row['notion']}{reference}", f"{row['family']}-{row['k']}"


def _cell(row: dict[Any, Any]) -> str:
    null = "" if math.isnan(row["null_mean"]) else f" ({row['null_mean']:.3f})"
    return f"{row['mean']:.3f}{null}"
