"""What a calibrated forecast would show: null distributions, p-values, consistency bands.

An ECE is above zero even for a perfect forecast. Outcomes drawn from the forecast itself say by how much.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_groups, check_choice, check_integer, chunks
from rmcalib.calibration._binning import (
    BinSums,
    EceOptions,
    ErrorOptions,
    Spacing,
    as_bins,
    bin_edges,
    bin_index,
    bin_sums,
    binned_error,
)
from rmcalib.calibration._ece import as_forecast
from rmcalib.calibration._intervals import check_level, error_options

__all__ = ["Band", "Draw", "NullTest", "consistency_band", "ece_null", "null_test"]

Draw = Literal["independent", "one_per_group"]


@dataclass(frozen=True)
class NullTest:
    """An observed error beside what a calibrated forecast would show at this sample size.

    mean and high: mean and 95% point of the error if the forecast were the truth. p_value: how often such
    a forecast shows an error at least as large as the observed one.
    """

    value: float
    mean: float
    high: float
    p_value: float
    resamples: int

    @property
    def excess(self) -> float:
        """How much the error exceeds that of a calibrated forecast: value − mean."""
        return self.value - self.mean


@dataclass(frozen=True)
class Band:
    """Where each bin's frequency would lie if the forecast were calibrated: (B,), NaN in empty bins."""

    low: FloatArray
    high: FloatArray
    level: float


def ece_null(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    draw: Draw = "independent",
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
    **options: Unpack[EceOptions],
) -> NullTest:
    """Compare the binned error with its distribution under outcomes drawn from the forecast itself.

    draw: "independent" yes/no outcomes, or "one_per_group": in each group, whose probabilities sum to one,
    exactly one row happens.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(500)
    >>> bool(ece_null(p, rng.random(500) < p).p_value > 0.05), ece_null(p, np.ones(500)).p_value < 0.01
    (True, True)
    """
    p, y = as_forecast(probabilities, outcomes)
    error = error_options(options)
    edges = bin_edges(p, error)
    n_bins = len(edges) - 1
    index = bin_index(p, edges)
    observed = float(binned_error(bin_sums(index, p, y, n_bins), error))
    happened = _simulated_bins(
        p, index, n_bins, _groups_for(draw, groups, p), resamples, np.random.default_rng(rng)
    )
    count = np.broadcast_to(np.bincount(index, minlength=n_bins).astype(np.float64), happened.shape)
    probability = np.broadcast_to(np.bincount(index, p, n_bins).astype(np.float64), happened.shape)
    return compare_with_null(observed, binned_error(BinSums(count, probability, happened), error))


def null_test(
    observed: float,
    simulate: Callable[[np.random.Generator], float],
    *,
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
) -> NullTest:
    """Compare any error with its null distribution; ``simulate`` draws outcomes and returns the error once.

    >>> null_test(3.0, lambda rng: float(rng.normal()), resamples=200).p_value < 0.02
    True
    """
    generator = np.random.default_rng(rng)
    draws = [simulate(generator) for _ in range(check_integer(resamples, "resamples", 1))]
    return compare_with_null(float(observed), np.array(draws))


def consistency_band(
    probabilities: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    draw: Draw = "independent",
    bins: int | ArrayLike = 10,
    spacing: Spacing = "width",
    level: float = 0.95,
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
) -> Band:
    """Return where the bars of a reliability diagram would lie if the forecast were calibrated.

    >>> band = consistency_band(np.full(100, 0.5), bins=1)
    >>> bool(0.3 < band.low[0] < 0.5 < band.high[0] < 0.7)
    True
    """
    check_level(level)
    p, _ = as_forecast(probabilities, np.zeros(len(np.atleast_1d(np.asarray(probabilities)))))
    edges = bin_edges(p, ErrorOptions(as_bins(bins), spacing))
    n_bins = len(edges) - 1
    index = bin_index(p, edges)
    happened = _simulated_bins(
        p, index, n_bins, _groups_for(draw, groups, p), resamples, np.random.default_rng(rng)
    )
    count = np.bincount(index, minlength=n_bins).astype(np.float64)
    low, high = np.quantile(happened, [(1 - level) / 2, (1 + level) / 2], axis=0)
    nonempty = np.where(count > 0, count, np.nan)
    return Band(low / nonempty, high / nonempty, level)


