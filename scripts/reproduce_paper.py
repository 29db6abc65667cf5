"""Reproduce the paper, and say where exact computation changes the picture.

    python scripts/reproduce_paper.py --processes 2

results/*.csv.gz hold the rows of all folds that are finished, and come with the repository. Only what is
missing is computed, from the cheapest to the dearest, with data sets that are downloaded (or found in
RMCALIB_DATA). Then all tables and figures of results/ are made from the rows. Run the same command again to
continue after a stop.

--report makes tables and figures from the rows that are there. --fresh forgets the rows first, and computes
all again: do that after a change of the learners or of the errors, which a row does not know of.
"""

import argparse
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from reproduce_report import write_compressed, write_report

from rmcalib.tabular import Plan, Questions, run_prolr
from rmcalib.tabular._datasets import SHA256
from rmcalib.tabular._experiment import COLUMNS, NUMBERS

RESULTS = Path(__file__).parents[1] / "results"
SMALL = ("iris", "wine", "political", "glass", "authorship", "vehicle")
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
    """Time of one data set on one core, on average."""


def steps() -> list[Step]:
    """Every experiment, the cheap ones first."""
    same = Plan(training="reference", questions=Questions(notions=_WEAK, resamples=0))
    recalibrated = Plan(learners=SAMPLING, recalibrate=True, questions=_RECALIBRATION)
    control = Plan(learners=SAMPLING, training="reference", truth="model", questions=_CONTROL)
    seeds = [replace(_REFERENCE_PLAN, learners=PAIRWISE, seed=seed) for seed in (1, 2)]
    largest = replace(_EXACT, sub=(2,), top=(1, 2), notions=_WEAK)
    return [
        Step("reference", SMALL, _REFERENCE_PLAN, 0.2),
        *(Step(f"seed{plan.seed}", (*SMALL, "vowel"), plan, 0.2) for plan in seeds),
        Step("same", (*SMALL, "vowel", "yeast", "movies"), same, 0.5),
        Step("recalibration", SMALL, recalibrated, 0.4),
        Step("control", SMALL, control, 0.3),
        Step("exact", SMALL, Plan(questions=_EXACT), 1.6),
        Step("recalibration", ("vowel", "movies", "yeast"), recalibrated, 2.7),
        Step("reference", ("vowel", "yeast"), _REFERENCE_PLAN, 2),
        Step("control", ("vowel", "movies", "yeast"), control, 2.3),
        Step("reference", ("segment", "movies"), _REFERENCE_PLAN, 23),
        *(Step(f"seed{plan.seed}", ("segment",), plan, 2) for plan in seeds),
        Step("reference", ("libras",), _LIBRAS, 23),
        Step("exact", ("vowel", "movies", "yeast", "libras"), Plan(questions=_EXACT), 15),
        Step("same", ("libras", "segment"), same, 0.4),
        Step("recalibration", ("libras", "segment"), recalibrated, 1.2),
        Step("control", ("libras", "segment"), control, 1),
        Step("exact", ("segment",), Plan(questions=replace(_EXACT, notions=_WEAK)), 3),
        Step("exact", ("pendigits",), Plan(questions=largest), 15),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of rows, tables and figures")
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"), help="folds of unfinished steps")
    parser.add_argument("--datasets", default="", help="only these, separated by commas")
    parser.add_argument("--tables", default="", help="only these, separated by commas")
    parser.add_argument("--report", action="store_true", help="run nothing; use the rows that are there")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="forget the rows of these data sets and tables first; if it is stopped, continue without it",
    )
    options = parser.parse_args()
    chosen = [
        replace(step, datasets=tuple(name for name in step.datasets if _asked(name, options.datasets)))
        for step in steps()
        if _asked(step.table, options.tables)
    ]
    if options.fresh:
        forget(chosen, options.results, options.runs)
    if not options.report:
        run(chosen, options.results, options.runs, options.processes)
    write_report(collect(steps(), options.results), options.results)


