"""Confidence intervals of means, proportions and functions of sums; bootstrap and recentred intervals.

Rows that belong together (the responses to one prompt) form one group. A bootstrap resamples the sums of
groups, not single rows: one matrix product computes all replicates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, as_floats, as_groups, check_choice, check_integer, chunks
from rmcalib.calibration._binning import BinSums, ErrorOptions, binned_error

__all__ = [
    "Interval",
    "bootstrap_sums",
    "mean_interval",
    "proportion_interval",
    "recentred_alternatives",
    "recentred_interval",
    "resampling_weights",
    "skew_interval",
]

Statistic = Callable[[FloatArray], FloatArray]

SIZES: FloatArray = np.concatenate([np.linspace(0, 2, 17), [2.5, 3.0, 4.0, 6.0, 8.0]])
"""Sizes of the alternatives behind a recentred interval, as multiples of the observed miscalibration."""


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval.

    Attributes
    ----------
    value : float
        The estimate.
    low, high : float
        The limits.
    level : float
        Confidence level, such as 0.95.
    resamples : int
        Number of resampled or simulated data sets; 0 for intervals from a formula.

    Examples
    --------
    >>> interval = proportion_interval([1, 1, 1, 0])
    >>> interval.value, interval.low < 0.75 < interval.high
    (0.75, True)
    """

    value: float
    low: float
    high: float
    level: float
    resamples: int


def mean_interval(
    values: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    method: Literal["skew", "percentile"] = "skew",
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
) -> Interval:
    """Return a mean with its confidence interval.

    Parameters
    ----------
    values : array of shape (n,)
        The numbers to average.
    groups : array of shape (n,), optional
        Labels of rows that belong together; by default every row is a group.
    level : float
        Confidence level.
    method : {"skew", "percentile"}
        "skew" corrects Student's t for skewness (see `skew_interval`); "percentile" takes quantiles of
        bootstrap means.
    resamples : int
        Number of bootstrap resamples; not used by "skew".
    rng : numpy Generator or int
        Source of randomness of the bootstrap, or its seed; not used by "skew".

    Returns
    -------
    Interval
        The mean and its limits.

    Examples
    --------
    >>> interval = mean_interval([0.0, 1.0, 0.0, 1.0])
    >>> interval.value, interval.low < 0.5 < interval.high
    (0.5, True)
    """
    check_level(level)
    check_choice(method, "method", ("skew", "percentile"))
    x = as_floats(values, "values", ndim=1)
    index = as_groups(groups, len(x))
    sums = np.column_stack([np.bincount(index, x), np.bincount(index)]).astype(np.float64)
    if method == "percentile":
        return bootstrap_sums(
            sums, lambda rows: rows[:, 0] / rows[:, 1], resamples=resamples, level=level, rng=rng
        )
    mean = float(x.mean())
    below, above = skew_interval((sums[:, 0] - mean * sums[:, 1]) / sums[:, 1].mean(), level)
    return Interval(mean, mean + min(below, 0.0), mean + max(above, 0.0), level, 0)


def skew_interval(values: FloatArray, level: float = 0.95) -> tuple[float, float]:
    """Return the confidence interval of the mean of independent ``values`` (n,), corrected for skewness.

    Hall's (1992) cubic transformation g(t) = t + γ t²/(3√n) + γ² t³/(27n) + γ/(6√n) makes Student's t of
    values with skewness γ nearly normal; the interval inverts it. Without the correction, the interval is too
    short on the side of rare large values, such as the losses of the few wrong answers of an accurate model.

    Parameters
    ----------
    values : float array (n,)
        Independent numbers.
    level : float
        Confidence level.

    Returns
    -------
    low, high : float
        The limits. Both are the mean if all values are equal.

    Examples
    --------
    >>> low, high = skew_interval(np.array([0.0] * 9 + [1.0]))
    >>> round(low, 3), round(high, 3)
    (-0.052, 0.889)
    """
    n, mean = len(values), float(values.mean())
    spread = float(values.std(ddof=1)) if n > 1 else 0.0
    if spread <= 1e-15 * max(abs(mean), 1.0):
        return mean, mean
    skewness = float((((values - mean) / spread) ** 3).mean())
    t = student_quantile(level, n)

    def inverse(x: float) -> float:
        if abs(skewness) < 1e-8:
            return x
        cube = np.cbrt(1 + skewness * (x / np.sqrt(n) - skewness / (6 * n)))
        return float(3 * np.sqrt(n) / skewness * (cube - 1))

    error = spread / float(np.sqrt(n))
    # With very skewed values a limit can lie on the wrong side of the mean.
    return min(mean - error * inverse(t), mean), max(mean - error * inverse(-t), mean)


