"""Confidence intervals of means, proportions and functions of sums, and differences of two estimates.

Prompts that belong together (clusters) count as one observation, see `clusters`. The intervals allow for errors
that a sample shows rarely, or not at all: if every choice among n prompts is right, 3 of n may
still be wrong.

References
----------
Clopper, C. J., and Pearson, E. S. (1934). The use of confidence or fiducial limits illustrated in the case of the
binomial. Biometrika 26.
Hall, P. (1992). On the removal of skewness by transformation. Journal of the Royal Statistical Society B 54.
Zou, G. Y., and Donner, A. (2008). Construction of confidence limits about effect measures: a general approach.
Statistics in Medicine 27.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats, as_groups, check_integer, chunks, group_max
from rmcalib.calibration.clusters import (
    FEW_DECIDE,
    MeanError,
    by_cluster,
    mean_error,
    prompts_per_observation,
    student_quantile,
    tail_freedom,
)

Limits = tuple[float, float]


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval."""

    value: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class Difference:
    """A difference with its confidence interval, and the p-value of no difference."""

    value: float
    low: float
    high: float
    p_value: float


def mean_interval(values: ArrayLike, *, clusters: ArrayLike | None = None, level: float = 0.95) -> Interval:
    """Return a mean with its confidence interval, corrected for skewness.

    Parameters
    ----------
    values : float (n,)
        The numbers.
    clusters : array (n,), optional
        Labels of numbers that belong together.
    level : float
        Confidence level.

    Returns
    -------
    Interval

    Examples
    --------
    >>> mean = mean_interval([0.0, 1.0, 2.0, 3.0])
    >>> mean.value, mean.low < 1.5 < mean.high
    (1.5, True)
    """
    check_level(level)
    x = as_floats(values, "values", ndim=1)
    cluster = None if clusters is None else as_groups(clusters, len(x), "clusters")
    return Interval(float(x.mean()), *skew_interval(x, level, cluster), level)


def skew_interval(values: FloatArray, level: float = 0.95, cluster: IntArray | None = None) -> Limits:
    """Return the interval of the mean of ``values`` (n,), corrected for skewness (Hall 1992).

    With ``cluster`` (n,), the deviations from the mean are added up over clusters.
    """
    return skew_limits(float(values.mean()), mean_error(values, cluster), level)[0]


def skew_limits(mean: float, error: MeanError, level: float) -> tuple[Limits, bool]:
    """Return the interval of `skew_interval`, and whether the correction holds as far as its limits are away.

    With few degrees of freedom, the skewness is not known well enough to move a limit towards the mean.
    """
    if error.se <= 1e-15 * max(abs(mean), 1.0):
        return (mean, mean), True
    skewness, t = error.skewness, student_quantile(level, error.freedom)

    def cubed(x: float) -> float:
        return 1 + skewness * (x - skewness / 6)

    def inverse(x: float) -> float:
        if abs(skewness) < 1e-8:
            return x
        return float(3 / skewness * (np.cbrt(cubed(x)) - 1))

    # With very skewed values a limit can lie on the wrong side of the mean.
    low, high = min(mean - error.se * inverse(t), mean), max(mean - error.se * inverse(-t), mean)
    if error.freedom < FEW_DECIDE:
        low, high = min(low, mean - t * error.se), max(high, mean + t * error.se)
    return (low, high), min(cubed(t), cubed(-t)) > 0


def stated_interval(p: FloatArray, level: float = 0.95, cluster: IntArray | None = None) -> Limits:
    """Return the interval of the mean of stated probabilities p (n,), such as confidences, in [0, 1].

    If all of a sample are close to 1, less sure ones were perhaps only missed. At most r = 1 − (α/2)^(1/n) of
    all prompts are less sure than every observed one, with probability 1 − α/2. If those have half the
    log-odds of the least sure one on average, the mean is smaller by r times their distance from it. The
    lower limit of `skew_interval` allows for that. Below 1/2, halving would raise confidence, so nothing changes.
    """
    from scipy.special import expit, logit

    low, high = skew_interval(p, level, cluster)
    n = len(p) / prompts_per_observation(np.zeros(len(p)), cluster)
    unseen = 1 - ((1 - level) / 2) ** (1 / n)
    mean, least = float(p.mean()), float(p.min())
    if least > 0.5:
        low = min(low, mean - unseen * (mean - float(expit(logit(least) / 2))))
    return max(low, 0.0), min(high, 1.0)


