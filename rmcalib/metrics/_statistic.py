"""Statistics: a value computed from n prompts, with its interval and what a paired difference needs.

`evaluate` uses the interval of a statistic, `compare` the interval of a difference between two models on the
same prompts. Most statistics have a formula for both. Others are computed again on resamples of the prompts:
a resample is a vector of weights that says how often each prompt was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from rmcalib._util.arrays import FloatArray, check_choice, chunks
from rmcalib.calibration import (
    Difference,
    Inference,
    Interval,
    jump_interval,
    mean_difference,
    proportion_interval,
    resampling_weights,
)
from rmcalib.calibration import difference as interval_difference

__all__ = ["NO_INTERVAL", "TIES", "Settings", "Statistic", "Ties", "difference"]

NO_INTERVAL = "no interval: a single prompt does not say how much prompts differ"
Limits = tuple[float, float]
Ties = Literal["split", "drop", "davidson", "rao-kupper"]
"""How votes for "equally good" are counted; see `Settings`."""
TIES: tuple[Ties, ...] = ("split", "drop", "davidson", "rao-kupper")
"""How votes for "equally good" are counted; see `Settings`."""
_CACHED = 8_000_000  # prompts times resamples: up to here, weights are kept for the next statistic


@dataclass(frozen=True)
class Settings:
    """How metrics are computed.

    Attributes
    ----------
    bins : int
        Number of equal-width bins of the ECE.
    resamples, level, seed
        Number of resamples, confidence level and seed of the intervals.
    ties : Ties
        How votes for "equally good" are counted. "drop" leaves them out: a Bradley-Terry probability is about
        people who prefer a response. "split" divides such a vote among the responses, which makes calibrated
        probabilities look over-confident. "davidson" and "rao-kupper" forecast a tie as a separate outcome,
        with one parameter that is fitted on other prompts.

    Examples
    --------
    >>> Settings(resamples=200).level
    0.95
    """

    bins: int = 10
    resamples: int = 1000
    level: float = 0.95
    seed: int = 0
    ties: Ties = "drop"

    def __post_init__(self) -> None:
        """Check ``ties``."""
        check_choice(self.ties, "ties", TIES)


@dataclass(frozen=True)
class Statistic:
    """A value computed from n prompts, and how to compute its interval.

    A metric returns one of these, usually from `mean`, `proportion`, `of_sums`, `estimated` or `constant`.

    Attributes
    ----------
    value : float, optional
        The value; None if it is missing.
    n : int
        Number of prompts.
    note : str
        Why there is no value, or no interval.
    values : float array (n,), optional
        One number per prompt, if the value is their mean. Differences are then paired exactly.
    limits : Callable[[float], Limits | None], optional
        Maps a level to the limits of the interval, or to None if there are none.
    if_right, if_wrong : float array (n,), optional
        What ``values`` would be if each first choice were right, and if the runner-up were.
    rewards : float array (N,), optional
        The rewards up to their scale, if ``values`` depends on whether the first choice is right. Two models
        whose rewards differ only in scale have the same first choices.
    influence : Callable[[], FloatArray], optional
        Returns (n,) the contribution of each prompt to the deviation of the value; sums to 0.
    centre : Callable[[], float], optional
        Returns an error without the bias of noise, for differences of errors that cannot be negative.
    resampled : Callable[[FloatArray], FloatArray], optional
        Maps weights (R, n) to values (R,), for statistics without formulas.
    own_draws : Callable[[int, int], FloatArray], optional
        Maps a number of resamples and a seed to values (R,), for statistics that do not resample prompt by
        prompt.
    no_limits : str
        The note if ``limits`` returns None.

    Examples
    --------
    >>> found = Statistic.mean(np.array([0.0, 1.0, 1.0, 1.0]))
    >>> found.value, found.n
    (0.75, 4)
    """

    value: float | None
    n: int
    note: str = ""
    values: FloatArray | None = None
    limits: Callable[[float], Limits | None] | None = None
    if_right: FloatArray | None = None
    if_wrong: FloatArray | None = None
    rewards: FloatArray | None = None
    influence: Callable[[], FloatArray] | None = None
    centre: Callable[[], float] | None = None
    resampled: Callable[[FloatArray], FloatArray] | None = None
    own_draws: Callable[[int, int], FloatArray] | None = None
    no_limits: str = ""

    @classmethod
    def constant(cls, value: float, n: int, *, note: str = "the value is not finite") -> Statistic:
        """Return a value without an interval, such as a p-value; ``note`` is used if it is not finite.

        >>> Statistic.constant(0.5, 10).interval() is None
        True
        """
        return cls(value, n) if np.isfinite(value) else cls.missing(n, note)

    @classmethod
    def missing(cls, n: int, note: str) -> Statistic:
        """Return a statistic without a value; ``note`` says why."""
        return cls(None, n, note)

    @classmethod
    def mean(
        cls,
        values: FloatArray,
        if_right: FloatArray | None = None,
        if_wrong: FloatArray | None = None,
        *,
        within: Limits = (-np.inf, np.inf),
    ) -> Statistic:
        """Return the mean of one number per prompt (n,), with the interval of `skew_interval`.

        If a value depends on whether the first choice is right, ``if_right`` and ``if_wrong`` (n,) have what
        it would be in either case. The interval is then that of `jump_interval`, which allows for wrong
        choices even where there are none. No mean is outside of ``within``.

        >>> statistic = Statistic.mean(np.array([0.0, 1.0, 2.0, 3.0]))
        >>> statistic.value, statistic.interval().low < 1.5
        (1.5, True)
        """
        base = values if if_right is None else if_right
        others = () if if_wrong is None else (if_wrong,)

        def limits(level: float) -> Limits:
            low, high = jump_interval(values, base, others, level)
            return max(low, within[0]), min(high, within[1])

        return cls(
            float(values.mean()),
            len(values),
            values=values,
            limits=limits,
            if_right=if_right,
            if_wrong=if_wrong,
        )

    @classmethod
    def proportion(cls, values: FloatArray) -> Statistic:
        """Return the mean of numbers in [0, 1] (n,) that are mostly 0 or 1, with its exact interval.

        >>> Statistic.proportion(np.array([1.0] * 97 + [0.0] * 3)).interval().low.__round__(3)
        0.915
        """

        def limits(level: float) -> Limits:
            found = proportion_interval(values, level=level)
            return found.low, found.high

        return cls(float(values.mean()), len(values), values=values, limits=limits)

    @classmethod
    def median(cls, values: FloatArray) -> Statistic:
        """Return the median of one number per prompt (n,), with a bootstrap interval.

        The limits are those of infinitely many resamples. The median of a resample is at most the k-th
        smallest value if at least half of its n draws are, and a draw is with probability k/n: the number of
        such draws is binomial.

        >>> found = Statistic.median(np.arange(101.0)).interval()
        >>> found.value, found.low, found.high
        (50.0, 40.0, 60.0)
        """
        order = np.argsort(values)

        def middle(weights: FloatArray) -> FloatArray:
            below = np.cumsum(weights[:, order], axis=1)
            return values[order][(below >= below[:, -1:] / 2).argmax(axis=1)]

        def limits(level: float) -> Limits:
            from scipy.special import betainc

            n = len(values)
            half = -(-n // 2)
            reached = betainc(half, n - half + 1, np.arange(1, n + 1) / n)
            low, high = np.searchsorted(reached, [(1 - level) / 2, (1 + level) / 2])
            return float(values[order[low]]), float(values[order[high]])

        return cls(float(np.median(values)), len(values), limits=limits, resampled=middle)

    @classmethod
    def of_sums(cls, sums: FloatArray, function: Callable[[FloatArray], FloatArray]) -> Statistic:
        """Return a function of sums over prompts, with a bootstrap interval.

        ``sums`` (n, q): what each prompt adds. ``function`` maps totals (R, q) to values (R,).

        >>> ratio = Statistic.of_sums(np.array([[1.0, 2.0], [3.0, 2.0]]), lambda t: t[:, 0] / t[:, 1])
        >>> ratio.value
        1.0
        """
        value = float(function(sums.sum(axis=0, keepdims=True))[0])
        return cls(value, len(sums), resampled=lambda weights: function(weights @ sums))

    @classmethod
    def estimated(
        cls,
        value: float,
        limits: Callable[[float], Interval],
        influence: Callable[[], FloatArray],
        n: int,
        *,
        centre: Callable[[], float] | None = None,
    ) -> Statistic:
        """Return a value with its interval at any level, and the influence (n,) of each prompt on it.

        ``centre`` returns an error without the bias of noise, which pushes errors up.
        """

        def ends(level: float) -> Limits:
            found = limits(level)
            return found.low, found.high

        return cls(value, n, limits=ends, influence=influence, centre=centre)

    @classmethod
    def inferred(cls, value: float, inference: Callable[[], Inference], n: int) -> Statistic:
        """Return a calibration error; its inference is computed when the interval is needed."""
        return cls.estimated(
            value,
            lambda level: inference().interval(level),
            lambda: inference().influence,
            n,
            centre=lambda: inference().centre,
        )

    @property
    def has_interval(self) -> bool:
        """Whether an interval can be computed from more than one prompt."""
        ways = (self.limits, self.resampled, self.own_draws)
        return self.value is not None and any(way is not None for way in ways)

    def interval(self, settings: Settings | None = None) -> Interval | None:
        """Return the value with its interval, or None if there is none.

        A single prompt has no interval: all its resamples are the same.

        >>> Statistic.mean(np.array([0.0, 1.0] * 50)).interval().low < 0.5
        True
        """
        settings = settings or Settings()
        if self.value is None or not self.has_interval or self.n < 2:
            return None
        found = self.limits(settings.level) if self.limits else _percentiles(self.draws(settings), settings)
        return None if found is None else Interval(self.value, *found, settings.level, settings.resamples)

    def draws(self, settings: Settings) -> FloatArray:
        """Return the values on resamples of the prompts (R,)."""
        if self.own_draws is not None:
            return self.own_draws(settings.resamples, settings.seed)
        assert self.resampled is not None
        parts = [self.resampled(part) for part in _weights(self.n, settings.resamples, settings.seed)]
        return np.concatenate(parts)


def difference(a: Statistic, b: Statistic, settings: Settings) -> Difference | None:
    """Return b − a for statistics of the same prompts, with interval and p-value; None if one is missing.

    Means are compared prompt by prompt, and estimates by their intervals and influences. For other statistics
    the interval contains the central differences on the same resamples, and the p-value is twice the smaller
    fraction of them beyond zero.

    >>> one, other = (Statistic.mean(np.arange(5.0) + shift) for shift in (0.0, 1.0))
    >>> difference(one, other, Settings()).value
    1.0
    """
    if a.value is None or b.value is None or a.n < 2:
        return None
    if a.values is not None and b.values is not None:
        base, others = _alternatives(a, b)
        return mean_difference(a.values, b.values, level=settings.level, base=base, others=others)
    if a.influence is not None and b.influence is not None:
        if a.value == b.value and np.array_equal(a.influence(), b.influence()):
            return Difference(0.0, 0.0, 0.0, 1.0)  # the same forecast
        one, other = a.interval(settings), b.interval(settings)
        if one is None or other is None:
            return None
        centres = None if a.centre is None or b.centre is None else (a.centre(), b.centre())
        return interval_difference(one, other, a.influence(), b.influence(), centres=centres)
    if not all(side.resampled or side.own_draws for side in (a, b)):
        return None
    draws = b.draws(settings) - a.draws(settings)
    low, high = _percentiles(draws, settings)
    beyond = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    p_value = min(1.0, 2 * (beyond + 1) / (len(draws) + 1))
    return Difference(b.value - a.value, low, high, p_value)


def _alternatives(a: Statistic, b: Statistic) -> tuple[FloatArray | None, list[FloatArray]]:
    """What b − a would be for each prompt if both choices were right, and what else it could be."""
    if a.if_right is None or b.if_right is None or a.if_wrong is None or b.if_wrong is None:
        return None, []
    base = b.if_right - a.if_right
    if a.rewards is None or b.rewards is None:
        jump = np.abs(b.if_wrong - a.if_wrong - base)  # either model may be the one that was surer
        return base, [base - jump, base + jump]
    same = a.rewards.shape == b.rewards.shape and np.allclose(a.rewards, b.rewards, rtol=1e-9, atol=1e-12)
    # One model may be right and the other wrong, even if that was never seen.
    return base, [] if same else [base - 1, base + 1]


def _percentiles(draws: FloatArray, settings: Settings) -> Limits:
    low, high = np.quantile(draws, [(1 - settings.level) / 2, (1 + settings.level) / 2])
    return float(low), float(high)


def _weights(n: int, resamples: int, seed: int) -> Iterator[FloatArray]:
    """How often each of n prompts is in each resample, in parts (R', n); the same for every model."""
    if n * resamples <= _CACHED:
        return iter(_kept_weights(n, resamples, seed))
    return _new_weights(n, resamples, seed)


@lru_cache(maxsize=8)
def _kept_weights(n: int, resamples: int, seed: int) -> tuple[FloatArray, ...]:
    return tuple(_new_weights(n, resamples, seed))


def _new_weights(n: int, resamples: int, seed: int) -> Iterator[FloatArray]:
    rng = np.random.default_rng(seed)
    for rows in chunks(resamples, n):
        yield resampling_weights(rows.stop - rows.start, n, rng)
