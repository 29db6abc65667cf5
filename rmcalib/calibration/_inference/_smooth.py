"""Intervals and null tests of the smooth calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration._inference._estimates import Inference
from rmcalib.calibration._inference._simulation import FEWER_DRAWS, FEWER_STEPS, rare_errors, simulate
from rmcalib.calibration._nulls import sorted_rows
from rmcalib.calibration._outcomes import CellOutcomes, SmallInts, rows_of, sparse_rows
from rmcalib.calibration._smooth_ece import (
    cosine_coefficients,
    fixed_points,
    grid_cells,
    residual_grid,
    smooth_ece,
    smoothed,
    smoothed_norm,
)

__all__ = ["smooth_inference"]

_GRID = 128  # grid of simulated errors; the value itself uses the fine grid of `smooth_ece`
_STEPS = 6  # secants to a simulated error: to about 1e-5
_NARROWEST = 0.02  # smallest width of the smoothed gaps that shape the alternatives
_LEAST = 1e-9  # smallest density that gaps are divided by


def smooth_inference(
    p: FloatArray,
    y: FloatArray,
    groups: IntArray,
    *,
    one_per_group: bool,
    resamples: int = FEWER_DRAWS,
    rng: np.random.Generator | int = 0,
) -> Inference:
    """Return the inference of the smooth ECE, made in the same way as `binned_inference`.

    Here the gap at a forecast is the smoothed residual, instead of the mean of a bin.

    Parameters
    ----------
    p, y, groups, one_per_group, resamples, rng
        As for `binned_inference`.

    Returns
    -------
    Inference

    Examples
    --------
    >>> p = np.linspace(0.05, 0.95, 100)
    >>> found = smooth_inference(p, np.ones(100), np.arange(100), one_per_group=False)
    >>> interval = found.interval()
    >>> 0 < interval.low < interval.value < interval.high
    True
    """
    order, groups = sorted_rows(p, y, groups)
    p, y, n = p[order], y[order], len(p)
    value = smooth_ece(p, y)
    left, share = grid_cells(p, _GRID)
    cells = CellOutcomes.of_rows(groups, left, _GRID + 1, one_per_group=one_per_group)
    outcomes = _GridOutcomes(cells, share)
    residual = cosine_coefficients(residual_grid(p, (y - p) / n, _GRID))
    mass = cosine_coefficients(residual_grid(p, np.full(n, 1 / n), _GRID))
    width = np.array([max(value, _NARROWEST)])
    gap = _at(p, smoothed(residual, width) / np.maximum(smoothed(mass, width), _LEAST))
    forecast = residual_grid(p, p, _GRID)

    def errors(happened: FloatArray) -> FloatArray:
        rows = (happened.reshape(-1, _GRID + 1) - forecast) / n
        return fixed_points(cosine_coefficients(rows), steps=_STEPS).reshape(happened.shape[:-1])

    null, draws, truths = simulate(
        outcomes,
        lambda size: cells.probabilities(p + size * gap),
        errors,
        errors,
        steps=FEWER_STEPS,
        resamples=resamples,
        rng=rng,
        most=FEWER_DRAWS,
    )
    influence = np.bincount(groups, _smooth_influence(p, y, residual, value))
    happened = y if one_per_group else np.column_stack([y, 1 - y]).reshape(-1)
    rarely = rare_errors(outcomes, cells.probabilities(p), happened, errors)
    return Inference(value, null, draws, truths, influence - influence.mean(), rarely=rarely)


@dataclass(frozen=True)
class _GridOutcomes:
    """Outcomes that count at the two grid points next to their forecast.

    cells: the left grid point of each outcome. share: (N,) the part of each row that counts at the right one.
    """

    cells: CellOutcomes
    share: FloatArray

    @property
    def sizes(self) -> IntArray:
        return self.cells.sizes

    @property
    def n_sums(self) -> int:
        return self.cells.n_sums

    @cached_property
    def right(self) -> FloatArray:
        """The weight of each outcome at its right grid point (A,)."""
        repeats = len(self.cells.cell) // len(self.share)
        return np.repeat(self.share, repeats)

    def features(self, groups: slice) -> Any:
        rows = rows_of(self.sizes, groups)
        cell, right = self.cells.cell[rows], self.right[rows]
        last = np.where(cell < self.n_sums, np.minimum(cell + 1, self.n_sums), self.n_sums)
        return sparse_rows(cell, 1 - right, self.n_sums) + sparse_rows(last, right, self.n_sums)

    def counts(self, rows: SmallInts, step: SmallInts, n_steps: int) -> FloatArray:
        width = self.n_sums + 2
        cells = self.cells.cell[rows] + width * step
        cells += width * n_steps * np.arange(len(rows))[:, None]
        right, size = self.right[rows].reshape(-1), len(rows) * n_steps * width
        flat = cells.reshape(-1)
        counts = np.bincount(flat, 1 - right, size) + np.bincount(flat + 1, right, size)
        return counts.reshape(len(rows), n_steps, width)[..., :-2].astype(np.float64)


def _smooth_influence(p: FloatArray, y: FloatArray, residual: FloatArray, value: float) -> FloatArray:
    """Influence of each row (N,) on the smooth ECE σ, the solution of ‖r_σ‖ = σ.

    A change of the residuals moves the norm by its integral with sign(r_σ), smoothed; the solution moves by
    that over 1 − d‖r_σ‖/dσ.
    """
    width, step = np.array([max(value, 1 / _GRID)]), 1 / (4 * _GRID)
    signs = np.sign(smoothed(residual, width)) / _GRID
    signs[:, [0, -1]] /= 2
    weight = _at(p, smoothed(cosine_coefficients(signs), width))
    slope = (smoothed_norm(residual, width + step) - smoothed_norm(residual, width - step))[0] / (2 * step)
    return ((y - p) * weight - value) / len(p) / (1 - min(slope, 0.0))


def _at(p: FloatArray, rows: FloatArray) -> FloatArray:
    """Values at p (N,) of a function given on the grid (1, size + 1)."""
    return np.interp(p, np.arange(_GRID + 1) / _GRID, rows[0])