def proportion_interval(
    values: FloatArray, level: float = 0.95, cluster: IntArray | None = None, n: float | None = None
) -> Limits:
    """Return the exact interval (Clopper and Pearson) of the mean of values in [0, 1] that are mostly 0 or 1.

    Values between 0 and 1, such as 1/2 for a tie, vary less, and those of clusters vary together: n is
    replaced by the effective number A(1 − A)/s², where s² is the variance of the mean A, and by less with few
    clusters (`prompts_per_observation`). ``n`` is the effective number where all values are equal.
    """
    share, n = float(values.mean()), float(len(values)) if n is None else n
    variance = float(values.var())
    if variance > 0:
        n = len(values) * share * (1 - share) / variance
    n /= prompts_per_observation(values, cluster, level)
    return clopper_pearson(share * n, n, level)


def clopper_pearson(happened: float, n: float, level: float = 0.95) -> Limits:
    """Return the exact interval of a proportion: ``happened`` of ``n``, which need not be whole numbers."""
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = float(betaincinv(happened, n - happened + 1, tail)) if happened > 0 else 0.0
    high = float(betaincinv(happened + 1, n - happened, 1 - tail)) if happened < n else 1.0
    return low, high


def jump_interval(
    values: FloatArray,
    base: FloatArray,
    others: Sequence[FloatArray],
    level: float = 0.95,
    cluster: IntArray | None = None,
) -> Limits:
    """Return the interval of the mean of ``values`` (n,) that jump where a choice is wrong.

    A value is its ``base``, what it is if the choice is right, plus a jump; ``others`` are what it would be
    otherwise. Let k of the n jumps be positive, [l, u] the exact interval of their frequency k/n, and J the
    mean of these k jumps and of one more: the mean of the largest possible jumps of the prompts that did not
    jump. The mean jump may then be larger by (u − k/n) J, or smaller by (k/n − l) times the mean of the k
    jumps. Negative jumps are treated alike. These distances y and those of the base, x, are combined as √(x²
    + y² + 2ρxy), where ρ is the correlation of base and jump (MOVER: Zou and Donner 2008). The result is
    united with `skew_interval` of the values, which accounts for differences between the jumps. If they do
    not differ, and the values are too skewed for it, its limits would be far beyond what the frequency allows.
    """
    jump, possible = values - base, np.stack([base, *others]) - base
    more_up, fewer_up = frequency_distances(jump, possible.max(axis=0), level, cluster)
    more_down, fewer_down = frequency_distances(-jump, -possible.min(axis=0), level, cluster)
    low, high = skew_interval(base, level, cluster)
    below, above = float(base.mean()) - low, high - float(base.mean())
    spread = float(base.std() * jump.std())
    rho = float(((base - base.mean()) * (jump - jump.mean())).mean()) / spread if spread > 0 else 0.0
    mean, sizes = float(values.mean()), jump[np.abs(jump) > 1e-12]
    (low, high), holds = skew_limits(mean, mean_error(values, cluster), level)
    if not holds and len(sizes) and np.ptp(sizes) < 1e-9:
        low = high = mean
    low = min(low, mean - _combined(below, float(np.hypot(more_down, fewer_up)), -rho))
    high = max(high, mean + _combined(above, float(np.hypot(more_up, fewer_down)), -rho))
    return low, high


def frequency_distances(
    jump: FloatArray, possible: FloatArray, level: float, cluster: IntArray | None = None
) -> Limits:
    """Return how much larger and smaller the mean of the positive jumps may be, given an exact frequency.

    ``jump`` (n,) are the jumps, and ``possible`` (n,) those of prompts that did not jump; see
    `jump_interval`.
    """
    n, seen = len(jump), jump > 1e-12
    k, total = int(seen.sum()), float(jump[seen].sum())
    effective = n / prompts_per_observation(seen.astype(np.float64), cluster, level)
    low, high = clopper_pearson(k * effective / n, effective, level)
    unseen = float(possible[~seen].mean()) if k < n else 0.0
    return (high - k / n) * (total + unseen) / (k + 1), (k / n - low) * total / max(k, 1)


