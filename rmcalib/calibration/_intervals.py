"""Bootstrap intervals of calibration errors.

Rows that belong together (the responses to one prompt) are resampled together: ``groups``. A bootstrap
resamples the groups' bin sums, not rows: one matrix product gives all replicates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import (
    FloatArray,
    IntArray,
    as_floats,
    as_groups,
    check_choice,
    check_integer,
    chunks,
)
from rmcalib.calibration._binning import (
    BinSums,
    EceOptions,
    ErrorOptions,
    as_bins,
    bin_edges,
    bin_index,
    binned_error,
)
from rmcalib.calibration._ece import as_forecast

__all__ = [
    "Interval",
    "IntervalMethod",
    "Worlds",
    "binned_worlds",
    "bootstrap_sums",
    "ece_interval",
    "mean_interval",
    "recentred_interval",
    "share_limits",
]

IntervalMethod = Literal["recentred", "percentile"]
Statistic = Callable[[FloatArray], FloatArray]
Worlds = tuple[FloatArray, FloatArray]
"""Imagined worlds, by the size of their miscalibration: errors drawn in each (S, R), and true errors (S,)."""

SHARES: FloatArray = np.concatenate([np.linspace(0, 2, 17), [2.5, 3.0, 4.0, 6.0, 8.0]])
"""Sizes of the imagined miscalibrations behind a recentred interval, as shares of the observed one."""


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval."""

    value: float
    low: float
    high: float
    level: float
    resamples: int


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
    worlds = binned_worlds(total, replicates, error)
    return recentred_interval(float(binned_error(total, error)), *worlds, level=level)


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


def share_limits(low: float, high: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the limits of a share of ``n`` outcomes, given those of its resamples.

    Where all outcomes are alike, so are all resamples, and would look certain: then the limits are the exact
    ones of Clopper and Pearson, ((1 − level)/2)^(1/n) away from the other end.

    >>> share_limits(0.4, 0.6, 50), [round(limit, 3) for limit in share_limits(1.0, 1.0, 50)]
    ((0.4, 0.6), [0.929, 1.0])
    """
    least = ((1 - level) / 2) ** (1 / n)
    if low == high == 1:
        return least, 1.0
    if low == high == 0:
        return 0.0, 1 - least
    return low, high


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


def binned_worlds(total: BinSums, replicates: BinSums, error: ErrorOptions) -> Worlds:
    """Return the worlds behind a recentred interval of a binned error, of ``replicates`` (R, B) of the sums.

    >>> sums = BinSums(np.array([4.0]), np.array([1.0]), np.array([3.0]))
    >>> drawn = BinSums(np.array([[4.0]]), np.array([[2.0]]), np.array([[3.0]]))
    >>> draws, truths = binned_worlds(sums, drawn, ErrorOptions())
    >>> draws.shape, truths[:2].tolist()
    ((22, 1), [0.0, 0.0625])
    """
    draws = [binned_error(recentred(total, replicates, share), error) for share in SHARES]
    truths = [float(binned_error(recentred(total, total, share), error)) for share in SHARES]
    return np.array(draws), np.array(truths)


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
