"""Maps that recalibrate probabilities (Platt, beta, isotonic) and pairwise forecasts."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, as_probabilities
from rmcalib.calibration._ece import as_forecast
from rmcalib.ranking import PairwiseProbabilities

__all__ = [
    "BetaMap",
    "IsotonicMap",
    "PlattMap",
    "fit_beta",
    "fit_isotonic",
    "fit_platt",
    "recalibrate_pairs",
]

_CLIP = 1e-12
_NEWTON_STEPS = 100


@dataclass(frozen=True)
class PlattMap:
    """Platt scaling: p becomes sigmoid(slope · logit(p) + intercept). `fit_platt` fits it.

    Parameters
    ----------
    slope, intercept : float
        The coefficients; slope 1 and intercept 0 change nothing.

    Examples
    --------
    >>> PlattMap(0.5, 0.0)([0.9]).round(2)
    array([0.75])
    """

    slope: float
    intercept: float

    def __call__(self, probabilities: ArrayLike) -> FloatArray:
        """Return the recalibrated probabilities.

        >>> PlattMap(1.0, 0.0)([0.2, 1.0]).round(6)
        array([0.2, 1. ])
        """
        log_odds = _logs(as_probabilities(probabilities)) @ np.array([1.0, -1.0])
        return _sigmoid(self.slope * log_odds + self.intercept)


@dataclass(frozen=True)
class BetaMap:
    """Beta calibration (Kull et al. 2017): p becomes sigmoid(a · log p − b · log(1 − p) + intercept).

    `fit_beta` fits it.

    Parameters
    ----------
    a, b : float
        Coefficients of at least 0.
    intercept : float
        The intercept.

    Examples
    --------
    >>> BetaMap(0.5, 0.5, 0.0)([0.9]).round(2)
    array([0.75])
    """

    a: float
    b: float
    intercept: float

    def __call__(self, probabilities: ArrayLike) -> FloatArray:
        """Return the recalibrated probabilities.

        >>> BetaMap(1.0, 1.0, 0.0)([0.2]).round(6)
        array([0.2])
        """
        return _sigmoid(_logs(as_probabilities(probabilities)) @ np.array([self.a, -self.b]) + self.intercept)


@dataclass(frozen=True)
class IsotonicMap:
    """Isotonic regression: linear between knots, constant beyond them. `fit_isotonic` fits it.

    Parameters
    ----------
    knots : float array (K,)
        Forecasts in increasing order.
    values : float array (K,)
        Their recalibrated probabilities, which never decrease.

    Examples
    --------
    >>> IsotonicMap(np.array([0.2, 0.8]), np.array([0.4, 0.6]))([0.0, 0.5, 1.0])
    array([0.4, 0.5, 0.6])
    """

    knots: FloatArray
    values: FloatArray

    def __call__(self, probabilities: ArrayLike) -> FloatArray:
        """Return the recalibrated probabilities.

        >>> IsotonicMap(np.array([0.0, 1.0]), np.array([0.2, 0.6]))([0.5])
        array([0.4])
        """
        return np.interp(as_probabilities(probabilities), self.knots, self.values)


def fit_platt(probabilities: ArrayLike, outcomes: ArrayLike, *, symmetric: bool = False) -> PlattMap:
    """Fit Platt scaling by maximum likelihood.

    The targets are Platt's: (n₁ + 1)/(n₁ + 2) instead of 1 and 1/(n₀ + 2) instead of 0, for n₁ outcomes of 1
    and n₀ of 0. With them the optimum is finite even for separable data.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.
    symmetric : bool
        Fit without an intercept, so that P(i before j) and P(j before i) still sum to 1.

    Returns
    -------
    PlattMap
        The map, a function of probabilities.

    Examples
    --------
    >>> fit_platt([0.9, 0.9, 0.9, 0.1, 0.1, 0.1] * 50, [1, 1, 0, 0, 0, 1] * 50).slope < 1
    True
    """
    p, y = as_forecast(probabilities, outcomes)
    log_odds = _logs(p) @ np.array([1.0, -1.0])
    if symmetric:
        # Each comparison counts from both sides; the two have mirrored features and targets.
        (slope,) = _logistic(np.concatenate([log_odds, -log_odds])[:, None], np.concatenate([y, 1 - y]))
        return PlattMap(float(slope), 0.0)
    slope, intercept = _logistic(np.column_stack([log_odds, np.ones(len(p))]), y)
    return PlattMap(float(slope), float(intercept))


def fit_beta(probabilities: ArrayLike, outcomes: ArrayLike) -> BetaMap:
    """Fit beta calibration by maximum likelihood, with the targets of `fit_platt`.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.

    Returns
    -------
    BetaMap
        The map, a function of probabilities.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(5000)
    >>> beta = fit_beta(p, rng.random(5000) < p)
    >>> bool(abs(beta.a - 1) < 0.2 and abs(beta.b - 1) < 0.2)
    True
    """
    p, y = as_forecast(probabilities, outcomes)
    features = np.column_stack([_logs(p) * np.array([1.0, -1.0]), np.ones(len(p))])
    kept = [0, 1, 2]
    weights = np.zeros(3)
    while True:
        weights[:] = 0
        weights[kept] = _logistic(features[:, kept], y)
        negative = [column for column in kept if column < 2 and weights[column] < 0]
        if not negative:
            return BetaMap(float(weights[0]), float(weights[1]), float(weights[2]))
        # With a negative coefficient the map would decrease: leave that term out and fit again.
        kept.remove(min(negative, key=lambda column: weights[column]))


def fit_isotonic(probabilities: ArrayLike, outcomes: ArrayLike) -> IsotonicMap:
    """Fit isotonic regression: the non-decreasing map with the least squared error.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1]; equal ones are pooled.
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise; or a share, such as 1/2 for a tie.

    Returns
    -------
    IsotonicMap
        The map, a function of probabilities.

    Examples
    --------
    >>> fit_isotonic([0.1, 0.4, 0.4, 0.9], [0, 1, 0, 1])([0.1, 0.4, 0.9])
    array([0. , 0.5, 1. ])
    """
    from scipy.optimize import isotonic_regression

    p, y = as_forecast(probabilities, outcomes, shares=True)
    knots, index = np.unique(p, return_inverse=True)
    counts = np.bincount(index)
    fitted = isotonic_regression(np.bincount(index, y) / counts, weights=counts)
    return IsotonicMap(knots, np.clip(np.asarray(fitted.x, dtype=np.float64), 0.0, 1.0))


def recalibrate_pairs(
    dist: PairwiseProbabilities, recalibrate: Callable[[FloatArray], FloatArray]
) -> PairwiseProbabilities:
    """Recalibrate P(i before j) for i < j, and set P(j before i) to one minus the result.

    Parameters
    ----------
    dist : PairwiseProbabilities
        The forecast: n instances, m items.
    recalibrate : callable
        Maps probabilities (N,) to probabilities (N,), such as the result of `fit_platt`.

    Returns
    -------
    PairwiseProbabilities
        The recalibrated forecast.

    Examples
    --------
    >>> pairs = PairwiseProbabilities([[[0.5, 0.9], [0.1, 0.5]]])
    >>> recalibrate_pairs(pairs, PlattMap(0.5, 0.0)).sub([[0, 1], [1, 0]]).round(2)
    array([[0.75, 0.25]])
    """
    i, j = np.triu_indices(dist.n_items, 1)
    upper = recalibrate(dist.matrix[:, i, j].reshape(-1)).reshape(len(dist), -1)
    matrix = np.full_like(dist.matrix, 0.5)
    matrix[:, i, j], matrix[:, j, i] = upper, 1 - upper
    return PairwiseProbabilities(matrix)


def _logs(p: FloatArray) -> FloatArray:
    """Return the columns log p and log(1 − p): (n, 2), finite."""
    inside = np.clip(p, _CLIP, 1 - _CLIP)
    return np.column_stack([np.log(inside), np.log1p(-inside)])


def _sigmoid(x: FloatArray) -> FloatArray:
    return np.exp(-np.logaddexp(0.0, -x))


def _logistic(features: FloatArray, outcomes: FloatArray) -> FloatArray:
    """Fit a logistic regression with Platt's targets, by Newton steps that never increase the loss."""
    n_yes = outcomes.sum()
    targets = np.where(outcomes == 1, (n_yes + 1) / (n_yes + 2), 1 / (len(outcomes) - n_yes + 2))
    weights = np.zeros(features.shape[1])

    def loss(w: FloatArray) -> float:
        x = features @ w
        return float((np.logaddexp(0.0, x) - targets * x).mean())

    for _ in range(_NEWTON_STEPS):
        p = _sigmoid(features @ weights)
        gradient = features.T @ (p - targets) / len(targets)
        if np.abs(gradient).max() < 1e-12:
            break
        curvature = (features * (p * (1 - p))[:, None]).T @ features / len(targets)
        step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        size = 1.0
        while loss(weights - size * step) > loss(weights) and size > 1e-10:
            size /= 2
        weights = weights - size * step
    return weights
