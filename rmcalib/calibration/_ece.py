"""The binned calibration error of binary forecasts, and its reliability diagram."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, as_outcomes, as_probabilities
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

__all__ = ["Reliability", "as_forecast", "ece", "reliability", "round_off"]


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
