"""What each prompt adds to a rank correlation, to a fitted temperature and to the smooth ECE."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import Worlds, cosine_coefficients, fixed_points, residual_grid
from rmcalib.metrics._forecasts import Forecasts

__all__ = ["SMOOTH_RESAMPLES", "smooth_alternatives", "spearman_sums", "temperature_sums"]

OfTotals = Callable[[FloatArray], FloatArray]  # totals (R, q) -> values (R,)
_GRID = 128  # grid points of the resampled smooth ECE; the value itself uses the fine grid of `smooth_ece`
_STEPS = 12  # halvings: to 1/4096
SMOOTH_RESAMPLES = 200
_SMOOTH_SHARES: FloatArray = np.array([0.0, 0.3, 0.6, 0.8, 1.0, 1.25, 1.6, 3.0])


def spearman_sums(x: FloatArray, y: FloatArray, groups: IntArray) -> tuple[FloatArray, OfTotals] | None:
    """Return what each group adds to Spearman's correlation (G, 6), and how it follows from totals (R, 6).

    Ranks are those of the whole data in every resample. None if x or y is constant, or has fewer than three
    values.
    """
    from scipy.stats import rankdata

    a, b = rankdata(x), rankdata(y)
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


def temperature_sums(
    forecasts: Forecasts, log_probability: FloatArray, temperature: float
) -> tuple[FloatArray, OfTotals]:
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


def smooth_alternatives(p: FloatArray, y: FloatArray, groups: IntArray, weights: FloatArray) -> Worlds:
    """Return smooth ECEs drawn under alternative sizes of the miscalibration, and the true ones.

    ``weights`` (R, G): how often each group is in each resample. The smooth ECE is a function of the cosine
    coefficients of the residuals, which are sums over groups. Where the miscalibration is a fraction s of the
    observed one, the coefficients are s·c, and the resampled ones c* − (1 − s)·c.

    >>> draws, truths = smooth_alternatives(np.full(4, 0.5), np.ones(4), np.arange(4), np.ones((3, 4)))
    >>> draws.shape, bool(truths[0] < 0.01 < truths[1])
    ((8, 3), True)
    """
    counts = np.bincount(groups).astype(np.float64)
    sums = np.column_stack([residual_grid(p, y - p, groups, _GRID), counts])
    total, drawn = sums.sum(axis=0, keepdims=True), weights @ sums
    observed, replicates = (cosine_coefficients(rows[:, :-1] / rows[:, -1:]) for rows in (total, drawn))
    draws = [fixed_points(replicates - (1 - share) * observed, steps=_STEPS) for share in _SMOOTH_SHARES]
    return np.array(draws), fixed_points(_SMOOTH_SHARES[:, None] * observed, steps=_STEPS)
