"""Errors and scores of binary forecasts: binned and smooth calibration errors, Brier and log score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_groups, as_outcomes, as_probabilities
from rmcalib.calibration._binning import (
    BinSums,
    Discrepancy,
    ErrorOptions,
    Norm,
    Spacing,
    as_bins,
    bin_edges,
    bin_index,
    bin_sums,
    binned_error,
)

__all__ = ["Reliability", "brier_score", "ece", "log_score", "reliability", "smooth_ece"]

_GRID = 4096


@dataclass(frozen=True)
class Reliability:
    """The numbers of a reliability diagram, for B bins.

    Attributes
    ----------
    low, high : float arrays (B,)
        Edges of each bin.
    count : float array (B,)
        Number of forecasts in the bin.
    confidence : float array (B,)
        Their mean; NaN in empty bins.
    frequency : float array (B,)
        How often the event happened; NaN in empty bins.

    Examples
    --------
    >>> diagram = reliability([0.2, 0.4, 0.9], [0, 1, 1], bins=2)
    >>> diagram.frequency - diagram.confidence
    array([0.2, 0.1])
    """

    low: FloatArray
    high: FloatArray
    count: FloatArray
    confidence: FloatArray
    frequency: FloatArray


def ece(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    bins: int | ArrayLike = 10,
    spacing: Spacing = "width",
    discrepancy: Discrepancy = "abs",
    norm: Norm = 1,
    debias: bool = False,
) -> float:
    """Return the expected calibration error (ECE) of forecasts of yes/no outcomes.

    ECE = Σ_b |I_b|/n · |freq(I_b) − conf(I_b)| over bins that are left-closed, with p = 1 in the last one.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.
    bins : int or float array (B + 1,)
        Number of bins, or their edges from 0 to 1.
    spacing : {"width", "mass", "log"}
        Bins of equal width, of equal mass, or logarithmic from 1e-12.
    discrepancy : {"abs", "kl", "jeffreys", "jeffreys_unit"}
        How the frequency f and the mean forecast c of a bin are compared. "abs" is |f − c|. "kl" is the
        Bernoulli divergence KL(f‖c). "jeffreys" is J = KL(f‖c) + KL(c‖f) with f smoothed to
        (n₁ + ½)/(n + 1). "jeffreys_unit" is 1 − exp(−J), which lies in [0, 1).
    norm : {1, 2, "max"}
        Weighted mean over bins, root of the weighted mean square, or the largest.
    debias : bool
        Subtract the sampling variance f(1 − f)/(n − 1) from each squared difference ("abs" only).

    Returns
    -------
    float
        The error; 0 if every bin's frequency equals its mean forecast.

    Examples
    --------
    >>> ece([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1])
    0.1
    >>> ece([0.25, 0.25, 0.25, 0.25], [0, 0, 0, 1])
    0.0
    """
    p, y = as_forecast(probabilities, outcomes)
    options = ErrorOptions(as_bins(bins), spacing, discrepancy, norm, debias)
    return round_off(float(binned_error(_sums(p, y, bin_edges(p, options)), options)))


def reliability(
    probabilities: ArrayLike, outcomes: ArrayLike, *, bins: int | ArrayLike = 10, spacing: Spacing = "width"
) -> Reliability:
    """Return the reliability diagram of forecasts of yes/no outcomes.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.
    bins, spacing
        As for `ece`.

    Returns
    -------
    Reliability
        Edges, counts, mean forecasts and frequencies of the bins.

    Examples
    --------
    >>> diagram = reliability([0.2, 0.4, 0.9], [0, 1, 1], bins=2)
    >>> diagram.count, diagram.confidence.round(2), diagram.frequency
    (array([2., 1.]), array([0.3, 0.9]), array([0.5, 1. ]))
    """
    p, y = as_forecast(probabilities, outcomes)
    edges = bin_edges(p, ErrorOptions(as_bins(bins), spacing))
    sums = _sums(p, y, edges)
    count = np.where(sums.count > 0, sums.count, np.nan)
    return Reliability(edges[:-1], edges[1:], sums.count, sums.probability / count, sums.outcome / count)


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


def brier_score(probabilities: ArrayLike, outcomes: ArrayLike, *, groups: ArrayLike | None = None) -> float:
    """Return the Brier score: the mean of (p − y)².

    With ``groups``, (p − y)² is summed over each group, and the result is the mean over groups.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.
    groups : array of shape (n,), optional
        Labels. The rows of a group are the possible answers to one question (multi-class score).

    Returns
    -------
    float
        The score; 0 is best.

    Examples
    --------
    >>> brier_score([0.75, 0.25], [1, 0])
    0.0625
    >>> brier_score([0.75, 0.25], [1, 0], groups=[0, 0])
    0.125
    """
    p, y = as_forecast(probabilities, outcomes)
    index = as_groups(groups, len(p))
    return float(((p - y) ** 2).sum() / (index.max() + 1))


def log_score(probabilities: ArrayLike, outcomes: ArrayLike, *, groups: ArrayLike | None = None) -> float:
    """Return the mean negative log-likelihood of the outcomes.

    The score is infinite if an outcome happened that had probability 0.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.
    groups : array of shape (n,), optional
        Labels. Exactly one row of each group happened, and only its probability counts.

    Returns
    -------
    float
        The score in nats; 0 is best.

    Examples
    --------
    >>> round(log_score([0.5, 0.5], [1, 0]), 4)
    0.6931
    >>> round(log_score([0.8, 0.2], [1, 0], groups=["a", "a"]), 4)
    0.2231
    """
    p, y = as_forecast(probabilities, outcomes)
    if groups is not None:
        check_one_per_group(y, as_groups(groups, len(p)))
        likelihood = p[y == 1]
    else:
        likelihood = np.where(y == 1, p, 1 - p)
    with np.errstate(divide="ignore"):
        return float(-np.log(likelihood).mean() + 0.0)


def as_forecast(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return checked probabilities and outcomes (n,) of the same length.

    >>> as_forecast([0.5], [1, 0])
    Traceback (most recent call last):
    ...
    ValueError: outcomes: 2 outcomes for 1 probabilities
    """
    p, y = as_probabilities(probabilities), as_outcomes(outcomes)
    if len(p) != len(y):
        raise ValueError(f"outcomes: {len(y)} outcomes for {len(p)} probabilities")
    return p, y


def round_off(value: float, tolerance: float = 1e-15) -> float:
    """Return 0 for values below ``tolerance``, so that perfectly calibrated data has an error of exactly 0.

    >>> round_off(-1e-17)
    0.0
    """
    return 0.0 if abs(value) < tolerance else value


def check_one_per_group(outcomes: FloatArray, groups: IntArray) -> None:
    """Raise a ValueError unless exactly one outcome of each group happened.

    >>> check_one_per_group(np.array([1.0, 1.0]), np.array([0, 0]))
    Traceback (most recent call last):
    ...
    ValueError: outcomes: group number 0 has 2 outcomes of 1, expected exactly one
    """
    happened = np.bincount(groups, outcomes)
    bad = happened != 1
    if bad.any():
        group = int(np.argmax(bad))
        raise ValueError(
            f"outcomes: group number {group} has {int(happened[group])} outcomes of 1, expected exactly one"
        )


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


def _sums(p: FloatArray, y: FloatArray, edges: FloatArray) -> BinSums:
    return bin_sums(bin_index(p, edges), p, y, len(edges) - 1)