def compare_with_null(observed: float, draws: FloatArray) -> NullTest:
    """Return where ``observed`` stands among ``draws`` (R,) of a calibrated forecast.

    >>> compare_with_null(2.0, np.array([0.0, 1.0, 3.0])).p_value
    0.5
    """
    # Equal up to rounding counts as "at least as large".
    reached = int((draws >= observed - 1e-12).sum())
    p_value = (1 + reached) / (1 + len(draws))
    return NullTest(observed, float(draws.mean()), float(np.quantile(draws, 0.95)), p_value, len(draws))


def _groups_for(draw: Draw, groups: ArrayLike | None, p: FloatArray) -> IntArray | None:
    """Group numbers if one row of each group happens, None if rows are independent."""
    check_choice(draw, "draw", ("independent", "one_per_group"))
    if draw == "independent":
        return None
    if groups is None:
        raise ValueError("groups: needed for draw='one_per_group'")
    index = as_groups(groups, len(p))
    sums = np.bincount(index, p)
    bad = np.abs(sums - 1) > 1e-5
    if bad.any():
        group = int(np.argmax(bad))
        raise ValueError(
            f"probabilities: those of group number {group} sum to {sums[group]:.6g}, "
            "expected 1 for draw='one_per_group'"
        )
    return index


def _simulated_bins(
    p: FloatArray,
    index: IntArray,
    n_bins: int,
    groups: IntArray | None,
    resamples: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Number of outcomes in each bin, drawn from the forecast: (R, B)."""
    n_replicates = check_integer(resamples, "resamples", 1)
    happened = np.empty((n_replicates, n_bins))
    if groups is None:
        rows_by_bin = np.argsort(index, kind="stable")
        starts = np.searchsorted(index[rows_by_bin], np.arange(n_bins))
        filled = np.bincount(index, minlength=n_bins) > 0
        for part in chunks(n_replicates, len(p)):
            hits = rng.random((part.stop - part.start, len(p))) < p[rows_by_bin]
            happened[part] = 0
            happened[part, filled] = np.add.reduceat(hits, starts[filled], axis=1, dtype=np.float64)
        return happened
    for part, winners in draw_one_per_group(p, groups, n_replicates, rng):
        n_rows = part.stop - part.start
        cell = index[winners] + n_bins * np.arange(n_rows)[:, None]
        happened[part] = np.bincount(cell.reshape(-1), minlength=n_rows * n_bins).reshape(n_rows, n_bins)
    return happened


def draw_one_per_group(
    p: FloatArray, groups: IntArray, resamples: int, rng: np.random.Generator
) -> Iterator[tuple[slice, IntArray]]:
    """Draw one row of each group with the probabilities ``p`` (n,), ``resamples`` times, in slices.

    Yields a slice of the resamples, and which rows happened in them: (slice's length, G).

    >>> p, groups = np.array([0.0, 1.0, 1.0]), np.array([0, 0, 1])
    >>> [rows.tolist() for _, rows in draw_one_per_group(p, groups, 2, np.random.default_rng(0))]
    [[[1, 2], [1, 2]]]
    """
    rows_by_group = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    totals = np.cumsum(p[rows_by_group])
    base = totals[first] - p[rows_by_group][first]
    mass = totals[first + sizes - 1] - base
    for part in chunks(resamples, len(sizes)):
        draws = base + rng.random((part.stop - part.start, len(sizes))) * mass
        winners = np.clip(np.searchsorted(totals, draws, side="right"), first, first + sizes - 1)
        yield part, rows_by_group[winners]
