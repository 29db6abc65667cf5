"""Bins: their edges, the sums of each bin, and the calibration error computed from these sums.

Three numbers describe a bin: how many forecasts it contains, the sum of their probabilities, and the number
of outcomes that happened. Errors, bootstraps and null distributions are functions of these sums, so that
resampling never touches single rows.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats, check_choice, check_integer

__all__ = [
    "BinSums",
    "Discrepancy",
    "ErrorOptions",
    "Norm",
    "Spacing",
    "bin_edges",
    "bin_index",
    "bin_sums",
    "binned_error",
    "grouped_sums",
    "unpack_bins",
]

Spacing = Literal["width", "mass", "log"]
Discrepancy = Literal["abs", "kl", "jeffreys", "jeffreys_unit"]
"""How the frequency and the mean forecast of a bin are compared; see `ece`."""
Norm = Literal[1, 2, "max"]

_CLIP = 1e-12
_LOWEST_LOG_EDGE = -12


@dataclass(frozen=True)
class ErrorOptions:
    """How a binned calibration error is computed; the defaults are the usual ECE.

    Parameters
    ----------
    bins : int or tuple of float
        Number of bins, or their edges from 0 to 1.
    spacing : {"width", "mass", "log"}
        Bins of equal width, of equal mass, or logarithmic from 1e-12.
    discrepancy : {"abs", "kl", "jeffreys", "jeffreys_unit"}
        How the frequency f and the mean forecast c of a bin are compared; see `ece`.
    norm : {1, 2, "max"}
        Weighted mean over bins, root of the weighted mean square, or the largest.
    debias : bool
        Subtract the sampling variance f(1 − f)/(n − 1) from each squared difference ("abs" only).

    Examples
    --------
    >>> ErrorOptions(bins=[0.0, 0.5, 1.0]).bins
    (0.0, 0.5, 1.0)
    >>> ErrorOptions(norm=3)
    Traceback (most recent call last):
    ...
    ValueError: norm: unknown 3 (have: 1, 2, 'max')
    """

    bins: int | tuple[float, ...] = 10
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
        if np.ndim(self.bins) == 0:
            check_integer(self.bins, "bins", 1)
        else:
            edges = as_floats(self.bins, "bins", ndim=1)
            if len(edges) < 2 or edges[0] > 0 or edges[-1] < 1 or (np.diff(edges) <= 0).any():
                raise ValueError(f"bins: edges {edges.tolist()} do not increase from 0 to 1")
            object.__setattr__(self, "bins", tuple(float(edge) for edge in edges))


@dataclass(frozen=True)
class BinSums:
    """The sums of B bins, for one data set (B,) or for many (..., B).

    Attributes
    ----------
    count : float array (..., B)
        Number of forecasts in the bin.
    probability : float array (..., B)
        Sum of their probabilities.
    outcome : float array (..., B)
        Number of outcomes that happened.

    Examples
    --------
    >>> sums = BinSums(count=np.array([4.0]), probability=np.array([3.0]), outcome=np.array([2.0]))
    >>> sums.outcome / sums.count  # the frequency
    array([0.5])
    """

    count: FloatArray
    probability: FloatArray
    outcome: FloatArray


def bin_edges(probabilities: FloatArray, options: ErrorOptions) -> FloatArray:
    """Return the edges of the bins.

    Parameters
    ----------
    probabilities : float array (n,) or (n, E)
        Forecasts; only bins of equal mass depend on them.
    options : ErrorOptions
        Number and spacing of the bins.

    Returns
    -------
    float array (B + 1,) or (B + 1, E)
        The edges; one column per event for bins of equal mass of forecasts (n, E).

    Examples
    --------
    >>> bin_edges(np.array([0.5]), ErrorOptions(bins=4))
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    if isinstance(options.bins, tuple):
        return np.array(options.bins)
    if options.spacing == "width":
        # i/B, not linspace, whose 3/10 is 0.30000000000000004: a forecast of 0.3 belongs to [0.3, 0.4).
        return np.arange(options.bins + 1) / options.bins
    if options.spacing == "log":
        return np.concatenate([[0.0], np.logspace(_LOWEST_LOG_EDGE, 0, options.bins + 1)[1:]])
    shares = np.arange(1, options.bins) / options.bins
    inner = np.quantile(probabilities, shares, axis=0)
    ends = np.zeros((1, *probabilities.shape[1:]))
    return np.concatenate([ends, inner, ends + 1])