def proportion_interval(values: ArrayLike, *, level: float = 0.95) -> Interval:
    """Return a proportion with the exact interval of Clopper and Pearson.

    Its limits are quantiles of beta distributions with the numbers nA and n(1 − A) of ones and zeros, for the
    proportion A of n values in {0, 1}. Values between 0 and 1, such as 1/2 for a tie between two responses,
    vary less: n is then replaced by the effective number A(1 − A)/s², where s² is the variance of the mean.

    Parameters
    ----------
    values : array of shape (n,)
        Numbers in [0, 1], most of them 0 or 1.
    level : float
        Confidence level.

    Returns
    -------
    Interval
        The proportion and its limits.

    Examples
    --------
    >>> interval = proportion_interval([1] * 97 + [0] * 3)
    >>> interval.value, round(interval.low, 3), round(interval.high, 3)
    (0.97, 0.915, 0.994)
    """
    check_level(level)
    x = as_floats(values, "values", ndim=1)
    if x.min() < 0 or x.max() > 1:
        raise ValueError(f"values: {x.min() if x.min() < 0 else x.max()} is outside [0, 1]")
    share, variance, n = float(x.mean()), float(x.var()), float(len(x))
    if variance > 0:
        n *= share * (1 - share) / variance
    return Interval(share, *clopper_pearson(share * n, n, level), level, 0)


