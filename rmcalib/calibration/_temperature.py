"""Recalibration: temperatures for distributions over rankings, maps for single probabilities, cross-fitting.

A temperature T divides log-utilities or logits (or a Mallows dispersion), so that T > 1 makes a forecast less
confident. The negative log-likelihood is convex in 1/T for all of them; the optimum is found by bracketing
its derivative and checked, not just iterated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import (
    FloatArray,
    IntArray,
    as_floats,
    as_groups,
    check_integer,
)
from rmcalib.calibration._notions import check_orders_for
from rmcalib.ranking import Mallows, PlackettLuce, RankingDistribution, SparseRankings, index_of_orders

__all__ = [
    "TemperatureFit",
    "cross_fit",
    "fit_temperature",
    "fit_temperature_per_group",
    "scale_temperature",
]

LOG_RANGE = (-20.0, 20.0)

Slope = Callable[[float], float]


@dataclass(frozen=True)
class TemperatureFit:
    """The best temperature, and the check that it is one.

    slope: derivative of the mean negative log-likelihood by log(1/T) at the optimum, 0 up to rounding unless
    ``at_limit``: the data asks for a temperature of zero (every forecast right: "cold") or infinity (no
    better than a uniform forecast: "hot"), and T is the end of the range searched.
    """

    temperature: float
    slope: float
    at_limit: str | None
    n: int


def fit_temperature(dist: RankingDistribution, orders: ArrayLike) -> TemperatureFit:
    """Fit the temperature of a Plackett-Luce, Mallows or SparseRankings forecast to rankings (n, m).

    >>> rng = np.random.default_rng(0)
    >>> utilities = rng.normal(size=(2000, 4))
    >>> fit = fit_temperature(PlackettLuce(3 * utilities), PlackettLuce(utilities).sample(1, rng)[0])
    >>> bool(2.8 < fit.temperature < 3.2), fit.at_limit
    (True, None)
    """
    array = check_orders_for(dist, orders)
    return find_temperature(_slope(dist, array), len(array))


def fit_temperature_per_group(
    dist: RankingDistribution, orders: ArrayLike, groups: ArrayLike
) -> dict[Any, TemperatureFit]:
    """Fit one temperature for each group (category) of instances: {label: fit}.

    >>> dist = PlackettLuce([[1.0, 0.0]] * 4)
    >>> fits = fit_temperature_per_group(dist, [[0, 1], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"])
    >>> {label: fit.at_limit for label, fit in fits.items()}
    {'a': 'hot', 'b': 'cold'}
    """
    array = check_orders_for(dist, orders)
    labels = np.asarray(groups)
    if labels.shape != (len(array),):
        raise ValueError(f"groups: expected {len(array)} labels, got shape {labels.shape}")
    rows = {label.item(): np.flatnonzero(labels == label) for label in np.unique(labels)}
    return {
        label: fit_temperature(take_instances(dist, index), array[index]) for label, index in rows.items()
    }


def scale_temperature(dist: RankingDistribution, temperature: ArrayLike) -> RankingDistribution:
    """Return the forecast at ``temperature``, one number or one for each instance (n,).

    >>> scale_temperature(PlackettLuce([[2.0, 0.0]]), 2.0).log_utilities
    array([[1., 0.]])
    """
    t = as_floats(np.atleast_1d(np.asarray(temperature, dtype=np.float64)), "temperature", ndim=1)
    if (t <= 0).any():
        raise ValueError(f"temperature: {t.min()} is not positive")
    if len(t) not in (1, len(dist)):
        raise ValueError(f"temperature: {len(t)} values for {len(dist)} instances")
    if isinstance(dist, PlackettLuce):
        return PlackettLuce(dist.log_utilities / t[:, None])
    if isinstance(dist, Mallows):
        return Mallows(dist.center, dist.dispersion / t)
    if isinstance(dist, SparseRankings):
        return SparseRankings(dist.orders, dist.logits / t[:, None], dist.unseen_logit / t)
    raise ValueError(f"dist: {type(dist).__name__} has no temperature (have: {_HAVE_TEMPERATURE})")


def has_temperature(dist: RankingDistribution) -> bool:
    """Return whether there is a temperature to fit.

    >>> has_temperature(PlackettLuce([[0.0, 0.0]]))
    True
    """
    return isinstance(dist, PlackettLuce | Mallows | SparseRankings)


def take_instances(dist: RankingDistribution, index: IntArray) -> RankingDistribution:
    """Return the forecast of some of the instances.

    >>> len(take_instances(PlackettLuce([[0.0, 1.0]] * 3), np.array([0, 2])))
    2
    """
    if isinstance(dist, PlackettLuce):
        return PlackettLuce(dist.log_utilities[index])
    if isinstance(dist, Mallows):
        return Mallows(dist.center[index], dist.dispersion[index])
    if isinstance(dist, SparseRankings):
        return SparseRankings(dist.orders, dist.logits[index], dist.unseen_logit[index])
    raise ValueError(f"dist: {type(dist).__name__} has no temperature (have: {_HAVE_TEMPERATURE})")


Model = TypeVar("Model")


def cross_fit(
    n: int,
    fit: Callable[[IntArray], Model],
    predict: Callable[[Model, IntArray], FloatArray],
    *,
    folds: int = 5,
    groups: ArrayLike | None = None,
    rng: np.random.Generator | int = 0,
) -> FloatArray:
    """Predict every row with a model fitted on other folds: what an improvement is worth on unseen data.

    ``fit(train)`` and ``predict(model, test)`` get row numbers; predictions are (len(test), ...). Rows of a
    group stay in one fold; folds are drawn at random, sizes differ by at most one group.

    >>> values = np.array([1.0, 2.0, 3.0, 4.0])
    >>> cross_fit(4, lambda train: values[train].mean(), lambda mean, test: np.full(len(test), mean), folds=4)
    array([3.        , 2.66666667, 2.33333333, 2.        ])
    """
    index = as_groups(groups, check_integer(n, "n", 2))
    n_groups = int(index.max()) + 1
    check_integer(folds, "folds", 2, n_groups)
    fold = np.random.default_rng(rng).permutation(np.arange(n_groups) % folds)[index]
    parts: Sequence[IntArray] = [np.flatnonzero(fold == number) for number in range(folds)]
    results = [predict(fit(np.flatnonzero(fold != number)), test) for number, test in enumerate(parts)]
    together = np.concatenate(results)
    together[np.concatenate(parts)] = together.copy()
    return together


_HAVE_TEMPERATURE = "PlackettLuce, Mallows, SparseRankings"


def _slope(dist: RankingDistribution, orders: IntArray) -> Slope:
    """Derivative of the mean negative log-likelihood by β = 1/T."""
    if isinstance(dist, PlackettLuce):
        ordered = np.take_along_axis(dist.log_utilities, orders, axis=1)[:, ::-1]
        return lambda beta: float((_running_mean(ordered, beta) - ordered).sum(axis=1).mean())
    if isinstance(dist, Mallows):
        return _mallows_slope(dist, orders)
    if isinstance(dist, SparseRankings):
        return _sparse_slope(dist, orders)
    raise ValueError(f"dist: {type(dist).__name__} has no temperature (have: {_HAVE_TEMPERATURE})")


def _running_mean(values: FloatArray, beta: float) -> FloatArray:
    """Mean of the first j values under weights exp(β·value), for every j: (n, m)."""
    logits = beta * values
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    totals = np.cumsum(weights, axis=1)
    if (totals > 1e-250).all():
        return np.cumsum(weights * values, axis=1) / totals
    # Far-apart utilities: the first items weigh nothing beside the largest, so scale every prefix by its own.
    peaks = np.maximum.accumulate(logits, axis=1)
    prefix = np.tri(values.shape[1], dtype=bool)
    scaled = np.exp(np.where(prefix, logits[:, None, :] - peaks[:, :, None], -np.inf))
    result: FloatArray = (scaled * values[:, None, :]).sum(axis=2) / scaled.sum(axis=2)
    return result


def _mallows_slope(dist: Mallows, orders: IntArray) -> Slope:
    places = np.take_along_axis(np.argsort(dist.center, axis=1), orders, axis=1)
    distance = np.zeros(len(orders))
    for later in range(1, places.shape[1]):
        distance += (places[:, :later] > places[:, later, None]).sum(axis=1)
    lengths, rate = np.arange(1, dist.n_items + 1), dist.dispersion
    exponents = np.arange(dist.n_items)

    def slope(beta: float) -> float:
        powers = np.exp(-beta * rate[:, None] * exponents)
        expected = np.cumsum(powers * exponents, axis=1) / np.cumsum(powers, axis=1)
        return float((rate * (distance - expected[:, lengths - 1].sum(axis=1))).mean())

    return slope


def _sparse_slope(dist: SparseRankings, orders: IntArray) -> Slope:
    from rmcalib.ranking import log_integer

    index = index_of_orders(dist.orders, orders)
    extended = np.column_stack([dist.logits, dist.unseen_logit])
    happened = extended[np.arange(len(orders)), index]
    if np.isneginf(happened).any():
        row = int(np.argmax(np.isneginf(happened)))
        raise ValueError(f"orders: row {row} has probability 0 at every temperature (unseen_logit is -inf)")
    multiplicity = np.zeros(extended.shape[1])
    multiplicity[-1] = log_integer(dist.n_unseen)
    possible = np.isfinite(extended) & np.isfinite(multiplicity)
    values = np.where(possible, extended, 0.0)

    def slope(beta: float) -> float:
        logits = np.where(possible, beta * values + multiplicity, -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return float(((weights * values).sum(axis=1) / weights.sum(axis=1) - happened).mean())

    return slope


def find_temperature(slope: Slope, n: int) -> TemperatureFit:
    """Find the zero of a rising function of log β, and report what is left there."""
    from scipy.optimize import brentq

    low, high = LOG_RANGE
    if slope(np.exp(low)) >= 0:
        return TemperatureFit(float(np.exp(-low)), slope(np.exp(low)) * float(np.exp(low)), "hot", n)
    if slope(np.exp(high)) <= 0:
        return TemperatureFit(float(np.exp(-high)), slope(np.exp(high)) * float(np.exp(high)), "cold", n)
    # Brent's method takes some twenty slopes where bisection takes fifty and more.
    beta = float(np.exp(brentq(lambda log_beta: slope(np.exp(log_beta)), low, high, xtol=1e-14)))
    return TemperatureFit(1 / beta, slope(beta) * beta, None, n)
