"""``rmcalib prolr``: cross-validated calibration of label-ranking learners."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli._shared.options import (
    MOST_RESAMPLES,
    Common,
    Seed,
    refuse_options,
    results_folder,
    with_options,
)
from rmcalib.cli._shared.places import input_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rmcalib.tabular import Dataset, ProlrResult

__all__ = ["prolr"]

_SHOWN = ("abs", "l2-squared", "l1")  # one discrepancy per notion: the last two are full-rank's


@with_options()
def prolr(
    *,
    context: typer.Context,
    dataset: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Data sets, separated by commas; iris and wine need no network."),
    ] = "iris",
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=input_file, help="Your own CSV file, instead of --dataset."),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Columns of --data with the ranks, from 1: names separated by commas, or a common prefix.",
        ),
    ] = "L",
    learner: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Learners, separated by commas: pl, mallows, rc, rpc, pl-rpc."),
    ] = "pl,mallows,rc,rpc,pl-rpc",
    folds: Annotated[
        int, typer.Option(min=2, metavar="N", help="Number of folds of the cross-validation.")
    ] = 5,
    k: Annotated[
        str,
        typer.Option(
            "--k",
            metavar="LIST",
            help="Lengths k, separated by commas, or 'all'; sub-k from 2, top-k from 1.",
        ),
    ] = "1,2,3",
    notion: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Notions, separated by commas: rankwise, rankwise-95 (frequent events only), full-rank, "
            "full-rank-95 (reference protocol only).",
        ),
    ] = "rankwise,rankwise-95",
    discrepancy: Annotated[
        str,
        typer.Option(metavar="NAMES", help="How rankwise errors differ: abs, kl, jeffreys, jeffreys_unit."),
    ] = "abs,jeffreys_unit",
    bandwidth: Annotated[
        float | None,
        typer.Option(metavar="H", help="Bandwidth of the kernel of full-rank; by default it is chosen."),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="How to measure: exact, reference (the paper's public code), or both."
        ),
    ] = "exact",
    training: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="How to train: exact (as the paper says) or reference (its public code)."
        ),
    ] = "exact",
    recalibrate: Annotated[
        bool, typer.Option("--recalibrate", help="Also fit a temperature on a fifth of each training fold.")
    ] = False,
    stagewise: Annotated[
        bool,
        typer.Option(
            "--stagewise",
            help="Test each k in turn, and stop where the error is too large for a calibrated forecast.",
        ),
    ] = False,
    resamples: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_RESAMPLES,
            metavar="N",
            help="Number of resamples for intervals and p-values.",
        ),
    ] = 100,
    processes: Annotated[int, typer.Option(min=1, metavar="N", help="Folds to train at the same time.")] = 1,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over, and replace what an earlier run left in the folder.")
    ] = False,
    output: Annotated[Path | None, results_folder("runs/prolr/<data set>")] = None,
    seed: Seed = 0,
    common: Common,
) -> None:
    """Train label-ranking learners by cross-validation and measure the calibration of their distributions.

    Writes results.csv (one row per measure), summary.csv (means over folds) and
    a figure per data set. The same command resumes a run that was killed.
    """
    from rmcalib.tabular import Plan, Questions, run_prolr

    given = {"dataset": dataset, "learner": learner, "k": k, "notion": notion, "discrepancy": discrepancy}
    for option, text in given.items():
        if not _split(text):
            raise ValueError(f"--{option}: names nothing")
    if data is None:
        refuse_options(context, ("labels",), "a data set by name, which knows its labels")
    else:
        refuse_options(context, ("dataset",), "--data")
    datasets = _datasets(dataset, data, labels)
    lengths = _lengths(k, max(one.n_items for one in datasets))
    protocols: Any = ("exact", "reference") if protocol == "both" else (protocol,)
    how: Any = training
    discrepancies: Any = tuple(_distinct(discrepancy))
    questions = Questions(
        sub=tuple(length for length in lengths if length >= 2),
        top=lengths,
        notions=tuple(_distinct(notion)),
        protocols=protocols,
        discrepancies=discrepancies,
        bandwidth=bandwidth,
        resamples=resamples,
        stagewise=stagewise,
    )
    learners = tuple(_distinct(learner))
    plan = Plan(learners, folds, seed, how, recalibrate=recalibrate, questions=questions)
    if not common.quiet:
        for line in plan.costs(datasets):
            typer.echo(line, err=True)
    folder = output or Path("runs/prolr") / "+".join(one.name for one in datasets)
    with _progress(len(datasets) * len(plan.learners) * plan.folds, show=not common.quiet) as advance:
        result = run_prolr(datasets, plan, folder=folder, processes=processes, fresh=fresh, on_done=advance)
    results, _, *figures = result.write(folder)
    verdicts = result.verdicts if stagewise else []
    if common.json:
        rows = result.summary.to_dict("records")
        content = {
            "results": str(results),
            "figures": [str(path) for path in figures],
            "stagewise": verdicts,
            "summary": [{name: _plain(value) for name, value in row.items()} for row in rows],
        }
        typer.echo(json.dumps(content, allow_nan=False))
    elif not common.quiet:
        _print(result, verdicts, [results, *figures])


def _datasets(names: str, file: Path | None, labels: str) -> "list[Dataset]":
    from rmcalib.tabular import load_dataset, read_csv

    if file is not None:
        if not _split(labels):
            raise ValueError("--labels: names nothing")
        return [read_csv(file, _split(labels) if "," in labels else labels)]
    return [load_dataset(name) for name in _distinct(names)]


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _distinct(text: str) -> list[str]:
    """Split and drop repeats: folds that are there twice would count as more of them."""
    return list(dict.fromkeys(_split(text)))


def _lengths(text: str, largest: int) -> tuple[int, ...]:
    if text.strip() == "all":
        return tuple(range(1, largest + 1))
    try:
        lengths = tuple(sorted({int(part) for part in _split(text)}))
    except ValueError:
        raise ValueError(f"k: '{text}' is neither 'all' nor whole numbers separated by commas") from None
    if lengths[0] > largest:
        raise ValueError(f"k: {lengths[0]} is more than the {largest} labels that there are to rank")
    return lengths


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _progress(total: int, *, show: bool) -> "AbstractContextManager[Callable[[str], None]]":
    from contextlib import contextmanager

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from rmcalib._util.terminal import open_console

    @contextmanager
    def bar() -> "Iterator[Callable[[str], None]]":
        console = open_console(stderr=True)
        if not (show and console.is_terminal):  # a disabled bar of rich below 14.3 prints an empty line
            yield lambda _: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("folds", total=total)
            yield lambda label: progress.update(task, advance=1, description=label.replace("__", " "))

    return bar()


def _print(result: "ProlrResult", verdicts: list[str], paths: list[Path]) -> None:
    from rich.table import Table

    from rmcalib._util.terminal import open_console

    console = open_console()
    means = result.summary
    for data in result.datasets:
        own = means[(means["dataset"] == data.name) & means["discrepancy"].isin(("", *_SHOWN))]
        learners = list(own["learner"].unique())
        title = f"{data.name}: {len(data):,} rows, {data.n_items} labels; mean over folds (if calibrated)"
        table = Table(title=title, title_justify="left")
        table.add_column("measure")
        for name in learners:
            table.add_column(name, justify="right")
        cells: dict[str, dict[str, str]] = {}
        for row in own.to_dict("records"):
            cells.setdefault(_measure(row), {})[row["learner"]] = _cell(row)
        for measure, found in cells.items():
            table.add_row(measure, *(found.get(name, "–") for name in learners))
        console.print(table)
    for verdict in verdicts:
        console.print(verdict, highlight=False)
    for path in paths:
        console.print(f"{path.suffix[1:].upper()}: {path.resolve()}", soft_wrap=True, highlight=False)


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
        return _short(row["mean"])
    if row["notion"] == "full-rank":
        return f"{'+' if row['excess'] >= 0 else ''}{_short(row['excess'])}"
    return f"{_short(row['mean'])} ({_short(row['null_mean'])})"


def _short(value: float) -> str:
    """Three decimals without the leading zero, so that five learners fit on a line."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"