def bin_index(probabilities: FloatArray, edges: FloatArray) -> IntArray:
    """Return the bin of each probability.

    Bins are closed on the left: an edge belongs to the bin on its right. The last bin contains 1.

    Parameters
    ----------
    probabilities : float array (n,) or (n, E)
        Forecasts in [0, 1].
    edges : float array (B + 1,) or (B + 1, E)
        Edges from `bin_edges`.

    Returns
    -------
    int array, of the shape of ``probabilities``
        Bin numbers from 0 to B − 1.

    Examples
    --------
    >>> bin_index(np.array([0.0, 0.3, 1.0]), bin_edges(np.array([]), ErrorOptions()))
    array([0, 3, 9])
    """
    inner = edges[1:-1]
    if edges.ndim == 1:
        return np.searchsorted(inner, probabilities, side="right")
    index = np.zeros(probabilities.shape, dtype=np.int64)
    for edge in inner:
        index += probabilities >= edge
    return index


def bin_sums(index: IntArray, probabilities: FloatArray, outcomes: FloatArray, n_bins: int) -> BinSums:
    """Return the sums of each bin, for one set of forecasts or for E of them at once.

    Parameters
    ----------
    index : int array (n,) or (n, E)
        Bin of each forecast, from `bin_index`.
    probabilities, outcomes : float arrays of the same shape
        Forecasts in [0, 1], and what happened (0 or 1).
    n_bins : int
        The number B of bins.

    Returns
    -------
    BinSums
        Arrays (B,) or (E, B).

    Examples
    --------
    >>> bin_sums(np.array([0, 1, 1]), np.array([0.2, 0.6, 0.8]), np.array([0.0, 1.0, 0.0]), 2).outcome
    array([0., 1.])
    """
    shape = (*index.shape[1:], n_bins)
    if index.ndim == 2:
        index = index + n_bins * np.arange(index.shape[1])
    flat, size = index.reshape(-1), int(np.prod(shape))

    def total(weights: FloatArray | None) -> FloatArray:
        return np.bincount(flat, weights, minlength=size).astype(np.float64).reshape(shape)

    return BinSums(total(None), total(probabilities.reshape(-1)), total(outcomes.reshape(-1)))


def grouped_sums(p: FloatArray, y: FloatArray, groups: IntArray, index: IntArray, n_bins: int) -> FloatArray:
    """Return the bin sums of each group: (G, 3B), counts, then probabilities, then outcomes.

    >>> grouped_sums(np.array([0.2, 0.8]), np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 1]), 2)
    array([[1. , 0. , 0.2, 0. , 0. , 0. ],
           [0. , 1. , 0. , 0.8, 0. , 1. ]])
    """
    cell = groups * n_bins + index
    n_groups = int(groups.max()) + 1
    sums = np.empty((n_groups, 3, n_bins))
    for kind, weights in enumerate((None, p, y)):
        sums[:, kind] = np.bincount(cell, weights, n_groups * n_bins).reshape(n_groups, n_bins)
    return sums.reshape(n_groups, -1)


def unpack_bins(rows: FloatArray) -> BinSums:
    """Turn rows (..., 3B) such as those of `grouped_sums` into bin sums.

    >>> unpack_bins(np.array([1.0, 0.5, 0.0])).probability
    array([0.5])
    """
    count, probability, outcome = np.split(rows, 3, axis=-1)
    return BinSums(count, probability, outcome)


def binned_error(sums: BinSums, options: ErrorOptions) -> FloatArray:
    """Return the calibration error of bin sums; empty bins do not count.

    Parameters
    ----------
    sums : BinSums
        Sums (..., B) of one or many data sets.
    options : ErrorOptions
        Discrepancy, norm and debiasing.

    Returns
    -------
    float array (...)
        The error of each data set.

    Examples
    --------
    >>> sums = BinSums(np.array([4.0]), np.array([3.0]), np.array([2.0]))
    >>> binned_error(sums, ErrorOptions())
    array(0.25)
    """
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
    """Return the discrepancy of every bin (..., B), 0 where it is empty.

    With ``debias`` a bin's gap is the root of max(0, (f − c)² − f(1 − f)/(n − 1)), 0 where n = 1;
    ``squared`` returns that difference itself.

    >>> bin_gaps(BinSums(np.array([2.0, 0.0]), np.array([0.5, 0.0]), np.array([1.0, 0.0])), ErrorOptions())
    array([0.25, 0.  ])
    """
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
        p = (sums.outcome + 0.5) / (count + 1)
        gap = (p - q) * (np.log(p / q) - np.log((1 - p) / (1 - q)))
        if options.discrepancy == "jeffreys_unit":
            gap = -np.expm1(-gap)
    # Rounding can make a divergence slightly negative, such as -1e-17.
    return np.where(sums.count > 0, np.maximum(gap, 0.0), 0.0)


def as_bins(bins: int | ArrayLike) -> int | tuple[float, ...]:
    """Return a number of bins, or edges as a tuple.

    >>> as_bins([0, 0.5, 1])
    (0.0, 0.5, 1.0)
    """
    if np.ndim(bins) == 0:
        return check_integer(bins, "bins", 1)
    return tuple(float(edge) for edge in as_floats(bins, "bins", ndim=1))
