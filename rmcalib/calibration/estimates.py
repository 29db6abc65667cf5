"""`Estimate`: a number from n prompts, with its interval, its null test, and what differences need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import intervals
from rmcalib.calibration.clusters import by_cluster, prompts_per_observation, too_few_clusters
from rmcalib.calibration.intervals import Difference, Interval, Limits

NO_INTERVAL = "no interval: a single prompt, or cluster of prompts, does not say how much they differ"
TOO_FEW_CLUSTERS = "no interval: the clusters of prompts are too few, or one of them is too large"
ROUNDING = 1e-9
"""A difference of at most this fraction of the two values is rounding."""


@dataclass(frozen=True)
class NullTest:
    """An observed error, compared with the error of a calibrated forecast on as much data.

    Attributes
    ----------
    value : float
        The observed error.
    mean, high : float
        Mean and 95% point of the error of a calibrated forecast.
    p_value : float
        How often a calibrated forecast has an error at least as large as the observed one.
    """

    value: float
    mean: float
    high: float
    p_value: float

    @property
    def excess(self) -> float:
        """How much the error exceeds that of a calibrated forecast: value − mean."""
        return self.value - self.mean


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number computed from n prompts.

    Attributes
    ----------
    value : float or None
        None if it cannot be computed; ``note`` says why.
    n : int
        Number of prompts.
    limits : function of a level, optional
        Returns the limits of the interval, or None if there are none. The upper one may be infinite.
    values : float (n,), optional
        One number per prompt, if the value is their mean. Differences are then paired prompt by prompt.
    if_right, if_wrong : float (n,), optional
        What ``values`` would be if each first choice were right, and if the runner-up were.
    influence : function, optional
        Returns (n,) what each prompt contributes to the deviation of the value; sums to 0.
    null : function, optional
        Returns the null test of a calibration error.
    centre : function, optional
        Returns the value without the bias of noise, if noise increases it.
    cluster : int (n,), optional
        Which prompts belong together.
    ranks : float (N,), optional
        The rewards up to their scale. Two models whose rewards differ only in scale have the same choices.
    step : float (n,), optional
        What one other choice changes, if ``ranks`` is given; default 1.
    fullest : float
        The fraction of probabilities in the fullest bin of an error in bins of equal width.
    """

    value: float | None
    n: int
    note: str = ""
    limits: Callable[[float], Limits | None] | None = None
    values: FloatArray | None = None
    if_right: FloatArray | None = None
    if_wrong: FloatArray | None = None
    influence: Callable[[], FloatArray] | None = None
    null: Callable[[], NullTest] | None = None
    centre: Callable[[], float] | None = None
    cluster: IntArray | None = None
    ranks: FloatArray | None = None
    step: FloatArray | None = None
    fullest: float = 0.0

    @classmethod
    def missing(cls, n: int, note: str) -> Estimate:
        """Return an estimate without a value; ``note`` says why."""
        return cls(None, n, note)

    @classmethod
    def constant(cls, value: float, n: int, *, note: str = "the value is not finite") -> Estimate:
        """Return a value without an interval, such as a p-value; ``note`` is used if it is not finite."""
        return cls(value, n) if np.isfinite(value) else cls.missing(n, note)

    @classmethod
    def mean(
        cls,
        values: FloatArray,
        if_right: FloatArray | None = None,
        if_wrong: FloatArray | None = None,
        *,
        within: Limits = (-np.inf, np.inf),
        cluster: IntArray | None = None,
        weight: FloatArray | None = None,
    ) -> Estimate:
        """Return the mean of one number per prompt, with the interval of `jump_interval` in ``within``.

        With ``weight`` (n,) of mean 1, c + w (x − c) takes the place of each number x, where c is the weighted
        mean: the mean of these is c, and their variance is n² times that of Hájek's estimator. So everything
        that holds for means holds for weighted ones.
        """
        if weight is not None:
            centre = float((weight * values).mean())

            def weighted(numbers: FloatArray) -> FloatArray:
                return np.asarray(centre + weight * (numbers - centre))

            values = weighted(values)
            if_right = None if if_right is None else weighted(if_right)
            if_wrong = None if if_wrong is None else weighted(if_wrong)
            assert values is not None
        base = values if if_right is None else if_right
        others = () if if_wrong is None else (if_wrong,)

        def limits(level: float) -> Limits:
            low, high = intervals.jump_interval(values, base, others, level, cluster)
            return max(low, within[0]), min(high, within[1])

        return cls(
            float(values.mean()),
            len(values),
            limits=limits,
            values=values,
            if_right=if_right,
            if_wrong=if_wrong,
            influence=lambda: (values - values.mean()) / len(values),
            cluster=cluster,
            step=weight,
        )

    @classmethod
    def proportion(
        cls, values: FloatArray, *, cluster: IntArray | None = None, weight: FloatArray | None = None
    ) -> Estimate:
        """Return the mean of numbers in [0, 1] that are mostly 0 or 1, with its exact interval."""
        estimate = cls.mean(values, cluster=cluster, weight=weight)
        each, n = estimate.values, None if weight is None else len(weight) ** 2 / float((weight**2).sum())
        assert each is not None
        return replace(estimate, limits=lambda level: intervals.proportion_interval(each, level, cluster, n))

    @classmethod
    def shares(cls, values: FloatArray, *, cluster: IntArray | None = None) -> Estimate:
        """Return the mean of one share per prompt; those of unseen prompts may be anything from 0 to 1.

        >>> Estimate.shares(np.ones(15)).interval().low < 1 - 3 / 15
        True
        """
        farthest = np.where(values > 0.5, 0.0, 1.0)
        estimate = cls.mean(values, values, farthest, within=(0.0, 1.0), cluster=cluster)
        return replace(estimate, if_right=None, if_wrong=None)

    @classmethod
    def stated(
        cls, p: FloatArray, *, cluster: IntArray | None = None, weight: FloatArray | None = None
    ) -> Estimate:
        """Return the mean of one stated probability per prompt, with the interval of `stated_interval`."""
        estimate = cls.mean(p, within=(0.0, 1.0), cluster=cluster, weight=weight)
        if weight is not None:
            return estimate
        return replace(estimate, limits=lambda level: intervals.stated_interval(p, level, cluster))

    @classmethod
    def median(cls, values: FloatArray, *, cluster: IntArray | None = None) -> Estimate:
        """Return the median of one number per prompt; its limits are the quantiles of resampled medians.

        With clusters, n is replaced by the number of independent observations (Woodruff 1952).
        """
        median = float(np.median(values))

        def limits(level: float) -> Limits:
            from scipy.special import betainc

            n = len(values)
            alike = prompts_per_observation((values <= median).astype(np.float64), cluster, level)
            half = -(-n // 2) / alike
            reached = betainc(half, n / alike - half + 1, np.arange(1, n + 1) / n)
            low, high = np.sort(values)[np.searchsorted(reached, [(1 - level) / 2, (1 + level) / 2])]
            return float(low), float(high)

        return cls(median, len(values), limits=limits, cluster=cluster)

    @classmethod
    def of_sums(
        cls,
        sums: FloatArray,
        function: Callable[[FloatArray], FloatArray],
        *,
        resamples: int,
        seed: int,
        cluster: IntArray | None = None,
    ) -> Estimate:
        """Return a function of the sums (q,) over prompts of ``sums`` (n, q), with a bootstrap interval."""
        total = sums.sum(axis=0)

        def influence() -> FloatArray:
            step = 1e-6 * np.maximum(np.abs(total), 1e-300)
            moved = np.concatenate([total + np.diag(step), total - np.diag(step)])
            up, down = np.split(function(moved), 2)
            slope: FloatArray = sums @ ((up - down) / (2 * step))
            return slope - slope.mean()

        def limits(level: float) -> Limits:
            return intervals.bootstrap_limits(
                sums, function, level=level, resamples=resamples, seed=seed, cluster=cluster
            )

        value = float(function(total[None])[0])
        return cls(value, len(sums), limits=limits, influence=influence, cluster=cluster)

    def test(self) -> NullTest | None:
        """Return the null test of a calibration error; None if there are too few clusters."""
        return None if self.null is None or self.why_no_interval else self.null()

    @cached_property
    def why_no_interval(self) -> str:
        """The reason why there is no interval or test; empty if there is one."""
        if self.n < 2 or (self.cluster is not None and int(self.cluster.max()) == 0):
            return NO_INTERVAL
        return TOO_FEW_CLUSTERS if too_few_clusters(self.cluster) else ""

    def interval(self, level: float = 0.95) -> Interval | None:
        """Return the value with its interval, or None if there is none."""
        if self.value is None or self.limits is None or self.why_no_interval:
            return None
        limits = self.limits(level)
        return None if limits is None else Interval(self.value, *limits, level)


def compare_with_null(observed: float, draws: FloatArray) -> NullTest:
    """Return where ``observed`` stands among ``draws`` (R,) of a calibrated forecast."""
    # Equal up to rounding counts as "at least as large".
    reached = int((draws >= observed - 1e-12).sum())
    p_value = (1 + reached) / (1 + len(draws))
    return NullTest(observed, float(draws.mean()), float(np.quantile(draws, 0.95)), p_value)


def difference_of(a: Estimate, b: Estimate, level: float = 0.95) -> Difference | None:
    """Return b − a for estimates of the same prompts, with interval and p-value; None if one is missing.

    A difference within rounding of the two values is 0, with p-value 1.
    """
    if a.value is None or b.value is None or a.why_no_interval:
        return None
    if a.values is not None and b.values is not None:
        base, others = _paired(a, b)
        difference = intervals.mean_difference(
            a.values, b.values, level=level, base=base, others=others, cluster=a.cluster
        )
        return _rounded(difference, a, b)
    of_a, of_b = a.interval(level), b.interval(level)
    if of_a is None or of_b is None or a.influence is None or b.influence is None:
        return None
    if not np.isfinite([of_a.high, of_b.high]).all():
        return None
    centres = None if a.centre is None or b.centre is None else (a.centre(), b.centre())
    difference = intervals.difference(of_a, of_b, *_influences(a, b), cluster=a.cluster, centres=centres)
    return _rounded(difference, a, b)


def size_difference_of(a: Estimate, b: Estimate, level: float = 0.95) -> Difference | None:
    """Return |b| − |a| with its interval and p-value, for gaps: the smaller one is better, whatever its sign.

    With d = b − a and s = b + a, |b| − |a| is min(|d|, |s|) with the sign of d·s, so neither is larger if and
    only if d or s is 0. The p-value is the larger one of d and s (an intersection-union test). The limits are
    the extremes for d and s in their intervals, which lie at corners.
    """
    apart = difference_of(a, b, level)
    of_a, of_b = a.interval(level), b.interval(level)
    if apart is None or of_a is None or of_b is None or a.value is None or b.value is None:
        return None
    mine, theirs = _influences(a, b)
    turned = Interval(-of_a.value, -of_a.high, -of_a.low, level)
    total = intervals.difference(turned, of_b, -mine, theirs, cluster=a.cluster)
    corners = [
        float(np.sign(d) * np.sign(s) * min(abs(d), abs(s)))
        for d in (apart.low, apart.high)
        for s in (total.low, total.high)
    ]
    value = abs(b.value) - abs(a.value)
    difference = Difference(
        value, min(*corners, value), max(*corners, value), max(apart.p_value, total.p_value)
    )
    return _rounded(difference, a, b)


def _paired(a: Estimate, b: Estimate) -> tuple[FloatArray | None, list[FloatArray]]:
    """What b − a would be for each prompt if both choices were right, and what else it could be."""
    if a.if_right is None or b.if_right is None or a.if_wrong is None or b.if_wrong is None:
        return None, []
    base = b.if_right - a.if_right
    if a.ranks is None or b.ranks is None:
        jump = _typical(np.abs(b.if_wrong - a.if_wrong - base), a.if_right, b.if_right)
        return base, [base - jump, base + jump]  # either model may have been more confident
    # One model may be right and the other wrong, even if that was never seen.
    step = 1.0 if a.step is None else a.step
    return base, [] if _same_ranks(a.ranks, b.ranks) else [base - step, base + step]


def _typical(jump: FloatArray, a: FloatArray, b: FloatArray) -> float:
    """Return the mean of the jumps (n,) of losses where a choice is wrong, given the losses ``a`` and ``b`` if right.

    More confident models have smaller losses if right, and rarer errors: so each prompt counts √(a·b).
    """
    weight = np.sqrt(np.maximum(a * b, 0.0))
    return float(jump.mean() if weight.sum() == 0 else (weight * jump).sum() / weight.sum())


def _same_ranks(a: FloatArray, b: FloatArray) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-9, atol=1e-12))


