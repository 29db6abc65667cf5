"""Top-1 forecasts: the softmax of the rewards of each prompt, and their best temperature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_floats,
    as_groups,
    as_outcomes,
    segment_log_softmax,
)
from rmcalib.calibration._ece import check_one_per_group
from rmcalib.calibration._intervals import Interval, check_level
from rmcalib.calibration._temperature import TemperatureFit, find_temperature

__all__ = ["fit_top_1_temperature", "temperature_interval", "top_1_probabilities"]

# Rewards may be on any scale up to 1e100, and so may the temperature.
LOG_RANGE = (-230.0, 230.0)


def fit_top_1_temperature(rewards: ArrayLike, outcomes: ArrayLike, groups: ArrayLike) -> TemperatureFit:
    """Fit the temperature T of top-1 forecasts softmax(rewards/T), for prompts with any number of responses.

    Parameters
    ----------
    rewards : array of shape (N,)
        Rewards of all responses of all prompts.
    outcomes : array of shape (N,)
        1 for the one correct response of each prompt, 0 otherwise.
    groups : array of shape (N,)
        Labels of the prompts.

    Returns
    -------
    TemperatureFit
        The temperature of largest likelihood.

    Examples
    --------
    >>> fit = fit_top_1_temperature([2.0, 0.0] * 3, [1, 0, 1, 0, 0, 1], [0, 0, 1, 1, 2, 2])
    >>> round(fit.temperature, 4)
    2.8854
    """
    r, correct, sizes = sorted_by_group(rewards, outcomes, groups)
    found = find_temperature(lambda beta: top_1_slope(r, correct, sizes, beta), len(sizes), LOG_RANGE)
    largest = np.maximum.reduceat(r, np.cumsum(sizes) - sizes)
    if found.at_limit == "cold" and (r[correct] < largest).any():
        return replace(found, at_limit=None)  # the optimum lies beyond the range: rewards are very close
    return found


def top_1_slope(r: FloatArray, correct: BoolArray, sizes: IntArray, beta: float) -> float:
    """Return the derivative of the mean of −log P(correct) by β = 1/T, for rows (N,) sorted by group.

    >>> top_1_slope(np.array([1.0, -1.0]), np.array([True, False]), np.array([2]), 0.0)
    -1.0
    """
    p = np.exp(segment_log_softmax(r * beta, sizes))
    return float((np.add.reduceat(p * r, np.cumsum(sizes) - sizes) - r[correct]).mean())


def temperature_interval(
    rewards: ArrayLike, is_correct: ArrayLike, groups: ArrayLike, *, level: float = 0.95
) -> Interval:
    """Return the fitted temperature of top-1 forecasts with a likelihood-ratio interval.

    The interval contains every T with 2n (NLL(T) − NLL(T̂)) ≤ z² max(1, I/J), where I is the variance of the
    slopes of the prompts' log-likelihoods at T̂ and J the mean curvature. I/J is 1 if softmax(rewards/T̂) is
    the truth, and larger if, for example, some prompts are over-confident and others under-confident.

    Parameters
    ----------
    rewards : array of shape (N,)
        Rewards of all responses of all prompts.
    is_correct : array of shape (N,)
        1 for the one correct response of each prompt, 0 otherwise.
    groups : array of shape (N,)
        Labels of the prompts.
    level : float
        Confidence level.

    Returns
    -------
    Interval
        T̂ and its limits. T̂ is 0 if every forecast is right, and infinity if a uniform forecast is best. A
        limit is 0 or infinity if the data does not exclude it.

    Examples
    --------
    >>> interval = temperature_interval([2.0, 0.0] * 30, ([1, 0, 1, 0, 0, 1]) * 10, np.arange(60) // 2)
    >>> round(interval.value, 2), round(interval.low, 2), interval.high > 5
    (2.89, 1.33, True)
    """
    check_level(level)
    r, correct, sizes = sorted_by_group(rewards, is_correct, groups)
    fit = fit_top_1_temperature(r, correct, np.repeat(np.arange(len(sizes)), sizes))
    low, high = temperature_limits(r, correct, sizes, fit, level)
    return Interval(fit.optimum, low, high, level, 0)


def temperature_limits(
    r: FloatArray, correct: BoolArray, sizes: IntArray, fit: TemperatureFit, level: float
) -> tuple[float, float]:
    """Return the limits of `temperature_interval` for rows sorted by group and a fit to them."""
    from scipy.optimize import brentq
    from scipy.special import ndtri

    n = len(sizes)
    width = float(ndtri((1 + level) / 2)) ** 2 / 2 * variance_factor(r, correct, sizes, fit)
    best = losses(r, correct, sizes, fit.optimum).mean()

    def excess(log_t: float) -> float:
        return float(losses(r, correct, sizes, float(np.exp(log_t))).mean() - best) * n - width

    low, middle, high = -LOG_RANGE[1], float(np.log(fit.temperature)), -LOG_RANGE[0]
    below = 0.0 if excess(low) <= 0 else float(np.exp(brentq(excess, low, middle, xtol=1e-10)))
    above = np.inf if excess(high) <= 0 else float(np.exp(brentq(excess, middle, high, xtol=1e-10)))
    return below, above


def variance_factor(r: FloatArray, correct: BoolArray, sizes: IntArray, fit: TemperatureFit) -> float:
    """Return max(1, I/J) of `temperature_interval`; 1 if the fit is at a limit."""
    if fit.at_limit is not None or len(sizes) < 2:
        return 1.0
    slope, curvature = slopes(r, correct, sizes, fit.temperature)
    return max(1.0, float(slope.var(ddof=1) / curvature.mean())) if curvature.mean() > 0 else 1.0


def losses(r: FloatArray, correct: BoolArray, sizes: IntArray, temperature: float) -> FloatArray:
    """Return −log P(correct) of each group (G,) at a temperature, for rows (N,) sorted by group.

    >>> losses(np.zeros(4), np.array([True, False, True, False]), np.array([2, 2]), 1.0).round(4)
    array([0.6931, 0.6931])
    """
    starts = np.cumsum(sizes) - sizes
    logits = r - np.repeat(np.maximum.reduceat(r, starts), sizes)
    if temperature == 0:  # only the largest reward has a probability; equal ones share it
        ties = np.add.reduceat(logits == 0, starts, dtype=np.float64)
        return np.where(logits[correct] == 0, np.log(ties), np.inf)
    return -segment_log_softmax(logits / temperature, sizes)[correct]


def slopes(
    r: FloatArray, correct: BoolArray, sizes: IntArray, temperature: float
) -> tuple[FloatArray, FloatArray]:
    """Return slope and curvature of each group's −log P(correct) with respect to log(1/T): (G,) each.

    >>> slopes(np.array([1.0, -1.0]), np.array([True, False]), np.array([2]), 1e9)[0].round(6)
    array([-0.])
    """
    starts = np.cumsum(sizes) - sizes
    logs = segment_log_softmax(r / temperature, sizes)  # differs from the logits by a constant per group
    p = np.exp(logs)
    mean = np.add.reduceat(p * logs, starts)
    spread = np.add.reduceat(p * (logs - np.repeat(mean, sizes)) ** 2, starts)
    return mean - logs[correct], spread


def sorted_by_group(
    rewards: ArrayLike, is_correct: ArrayLike, groups: ArrayLike
) -> tuple[FloatArray, BoolArray, IntArray]:
    """Return rewards and outcomes (N,) sorted by group, and the sizes of the groups (G,), all checked."""
    r, y = as_floats(rewards, "rewards", ndim=1), as_outcomes(is_correct)
    if len(r) != len(y):
        raise ValueError(f"outcomes: {len(y)} outcomes for {len(r)} rewards")
    index = as_groups(groups, len(r))
    check_one_per_group(y, index)
    order = np.argsort(index, kind="stable")
    return r[order], y[order] == 1, np.bincount(index)


def top_1_probabilities(rewards: ArrayLike, groups: ArrayLike, *, temperature: float = 1.0) -> FloatArray:
    """Return the probability that each response is the best of its prompt: exp(r_i/T) / Σ_j exp(r_j/T).

    Parameters
    ----------
    rewards : array of shape (N,)
        Rewards of all responses of all prompts.
    groups : array of shape (N,)
        Labels of the prompts.
    temperature : float
        T, which divides the rewards.

    Returns
    -------
    float array (N,)
        Probabilities; they sum to 1 within each prompt.

    Examples
    --------
    >>> top_1_probabilities([0.0, 0.0, 5.0, 5.0, 5.0, 5.0], [0, 0, 1, 1, 1, 1])
    array([0.5 , 0.5 , 0.25, 0.25, 0.25, 0.25])
    """
    if not (np.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature: {temperature} is not a positive number")
    r = as_floats(rewards, "rewards", ndim=1)
    index = as_groups(groups, len(r))
    order = np.argsort(index, kind="stable")
    p = np.empty(len(r))
    p[order] = np.exp(segment_log_softmax(r[order] / temperature, np.bincount(index)))
    return p
