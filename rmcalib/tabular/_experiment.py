"""Cross-validated experiments: data sets × learners × folds, in parallel and resumable."""

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from rmcalib import __version__
from rmcalib._util.arrays import FloatArray, IntArray, check_choice, check_integer
from rmcalib._util.display import count
from rmcalib._util.files import write_csv, write_text
from rmcalib._util.processes import PeerError, end_with_parent, spared
from rmcalib._util.storage import as_path, read_file
from rmcalib._util.texts import parse_json
from rmcalib.calibration import fit_temperature
from rmcalib.calibration.reference import ENUMERATED_BELOW
from rmcalib.ranking import Mixture, PairMarginals, PlackettLuce, RankingDistribution
from rmcalib.ranking._distribution import HasTemperature
from rmcalib.tabular import _reference as reference
from rmcalib.tabular._datasets import Dataset, Encoder, fit_encoder, load_dataset
from rmcalib.tabular._evaluation import Questions, Row, evaluate
from rmcalib.tabular._learners import LEARNERS, Learner, LearnerFactory
from rmcalib.tabular._results import ProlrResult

COLUMNS = (
    *("dataset", "learner", "fold", "family", "notion", "k", "protocol", "discrepancy"),
    *("value", "low", "high", "n", "n_events", "null_mean", "null_high", "p_value", "training", "truth"),
)
"""Columns of the results: what was measured, the value with its interval, numbers of test rows and events,
the null distribution (mean, 95% point, p-value), and how the run was made."""
NUMBERS = ("value", "low", "high", "null_mean", "null_high", "p_value")
_CALIBRATION_SHARE = 0.2


@dataclass(frozen=True)
class Plan:
    """What an experiment does with each data set.

    Parameters
    ----------
    learners : tuple of str
        Names from ``LEARNERS``.
    folds : int
        Number of folds of the cross-validation.
    seed : int
        Seed of splits, networks and resampling.
    training : {"exact", "reference"}
        Train as the paper describes, or as its public code does. That code has 5 folds, and seed 42 for
        splits and networks; ``seed`` is then for the trees of rpc and pl-rpc, which it does not seed.
    truth : {"data", "model"}
        Evaluate forecasts on the data, or on rankings drawn from the forecast itself. The latter is a
        control: every forecast is then calibrated.
    recalibrate : bool
        Fit each learner on 80% of the training fold, drawn at random, and repairs on the other 20%: a
        temperature ("pl+t"), and mixtures with the uniform distribution ("rc+u") and with Plackett-Luce
        ("rc+pl"). The same fit is reported without and with each. rpc has no distribution to repair. If all
        held-out rows are forecast correctly, the best temperature would be zero, and none is applied.
    questions : Questions
        What to measure.

    Examples
    --------
    >>> Plan(learners=("pl", "mallows"), folds=10).seed
    0
    """

    learners: tuple[str, ...] = ("pl", "mallows", "rc", "rpc", "pl-rpc")
    folds: int = 5
    seed: int = 0
    training: Literal["exact", "reference"] = "exact"
    truth: Literal["data", "model"] = "data"
    recalibrate: bool = False
    questions: Questions = field(default_factory=Questions)

    def __post_init__(self) -> None:
        """Check the options."""
        for name in self.learners:
            check_choice(name, "learner", tuple(LEARNERS))
        check_integer(self.folds, "folds", 2)
        check_integer(self.seed, "seed", 0)
        check_choice(self.training, "training", ("exact", "reference"))
        check_choice(self.truth, "truth", ("data", "model"))
        if self.training == "reference" and (self.folds != reference.FOLDS or self.recalibrate):
            raise ValueError("training: the reference setting has 5 folds and its own temperature")
        if self.truth == "model" and "rpc" in self.learners:
            raise ValueError("learner: rpc has no distribution over rankings, which truth='model' needs")


