"""Cross-validated experiments: data sets × learners × folds, in parallel, resumable, as one tidy table."""

import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rmcalib import __version__
from rmcalib._util.arrays import IntArray, check_choice, check_integer
from rmcalib._util.files import read_csv_table, write_csv
from rmcalib._util.interrupts import end_with_parent, spared
from rmcalib.calibration import fit_temperature, scale_temperature
from rmcalib.ranking import PairwiseProbabilities, RankingDistribution
from rmcalib.runs import Layout, RunFolder
from rmcalib.tabular._datasets import Dataset
from rmcalib.tabular._evaluation import Questions, Row, evaluate
from rmcalib.tabular._features import fit_encoder
from rmcalib.tabular._learners import LEARNERS, make_learner
from rmcalib.tabular._reference import (
    REFERENCE_FOLDS,
    reference_forecast,
    reference_split,
    reference_support,
)

__all__ = ["COLUMNS", "Plan", "run_experiment", "stagewise_verdicts"]

COLUMNS = (
    *(
        "dataset",
        "learner",
        "fold",
        "family",
        "notion",
        "k",
        "protocol",
        "discrepancy",
        "value",
        "low",
        "high",
    ),
    *("n", "n_events", "null_mean", "null_high", "p_value", "training", "truth"),
)
"""Columns of the results. The first eleven tell a row and its value with its interval; then test rows,
events, what a calibrated forecast would show (mean, 95% point, p-value), and how the run was made."""

_WHOLE = ("fold", "k", "n", "n_events")
_NUMBERS = ("value", "low", "high", "null_mean", "null_high", "p_value")
_CALIBRATION_SHARE = 0.2
_LAYOUT = Layout(("results.csv",), "*__*__fold-*.csv")

