"""CORP: a mean score split into miscalibration, discrimination and uncertainty, without bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, check_choice
from rmcalib.calibration.events import Events
from rmcalib.calibration.maps import fit_isotonic


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
    forecast, frequency, count : arrays (K,)
        The distinct forecasts, their recalibrated frequencies, and their numbers.
    """

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    forecast: FloatArray
    frequency: FloatArray
    count: IntArray


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
    knots, index = np.unique(p, return_inverse=True)
    frequency = fit_isotonic(p, y).values
    own, best, base = (_mean_score(q, y, score) for q in (p, frequency[index], np.full(len(y), y.mean())))
    return Decomposition(own, own - best, base - best, base, knots, frequency, np.bincount(index))


def _mean_score(p: FloatArray, y: FloatArray, score: Literal["brier", "log"]) -> float:
    from scipy.special import xlogy

    if score == "brier":
        return float((y * (1 - p) ** 2 + (1 - y) * p**2).mean())
    return float(-(xlogy(y, p) + xlogy(1 - y, 1 - p)).mean()) + 0.0
