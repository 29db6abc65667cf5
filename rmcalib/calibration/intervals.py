"""Uncertainty of calibration errors: bootstrap intervals, null distributions, consistency bands.

Rows that belong together (the responses to one prompt) are resampled together: ``groups``. A bootstrap
resamples the groups' bin sums, not rows: one matrix product gives all replicates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from rmcalib.arrays import FloatArray, IntArray, as_floats, as_groups, check_choice, check_integer, chunks
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
from rmcalib.calibration.ece import as_forecast

__all__ = [
    "Band",
    "Draw",
    "EceOptions",
    "Interval",
    "IntervalMethod",
    "NullTest",
    "bootstrap_sums",
    "consistency_band",
    "ece_interval",
    "ece_null",
    "mean_interval",
    "null_test",
    "recentred_interval",
]

Draw = Literal["independent", "one_per_group"]
IntervalMethod = Literal["recentred", "percentile"]
Statistic = Callable[[FloatArray], FloatArray]

SHARES: FloatArray = np.concatenate([np.linspace(0, 2, 17), [2.5, 3.0, 4.0, 6.0, 8.0]])
"""Sizes of the imagined miscalibrations behind a recentred interval, as shares of the observed one."""


class EceOptions(TypedDict, total=False):
    """The options of :func:`~rmcalib.calibration.ece`."""

    bins: int | ArrayLike
    spacing: Spacing
    discrepancy: Discrepancy
    norm: Norm
    debias: bool


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval."""

    value: float
    low: float
    high: float
    level: float
    resamples: int


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


@dataclass(frozen=True)
class Band:
    """Where each bin's frequency would lie if the forecast were calibrated: (B,), NaN in empty bins."""

    low: FloatArray
    high: FloatArray
    level: float


def ece_interval(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    method: IntervalMethod = "recentred",
    rng: np.random.Generator | int = 0,
    **options: Unpack[EceOptions],
) -> Interval:
    """Return the binned calibration error with a bootstrap interval; ``groups`` (n,) are resampled whole.

    Bin edges stay those of the data. Sampling noise only ever adds to an ECE, once in the value and once
    more in a resample, so that the quantiles of the resamples ("percentile") lie too high and never reach 0,
    even for a calibrated forecast. The default "recentred" asks instead which true errors make the observed
    one likely: see :func:`recentred_interval`. ``results/statistics.md`` has the measured coverage of both.

    >>> p = np.linspace(0.05, 0.95, 200)
    >>> y = np.random.default_rng(0).random(200) < p ** 2
    >>> interval = ece_interval(p, y)
    >>> bool(interval.low < interval.value < interval.high)
    True
    """
    check_choice(method, "method", ("percentile", "recentred"))
    p, y = as_forecast(probabilities, outcomes)
    error = error_options(options)
    edges = bin_edges(p, error)
    sums = _grouped_sums(p, y, as_groups(groups, len(p)), bin_index(p, edges), len(edges) - 1)
    generator = np.random.default_rng(rng)
    if method == "percentile":
        return bootstrap_sums(
            sums,
            lambda rows: binned_error(_unpack(rows), error),
            resamples=resamples,
            level=level,
            rng=generator,
        )
    total, replicates = _unpack(sums.sum(axis=0)), _unpack(_resampled(sums, resamples, generator))
    draws = [binned_error(recentred(total, replicates, share), error) for share in SHARES]
    truths = [float(binned_error(recentred(total, total, share), error)) for share in SHARES]
    return recentred_interval(
        float(binned_error(total, error)), np.array(draws), np.array(truths), level=level
    )


def mean_interval(
    values: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
) -> Interval:
    """Return the mean of ``values`` (n,) with a percentile bootstrap interval over ``groups``.

    >>> interval = mean_interval([0.0, 1.0, 0.0, 1.0])
    >>> interval.value, interval.low < 0.5 < interval.high
    (0.5, True)
    """
    x = as_floats(values, "values", ndim=1)
    index = as_groups(groups, len(x))
    sums = np.column_stack([np.bincount(index, x), np.bincount(index).astype(np.float64)])
    return bootstrap_sums(
        sums, lambda rows: rows[:, 0] / rows[:, 1], resamples=resamples, level=level, rng=rng
    )


def bootstrap_sums(
    sums: FloatArray,
    statistic: Statistic,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
) -> Interval:
    """Return the percentile bootstrap interval of a statistic that is a function of sums over groups.

    ``sums`` (G, q): what each group adds. ``statistic`` maps totals (R, q) to values (R,).

    >>> totals = bootstrap_sums(np.array([[1.0, 1.0], [3.0, 1.0]]), lambda rows: rows[:, 0] / rows[:, 1])
    >>> totals.value, totals.low, totals.high
    (2.0, 1.0, 3.0)
    """
    check_level(level)
    value = float(statistic(sums.sum(axis=0, keepdims=True))[0])
    replicates = statistic(_resampled(sums, resamples, np.random.default_rng(rng)))
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), level, len(replicates))