Done = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What an experiment does with every data set.

    training: "exact" as the paper says, or "reference" as its public code does (always 5 folds, and its own
    seed, 42, for splits and networks).
    truth: judge forecasts by the "data", or by rankings drawn from the "model" itself, the control in which
    every forecast is calibrated. recalibrate: fit on 80% of each training fold, a temperature on the other
    20%, drawn at random, and report the same fit with it ("pl+t") and without ("pl"); rpc has none. Where
    all held-out rows are forecast right, which asks for a temperature of zero, none is applied.
    """

    learners: tuple[str, ...] = ("pl", "mallows", "rc", "rpc", "pl-rpc")
    folds: int = 5
    seed: int = 0
    training: Literal["exact", "reference"] = "exact"
    truth: Literal["data", "model"] = "data"
    recalibrate: bool = False
    questions: Questions = field(default_factory=Questions)

    def __post_init__(self) -> None:
        """Check every option at once."""
        for name in self.learners:
            check_choice(name, "learner", tuple(LEARNERS))
        check_integer(self.folds, "folds", 2)
        check_integer(self.seed, "seed", 0)
        check_choice(self.training, "training", ("exact", "reference"))
        check_choice(self.truth, "truth", ("data", "model"))
        if self.training == "reference" and (self.folds != REFERENCE_FOLDS or self.recalibrate):
            raise ValueError("training: the reference setting has 5 folds and its own temperature")
        if self.truth == "model" and "rpc" in self.learners:
            raise ValueError("learner: rpc has no distribution over rankings to draw a truth from")


class _Job(NamedTuple):
    data: Dataset
    learner: str
    fold: int
    plan: Plan

    @property
    def label(self) -> str:
        return f"{self.data.name}__{self.learner}__fold-{self.fold}"


def run_experiment(
    datasets: Sequence[Dataset],
    plan: Plan,
    output: str | Path,
    *,
    processes: int = 1,
    fresh: bool = False,
    on_done: Done = lambda label: None,  # noqa: ARG005 (a caller's progress bar gets the label)
) -> list[Row]:
    """Run every data set, learner and fold, and return the rows of ``results.csv``, which it writes.

    Finished folds are kept in ``parts/``: running the same experiment again takes up where it stopped, and
    gives the same numbers whatever the number of processes. Another plan or other data in the same folder
    is refused unless ``fresh``. ``on_done`` hears of each fold, finished now or before.
    """
    check_integer(processes, "processes", 1)
    if not datasets:
        raise ValueError("dataset: none given")
    for data in datasets:
        if len(data) < 2 * plan.folds:
            raise ValueError(
                f"{data.name}: {len(data)} rows are too few for {plan.folds} folds of at least two rows; "
                "use fewer folds or more rows"
            )
    jobs = [
        _Job(data, learner, fold, plan)
        for data in datasets
        for learner in plan.learners
        for fold in range(plan.folds)
    ]
    inputs = {
        "rmcalib": __version__,
        "datasets": {data.name: data.fingerprint for data in datasets},
        "plan": asdict(plan),
    }
    with RunFolder(output, inputs, _LAYOUT, fresh=fresh) as run:
        parts = {job.label: run.parts / f"{job.label}.csv" for job in jobs}
        waiting = []
        for job in jobs:
            if parts[job.label].is_file():
                on_done(job.label)
            else:
                waiting.append(job)
        _run(waiting, parts, processes, on_done)
        rows = [row for job in jobs for row in read_rows(parts[job.label])]
        write_csv(run.folder / "results.csv", rows)
        run.finish()
    return rows


def read_rows(path: str | Path) -> list[Row]:
    """Read rows of results as they were written: numbers as numbers, empty cells as None."""
    table = read_csv_table(path)
    return [
        {name: _cell(name, text) for name, text in zip(table.header, row, strict=True)} for row in table.rows
    ]


def stagewise_verdicts(rows: Sequence[Row], *, threshold: float = 0.1) -> list[str]:
    """Say for each data set and learner from which k on its sub-k error, averaged over folds, is too large.

    A fold stops at the first k that is too large for it; later ones are averaged over the folds that go on.

    >>> row = {"dataset": "d", "learner": "pl", "family": "sub", "notion": "rankwise", "protocol": "exact"}
    >>> stagewise_verdicts([row | {"discrepancy": "abs", "k": 2, "value": 0.2}])
    ['d, pl: uncalibrated from k = 2 on (the sub-2 error is 0.200, above 0.1)']
    >>> found = [(2, 0.12), (2, 0.04), (3, 0.06)]  # of two folds, the first stops at k = 2
    >>> stagewise_verdicts([row | {"discrepancy": "abs", "k": k, "value": value} for k, value in found])
    ['d, pl: no sub-k error above 0.1 up to k = 3 in the 1 of 2 folds that got there']
    """
    key = ("sub", "rankwise", "exact", "abs")
    errors: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        if (row["family"], row["notion"], row["protocol"], row["discrepancy"]) == key:
            by_k = errors.setdefault((row["dataset"], row["learner"]), {})
            by_k.setdefault(row["k"], []).append(row["value"])
    verdicts = []
    for (dataset, learner), by_k in errors.items():
        means = {k: float(np.mean(values)) for k, values in sorted(by_k.items())}
        worst = next((k for k, mean in means.items() if mean > threshold), None)
        k = max(means) if worst is None else worst
        got_there, folds = len(by_k[k]), max(map(len, by_k.values()))
        of_those = "" if got_there == folds else f" in the {got_there} of {folds} folds that got there"
        said = (
            f"no sub-k error above {threshold:g} up to k = {k}{of_those}"
            if worst is None
            else f"uncalibrated from k = {k} on (the sub-{k} error is {means[k]:.3f}{of_those}, "
            f"above {threshold:g})"
        )
        verdicts.append(f"{dataset}, {learner}: {said}")
    return verdicts


def _run(jobs: list[_Job], parts: dict[str, Path], processes: int, on_done: Done) -> None:
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            write_csv(parts[job.label], _results(job))
            on_done(job.label)
        return
    # Spawned, not forked: torch and BLAS threads do not survive a fork.
    spawn, size = get_context("spawn"), min(processes, len(jobs))
    with ProcessPoolExecutor(size, mp_context=spawn, initializer=end_with_parent) as pool:
        try:
            with spared():
                futures = {pool.submit(_results, job): job for job in jobs}
            for future in as_completed(futures):
                label = futures[future].label
                write_csv(parts[label], future.result())
                on_done(label)
        except BaseException:
            for process in list(pool._processes.values()):  # a fold may take minutes, and no half is kept
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise


def _results(job: _Job) -> list[Row]:
    """Train and judge one learner on one fold."""
    from threadpoolctl import threadpool_limits

    data, learner, fold, plan = job
    key = [plan.seed, zlib.crc32(data.name.encode()), zlib.crc32(learner.encode()), fold]
    rng = np.random.default_rng(key)
    # One thread: processes do not fight for cores, and sums do not depend on how work was split.
    with threadpool_limits(1):
        train, test, forecasts = _forecasts(job, rng)
        rows: list[Row] = []
        for name, dist in forecasts.items():
            orders, everything = data.orders[test], data.orders
            if plan.truth == "model":
                orders = dist.sample(1, rng)[0]
                everything = np.concatenate([data.orders[np.setdiff1d(np.arange(len(data)), test)], orders])
            found = evaluate(
                dist,
                orders,
                plan.questions,
                counted_on=data.orders[train],
                support=reference_support(everything),
                rng=rng,
            )
            head: Row = {"dataset": data.name, "learner": name, "fold": fold}
            tail: Row = {"training": plan.training, "truth": plan.truth}
            rows += [{column: (head | row | tail)[column] for column in COLUMNS} for row in found]
    return rows


def _forecasts(
    job: _Job, rng: np.random.Generator
) -> tuple[IntArray, IntArray, dict[str, RankingDistribution]]:
    """Training rows, test rows, and the forecasts of the test rows by name."""
    data, learner, fold, plan = job
    if plan.training == "reference":
        split = reference_split(len(data), fold)
        return split.train, split.test, {learner: reference_forecast(learner, data, fold)}
    from sklearn.model_selection import KFold

    splits = KFold(plan.folds, shuffle=True, random_state=plan.seed).split(data.orders)
    train, test = list(splits)[fold]
    held_out = train[:0]
    if plan.recalibrate:
        shuffled = rng.permutation(train)
        n_held_out = max(1, round(_CALIBRATION_SHARE * len(train)))
        held_out, train = np.sort(shuffled[:n_held_out]), np.sort(shuffled[n_held_out:])
    encoder = fit_encoder(data, train)
    model = make_learner(learner, seed=plan.seed).fit(encoder.transform(data, train), data.orders[train])
    dist = model.predict(encoder.transform(data, test))
    forecasts = {learner: dist}
    if plan.recalibrate and not isinstance(dist, PairwiseProbabilities):
        fit = fit_temperature(model.predict(encoder.transform(data, held_out)), data.orders[held_out])
        # Held-out rows that are all forecast right ask for certainty; a handful of rows cannot justify that.
        temperature = 1.0 if fit.at_limit == "cold" else fit.temperature
        forecasts[f"{learner}+t"] = scale_temperature(dist, temperature)
    return train, test, forecasts


def _cell(name: str, text: str) -> Any:
    if name in _WHOLE:
        return int(text) if text else None
    if name in _NUMBERS:
        return float(text) if text else None
    return text
