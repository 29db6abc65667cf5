"""The smooth calibration error, computed on a grid with a cosine transform."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration._ece import as_forecast, round_off

__all__ = [
    "cosine_coefficients",
    "fixed_points",
    "grid_cells",
    "residual_grid",
    "smooth_ece",
    "smoothed",
    "smoothed_norm",
]

_GRID = 4096


def smooth_ece(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    """Return the smooth ECE (Błasiok and Nakkiran 2023), which needs no bins and no bandwidth.

    smECE_σ = ∫ |r_σ(t)| dt, where r_σ are the residuals y − p at p, smoothed by a Gaussian of width σ that is
    reflected at 0 and 1. The result is the σ at which smECE_σ = σ.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.

    Returns
    -------
    float
        The error.

    Examples
    --------
    >>> smooth_ece([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1])  # doctest: +ELLIPSIS
    0.0999...
    """
    p, y = as_forecast(probabilities, outcomes)
    grid = residual_grid(p, (y - p) / len(p), _GRID)
    (width,) = fixed_points(cosine_coefficients(grid), steps=16)
    return round_off(float(width), 1e-9)


def residual_grid(p: FloatArray, residual: FloatArray, size: int) -> FloatArray:
    """Split each ``residual`` (n,) between the two nearest of ``size`` + 1 points: (1, size + 1).

    >>> residual_grid(np.array([0.25]), np.array([1.0]), 2)
    array([[0.5, 0.5, 0. ]])
    """
    left, share = grid_cells(p, size)
    to_left = np.bincount(left, residual * (1 - share), size + 1)
    to_right = np.bincount(left + 1, residual * share, size + 1)
    grid: FloatArray = (to_left + to_right).astype(np.float64)
    return grid[None]


def grid_cells(p: FloatArray, size: int) -> tuple[IntArray, FloatArray]:
    """Return the grid point at or below each p (n,), and the fraction of a step from there to p.

    >>> grid_cells(np.array([0.25, 1.0]), 2)
    (array([0, 1]), array([0.5, 1. ]))
    """
    place = p * size
    left = np.minimum(place.astype(np.int64), size - 1)
    return left, place - left


def cosine_coefficients(grid: FloatArray) -> FloatArray:
    """Return the cosine coefficients of rows (R, size + 1)."""
    # An even extension of period 2 has a real spectrum: its cosine coefficients.
    even = np.concatenate([grid, grid[:, -2:0:-1]], axis=1)
    even[:, [0, grid.shape[1] - 1]] *= 2
    return np.fft.rfft(even, axis=1).real / 2


def smoothed(coefficients: FloatArray, width: FloatArray) -> FloatArray:
    """Return rows (R, size + 1), given by their cosine coefficients, smoothed by Gaussians of ``width`` (R,).

    Smoothing with reflection at both ends multiplies the k-th coefficient by exp(−(π k width)²/2).
    """
    size = coefficients.shape[1] - 1
    damped = coefficients * np.exp(-((np.pi * width[:, None] * np.arange(size + 1)) ** 2) / 2)
    density: FloatArray = np.fft.irfft(damped, 2 * size, axis=1)[:, : size + 1] * 2 * size
    return density


def smoothed_norm(coefficients: FloatArray, width: FloatArray) -> FloatArray:
    """Return ∫ |smoothed row| for each row (R,), by the trapezoidal rule."""
    density = np.abs(smoothed(coefficients, width))
    return (density.sum(axis=1) - (density[:, 0] + density[:, -1]) / 2) / (coefficients.shape[1] - 1)


def fixed_points(coefficients: FloatArray, *, steps: int) -> FloatArray:
    """Return for each row (R, size + 1) the σ at which the norm of the smoothed residual is σ: (R,).

    The norm decreases as σ grows, so there is one solution, at most the norm at 0. It is found by the
    Illinois method: the secant through the ends of the bracket, where the value at an end that does not move
    is halved.
    """
    low = np.zeros(len(coefficients))
    above = smoothed_norm(coefficients, low)
    high = np.minimum(above, 1.0)
    below = smoothed_norm(coefficients, high) - high
    moved = np.zeros(len(coefficients), dtype=np.int64)  # which end moved last: -1 low, 1 high
    for _ in range(steps):
        width = above - below
        middle = np.where(width > 0, (low * -below + high * above) / np.where(width > 0, width, 1.0), low)
        excess = smoothed_norm(coefficients, middle) - middle
        up = excess > 0
        below = np.where(up, np.where(moved == -1, below / 2, below), excess)
        above = np.where(up, excess, np.where(moved == 1, above / 2, above))
        low, high = np.where(up, middle, low), np.where(up, high, middle)
        moved = np.where(up, -1, 1)
    return np.where(moved == -1, low, high)