def first_and_next(p: FloatArray, sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rows of the largest and of the next smaller value of each group: (G,) each.

    The rows of a group follow each other. If all values of a group are equal, both rows are the same. Among
    rows with equal values it returns the first.

    >>> first_and_next(np.array([0.2, 0.5, 0.3, 0.5, 0.5]), np.array([3, 2]))
    (array([1, 3]), array([2, 3]))
    """
    before = -np.arange(len(p), dtype=np.float64)

    def largest(values: FloatArray) -> IntArray:
        is_largest = values == np.repeat(group_max(values, sizes), sizes)
        return -group_max(np.where(is_largest, before, -np.inf), sizes).astype(np.int64)

    first = largest(p)
    lower = np.where(p < np.repeat(p[first], sizes), p, -np.inf)
    below = largest(lower)
    return first, np.where(np.isfinite(lower[below]), below, first)


def outcome_limits(
    probability: FloatArray,
    happened: FloatArray,
    sizes: IntArray,
    level: float = 0.95,
    cluster: IntArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return outcome shares (N,) with as few and as many wrong choices as their exact interval allows.

    ``probability`` (N,) of the alternatives of groups of ``sizes`` (G,), and ``happened`` (N,): 1 for one of
    each group. A choice is wrong if a less probable alternative happened than the most probable one. Let k be
    wrong, and [l, u] the interval of their frequency. With fewer errors, k − lG of the wrong ones are right
    instead. With more, uG − k are wrong in addition, in k + 1 equal parts: one for each wrong choice, which
    counts more than once, and one for all right ones, where the runner-up happens instead. Mean losses then
    differ from the observed one by the distances of `frequency_distances`. ``cluster`` (G,) says which groups
    belong together.
    """
    first, second = first_and_next(probability, sizes)
    n, row = len(sizes), np.flatnonzero(happened)
    wrong = probability[row] < probability[first]
    movable = ~wrong & (first != second)
    k, n_movable = int(wrong.sum()), max(int(movable.sum()), 1)
    alike = prompts_per_observation(wrong.astype(np.float64), cluster, level)
    low, high = clopper_pearson(k / alike, n / alike, level)
    fewer, more, part = happened.copy(), happened.copy(), (n * high - k) / (k + 1)
    for shares, change in ((fewer, (n * low - k) / max(k, 1)), (more, part)):
        shares[row[wrong]] += change
        shares[first[wrong]] -= change
    more[second[movable]] += part / n_movable
    more[row[movable]] -= part / n_movable
    return fewer, more


def bootstrap_limits(
    sums: FloatArray,
    function: Callable[[FloatArray], FloatArray],
    *,
    level: float,
    resamples: int,
    seed: int,
    cluster: IntArray | None = None,
) -> Limits:
    """Return percentile limits of a function of sums (R, q) over prompts, from resampled clusters of prompts.

    For functions without a better interval, such as correlations: ``sums`` (n, q) are those of each prompt.
    """
    sums = by_cluster(sums, cluster)
    rng, n = np.random.default_rng(seed), len(sums)
    totals = np.empty((check_integer(resamples, "resamples", 1), sums.shape[1]))
    for rows in chunks(resamples, n):
        totals[rows] = resampling_weights(rows.stop - rows.start, n, rng) @ sums
    low, high = np.quantile(function(totals), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def resampling_weights(resamples: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw how often each of n prompts or models occurs in each bootstrap resample: (R, n)."""
    drawn = rng.integers(n, size=(resamples, n)) + n * np.arange(resamples)[:, None]
    return np.bincount(drawn.reshape(-1), minlength=resamples * n).reshape(resamples, n).astype(np.float64)


def difference(
    a: Interval,
    b: Interval,
    influence_a: FloatArray,
    influence_b: FloatArray,
    *,
    cluster: IntArray | None = None,
    centres: tuple[float, float] | None = None,
) -> Difference:
    """Return b − a for two estimates from the same prompts, with an interval that combines theirs (MOVER).

    ``influence`` (n,) is what each prompt contributes to the deviation of an estimate; the correlation of the
    influences, added up over clusters, is that of the estimates. ``centres`` are the errors without the bias of
    noise, for calibration errors: where an interval reaches 0, noise alone may explain the error, and a
    positive correlation would not be believable. MOVER subtracts the two distances from each other if the
    correlation is near 1, and what remains may be too short, so the result is united with `skew_interval` of
    the differences of influences.
    """
    of_a, of_b = by_cluster(influence_a, cluster), by_cluster(influence_b, cluster)
    spread = float(np.sqrt((of_a**2).sum() * (of_b**2).sum()))
    correlation = float((of_a * of_b).sum()) / spread if spread > 0 else 0.0
    centre_a, centre_b = a.value, b.value
    if centres is not None:
        centre_a, centre_b = (min(max(c, i.low), i.high) for c, i in zip(centres, (a, b), strict=True))
        hold_0 = (a.low <= 0) + (b.low <= 0)
        correlation = (correlation, min(correlation, 0.0), -1.0)[hold_0]
    middle, value = centre_b - centre_a, b.value - a.value
    less, more = skew_interval((influence_b - influence_a) * len(influence_a), a.level, cluster)
    below = max(_combined(centre_b - b.low, a.high - centre_a, correlation), middle - value - less)
    above = max(_combined(b.high - centre_b, centre_a - a.low, correlation), value + more - middle)
    low, high = min(middle - below, value), max(middle + above, value)
    p_value = 1.0 if value * middle <= 0 else _p_value(middle, below, above, a.level)
    if low <= 0 <= high:  # a limit at exactly 0 does not exclude it
        p_value = max(p_value, float(np.nextafter(1 - a.level, 1)))
    return Difference(value, low, high, p_value)


def mean_difference(
    a: FloatArray,
    b: FloatArray,
    *,
    level: float = 0.95,
    base: FloatArray | None = None,
    others: Sequence[FloatArray] = (),
    cluster: IntArray | None = None,
) -> Difference:
    """Return mean(b) − mean(a) for numbers (n,) of the same prompts, with the interval of `jump_interval`.

    ``base`` (n,) is what each b − a would be if both choices were right, and ``others`` what it would be
    otherwise, where few prompts, or none, may show it. By default b − a itself: nothing jumps.
    """
    check_level(level)
    moved = b - a
    value = float(moved.mean())
    low, high = jump_interval(moved, moved if base is None else base, others, level, cluster)
    margin = _few_margin(by_cluster(moved - value, cluster), mean_error(moved, cluster), level)
    low, high = min(low, value - margin), max(high, value + margin)
    return Difference(value, low, high, _p_value(value, value - low, high - value, level))


def _few_margin(sums: FloatArray, error: MeanError, level: float) -> float:
    """Return the distance of the limits of a mean that few of its deviations (C,) decide; 0 if many do.

    This is so if two models differ on a handful of prompts only.
    """
    freedom = min(error.freedom, tail_freedom(sums))
    return student_quantile(level, freedom) * error.se if freedom < FEW_DECIDE else 0.0


def check_level(level: float) -> None:
    """Raise a ValueError unless 0 < level < 1."""
    if not 0 < level < 1:
        raise ValueError(f"level: {level} is out of range, expected a number between 0 and 1 such as 0.95")


def _combined(x: float, y: float, correlation: float) -> float:
    if not np.isfinite(x + y):
        return np.inf
    return float(np.sqrt(max(x**2 + y**2 - 2 * correlation * x * y, 0.0)))


def _p_value(value: float, below: float, above: float, level: float) -> float:
    """Two-sided p-value of a normal estimate whose limit towards 0 is this far away."""
    from scipy.special import ndtr, ndtri

    distance = below if value > 0 else above
    if value == 0 or distance == np.inf:
        return 1.0
    z = float(ndtri((1 + level) / 2)) * abs(value) / distance if distance > 0 else np.inf
    return float(2 * ndtr(-z))
