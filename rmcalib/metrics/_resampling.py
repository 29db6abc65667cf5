"""Intervals of everything a report shows that is not a binned error, by resampling whole prompts.

Each statistic is a function of sums over prompts, so that a thousand resamples are one matrix product.
"""

from __future__ import annotations

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, chunks
from rmcalib.calibration import (
    Interval,
    Statistic,
    Worlds,
    bootstrap_sums,
    cosine_coefficients,
    fixed_points,
    recentred_interval,
    resampling_weights,
    residual_grid,
    smooth_ece,
)
from rmcalib.metrics._forecasts import Forecasts

__all__ = [
    "average_ranks",
    "correlation_interval",
    "mean_intervals",
    "smooth_ece_interval",
    "smooth_worlds",
    "spearman_sums",
    "temperature_interval",
    "temperature_sums",
]

_GRID = 128  # grid points of the resampled smooth ECE; the value itself uses the fine grid of `smooth_ece`
_STEPS = 12  # halvings: to 1/4096
SMOOTH_RESAMPLES = 200
_SMOOTH_SHARES: FloatArray = np.array([0.0, 0.3, 0.6, 0.8, 1.0, 1.25, 1.6, 3.0])


def mean_intervals(
    columns: FloatArray, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> list[Interval]:
    """Return the mean of each column (n, q) with a percentile interval; all columns share their resamples.

    >>> [interval.value for interval in mean_intervals(np.array([[0.0, 2.0], [1.0, 4.0]]))]
    [0.5, 3.0]
    """
    n = len(columns)
    rng = np.random.default_rng(seed)
    replicates = np.empty((resamples, columns.shape[1]))
    for part in chunks(resamples, n):
        replicates[part] = resampling_weights(part.stop - part.start, n, rng) @ columns / n
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return [
        Interval(float(value), float(below), float(above), level, resamples)
        for value, below, above in zip(columns.mean(axis=0), low, high, strict=True)
    ]


def average_ranks(values: FloatArray) -> FloatArray:
    """Return the rank of each value from 1 on; equal values share the mean of theirs.

    >>> average_ranks(np.array([3.0, 1.0, 3.0]))
    array([2.5, 1. , 2.5])
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


def correlation_interval(
    x: FloatArray,
    y: FloatArray,
    groups: IntArray,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval | None:
    """Return Spearman's rank correlation of x and y (n,), resampling ``groups``; None if one is constant.

    >>> x = np.arange(8.0)
    >>> correlation_interval(x, x**3, np.arange(8)).value
    1.0
    """
    found = spearman_sums(x, y, groups)
    return None if found is None else bootstrap_sums(*found, resamples=resamples, level=level, rng=seed)


def spearman_sums(x: FloatArray, y: FloatArray, groups: IntArray) -> tuple[FloatArray, Statistic] | None:
    """Return what each group adds to Spearman's correlation (G, 6), and how it follows from totals (R, 6).

    Ranks are those of the whole data in every resample. None if x or y is constant, or has under 3 values.
    """
    a, b = average_ranks(x), average_ranks(y)
    a, b = a - a.mean(), b - b.mean()
    if len(a) < 3 or not a.any() or not b.any():
        return None
    terms = [np.ones_like(a), a, b, a * a, b * b, a * b]
    sums = np.column_stack([np.bincount(groups, term) for term in terms]).astype(np.float64)

    def correlation(rows: FloatArray) -> FloatArray:
        n, sa, sb, saa, sbb, sab = rows.T
        spread = np.maximum(saa - sa**2 / n, 0) * np.maximum(sbb - sb**2 / n, 0)
        return np.where(spread > 0, sab - sa * sb / n, 0) / np.sqrt(np.where(spread > 0, spread, 1))

    return sums, correlation


def temperature_interval(
    forecasts: Forecasts,
    log_probability: FloatArray,
    temperature: float,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return the interval of a fitted temperature, by one Newton step from it in each resample.

    ``log_probability`` (N,) is the forecast at that temperature.
    """
    sums, step = temperature_sums(forecasts, log_probability, temperature)
    interval = bootstrap_sums(sums, step, resamples=resamples, level=level, rng=seed)
    return Interval(temperature, interval.low, interval.high, level, interval.resamples)


def temperature_sums(
    forecasts: Forecasts, log_probability: FloatArray, temperature: float
) -> tuple[FloatArray, Statistic]:
    """Return what each prompt adds to a Newton step from a fitted temperature (n, 2), and the step (R,).

    ``log_probability`` (N,) is the forecast at that temperature. With β = 1/T the slope of a prompt's
    negative log-likelihood is E[r] − r_correct and its curvature Var[r], both under the forecast.
    """
    p, r, starts = np.exp(log_probability), forecasts.reward, forecasts.starts
    mean = np.add.reduceat(p * r, starts)
    spread = np.add.reduceat(p * (r - np.repeat(mean, forecasts.sizes)) ** 2, starts)
    slope = mean - np.add.reduceat(np.where(forecasts.is_correct, r, 0.0), starts)
    beta = 1 / temperature

    def step(rows: FloatArray) -> FloatArray:
        # In log β, which keeps the temperature positive.
        curvature = np.maximum(rows[:, 1], 1e-300)
        return temperature * np.exp(np.clip(rows[:, 0] / (beta * curvature), -20, 20))

    return np.column_stack([slope, spread]), step


def smooth_ece_interval(
    p: FloatArray, y: FloatArray, groups: IntArray, *, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return the smooth ECE with a recentred bootstrap interval over ``groups``.

    The smooth ECE is a function of the residuals' cosine coefficients, which are sums over groups. A world
    whose miscalibration is a share s of the observed one has coefficients s·c, and the resampled ones there
    are c* − (1 − s)·c: see :func:`~rmcalib.calibration.recentred_interval`.

    >>> p = np.linspace(0.05, 0.95, 100)
    >>> interval = smooth_ece_interval(p, np.ones(100), np.arange(100))
    >>> interval.low < interval.value < interval.high
    True
    """
    weights = resampling_weights(SMOOTH_RESAMPLES, int(groups.max()) + 1, np.random.default_rng(seed))
    return recentred_interval(smooth_ece(p, y), *smooth_worlds(p, y, groups, weights), level=level)


def smooth_worlds(p: FloatArray, y: FloatArray, groups: IntArray, weights: FloatArray) -> Worlds:
    """Return the worlds behind the interval of a smooth ECE; ``weights`` (R, G): groups in each resample.

    >>> draws, truths = smooth_worlds(np.full(4, 0.5), np.ones(4), np.arange(4), np.ones((3, 4)))
    >>> draws.shape, bool(truths[0] < 0.01 < truths[1])
    ((8, 3), True)
    """
    counts = np.bincount(groups).astype(np.float64)
    sums = np.column_stack([residual_grid(p, y - p, groups, _GRID), counts])
    total, drawn = sums.sum(axis=0, keepdims=True), weights @ sums
    observed, replicates = (cosine_coefficients(rows[:, :-1] / rows[:, -1:]) for rows in (total, drawn))
    draws = [fixed_points(replicates - (1 - share) * observed, steps=_STEPS) for share in _SMOOTH_SHARES]
    return np.array(draws), fixed_points(_SMOOTH_SHARES[:, None] * observed, steps=_STEPS)