def run_prolr(
    data: str | Dataset | Sequence[str | Dataset] = "iris",
    plan: Plan | None = None,
    *,
    learners: Mapping[str, LearnerFactory] | None = None,
    folder: str | Path | None = None,
    processes: int = 1,
    fresh: bool = False,
    on_done: Callable[[str], None] = lambda label: None,  # noqa: ARG005 (for a progress bar)
) -> ProlrResult:
    """Train label-ranking learners by cross-validation and measure the calibration of their forecasts.

    Parameters
    ----------
    data : str, Dataset, or a sequence of them
        Names of public data sets (``DATASETS``), or your own from :func:`read_csv`.
    plan : Plan, optional
        Learners, folds, seed, and what to measure. ``Plan()`` by default.
    learners : mapping of str to callable, optional
        Your own learners, which replace those of the plan. Each value is a function that takes a seed and
        returns a :class:`Learner`. ``LEARNERS`` holds the built-in ones.
    folder : str or Path, optional
        Where finished folds are kept. Running the same experiment again continues where it stopped. By
        default, nothing is kept.
    processes : int
        Number of folds that are trained at the same time. With more than one, your own learners must be
        functions or classes of a module.
    fresh : bool
        Start over, even if ``folder`` holds another run.
    on_done : callable
        Called with the label of each finished fold.

    Returns
    -------
    ProlrResult
        The results are in ``table``, their means over folds in ``summary``.

    Examples
    --------
    >>> from rmcalib.tabular import LEARNERS, Questions
    >>> plan = Plan(folds=2, questions=Questions(sub=(2,), top=(), resamples=0))
    >>> result = run_prolr("iris", plan, learners={"my-mallows": LEARNERS["mallows"]})
    >>> result.summary[["learner", "notion", "folds"]].values.tolist()[0]
    ['my-mallows', 'kendall_tau', 2]
    """
    given = [data] if isinstance(data, str | Dataset) else list(data)
    datasets = tuple(load_dataset(dataset) if isinstance(dataset, str) else dataset for dataset in given)
    plan = Plan() if plan is None else plan
    factories: dict[str, LearnerFactory | None] = dict(
        dict.fromkeys(plan.learners) if learners is None else learners
    )
    check_integer(processes, "processes", 1)
    if not datasets or not factories:
        raise ValueError(f"{'learners' if datasets else 'data'}: none given")
    names = [dataset.name for dataset in datasets]
    if len(set(names)) < len(names):
        raise ValueError(f"data: two data sets are called {max(names, key=names.count)!r}")
    for dataset in datasets:
        if len(dataset) < 2 * plan.folds:
            raise ValueError(
                f"{dataset.name}: {count(len(dataset), 'row')} are too few for {plan.folds} folds of two or more"
            )
    if learners is not None and plan.training == "reference":
        raise ValueError("training: 'reference' cannot train other learners; use training='exact'")
    for name in factories:
        if not re.fullmatch(r"[\w.+-]+", name) or "__" in name:
            raise ValueError(f"learners: bad name {name!r}; use letters, digits, '-', '_', '.' and '+'")
    with TemporaryDirectory() as temporary:
        where = as_path(temporary if folder is None else folder)
        jobs = {}
        for dataset, (name, factory), fold in product(datasets, factories.items(), range(plan.folds)):
            job = Job(dataset, name, fold, plan, factory)
            jobs[where / "parts" / f"{job.label}__{job.key}.json"] = job
        done = [] if fresh else [path for path in jobs if path.is_file()]
        for path in done:
            on_done(jobs[path].label)
        _run({path: job for path, job in jobs.items() if path not in done}, processes, on_done)
        import pandas as pd

        rows = [row for path in jobs for row in parse_json(read_file(path), str(path))]
        table = pd.DataFrame(rows, columns=COLUMNS).astype(
            {**dict.fromkeys(NUMBERS, "float64"), "n_events": "Int64"}
        )
        write_csv(where / "results.csv", table)
    return ProlrResult(datasets, plan, table)


@dataclass(frozen=True, eq=False)
class Job:
    """One data set, learner and fold. ``factory`` makes the learner if it is not one of ``LEARNERS``."""

    data: Dataset
    learner: str
    fold: int
    plan: Plan
    factory: LearnerFactory | None = None

    @property
    def label(self) -> str:
        """The name of the fold in files and progress bars."""
        return f"{self.data.name}__{self.learner}__fold-{self.fold}"

    @property
    def key(self) -> str:
        """A hash of everything that the results of the fold depend on."""
        plan = asdict(self.plan)
        del plan["learners"]
        made_by = getattr(self.factory, "__module__", ""), getattr(self.factory, "__qualname__", "")
        content = [__version__, self.data.fingerprint, self.learner, self.fold, plan, made_by]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _run(jobs: dict[Path, Job], processes: int, on_done: Callable[[str], None]) -> None:
    """Make the rows of each fold, and write them to their file."""
    if processes == 1 or len(jobs) < 2:
        for path, job in jobs.items():
            write_text(path, json.dumps(fold_rows(job)))
            on_done(job.label)
        return
    # Spawned, not forked: torch and BLAS threads do not survive a fork.
    spawn, size = get_context("spawn"), min(processes, len(jobs))
    with ProcessPoolExecutor(size, mp_context=spawn, initializer=end_with_parent) as pool:
        try:
            with spared():
                futures = {pool.submit(fold_rows, job): path for path, job in jobs.items()}
            for future in as_completed(futures):
                path = futures[future]
                write_text(path, json.dumps(future.result()))
                on_done(jobs[path].label)
        except BrokenProcessPool:
            raise PeerError(
                "a process was lost, probably because memory ran out; finished folds are kept: run the same "
                "command again, with fewer processes"
            ) from None
        except BaseException:
            for process in list(pool._processes.values()):  # a fold may take minutes; do not wait for it
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise


