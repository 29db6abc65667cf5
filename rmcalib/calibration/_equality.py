"""Test whether one temperature fits several sets of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.calibration._top_1 import fit_top_1_temperature, losses, sorted_by_group, variance_factor

__all__ = ["Equality", "equal_temperatures"]

_BEYOND = 20.0  # how far beyond the fitted temperatures to search, on a log scale


@dataclass(frozen=True)
class Equality:
    """A test that several sets of prompts have the same best temperature.

    Attributes
    ----------
    temperature : float
        The temperature that fits all sets best. It can be 0 or infinity, as in `temperature_interval`.
    statistic : float
        How much worse it fits than one temperature per set.
    degrees : int
        Degrees of freedom of its χ² distribution: the number of sets minus one.
    p_value : float
        The probability of a statistic at least this large if one temperature is right for all sets.

    Examples
    --------
    >>> prompts = [2.0, 0.0] * 6, [1, 0, 1, 0, 0, 1] * 2, np.arange(12) // 2
    >>> equal_temperatures([prompts, prompts]).degrees
    1
    """

    temperature: float
    statistic: float
    degrees: int
    p_value: float


def equal_temperatures(sets: Sequence[tuple[ArrayLike, ArrayLike, ArrayLike]]) -> Equality:
    """Test whether top-1 forecasts softmax(rewards/T) need the same T on several sets of prompts.

    The statistic is min_T Σ_s 2 n_s (NLL_s(T) − NLL_s(T̂_s)) / max(1, I_s/J_s), with the log loss NLL_s and
    the best temperature T̂_s of each set. I_s is the variance of the slopes of the prompts' log-likelihoods
    and J_s their mean curvature: the same correction as in `temperature_interval`.

    Parameters
    ----------
    sets : sequence of (rewards, outcomes, groups)
        At least two sets. Each has three arrays (N,): the rewards of all responses of all prompts, the
        outcomes (1 for the one correct response of each prompt, 0 otherwise), and the labels of the prompts.

    Returns
    -------
    Equality
        The common temperature and the p-value.

    Examples
    --------
    >>> outcomes, prompts = [1, 0, 1, 0, 0, 1] * 30, np.arange(180) // 2
    >>> same = equal_temperatures([([2.0, 0.0] * 90, outcomes, prompts)] * 2)
    >>> round(same.temperature, 2), round(same.p_value, 2)
    (2.89, 1.0)
    >>> other = ([8.0, 0.0] * 90, outcomes, prompts)
    >>> equal_temperatures([([2.0, 0.0] * 90, outcomes, prompts), other]).p_value < 0.05
    True
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import chdtrc

    if len(sets) < 2:
        raise ValueError(f"sets: expected at least two sets of prompts, got {len(sets)}")
    parts, fitted, gaps = [], [], []
    for rewards, outcomes, groups in sets:
        r, correct, sizes = sorted_by_group(rewards, outcomes, groups)
        fit = fit_top_1_temperature(r, correct, np.repeat(np.arange(len(sizes)), sizes))
        with np.errstate(divide="ignore"):
            fitted.append(float(np.log(fit.optimum)))
        gaps.append(float(np.ptp(r)))
        parts.append((r, correct, sizes, 2.0 / variance_factor(r, correct, sizes, fit)))
    # Far from the scale of the rewards the losses are flat, so the search stays near it.
    known = [*(log_t for log_t in fitted if np.isfinite(log_t)), float(np.log(max(gaps) or 1.0))]
    ends = min(known) - _BEYOND, max(known) + _BEYOND
    best = [float(np.clip(log_t, *ends)) for log_t in fitted]
    least = [_loss(*part[:3], log_t) for part, log_t in zip(parts, best, strict=True)]

    def worse(log_t: float) -> float:
        each = [
            part[3] * (_loss(*part[:3], log_t) - lowest) for part, lowest in zip(parts, least, strict=True)
        ]
        return float(sum(each))

    # Each term is convex in 1/T, so the minimum of the sum lies between their minima.
    low, high = min(best), max(best)
    found = minimize_scalar(worse, bounds=(low, high), method="bounded", options={"xatol": 1e-8})
    place = min((float(found.x), low, high), key=worse) if high > low else low
    statistic, degrees = max(worse(place), 0.0), len(sets) - 1
    limits = {ends[0]: 0.0, ends[1]: np.inf}
    common = limits.get(place, float(np.exp(place)))
    return Equality(common, statistic, degrees, float(chdtrc(degrees, statistic)))


def _loss(r: FloatArray, correct: BoolArray, sizes: IntArray, log_t: float) -> float:
    return float(losses(r, correct, sizes, float(np.exp(log_t))).sum())
