"""One fold of an experiment: train one learner, forecast the test rows, and evaluate the forecast."""

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rmcalib import __version__
from rmcalib._util.arrays import IntArray
from rmcalib.calibration import fit_temperature
from rmcalib.ranking import HasTemperature, Mixture, PairMarginals, PlackettLuce, RankingDistribution
from rmcalib.tabular._datasets import Dataset
from rmcalib.tabular._evaluation import Row, evaluate
from rmcalib.tabular._features import fit_encoder
from rmcalib.tabular._learners import Learner, LearnerFactory, make_learner
from rmcalib.tabular._plan import COLUMNS, Plan
from rmcalib.tabular._reference import reference_forecast, reference_split, reference_support

__all__ = ["Job", "fold_rows"]

_CALIBRATION_SHARE = 0.2


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


def fold_rows(job: Job) -> list[Row]:
    """Train and evaluate one learner on one fold; return rows with the columns ``COLUMNS``."""
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
                orders = _drawn_truth(dist, name, rng)
                everything = np.concatenate([data.orders[np.setdiff1d(np.arange(len(data)), test)], orders])
            found = evaluate(
                dist,
                orders,
                plan.questions,
                counted_on=data.orders[train],
                support=reference_support(everything),
                rng=rng,
            )
            head: Row = {"dataset": data.name, "learner": name, "fold": job.fold}
            tail: Row = {"training": plan.training, "truth": plan.truth}
            rows += [{column: (head | row | tail)[column] for column in COLUMNS} for row in found]
    return rows


def _forecasts(job: Job, rng: np.random.Generator) -> tuple[IntArray, IntArray, dict[str, PairMarginals]]:
    """Return training rows, test rows, and the forecasts of the test rows by name."""
    data, plan = job.data, job.plan
    if plan.training == "reference":
        split = reference_split(len(data), job.fold)
        return split.train, split.test, {job.learner: reference_forecast(job.learner, data, job.fold, seed=plan.seed)}
    from sklearn.model_selection import KFold

    splits = KFold(plan.folds, shuffle=True, random_state=plan.seed).split(data.orders)
    train, test = list(splits)[job.fold]
    held_out = train[:0]
    if plan.recalibrate:
        shuffled = rng.permutation(train)
        n_held_out = max(1, round(_CALIBRATION_SHARE * len(train)))
        held_out, train = np.sort(shuffled[:n_held_out]), np.sort(shuffled[n_held_out:])
    encoder = fit_encoder(data, train)
    learner = make_learner(job.learner, seed=plan.seed) if job.factory is None else job.factory(plan.seed)
    model = learner.fit(encoder.transform(data, train), data.orders[train])
    dist = model.predict(encoder.transform(data, test))
    _check_forecast(dist, len(test), data.n_items, job.learner)
    forecasts = {job.learner: dist}
    if not plan.recalibrate:
        return train, test, forecasts
    held_out_forecast: Any = model.predict(encoder.transform(data, held_out))  # of the same kind as dist
    if isinstance(dist, HasTemperature):
        fit = fit_temperature(held_out_forecast, data.orders[held_out])
        # If all held-out rows are forecast correctly, the best temperature is zero: certainty. A few rows
        # cannot justify that.
        temperature = 1.0 if fit.at_limit == "cold" else fit.temperature
        forecasts[f"{job.learner}+t"] = dist.at_temperature(temperature)
    if isinstance(dist, RankingDistribution):
        for name, other in _others(job.learner, plan.seed).items():
            fitted = other.fit(encoder.transform(data, train), data.orders[train])
            weights = Mixture.fit(
                [held_out_forecast, fitted.predict(encoder.transform(data, held_out))], data.orders[held_out]
            ).weights
            here: Any = fitted.predict(encoder.transform(data, test))
            forecasts[f"{job.learner}+{name}"] = Mixture([dist, here], weights)
    return train, test, forecasts


class _Uniform:
    """A learner whose forecast is the uniform distribution."""

    def fit(self, X: ArrayLike, orders: ArrayLike) -> "_Uniform":
        self.n_items = np.shape(orders)[1]
        return self

    def predict(self, X: ArrayLike) -> PlackettLuce:
        return PlackettLuce(np.zeros((len(np.asarray(X)), self.n_items)))


def _others(learner: str, seed: int) -> dict[str, Learner]:
    """Return what a forecast is mixed with to repair it."""
    return {"u": _Uniform()} | ({} if learner == "pl" else {"pl": make_learner("pl", seed=seed)})


def _drawn_truth(dist: PairMarginals, name: str, rng: np.random.Generator) -> IntArray:
    if not isinstance(dist, RankingDistribution):
        raise ValueError(f"truth: {name} has no distribution over rankings to draw from; use truth='data'")
    return dist.sample(1, rng)[0]


def _check_forecast(dist: object, n: int, n_items: int, name: str) -> None:
    """Raise a ValueError if a learner's prediction is not a forecast of these rows."""
    if not isinstance(dist, PairMarginals):
        raise ValueError(
            f"learner {name}: predict returned {type(dist).__name__}, expected a distribution over rankings "
            "(rmcalib.ranking) or pair marginals"
        )
    if (len(dist), dist.n_items) != (n, n_items):
        raise ValueError(
            f"learner {name}: predict returned {len(dist)} forecasts of {dist.n_items} labels, "
            f"expected {n} of {n_items}"
        )
