"""Maps that recalibrate probabilities (Platt, isotonic)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, as_probabilities
from rmcalib.calibration.events import Events

_CLIP = 1e-12
_NEWTON_STEPS = 100


@dataclass(frozen=True)
class PlattMap:
    """Platt scaling: p becomes sigmoid(slope · logit(p) + intercept). `fit_platt` fits it."""

    slope: float
    intercept: float

    def __call__(self, probabilities: ArrayLike) -> FloatArray:
        """Return the recalibrated probabilities."""
        log_odds = _logs(as_probabilities(probabilities)) @ np.array([1.0, -1.0])
        return _sigmoid(self.slope * log_odds + self.intercept)


@dataclass(frozen=True)
class SigmoidMap:
    """P(correct) = σ((r − b)/T) of a reward r: Platt scaling. `fit_sigmoid` fits it."""

    temperature: float
    threshold: float

    def log_odds(self, rewards: FloatArray) -> FloatArray:
        """Return (r − b)/T."""
        return (rewards - self.threshold) / self.temperature


@dataclass(frozen=True)
class IsotonicMap:
    """Isotonic regression: linear between knots, constant beyond them. `fit_isotonic` fits it."""

    knots: FloatArray
    values: FloatArray

    def __call__(self, probabilities: ArrayLike) -> FloatArray:
        """Return the recalibrated probabilities."""
        return np.interp(as_probabilities(probabilities), self.knots, self.values)


def fit_platt(probabilities: ArrayLike, outcomes: ArrayLike) -> PlattMap:
    """Fit Platt scaling by maximum likelihood.

    The targets are Platt's: (n₁ + 1)/(n₁ + 2) instead of 1 and 1/(n₀ + 2) instead of 0, for n₁ outcomes of 1
    and n₀ of 0. With them the optimum is finite even for separable data.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.

    Returns
    -------
    PlattMap
        The map, a function of probabilities.

    Examples
    --------
    >>> fit_platt([0.9, 0.9, 0.9, 0.1, 0.1, 0.1] * 50, [1, 1, 0, 0, 0, 1] * 50).slope < 1
    True
    """
    events = Events.from_arrays(probabilities, outcomes)
    p, y = events.p, events.y
    log_odds = _logs(p) @ np.array([1.0, -1.0])
    slope, intercept = _logistic(np.column_stack([log_odds, np.ones(len(p))]), y)
    return PlattMap(float(slope), float(intercept))


def fit_sigmoid(rewards: FloatArray, labels: FloatArray) -> SigmoidMap:
    """Fit T and b of P(correct) = σ((r − b)/T) by maximum likelihood, with Platt's targets.

    Rewards that do not rise with the labels get an infinite temperature and the base rate.
    """
    middle, spread = float(np.median(rewards)), float(rewards.std()) or 1.0
    scaled = (rewards - middle) / spread
    slope, intercept = _logistic(np.column_stack([scaled, np.ones(len(scaled))]), labels)
    slope = max(float(slope), 1e-12)
    return SigmoidMap(spread / slope, middle - float(intercept) * spread / slope)


def fit_isotonic(probabilities: ArrayLike, outcomes: ArrayLike) -> IsotonicMap:
    """Fit isotonic regression: the non-decreasing map with the least squared error.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1]; equal ones are pooled.
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.

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

    events = Events.from_arrays(probabilities, outcomes)
    p, y = events.p, events.y
    knots, index = np.unique(p, return_inverse=True)
    counts = np.bincount(index)
    fitted = isotonic_regression(np.bincount(index, y) / counts, weights=counts)
    return IsotonicMap(knots, np.clip(np.asarray(fitted.x, dtype=np.float64), 0.0, 1.0))


def _logs(p: FloatArray) -> FloatArray:
    """Return the columns log p and log(1 − p): (n, 2), finite."""
    inside = np.clip(p, _CLIP, 1 - _CLIP)
    return np.column_stack([np.log(inside), np.log1p(-inside)])


def _sigmoid(x: FloatArray) -> FloatArray:
    return np.exp(-np.logaddexp(0.0, -x))


def _logistic(features: FloatArray, outcomes: FloatArray) -> FloatArray:
    """Fit a logistic regression with Platt's targets, by Newton steps that never increase the loss."""
    n_yes = outcomes.sum()
    least, most = 1 / (len(outcomes) - n_yes + 2), (n_yes + 1) / (n_yes + 2)
    targets = least + (most - least) * outcomes
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
