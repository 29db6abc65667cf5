"""Calibration errors of binary forecasts: binned ECE, its reliability diagram, and the smooth ECE."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib.arrays import FloatArray, as_outcomes, as_probabilities
from rmcalib.calibration.binning import (
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

__all__ = ["Reliability", "as_forecast", "ece", "reliability", "smooth_ece"]


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram, one entry a bin (B,): edges, number of forecasts, their mean, what came true.

    ``confidence`` and ``frequency`` of an empty bin (count 0) are NaN: there is nothing to tell.
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
    """Return the expected calibration error of ``probabilities`` (n,) for 0/1 ``outcomes`` (n,).

    ECE = Σ_b |I_b|/n · |freq(I_b) − conf(I_b)| over bins that are left-closed, with p = 1 in the last one.
    :class:`~rmcalib.calibration.ErrorOptions` explains the options.

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
    """Return the reliability diagram of ``probabilities`` (n,) for 0/1 ``outcomes`` (n,).

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
    """Return the smooth ECE (Błasiok and Nakkiran 2023), which has neither bins nor a width to choose.

    smECE_σ = ∫ |r_σ(t)| dt, where r_σ is the residual y − p, placed at p and smoothed by a Gaussian of
    width σ reflected at 0 and 1; the result is the σ at which smECE_σ = σ. Smoothing with reflection
    multiplies the k-th cosine coefficient of the residual by exp(−(πkσ)²/2).

    >>> smooth_ece([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1])  # doctest: +ELLIPSIS
    0.0999...
    """
    p, y = as_forecast(probabilities, outcomes)
    low, high = 0.0, 1.0
    coefficients = _residual_cosines(p, y, 4096)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _smoothed_norm(coefficients, middle) > middle else (low, middle)
    return round_off((low + high) / 2, 1e-9)


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
    """Return 0 for what is only rounding, so that a perfectly calibrated table measures exactly 0.

    >>> round_off(-1e-17)
    0.0
    """
    return 0.0 if abs(value) < tolerance else value


def _sums(p: FloatArray, y: FloatArray, edges: FloatArray) -> BinSums:
    return bin_sums(bin_index(p, edges), p, y, len(edges) - 1)


def _residual_cosines(p: FloatArray, y: FloatArray, size: int) -> FloatArray:
    """Cosine coefficients of the residuals, shared between the two nearest of ``size`` + 1 grid points."""
    place = p * size
    left = np.minimum(place.astype(np.int64), size - 1)
    share = place - left
    residual = (y - p) / len(p)
    grid = np.bincount(left, residual * (1 - share), size + 1) + np.bincount(
        left + 1, residual * share, size + 1
    )
    # An even extension of period 2 has a real spectrum: its cosine coefficients.
    even = np.concatenate([grid, grid[-2:0:-1]])
    even[0], even[size] = 2 * grid[0], 2 * grid[size]
    return np.fft.rfft(even).real / 2


def _smoothed_norm(coefficients: FloatArray, width: float) -> float:
    size = len(coefficients) - 1
    damped = coefficients * np.exp(-((np.pi * width * np.arange(size + 1)) ** 2) / 2)
    density = np.fft.irfft(damped, 2 * size)[: size + 1] * 2 * size
    # Trapezoidal rule on [0, 1] with steps of 1/size.
    return float((np.abs(density).sum() - (abs(density[0]) + abs(density[-1])) / 2) / size)
