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

from rmcalib._util.arrays import FloatArray, IntArray, as_groups, check_integer
from rmcalib.calibration._rankings.questions import check_complete
from rmcalib.ranking import HasTemperature, RankingDistribution

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

    >>> from rmcalib.ranking import PlackettLuce
    >>> rng = np.random.default_rng(0)
    >>> utilities = rng.normal(size=(2000, 4))
    >>> fit = fit_temperature(PlackettLuce(3 * utilities), PlackettLuce(utilities).sample(1, rng)[0])
    >>> bool(2.8 < fit.temperature < 3.2), fit.at_limit
    (True, None)
    """
    array = check_complete(dist, orders, "a temperature")
    return find_temperature(check_temperature(dist).temperature_slope(array), len(array))


def fit_temperature_per_group(
    dist: RankingDistribution, orders: ArrayLike, groups: ArrayLike
) -> dict[Any, TemperatureFit]:
    """Fit one temperature for each group (category) of instances: {label: fit}.

    >>> from rmcalib.ranking import PlackettLuce
    >>> dist = PlackettLuce([[1.0, 0.0]] * 4)
    >>> fits = fit_temperature_per_group(dist, [[0, 1], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"])
    >>> {label: fit.at_limit for label, fit in fits.items()}
    {'a': 'hot', 'b': 'cold'}
    """
    array = check_complete(dist, orders, "a temperature")
    labels = np.asarray(groups)
    if labels.shape != (len(array),):
        raise ValueError(f"groups: expected {len(array)} labels, got shape {labels.shape}")
    rows = {label.item(): np.flatnonzero(labels == label) for label in np.unique(labels)}
    return {label: fit_temperature(dist.take(index), array[index]) for label, index in rows.items()}


def scale_temperature(dist: HasTemperature, temperature: ArrayLike) -> HasTemperature:
    """Return the forecast at ``temperature``, one number or one per instance (n,).

    >>> from rmcalib.ranking import PlackettLuce
    >>> scale_temperature(PlackettLuce([[2.0, 0.0]]), 2.0).log_utilities
    array([[1., 0.]])
    """
    return check_temperature(dist).at_temperature(temperature)


def check_temperature(dist: RankingDistribution) -> HasTemperature:
    """Return ``dist`` if it has a temperature; otherwise raise a ValueError.

    >>> from rmcalib.ranking import ExplicitRankings
    >>> check_temperature(ExplicitRankings([[0, 1]], [[1.0]]))
    Traceback (most recent call last):
    ...
    ValueError: dist: ExplicitRankings has no temperature (needs at_temperature and temperature_slope)
    """
    if not isinstance(dist, HasTemperature):
        raise ValueError(
            f"dist: {type(dist).__name__} has no temperature (needs at_temperature and temperature_slope)"
        )
    return dist


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


def find_temperature(slope: Slope, n: int, log_range: tuple[float, float] = LOG_RANGE) -> TemperatureFit:
    """Find the zero of a rising function of log β, and report what is left there."""
    from scipy.optimize import brentq

    low, high = log_range
    if slope(np.exp(low)) >= 0:
        return TemperatureFit(float(np.exp(-low)), slope(np.exp(low)) * float(np.exp(low)), "hot", n)
    if slope(np.exp(high)) <= 0:
        return TemperatureFit(float(np.exp(-high)), slope(np.exp(high)) * float(np.exp(high)), "cold", n)
    # Brent's method takes some twenty slopes where bisection takes fifty and more.
    beta = float(np.exp(brentq(lambda log_beta: slope(np.exp(log_beta)), low, high, xtol=1e-14)))
    return TemperatureFit(1 / beta, slope(beta) * beta, None, n)