def _influences(a: Estimate, b: Estimate) -> tuple[FloatArray, FloatArray]:
    """Return what each prompt contributes to the deviations of both estimates."""
    assert a.influence is not None
    assert b.influence is not None
    return a.influence(), b.influence()


def _rounded(difference: Difference, a: Estimate, b: Estimate) -> Difference:
    """Replace a difference within rounding of the two values by 0, with p-value 1."""
    assert a.value is not None
    assert b.value is not None
    rounding = ROUNDING * max(abs(a.value), abs(b.value))
    if abs(difference.value) > rounding:
        return difference
    if _alike(a, b):
        return Difference(0.0, 0.0, 0.0, 1.0)
    low, high = (0.0 if abs(limit) <= rounding else limit for limit in (difference.low, difference.high))
    return Difference(0.0, min(low, 0.0), max(high, 0.0), 1.0)


def _alike(a: Estimate, b: Estimate) -> bool:
    """Return whether every prompt contributes the same to both estimates, up to rounding."""
    if a.ranks is not None and b.ranks is not None and not _same_ranks(a.ranks, b.ranks):
        return False
    of_a, of_b = (by_cluster(each, a.cluster) for each in _influences(a, b))
    scale = max(np.abs(of_a).max(), np.abs(of_b).max())
    return bool(np.abs(of_a - of_b).max() <= 1e-6 * scale)
