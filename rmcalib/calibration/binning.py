"""Bins: their edges, the sums of each bin, and the calibration error computed from these sums.

Three numbers describe a bin: how many forecasts it contains, the sum of their probabilities, and the number
of outcomes that happened. Errors, bootstraps and null distributions are functions of these sums, so that
resampling never touches single rows.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_choice, check_integer

Spacing = Literal["width", "mass", "log"]
Discrepancy = Literal["abs", "kl", "jeffreys", "jeffreys_unit"]
"""How the frequency and the mean forecast of a bin are compared; see `ece`."""
Norm = Literal[1, 2, "max"]

_CLIP = 1e-12
_LOWEST_LOG_EDGE = -12
_FEW_EDGES = 20  # are compared one by one, which is faster than a search


class ErrorKeywords(TypedDict, total=False):
    """The same options as `ErrorOptions`, for functions that take them as keywords; `ece` explains them."""

    bins: int
    spacing: Spacing
    discrepancy: Discrepancy
    norm: Norm
    debias: bool


@dataclass(frozen=True)
class ErrorOptions:
    """How a binned calibration error is computed; the defaults are the usual ECE."""

    bins: int = 10
    spacing: Spacing = "width"
    discrepancy: Discrepancy = "abs"
    norm: Norm = 1
    debias: bool = False

    def __post_init__(self) -> None:
        """Check every option at once."""
        check_choice(self.spacing, "spacing", ("width", "mass", "log"))
        check_choice(self.discrepancy, "discrepancy", ("abs", "kl", "jeffreys", "jeffreys_unit"))
        check_choice(self.norm, "norm", (1, 2, "max"))
        if self.debias and self.discrepancy != "abs":
            raise ValueError(f"debias: needs discrepancy 'abs', got {self.discrepancy!r}")
        check_integer(self.bins, "bins", 1)


CROWDED = 0.8
"""If one bin has more of all probabilities, an error in bins of equal width hides what is wrong inside it."""
USUAL = ErrorOptions()


@dataclass(frozen=True)
class BinSums:
    """The sums of B bins, for one data set (B,) or for many (..., B)."""

    count: FloatArray
    probability: FloatArray
    outcome: FloatArray

    def __getitem__(self, index: Any) -> "BinSums":
        """Return those of some data sets or bins."""
        return BinSums(self.count[index], self.probability[index], self.outcome[index])


def bin_edges(probabilities: FloatArray, options: ErrorOptions) -> FloatArray:
    """Return the edges of the bins."""
    if options.spacing == "width":
        # i/B, not linspace, whose 3/10 is 0.30000000000000004: a forecast of 0.3 belongs to [0.3, 0.4).
        return np.arange(options.bins + 1) / options.bins
    if options.spacing == "log":
        return np.concatenate([[0.0], np.logspace(_LOWEST_LOG_EDGE, 0, options.bins + 1)[1:]])
    shares = np.arange(1, options.bins) / options.bins
    # A little lower: equal forecasts that differ by rounding belong to one bin.
    inner = np.quantile(probabilities, shares, axis=0) * (1 - 1e-12)
    ends = np.zeros((1, *probabilities.shape[1:]))
    return np.concatenate([ends, inner, ends + 1])


def bin_index(probabilities: FloatArray, edges: FloatArray) -> IntArray:
    """Return the bin of each probability."""
    inner = edges[1:-1]
    if edges.ndim == 1 and len(inner) > _FEW_EDGES:
        return np.searchsorted(inner, probabilities, side="right")
    index = np.zeros(probabilities.shape, dtype=np.int64 if len(inner) > _FEW_EDGES else np.int8)
    for edge in inner:
        index += probabilities >= edge
    return index.astype(np.int64)


def bin_sums(index: IntArray, probabilities: FloatArray, outcomes: FloatArray, n_bins: int) -> BinSums:
    """Return the sums of each bin, for forecasts (n,) or for several sets of them (..., n, E): (..., E, B)."""
    sets = () if index.ndim == 1 else (*index.shape[:-2], index.shape[-1])
    if sets:
        number = np.arange(np.prod(sets)).reshape(sets)
        index = index + n_bins * number[..., None, :]
    flat, shape, size = index.reshape(-1), (*sets, n_bins), n_bins * int(np.prod(sets))

    def total(weights: FloatArray | None) -> FloatArray:
        return np.bincount(flat, weights, minlength=size).astype(np.float64).reshape(shape)

    return BinSums(total(None), total(probabilities.reshape(-1)), total(outcomes.reshape(-1)))


def unpack_bins(rows: FloatArray) -> BinSums:
    """Turn rows (..., 3B) of counts, probabilities and outcomes into bin sums."""
    return BinSums(*np.split(rows, 3, axis=-1))


def binned_error(sums: BinSums, options: ErrorOptions) -> FloatArray:
    """Return the calibration error of bin sums; empty bins do not count."""
    weight = sums.count / sums.count.sum(axis=-1, keepdims=True)
    gap = bin_gaps(sums, options)
    if options.norm == "max":
        return np.asarray(gap.max(axis=-1))
    if options.norm == 1:
        return np.asarray((weight * gap).sum(axis=-1))
    if options.debias:
        # Debiased squares can be negative. They must cancel across bins before the root is taken.
        square = bin_gaps(sums, options, squared=True)
        return np.asarray(np.sqrt(np.maximum((weight * square).sum(axis=-1), 0.0)))
    return np.asarray(np.sqrt((weight * gap**2).sum(axis=-1)))


def bin_gaps(sums: BinSums, options: ErrorOptions, *, squared: bool = False) -> FloatArray:
    """Return the discrepancy of every bin (..., B), 0 where it is empty."""
    count = np.maximum(sums.count, 1)
    frequency, confidence = sums.outcome / count, sums.probability / count
    if options.discrepancy == "abs":
        gap = np.abs(frequency - confidence)
        if options.debias:
            variance = frequency * (1 - frequency) / np.maximum(sums.count - 1, 1)
            square = np.where(sums.count > 1, gap**2 - variance, 0.0)
            return square if squared else np.sqrt(np.maximum(square, 0.0))
        return gap
    q = np.clip(confidence, _CLIP, 1 - _CLIP)
    if options.discrepancy == "kl":
        p = np.clip(frequency, _CLIP, 1 - _CLIP)
        gap = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    else:
        # Sums that are widened for clusters can have more outcomes than forecasts.
        p = np.minimum((sums.outcome + 0.5) / (count + 1), 1 - _CLIP)
        gap = (p - q) * (np.log(p / q) - np.log((1 - p) / (1 - q)))
        if options.discrepancy == "jeffreys_unit":
            gap = -np.expm1(-gap)
    # Rounding can make a divergence slightly negative, such as -1e-17.
    return np.where(sums.count > 0, np.maximum(gap, 0.0), 0.0)