def clopper_pearson(happened: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a proportion: ``happened`` of ``n``, which need not be whole numbers.

    >>> low, high = clopper_pearson(0, 100)
    >>> low, round(high, 4)
    (0.0, 0.0362)
    """
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = float(betaincinv(happened, n - happened + 1, tail)) if happened > 0 else 0.0
    high = float(betaincinv(happened + 1, n - happened, 1 - tail)) if happened < n else 1.0
    return low, high


def student_quantile(level: float, n: int) -> float:
    """Return the two-sided quantile of Student's t for a mean of n values.

    >>> round(student_quantile(0.95, 100), 3)
    1.984
    """
    from scipy.special import stdtrit

    return float(stdtrit(max(n - 1, 1), (1 + level) / 2))


def bootstrap_sums(
    sums: FloatArray,
    statistic: Statistic,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
) -> Interval:
    """Return the percentile bootstrap interval of a statistic that is a function of sums over groups.

    ``sums`` (G, q) has one row per group. ``statistic`` maps totals (R, q) to values (R,).

    >>> totals = bootstrap_sums(np.array([[1.0, 1.0], [3.0, 1.0]]), lambda rows: rows[:, 0] / rows[:, 1])
    >>> totals.value, totals.low, totals.high
    (2.0, 1.0, 3.0)
    """
    check_level(level)
    value = float(statistic(sums.sum(axis=0, keepdims=True))[0])
    replicates = statistic(resampled_sums(sums, resamples, np.random.default_rng(rng)))
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), level, len(replicates))


def recentred_interval(
    value: float, draws: FloatArray, truths: FloatArray, *, level: float = 0.95
) -> Interval:
    """Return an interval for errors that noise pushes up: all true errors that explain the observed one.

    ``draws`` (S, R) are errors drawn under S alternatives, whose miscalibration has the observed shape and
    grows from none to eight times the observed size (``SIZES``); ``truths`` (S,) are their true errors. The
    interval contains the true errors of all alternatives under which the observed value is neither among the
    smallest nor among the largest (1 − level)/2 of the draws. It always contains the value.

    >>> noise = np.abs(np.random.default_rng(0).normal(size=2000))
    >>> recentred_interval(1.0, noise + SIZES[:, None], SIZES).low
    0.0
    """
    check_level(level)
    quantiles = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=1)
    # Errors grow with the size of the alternative; running maxima remove simulation noise.
    smallest, largest = np.maximum.accumulate(quantiles, axis=1)
    low = float(np.interp(value, largest, truths)) if largest[0] < value else 0.0
    high = float(np.interp(value, smallest, truths))
    return Interval(value, min(low, value), max(high, value), level, draws.shape[1])


def recentred_alternatives(
    total: BinSums, replicates: BinSums, error: ErrorOptions
) -> tuple[FloatArray, FloatArray]:
    """Return errors drawn under alternatives (S, R) and their true errors (S,), for `recentred_interval`.

    ``total`` (B,) are the observed bin sums, ``replicates`` (R, B) those of resamples.

    >>> sums = BinSums(np.array([4.0]), np.array([1.0]), np.array([3.0]))
    >>> drawn = BinSums(np.array([[4.0]]), np.array([[2.0]]), np.array([[3.0]]))
    >>> draws, truths = recentred_alternatives(sums, drawn, ErrorOptions())
    >>> draws.shape, truths[:2].tolist()
    ((22, 1), [0.0, 0.0625])
    """
    draws = [binned_error(recentred(total, replicates, size), error) for size in SIZES]
    truths = [float(binned_error(recentred(total, total, size), error)) for size in SIZES]
    return np.array(draws), np.array(truths)


def recentred(total: BinSums, replicates: BinSums, size: float) -> BinSums:
    """Subtract 1 − ``size`` of each bin's observed gap from replicates (..., B) of the bin sums.

    >>> sums = BinSums(np.array([4.0]), np.array([1.0]), np.array([3.0]))
    >>> recentred(sums, sums, 0.0).outcome
    array([1.])
    """
    gap = (total.outcome - total.probability) / np.maximum(total.count, 1)
    outcome = replicates.outcome - (1 - size) * replicates.count * gap
    return BinSums(replicates.count, replicates.probability, np.clip(outcome, 0.0, replicates.count))


def resampling_weights(resamples: int, n_groups: int, rng: np.random.Generator) -> FloatArray:
    """Draw how often each group occurs in each bootstrap resample.

    Parameters
    ----------
    resamples, n_groups : int
        The numbers R of resamples and G of groups.
    rng : numpy Generator
        Source of randomness.

    Returns
    -------
    float array (R, G)
        Counts; each row sums to G.

    Examples
    --------
    >>> resampling_weights(2, 5, np.random.default_rng(0)).sum(axis=1)
    array([5., 5.])
    """
    drawn = rng.integers(n_groups, size=(resamples, n_groups)) + n_groups * np.arange(resamples)[:, None]
    counts = np.bincount(drawn.reshape(-1), minlength=resamples * n_groups)
    return counts.reshape(resamples, n_groups).astype(np.float64)


def check_level(level: float) -> None:
    """Raise a ValueError unless 0 < level < 1.

    Parameters
    ----------
    level : float
        A confidence level.

    Examples
    --------
    >>> check_level(95)
    Traceback (most recent call last):
    ...
    ValueError: level: 95 is out of range, expected a number between 0 and 1 such as 0.95
    """
    if not 0 < level < 1:
        raise ValueError(f"level: {level} is out of range, expected a number between 0 and 1 such as 0.95")


def resampled_sums(sums: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Return the sums over resampled groups: (G, q) -> (R, q)."""
    result = np.empty((check_integer(resamples, "resamples", 1), sums.shape[1]))
    for rows in chunks(len(result), len(sums)):
        result[rows] = resampling_weights(rows.stop - rows.start, len(sums), rng) @ sums
    return result
