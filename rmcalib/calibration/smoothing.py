"""The smooth calibration error on a grid, by a cosine transform: Gaussian smoothing that is reflected at 0 and 1."""

from __future__ import annotations

import numpy as np

from rmcalib._util.arrays import FloatArray, find_root

_GRID = 4096


def smooth_error(p: FloatArray, y: FloatArray) -> float:
    """Return the smooth ECE of forecasts p and outcomes y (n,): the σ at which ∫ |residual smoothed by σ| is σ."""
    from scipy.fft import dct

    residual = _residual_grid(p, (y - p) / len(p))
    residual[[0, -1]] *= 2
    coefficients = dct(residual, type=1) / 2
    frequency = np.pi * np.arange(_GRID + 1)

    def excess(width: float) -> float:
        density = np.abs(dct(coefficients * np.exp(-((frequency * width) ** 2) / 2), type=1))
        return float(density.sum() - (density[0] + density[-1]) / 2) / _GRID - width

    if excess(1e-9) <= 0:
        return 0.0
    return find_root(excess, 0.0, 1.0, tolerance=1e-12) if excess(1.0) < 0 else 1.0


def _residual_grid(p: FloatArray, residual: FloatArray) -> FloatArray:
    """Split each ``residual`` (n,) between the two nearest points of the grid."""
    place = p * _GRID
    left = np.minimum(place.astype(np.int64), _GRID - 1)
    right = place - left
    to_left = np.bincount(left, residual * (1 - right), _GRID + 1)
    to_right = np.bincount(left + 1, residual * right, _GRID + 1)
    return np.asarray(to_left + to_right, dtype=np.float64)
