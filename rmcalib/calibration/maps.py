"""Maps from forecasts to probabilities: σ((r − b)/T) of rewards, and the isotonic split of a score (CORP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, check_choice
from rmcalib.calibration.events import Events

_NEWTON_STEPS = 100


@dataclass(frozen=True)
class SigmoidMap:
    """P(correct) = σ((r − b)/T) of a reward r: Platt scaling. `fit_sigmoid` fits it."""

    temperature: float
    threshold: float

    def log_odds(self, rewards: FloatArray) -> FloatArray:
        """Return (r − b)/T."""
        return (rewards - self.threshold) / self.temperature


def fit_sigmoid(rewards: FloatArray, labels: FloatArray) -> SigmoidMap:
    """Fit T and b of P(correct) = σ((r − b)/T) by maximum likelihood.

    The targets are Platt's: (n₁ + 1)/(n₁ + 2) instead of 1 and 1/(n₀ + 2) instead of 0, for n₁ labels of 1
    and n₀ of 0. With them the optimum is finite even for separable data. Rewards that do not rise with the
    labels get an infinite temperature and the base rate.
    """
    middle, spread = float(np.median(rewards)), float(rewards.std()) or 1.0
    slope, intercept = fit_logistic(((rewards - middle) / spread)[:, None], labels).tolist()
    slope = max(slope, 1e-12)
    return SigmoidMap(spread / slope, middle - intercept * spread / slope)


def fit_logistic(x: FloatArray, labels: FloatArray) -> FloatArray:
    """Fit w (K,) and c of P(correct) = σ(x w + c) for ``x`` (N, K), with Platt's targets; return both: (K + 1,).

    Newton steps never increase the loss. Of columns that are copies of each other, all get the same weight.

    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> fit_logistic(x, np.array([0.0, 1.0, 0.0, 1.0])).round(2)
    array([ 0.41, -0.62])
    """
    n_yes = labels.sum()
    least, most = 1 / (len(labels) - n_yes + 2), (n_yes + 1) / (n_yes + 2)
    targets = least + (most - least) * labels
    features = np.column_stack([x, np.ones(len(x))])
    weights = np.zeros(features.shape[1])

    def loss(w: FloatArray) -> float:
        odds = features @ w
        return float((np.logaddexp(0.0, odds) - targets * odds).mean())

    for _ in range(_NEWTON_STEPS):
        p = np.exp(-np.logaddexp(0.0, -(features @ weights)))
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


@dataclass(frozen=True)
class Decomposition:
    """The parts of a mean score: score = miscalibration − discrimination + uncertainty.

    Attributes
    ----------
    score : float
        The mean score.
    miscalibration : float
        How much isotonic recalibration on the same data lowers it.
    discrimination : float
        How much lower the recalibrated score is than that of a constant forecast.
    uncertainty : float
        The score of the constant forecast.
    forecast, frequency : float (K,)
        The distinct forecasts, and their recalibrated frequencies.
    """

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    forecast: FloatArray
    frequency: FloatArray


def corp(
    probabilities: ArrayLike, outcomes: ArrayLike, *, score: Literal["brier", "log"] = "brier"
) -> Decomposition:
    """Split a mean score into miscalibration, discrimination and uncertainty (Dimitriadis et al. 2021).

    Parameters
    ----------
    probabilities, outcomes : float (n,)
        Forecasts, and what happened: 1 or 0, or a share of votes or tied first places in between.
    score : {"brier", "log"}
        Brier score or log loss.

    Returns
    -------
    Decomposition

    Examples
    --------
    >>> parts = corp([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1])
    >>> round(parts.score, 3), round(parts.miscalibration, 3), parts.uncertainty
    (0.01, 0.01, 0.25)
    """
    check_choice(score, "score", ("brier", "log"))
    events = Events.from_arrays(probabilities, outcomes)
    p, y = events.p, events.y
    forecast, index = np.unique(p, return_inverse=True)
    count = np.bincount(index).astype(np.float64)
    frequency = np.clip(_isotonic(np.bincount(index, y).astype(np.float64), count), 0.0, 1.0)
    value, best, base = (_mean_score(q, y, score) for q in (p, frequency[index], np.full(len(y), y.mean())))
    return Decomposition(value, value - best, base - best, base, forecast, frequency)


def _isotonic(sums: FloatArray, counts: FloatArray) -> FloatArray:
    """Return the non-decreasing means (n,) that are closest to those of n groups."""
    sizes = np.ones(len(counts), dtype=np.int64)
    while not (rises := np.append(True, np.diff(sums / counts) > 0)).all():
        starts = np.flatnonzero(rises)
        sums, counts, sizes = (np.add.reduceat(values, starts) for values in (sums, counts, sizes))
    return np.repeat(sums / counts, sizes)


def _mean_score(p: FloatArray, y: FloatArray, score: Literal["brier", "log"]) -> float:
    from scipy.special import xlogy

    if score == "brier":
        return float((y * (1 - p) ** 2 + (1 - y) * p**2).mean())
    return float(-(xlogy(y, p) + xlogy(1 - y, 1 - p)).mean()) + 0.0