def recentred_interval(
    value: float, draws: FloatArray, truths: FloatArray, *, level: float = 0.95
) -> Interval:
    """Return the true errors under which an observed error is likely, for errors that noise pushes up.

    Imagine worlds whose miscalibration has the observed shape but a share of its size: none at 0, the
    observed one at 1, up to 8 times as much (``SHARES``). ``draws`` (S, R) are errors drawn in each world,
    ``truths`` (S,) its true error. The interval holds the true errors of all worlds where the observed value
    is neither among the smallest nor the largest (1 − level)/2 of the draws. It is stretched, if need be, to
    hold the value itself, which happens to calibrated forecasts.

    >>> noise = np.abs(np.random.default_rng(0).normal(size=2000))
    >>> recentred_interval(1.0, noise + SHARES[:, None], SHARES).low
    0.0
    """
    check_level(level)
    quantiles = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=1)
    # Larger worlds show larger errors; what little the draws waver is smoothed away.
    smallest, largest = np.maximum.accumulate(quantiles, axis=1)
    low = float(np.interp(value, largest, truths)) if largest[0] < value else 0.0
    high = float(np.interp(value, smallest, truths))
    return Interval(value, min(low, value), max(high, value), level, draws.shape[1])


def recentred(total: BinSums, replicates: BinSums, share: float) -> BinSums:
    """Take 1 − ``share`` of each bin's observed gap out of replicates (..., B) of the bin sums.

    >>> sums = BinSums(np.array([4.0]), np.array([1.0]), np.array([3.0]))
    >>> recentred(sums, sums, 0.0).outcome
    array([1.])
    """
    gap = (total.outcome - total.probability) / np.maximum(total.count, 1)
    outcome = replicates.outcome - (1 - share) * replicates.count * gap
    return BinSums(replicates.count, replicates.probability, np.clip(outcome, 0.0, replicates.count))


def resampling_weights(resamples: int, n_groups: int, rng: np.random.Generator) -> FloatArray:
    """Draw how often each group is in each resample: (R, G), rows sum to G.

    >>> resampling_weights(2, 5, np.random.default_rng(0)).sum(axis=1)
    array([5., 5.])
    """
    drawn = rng.integers(n_groups, size=(resamples, n_groups)) + n_groups * np.arange(resamples)[:, None]
    counts = np.bincount(drawn.reshape(-1), minlength=resamples * n_groups)
    return counts.reshape(resamples, n_groups).astype(np.float64)


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


def error_options(options: EceOptions) -> ErrorOptions:
    """Gather the options of ``ece`` into one checked object.

    >>> error_options({"bins": 5}).bins
    5
    """
    given: dict[str, Any] = dict(options)
    given["bins"] = as_bins(given.get("bins", 10))
    return ErrorOptions(**given)


def check_level(level: float) -> None:
    """Raise a ValueError unless 0 < level < 1.

    >>> check_level(95)
    Traceback (most recent call last):
    ...
    ValueError: level: 95 is out of range, expected a share between 0 and 1 such as 0.95
    """
    if not 0 < level < 1:
        raise ValueError(f"level: {level} is out of range, expected a share between 0 and 1 such as 0.95")


def _resampled(sums: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Sums over resampled groups: (G, q) -> (R, q)."""
    result = np.empty((check_integer(resamples, "resamples", 1), sums.shape[1]))
    for rows in chunks(len(result), len(sums)):
        result[rows] = resampling_weights(rows.stop - rows.start, len(sums), rng) @ sums
    return result


def _grouped_sums(p: FloatArray, y: FloatArray, groups: IntArray, index: IntArray, n_bins: int) -> FloatArray:
    """Bin sums of every group side by side: (G, 3B)."""
    cell = groups * n_bins + index
    size = (int(groups.max()) + 1) * n_bins
    sums = [np.bincount(cell, weights, size).reshape(-1, n_bins) for weights in (None, p, y)]
    return np.concatenate(sums, axis=1).astype(np.float64)


def _unpack(rows: FloatArray) -> BinSums:
    count, probability, outcome = np.split(rows, 3, axis=-1)
    return BinSums(count, probability, outcome)


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
    rows_by_group = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    totals = np.cumsum(p[rows_by_group])
    base = totals[first] - p[rows_by_group][first]
    mass = totals[first + sizes - 1] - base
    for part in chunks(n_replicates, len(sizes)):
        n_rows = part.stop - part.start
        draws = base + rng.random((n_rows, len(sizes))) * mass
        winners = np.clip(np.searchsorted(totals, draws, side="right"), first, first + sizes - 1)
        cell = index[rows_by_group][winners] + n_bins * np.arange(n_rows)[:, None]
        happened[part] = np.bincount(cell.reshape(-1), minlength=n_rows * n_bins).reshape(n_rows, n_bins)
    return happened
