"""Reproduce the paper's label-ranking experiments, and say where exact computation changes the picture.

    python scripts/reproduce_paper.py --processes 2

Downloads the data sets (or set RMCALIB_DATA), runs the experiments from the cheapest to the dearest, and
writes tables and figures into results/. Every finished fold is kept in --runs: run the same command again to
continue. ``--report`` makes tables and figures from the folds that are there, without running anything.
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from rmcalib.tabular import Dataset, Plan, Questions, load_dataset, run_prolr
from rmcalib.tabular._experiment import Job, read_results

SMALL = ("iris", "wine", "political", "glass", "authorship", "vehicle")
LARGE = ("vowel", "yeast", "movies", "libras", "segment")
SAMPLING = ("pl", "mallows", "rc", "pl-rpc")
PAIRWISE = ("rpc", "pl-rpc")

_WEAK = ("rankwise", "rankwise-95")
_BOTH: Any = ("exact", "reference")
_REFERENCE: Any = ("reference",)
_ABS: Any = ("abs",)
_PUBLISHED = Questions(
    sub=(2, 3, 4, 5, 6),
    top=(1, 2, 3, 4, 5, 6),
    notions=(*_WEAK, "full-rank", "full-rank-95"),
    protocols=_REFERENCE,
    resamples=0,
)
_EXACT = Questions(notions=(*_WEAK, "full-rank"), resamples=100)
_RECALIBRATION = Questions(notions=("rankwise",), discrepancies=_ABS, resamples=50, intervals=False)
_CONTROL = Questions(notions=_WEAK, protocols=_BOTH, discrepancies=_ABS, intervals=False)
_REFERENCE_PLAN = Plan(training="reference", questions=_PUBLISHED)
# Only these cells of libras are published.
_LIBRAS = replace(
    _REFERENCE_PLAN,
    learners=("pl", "rc", "rpc", "pl-rpc"),
    questions=replace(_PUBLISHED, notions=("rankwise", "full-rank"), discrepancies=_ABS),
)


@dataclass(frozen=True)
class Step:
    """Data sets and what is done with them; ``table`` names the file of results/ that the rows go to."""

    table: str
    datasets: tuple[str, ...]
    plan: Plan
    minutes: float
    """Time of all data sets on one busy core; a guess for steps whose folds were not all run."""


def steps() -> list[Step]:
    """Every experiment, the cheap ones first."""
    same = Plan(training="reference", questions=Questions(notions=_WEAK, resamples=0))
    recalibrated = Plan(learners=SAMPLING, recalibrate=True, questions=_RECALIBRATION)
    control = Plan(learners=SAMPLING, training="reference", truth="model", questions=_CONTROL)
    seeds = [replace(_REFERENCE_PLAN, learners=PAIRWISE, seed=seed) for seed in (1, 2)]
    largest = replace(_EXACT, sub=(2,), top=(1, 2), notions=_WEAK)
    return [
        Step("reference", SMALL, _REFERENCE_PLAN, 1.3),
        *(Step(f"seed{plan.seed}", (*SMALL, "vowel"), plan, 1) for plan in seeds),
        Step("same", (*SMALL, "vowel", "yeast", "movies"), same, 4),
        Step("recalibration", SMALL, recalibrated, 2.5),
        Step("control", SMALL, control, 2),
        Step("exact", SMALL, Plan(questions=_EXACT), 9.5),
        Step("recalibration", ("vowel", "movies", "yeast"), recalibrated, 8),
        Step("reference", ("vowel", "yeast"), _REFERENCE_PLAN, 4),
        Step("control", ("vowel", "movies", "yeast"), control, 7),
        Step("reference", ("segment", "movies"), _REFERENCE_PLAN, 46),
        Step("reference", ("libras",), _LIBRAS, 23),
        Step("exact", ("vowel", "movies", "yeast", "libras"), Plan(questions=_EXACT), 60),
        Step("same", ("libras", "segment"), same, 5),
        Step("recalibration", ("libras", "segment"), recalibrated, 10),
        Step("control", ("libras", "segment"), control, 10),
        Step("exact", ("segment",), Plan(questions=replace(_EXACT, notions=_WEAK)), 30),
        Step("exact", ("pendigits",), Plan(questions=largest), 60),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"), help="folder of finished folds")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder for tables and figures")
    parser.add_argument("--datasets", default="", help="only these, separated by commas")
    parser.add_argument("--tables", default="", help="only these, separated by commas")
    parser.add_argument("--report", action="store_true", help="run nothing; use the folds that are there")
    options = parser.parse_args()
    chosen = [
        replace(step, datasets=tuple(name for name in step.datasets if _asked(name, options.datasets)))
        for step in steps()
        if _asked(step.table, options.tables)
    ]
    if not options.report:
        run(chosen, options.runs, options.processes)
    tables = collect(steps(), options.runs)
    missing = {step.table for step in steps()} - set(tables)
    if missing:
        print(f"no report yet: nothing of {', '.join(sorted(missing))} is finished")
        return
    import reproduce_report

    reproduce_report.write_report(tables, options.results)


def run(chosen: list[Step], folder: Path, processes: int) -> None:
    """Run the steps with a progress bar that counts folds."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    total = sum(len(step.datasets) * len(step.plan.learners) * step.plan.folds for step in chosen)
    whole = {(step.table, step.plan): len(step.datasets) for step in steps()}
    minutes = sum(step.minutes * len(step.datasets) / whole[step.table, step.plan] for step in chosen)
    minutes /= processes
    print(f"{total} folds, about {minutes:.0f} minutes if none is finished and {processes} cores are free")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    start = time.perf_counter()
    with Progress(*columns) as progress:
        task = progress.add_task("folds", total=total)
        for step in chosen:
            for name in step.datasets:

                def done(label: str, table: str = step.table) -> None:
                    progress.update(task, advance=1, description=f"{table} {label.replace('__', ' ')}")

                run_prolr(name, step.plan, folder=folder, processes=processes, on_done=done)
    print(f"took {(time.perf_counter() - start) / 60:.1f} minutes")


def collect(every: list[Step], folder: Path) -> dict[str, pd.DataFrame]:
    """Return the rows of every learner of a data set whose folds are all finished, by table."""
    loaded: dict[str, Dataset] = {}
    found: dict[str, list[pd.DataFrame]] = {}
    for step in every:
        for name in step.datasets:
            if not any((folder / "parts").glob(f"{name}__*")):  # its data may not even be there
                print(f"not made yet: {step.table} {name}")
                continue
            data = loaded.setdefault(name, load_dataset(name))
            for learner in step.plan.learners:
                jobs = [Job(data, learner, fold, step.plan) for fold in range(step.plan.folds)]
                parts = [folder / "parts" / f"{job.label}__{job.key}.csv" for job in jobs]
                if all(path.is_file() for path in parts):
                    found.setdefault(step.table, []).extend(map(read_results, parts))
                else:
                    print(f"not made yet: {step.table} {name} {learner}")
    return {table: pd.concat(rows, ignore_index=True) for table, rows in found.items()}


def _asked(name: str, listed: str) -> bool:
    return not listed or name in listed.split(",")


if __name__ == "__main__":
    main()
