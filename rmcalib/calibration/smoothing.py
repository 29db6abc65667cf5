"""The smooth calibration error on a grid, by a cosine transform: Gaussian smoothing that is reflected at 0 and 1."""

from __future__ import annotations

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray

GRID = 128
"""Grid of simulated errors; the value itself uses a finer one."""
_FINE = 4096
_NARROWEST = 0.02  # smallest width of the smoothed gaps
_LEAST = 1e-9  # smallest density that gaps are divided by


def smooth_error(p: FloatArray, y: FloatArray) -> float:
    """Return the smooth ECE of forecasts p and outcomes y (n,)."""
    grid = residual_grid(p, (y - p) / len(p), _FINE)
    (width,) = fixed_points(cosine_coefficients(grid), steps=16)
    return 0.0 if width < 1e-9 else float(width)


def smoothed_gap(p: FloatArray, y: FloatArray, value: float) -> FloatArray:
    """Return the mean residual around each forecast (n,), smoothed with the width ``value`` of the error."""
    n, width = len(p), np.array([max(value, _NARROWEST)])
    residual, mass = (cosine_coefficients(residual_grid(p, x / n, GRID)) for x in (y - p, np.ones(n)))
    return _at(p, _smoothed(residual, width) / np.maximum(_smoothed(mass, width), _LEAST))


def influence(p: FloatArray, y: FloatArray, value: float) -> FloatArray:
    """Return the influence of each row (n,) on the smooth error σ, the solution of ‖r_σ‖ = σ."""
    residual = cosine_coefficients(residual_grid(p, (y - p) / len(p), GRID))
    width, step = np.array([max(value, 1 / GRID)]), 1 / (4 * GRID)
    signs = np.sign(_smoothed(residual, width)) / GRID
    signs[:, [0, -1]] /= 2
    weight = _at(p, _smoothed(cosine_coefficients(signs), width))
    slope = (_norm(residual, width + step) - _norm(residual, width - step))[0] / (2 * step)
    return ((y - p) * weight - value) / len(p) / (1 - min(slope, 0.0))


def residual_grid(p: FloatArray, residual: FloatArray, size: int) -> FloatArray:
    """Split each ``residual`` (n,) between the two nearest of ``size`` + 1 points: (1, size + 1)."""
    left, share = grid_cells(p, size)
    to_left = np.bincount(left, residual * (1 - share), size + 1)
    to_right = np.bincount(left + 1, residual * share, size + 1)
    grid: FloatArray = (to_left + to_right).astype(np.float64)
    return grid[None]


def grid_cells(p: FloatArray, size: int) -> tuple[IntArray, FloatArray]:
    """Return the grid point at or below each p (n,), and the fraction of a step from there to p."""
    place = p * size
    left = np.minimum(place.astype(np.int64), size - 1)
    return left, place - left


def cosine_coefficients(grid: FloatArray) -> FloatArray:
    """Return the cosine coefficients of rows (R, size + 1): Σ_j grid_j cos(π j k / size)."""
    doubled = grid.copy()
    doubled[:, [0, -1]] *= 2
    return _cosine_sums(doubled) / 2


def fixed_points(coefficients: FloatArray, *, steps: int = 6) -> FloatArray:
    """Return for each row (R, size + 1) the σ at which the norm of the smoothed residual is σ: (R,).

    Secant steps that keep the solution between two ends and halve the value of an end that stays (Illinois).
    """
    low = np.zeros(len(coefficients))
    above = _norm(coefficients, low)
    high = np.minimum(above, 1.0)
    below = _norm(coefficients, high) - high
    moved = np.zeros(len(coefficients), dtype=np.int64)  # which end moved last: -1 low, 1 high
    for _ in range(steps):
        width = above - below
        middle = np.where(width > 0, (low * -below + high * above) / np.where(width > 0, width, 1.0), low)
        excess = _norm(coefficients, middle) - middle
        up = excess > 0
        below = np.where(up, np.where(moved == -1, below / 2, below), excess)
        above = np.where(up, excess, np.where(moved == 1, above / 2, above))
        low, high = np.where(up, middle, low), np.where(up, high, middle)
        moved = np.where(up, -1, 1)
    return np.where(moved == -1, low, high)


def _smoothed(coefficients: FloatArray, width: FloatArray) -> FloatArray:
    """Return rows (R, size + 1), given by their cosine coefficients, smoothed by Gaussians of ``width`` (R,)."""
    frequency = np.pi * np.arange(coefficients.shape[1])
    return _cosine_sums(coefficients * np.exp(-((frequency * width[:, None]) ** 2) / 2))


def _cosine_sums(rows: FloatArray) -> FloatArray:
    from scipy.fft import dct

    return np.asarray(dct(rows, type=1, axis=1))


def _norm(coefficients: FloatArray, width: FloatArray) -> FloatArray:
    """Return ∫ |smoothed row| for each row (R,), by the trapezoidal rule."""
    density = np.abs(_smoothed(coefficients, width))
    return (density.sum(axis=1) - (density[:, 0] + density[:, -1]) / 2) / (coefficients.shape[1] - 1)


def _at(p: FloatArray, rows: FloatArray) -> FloatArray:
    """Values at p (n,) of a function given on the grid (1, size + 1)."""
    return np.interp(p, np.arange(GRID + 1) / GRID, rows[0])