def run(chosen: list[Step], results: Path, runs: Path, processes: int) -> None:
    """Compute the rows that are missing, with a progress bar that counts folds."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    todo = [
        (step, name, learners)
        for step in chosen
        for name in step.datasets
        if (learners := missing(step, name, read_rows(results, step.table)))
    ]
    total = sum(len(learners) * step.plan.folds for step, _, learners in todo)
    minutes = sum(step.minutes * len(learners) / len(step.plan.learners) for step, _, learners in todo)
    print(f"{total} folds are missing: about {minutes / processes:.0f} minutes if {processes} cores are free")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("folds", total=total)
        for step, name, learners in todo:

            def done(label: str, table: str = step.table) -> None:
                progress.update(task, advance=1, description=f"{table} {label.replace('__', ' ')}")

            plan = replace(step.plan, learners=learners)
            found = run_prolr(name, plan, folder=runs, processes=processes, on_done=done).table
            rows = [read_rows(results, step.table), found.assign(plan=plan_key(name, plan))]
            write_compressed(results / f"{step.table}.csv.gz", pd.concat(rows, ignore_index=True))


def forget(chosen: list[Step], results: Path, runs: Path) -> None:
    """Drop the rows of the chosen steps, and their folds."""
    for step in chosen:
        rows = read_rows(results, step.table)
        write_compressed(results / f"{step.table}.csv.gz", rows[~rows["dataset"].isin(step.datasets)])
        for name in step.datasets:
            for path in (runs / "parts").glob(f"{name}__*__fold-*.json"):
                path.unlink()


def collect(every: list[Step], results: Path) -> dict[str, pd.DataFrame]:
    """Return the finished rows of each table, in the order of the steps; print what is missing."""
    found: dict[str, list[pd.DataFrame]] = {}
    for step in every:
        for name in step.datasets:
            rows = read_rows(results, step.table)
            found.setdefault(step.table, []).append(finished(step, name, rows))
            left = missing(step, name, rows)
            if left:
                command = f"--tables {step.table} --datasets {name}"
                print(
                    f"not made: {step.table} of {name}, {', '.join(left)} ({command}: {step.minutes:g} min)"
                )
    return {table: pd.concat(rows, ignore_index=True) for table, rows in found.items()}


def finished(step: Step, name: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a data set that this plan made, of learners whose folds are all there."""
    own = rows[(rows["dataset"] == name) & (rows["plan"] == plan_key(name, step.plan))]
    return own[own.groupby(_learner(own))["fold"].transform("nunique") == step.plan.folds]


def missing(step: Step, name: str, rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the learners of a step that have no finished rows for a data set."""
    there = set(_learner(finished(step, name, rows)))
    return tuple(learner for learner in step.plan.learners if learner not in there)


def plan_key(name: str, plan: Plan) -> str:
    """Return a hash of a data set's file and of what is done with it, without the names of the learners."""
    content = asdict(plan)
    del content["learners"], content["questions"]["stagewise"]  # no step asks for it
    return hashlib.sha256(json.dumps([SHA256[name], content], sort_keys=True).encode()).hexdigest()[:12]


def read_rows(results: Path, table: str) -> pd.DataFrame:
    """Read the rows of a table; an empty one if there is no file."""
    path = results / f"{table}.csv.gz"
    if not path.is_file():
        return pd.DataFrame(columns=[*COLUMNS, "plan"])
    kinds = dict.fromkeys(NUMBERS, "float64") | {"n_events": "Int64", "plan": "str"}
    empty: Any = {name: [""] for name in (*NUMBERS, "n_events")}
    return pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=empty)


def _learner(rows: pd.DataFrame) -> "pd.Series[str]":
    """Return the learners without their repairs: "rc" for "rc+pl"."""
    return rows["learner"].astype(str).str.split("+").str[0]


def _asked(name: str, listed: str) -> bool:
    return not listed or name in listed.split(",")


if __name__ == "__main__":
    main()
