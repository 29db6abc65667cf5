"""The smooth ECE (Błasiok and Nakkiran 2023): a calibration error with neither bins nor a width to choose.

Residuals y − p are placed at p on a grid and smoothed by a Gaussian that is reflected at 0 and 1. Smoothing
with reflection multiplies the k-th cosine coefficient of the residuals by exp(−(πkσ)²/2). Everything here
works on rows, so that many resamples are smoothed at once.
"""

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration._ece import as_forecast, round_off

__all__ = ["cosine_coefficients", "fixed_points", "residual_grid", "smooth_ece"]

_GRID = 4096


def smooth_ece(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    """Return the smooth ECE of ``probabilities`` (n,) for 0/1 ``outcomes`` (n,).

    smECE_σ = ∫ |r_σ(t)| dt, where r_σ is the residual smoothed with width σ; the result is the σ at which
    smECE_σ = σ.

    >>> smooth_ece([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1])  # doctest: +ELLIPSIS
    0.0999...
    """
    p, y = as_forecast(probabilities, outcomes)
    grid = residual_grid(p, (y - p) / len(p), np.zeros(len(p), dtype=np.int64), _GRID)
    (width,) = fixed_points(cosine_coefficients(grid), steps=40)
    return round_off(float(width), 1e-9)


def residual_grid(p: FloatArray, residual: FloatArray, groups: IntArray, size: int) -> FloatArray:
    """Share each ``residual`` (n,) between the two nearest of ``size`` + 1 points: (groups, size + 1).

    >>> residual_grid(np.array([0.25]), np.array([1.0]), np.array([0]), 2)
    array([[0.5, 0.5, 0. ]])
    """
    n_groups = int(groups.max()) + 1
    place = p * size
    left = np.minimum(place.astype(np.int64), size - 1)
    share = place - left
    cells, n_cells = groups * (size + 1) + left, n_groups * (size + 1)
    to_left = np.bincount(cells, residual * (1 - share), n_cells)
    to_right = np.bincount(cells + 1, residual * share, n_cells)
    grid: FloatArray = (to_left + to_right).astype(np.float64).reshape(n_groups, size + 1)
    return grid


def cosine_coefficients(grid: FloatArray) -> FloatArray:
    """Return the cosine coefficients of rows (R, size + 1)."""
    # An even extension of period 2 has a real spectrum: its cosine coefficients.
    even = np.concatenate([grid, grid[:, -2:0:-1]], axis=1)
    even[:, [0, grid.shape[1] - 1]] *= 2
    return np.fft.rfft(even, axis=1).real / 2


def fixed_points(coefficients: FloatArray, *, steps: int) -> FloatArray:
    """Return for each row (R, size + 1) the σ at which the norm of the smoothed residual is σ: (R,).

    The norm falls and σ grows, so that halving an interval finds it, ``steps`` times.
    """
    size = coefficients.shape[1] - 1
    low, high = np.zeros(len(coefficients)), np.ones(len(coefficients))
    for _ in range(steps):
        middle = (low + high) / 2
        damped = coefficients * np.exp(-((np.pi * middle[:, None] * np.arange(size + 1)) ** 2) / 2)
        density = np.abs(np.fft.irfft(damped, 2 * size, axis=1)[:, : size + 1] * 2 * size)
        # Trapezoidal rule on [0, 1] with steps of 1/size.
        norm = (density.sum(axis=1) - (density[:, 0] + density[:, -1]) / 2) / size
        low, high = np.where(norm > middle, middle, low), np.where(norm > middle, high, middle)
    return (low + high) / 2
