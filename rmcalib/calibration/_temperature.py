"""Temperatures of distributions over rankings, and cross-fitting.

A temperature T divides log-utilities or logits (or a Mallows dispersion), so that T > 1 makes a forecast less
confident. The negative log-likelihood is convex in 1/T for all of them, so the optimum is the only zero of
its derivative.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_groups, check_integer
from rmcalib.calibration._rankings.inputs import check_complete
from rmcalib.ranking import HasTemperature, RankingDistribution

__all__ = [
    "TemperatureFit",
    "cross_fit",
    "fit_temperature",
    "fit_temperature_per_group",
]

LOG_RANGE = (-20.0, 20.0)

Slope = Callable[[float], float]


@dataclass(frozen=True)
class TemperatureFit:
    """The temperature of largest likelihood, and a check that it is the optimum.

    Attributes
    ----------
    temperature : float
        The temperature T. Where ``at_limit`` is set, it is the end of the range that was searched.
    slope : float
        Derivative of the mean negative log-likelihood with respect to log(1/T) at T: 0 up to rounding, unless
        ``at_limit`` is set.
    at_limit : {"cold", "hot"} or None
        "cold" if every forecast is right and the optimum is T = 0. "hot" if no temperature is better than a
        uniform forecast and the optimum is T = ∞. None if the optimum is in between.
    n : int
        Number of instances.

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> fit = fit_temperature(PlackettLuce([[1.0, 0.0]] * 2), [[0, 1], [0, 1]])
    >>> fit.at_limit, fit.optimum
    ('cold', 0.0)
    """

    temperature: float
    slope: float
    at_limit: str | None
    n: int

    @property
    def optimum(self) -> float:
        """The optimum itself: ``temperature``, or 0 or infinity where ``at_limit`` is set."""
        return {"cold": 0.0, "hot": np.inf}.get(self.at_limit or "", self.temperature)


def fit_temperature(dist: RankingDistribution, orders: ArrayLike) -> TemperatureFit:
    """Fit the temperature of a forecast of rankings by maximum likelihood.

    Parameters
    ----------
    dist : PlackettLuce, Mallows or SparseRankings
        The forecast: n instances, m items.
    orders : int array (n, m)
        What happened: the items of each instance, best first.

    Returns
    -------
    TemperatureFit
        The temperature; use it with ``dist.at_temperature``.

    Examples
    --------
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
    """Fit one temperature for each group of instances, such as a category.

    Parameters
    ----------
    dist : PlackettLuce, Mallows or SparseRankings
        The forecast: n instances, m items.
    orders : int array (n, m)
        What happened: the items of each instance, best first.
    groups : array of shape (n,)
        Label of each instance.

    Returns
    -------
    dict of TemperatureFit
        The fit of each label.

    Examples
    --------
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
    """Predict every row with a model fitted on the other folds, so that no row is used to predict itself.

    Folds are drawn at random. Their sizes differ by at most one group.

    Parameters
    ----------
    n : int
        Number of rows.
    fit : callable
        ``fit(train)`` gets row numbers and returns a model.
    predict : callable
        ``predict(model, test)`` gets a model and row numbers and returns predictions (len(test), ...).
    folds : int
        Number of folds.
    groups : array of shape (n,), optional
        Labels of rows that stay in the same fold; by default every row is a group.
    rng : numpy Generator or int
        Source of randomness, or its seed.

    Returns
    -------
    float array (n, ...)
        The predictions.

    Examples
    --------
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
    """Find the zero of ``slope``, an increasing function of β = 1/T, by a search over log β."""
    from scipy.optimize import brentq

    low, high = log_range
    if slope(np.exp(low)) >= 0:
        return TemperatureFit(float(np.exp(-low)), slope(np.exp(low)) * float(np.exp(low)), "hot", n)
    if slope(np.exp(high)) <= 0:
        return TemperatureFit(float(np.exp(-high)), slope(np.exp(high)) * float(np.exp(high)), "cold", n)
    # Brent's method needs about twenty evaluations, bisection fifty and more.
    beta = float(np.exp(brentq(lambda log_beta: slope(np.exp(log_beta)), low, high, xtol=1e-14)))
    return TemperatureFit(1 / beta, slope(beta) * beta, None, n)