def fold_rows(job: Job) -> list[Row]:
    """Train and evaluate one learner on one fold; return rows with columns of ``COLUMNS``."""
    from threadpoolctl import threadpool_limits

    data, plan = job.data, job.plan
    key = [plan.seed, zlib.crc32(data.name.encode()), zlib.crc32(job.learner.encode()), job.fold]
    rng = np.random.default_rng(key)
    # One thread: processes do not compete for cores, and sums do not depend on the number of threads.
    with threadpool_limits(1):
        train, test, forecasts = _forecasts(job, rng)
        rows: list[Row] = []
        for name, dist in forecasts.items():
            orders, everything = data.orders[test], data.orders
            if plan.truth == "model":
                if not isinstance(dist, RankingDistribution):
                    raise ValueError(
                        f"truth: {name} has no distribution over rankings to draw from; use truth='data'"
                    )
                orders = dist.sample(1, rng)[0]
                everything = np.concatenate([data.orders[np.setdiff1d(np.arange(len(data)), test)], orders])
            measured = evaluate(
                dist,
                orders,
                plan.questions,
                counted_on=data.orders[train],
                support=None if data.n_items < ENUMERATED_BELOW else everything,
                rng=rng,
            )
            head: Row = {"dataset": data.name, "learner": name, "fold": job.fold}
            tail: Row = {"training": plan.training, "truth": plan.truth}
            rows += [head | row | tail for row in measured]
    return rows


def _forecasts(job: Job, rng: np.random.Generator) -> tuple[IntArray, IntArray, dict[str, PairMarginals]]:
    """Return training rows, test rows, and the forecasts of the test rows by name."""
    data, plan = job.data, job.plan
    if plan.training == "reference":
        train, _, test = reference.reference_split(len(data), job.fold)
        dist = reference.reference_forecast(job.learner, data, job.fold, seed=plan.seed)
        return train, test, {job.learner: dist}
    from sklearn.model_selection import KFold

    splits = KFold(plan.folds, shuffle=True, random_state=plan.seed).split(data.orders)
    train, test = list(splits)[job.fold]
    held_out = train[:0]
    if plan.recalibrate:
        shuffled = rng.permutation(train)
        n_held_out = max(1, round(_CALIBRATION_SHARE * len(train)))
        held_out, train = np.sort(shuffled[:n_held_out]), np.sort(shuffled[n_held_out:])
    encode = fit_encoder(data, train)
    factory = LEARNERS[job.learner] if job.factory is None else job.factory
    model = factory(plan.seed).fit(encode(train), data.orders[train])
    dist = model.predict(encode(test))
    if not isinstance(dist, PairMarginals) or (len(dist), dist.n_items) != (len(test), data.n_items):
        raise ValueError(
            f"learner {job.learner}: predict returned {dist!r:.60}, expected a distribution over rankings "
            f"(rmcalib.ranking) or pair marginals, of {len(test)} rows and {data.n_items} labels"
        )
    forecasts = {job.learner: dist}
    if plan.recalibrate and isinstance(dist, RankingDistribution):
        repaired = _repaired(job, model, encode, train, held_out, test)
        forecasts |= {f"{job.learner}+{name}": forecast for name, forecast in repaired.items()}
    return train, test, forecasts


def _repaired(
    job: Job, model: Learner, encode: Encoder, train: IntArray, held_out: IntArray, test: IntArray
) -> dict[str, PairMarginals]:
    """Return the model's forecast for the test rows, with each of the repairs fitted on held-out rows."""
    orders, x, x_test = job.data.orders, encode(held_out), encode(test)
    before: Any = model.predict(x)
    dist: Any = model.predict(x_test)
    forecasts: dict[str, PairMarginals] = {}
    if isinstance(before, HasTemperature):
        fit = fit_temperature(before, orders[held_out])
        # If all held-out rows are forecast correctly, the best temperature is zero: certainty. A few rows
        # cannot justify that.
        forecasts["t"] = dist.at_temperature(1.0 if fit.at_limit == "cold" else fit.temperature)
    others: dict[str, Callable[[FloatArray], Any]] = {
        "u": lambda features: PlackettLuce(np.zeros((len(features), orders.shape[1])))  # uniform
    }
    if job.learner != "pl":
        others["pl"] = LEARNERS["pl"](job.plan.seed).fit(encode(train), orders[train]).predict
    for name, predict in others.items():
        weights = Mixture.fit([before, predict(x)], orders[held_out]).weights
        forecasts[name] = Mixture([dist, predict(x_test)], weights)
    return forecasts
