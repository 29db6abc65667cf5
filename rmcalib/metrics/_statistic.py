"""Statistics: a value of n prompts that can be computed again on resamples of them.

A resample is a vector of weights: how often each prompt was drawn. Most statistics are functions of sums over
prompts, so a thousand resamples are one matrix product. `evaluate` asks a statistic for its interval,
`compare` for the interval of a difference on the same resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, chunks
from rmcalib.calibration import (
    BinSums,
    Difference,
    ErrorOptions,
    Interval,
    Worlds,
    bin_edges,
    bin_index,
    binned_error,
    binned_worlds,
    recentred_difference,
    recentred_interval,
    resampling_weights,
    share_limits,
)

__all__ = ["NO_INTERVAL", "Settings", "Statistic", "difference", "intervals", "resample"]

NO_INTERVAL = "no interval: a single prompt does not say how much prompts differ"

Resampled = Callable[[FloatArray], FloatArray]
Limits = tuple[float, float]
Draws = FloatArray | Worlds
_CACHED = 8_000_000  # numbers: weights of so many prompts times resamples are kept for the next model


@dataclass(frozen=True)
class Settings:
    """How metrics are computed: equal-width bins, resamples, level of the intervals, seed."""

    bins: int = 10
    resamples: int = 1000
    level: float = 0.95
    seed: int = 0


@dataclass(frozen=True)
class Statistic:
    """A value of n prompts, and how to compute it on resamples of them.

    A third-party metric returns one of these, usually from `mean`, `proportion`, `of_sums` or `constant`.

    Attributes
    ----------
    value : the value; None if there is none.
    n : number of prompts.
    note : why there is no value, or no interval.
    resampled : maps weights (R, n) to values (R,); None if the statistic has no bootstrap interval.
    alternatives : for errors that noise pushes up. Maps weights (R, n) to values drawn under S alternative
        sizes of the error (S, R), and the true error of each (S,).
    own_draws : maps a number of resamples and a seed to values (R,), for statistics that are resampled in
        another way than prompt by prompt.
    limits : maps values (R,) and a level to the interval; percentiles by default.
    no_limits : the note where `limits` returns None.
    closed_form : maps a level to the interval, for intervals that need no resamples.
    most : the largest number of resamples, where each is slow.
    """

    value: float | None
    n: int
    note: str = ""
    resampled: Resampled | None = None
    alternatives: Callable[[FloatArray], Worlds] | None = None
    own_draws: Callable[[int, int], FloatArray] | None = None
    limits: Callable[[FloatArray, float], Limits | None] | None = None
    no_limits: str = ""
    closed_form: Callable[[float], Limits] | None = None
    most: int = 10**9

    @classmethod
    def constant(cls, value: float, n: int) -> Statistic:
        """Return a value without an interval, such as a p-value.

        >>> Statistic.constant(0.5, 10).interval() is None
        True
        """
        return cls(value if np.isfinite(value) else None, n)

    @classmethod
    def missing(cls, n: int, note: str) -> Statistic:
        """Return a statistic without a value; ``note`` says why."""
        return cls(None, n, note)

    @classmethod
    def mean(cls, values: FloatArray) -> Statistic:
        """Return the mean of one number per prompt (n,), with a percentile interval.

        >>> statistic = Statistic.mean(np.array([0.0, 1.0, 2.0, 3.0]))
        >>> statistic.value, statistic.resampled(np.array([[4.0, 0.0, 0.0, 0.0]]))
        (1.5, array([0.]))
        """
        column = values[:, None]
        return cls(
            float(values.mean()),
            len(values),
            resampled=lambda weights: (weights @ column)[:, 0] / len(values),
        )

    @classmethod
    def proportion(cls, values: FloatArray) -> Statistic:
        """Return the mean of numbers in [0, 1] (n,) that are mostly 0 or 1, such as an accuracy."""
        mean = cls.mean(values)

        def limits(draws: FloatArray, level: float) -> Limits:
            return share_limits(*_percentiles(draws, level), len(values), level)

        return cls(mean.value, mean.n, resampled=mean.resampled, limits=limits)

    @classmethod
    def median(cls, values: FloatArray) -> Statistic:
        """Return the median of one number per prompt (n,)."""
        order = np.argsort(values)

        def middle(weights: FloatArray) -> FloatArray:
            below = np.cumsum(weights[:, order], axis=1)
            return values[order][(below >= below[:, -1:] / 2).argmax(axis=1)]

        return cls(float(np.median(values)), len(values), resampled=middle)

    @classmethod
    def of_sums(
        cls, sums: FloatArray, function: Callable[[FloatArray], FloatArray], *, value: float | None = None
    ) -> Statistic:
        """Return a function of sums over prompts: ``sums`` (n, q), totals (R, q) -> values (R,).

        ``value`` is the value on all prompts where it is known more exactly.

        >>> ratio = Statistic.of_sums(np.array([[1.0, 2.0], [3.0, 2.0]]), lambda t: t[:, 0] / t[:, 1])
        >>> ratio.value
        1.0
        """
        found = float(function(sums.sum(axis=0, keepdims=True))[0]) if value is None else value
        return cls(found, len(sums), resampled=lambda weights: function(weights @ sums))

    @classmethod
    def binned(cls, p: FloatArray, y: FloatArray, prompt: IntArray, options: ErrorOptions) -> Statistic:
        """Return the binned calibration error of probabilities p (N,) for outcomes y (N,) of prompts (N,)."""
        edges = bin_edges(p, options)
        plain = options.spacing == "width" and not isinstance(options.bins, tuple)
        index = _equal_width_index(p, edges) if plain else bin_index(p, edges)
        sums = _grouped_sums(p, y, prompt, index, len(edges) - 1)
        total = _unpack(sums.sum(axis=0))

        def alternatives(weights: FloatArray) -> Worlds:
            return binned_worlds(total, _unpack(weights @ sums), options)

        return cls(float(binned_error(total, options)), len(sums), alternatives=alternatives)

    def interval(self, *, resamples: int = 1000, level: float = 0.95, seed: int = 0) -> Interval | None:
        """Return the value with its interval, or None if there is none.

        >>> Statistic.mean(np.array([0.0, 1.0] * 50)).interval().low < 0.5
        True
        """
        (found,) = intervals([self], Settings(resamples=resamples, level=level, seed=seed))
        return None if found is None or self.value is None else Interval(self.value, *found, level, resamples)

    @property
    def has_interval(self) -> bool:
        """Whether an interval can be computed, given more than one prompt."""
        ways = (self.resampled, self.alternatives, self.own_draws, self.closed_form)
        return self.value is not None and any(way is not None for way in ways)


def intervals(statistics: Sequence[Statistic], settings: Settings) -> list[Limits | None]:
    """Return the limits of each statistic; statistics of the same number of prompts share their resamples.

    A single prompt has no interval: all its resamples are the same.
    """
    known = [one.has_interval and one.n > 1 for one in statistics]
    resampled = [one for one, keep in zip(statistics, known, strict=True) if keep and one.closed_form is None]
    draws = iter(resample(resampled, resamples=settings.resamples, seed=settings.seed))
    found: list[Limits | None] = []
    for one, keep in zip(statistics, known, strict=True):
        if not keep:
            found.append(None)
        elif one.closed_form is not None:
            found.append(one.closed_form(settings.level))
        else:
            found.append(_limits(one, next(draws), settings.level))
    return found


def difference(a: Statistic, b: Statistic, settings: Settings) -> Difference | None:
    """Return b − a with its interval on the same resamples, and a p-value; None if there is no interval.

    Errors that noise pushes up are compared by :func:`~rmcalib.calibration.recentred_difference`. For others
    the interval holds the middle of the resampled differences, and the p-value is twice the smaller fraction
    of them beyond zero.
    """
    paired = all(one.resampled or one.own_draws for one in (a, b)) or (a.alternatives and b.alternatives)
    if a.value is None or b.value is None or a.n == 1 or not paired:
        return None
    drawn_a, drawn_b = resample([a, b], resamples=settings.resamples, seed=settings.seed)
    if isinstance(drawn_a, tuple) and isinstance(drawn_b, tuple):
        return recentred_difference(a.value, b.value, drawn_a, drawn_b, level=settings.level)
    draws = np.asarray(drawn_b) - np.asarray(drawn_a)
    low, high = _percentiles(draws, settings.level)
    beyond = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    p_value = min(1.0, 2 * (beyond + 1) / (len(draws) + 1))
    return Difference(b.value - a.value, low, high, p_value)


def resample(statistics: Sequence[Statistic], *, resamples: int, seed: int) -> list[Draws]:
    """Return the values of each statistic on the same resamples: (R,), or alternatives with their truths."""
    found: dict[int, Draws] = {}
    by_size: dict[int, dict[int, list[Draws]]] = {}
    for i, one in enumerate(statistics):
        if one.own_draws is not None:
            found[i] = one.own_draws(resamples, seed)
        else:
            by_size.setdefault(one.n, {})[i] = []
    for n, parts in by_size.items():
        first = 0
        for weights in _weights(n, resamples, seed):
            for i, drawn in parts.items():
                rows = weights[: max(0, statistics[i].most - first)]
                if len(rows):
                    drawn.append(_draw(statistics[i], rows))
            first += len(weights)
        found |= {i: _joined(drawn) for i, drawn in parts.items()}
    return [found[i] for i in range(len(statistics))]


def _draw(statistic: Statistic, weights: FloatArray) -> Draws:
    draw = statistic.alternatives or statistic.resampled
    assert draw is not None
    return draw(weights)


def _joined(parts: list[Draws]) -> Draws:
    if isinstance(parts[0], tuple):
        return np.concatenate([draws for draws, _ in parts], axis=1), parts[0][1]
    return np.concatenate([np.asarray(part) for part in parts])


def _limits(statistic: Statistic, draws: Draws, level: float) -> Limits | None:
    if isinstance(draws, tuple):
        assert statistic.value is not None
        found = recentred_interval(statistic.value, *draws, level=level)
        return found.low, found.high
    return (statistic.limits or _percentiles)(draws, level)


def _percentiles(draws: FloatArray, level: float) -> Limits:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
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


def _equal_width_index(p: FloatArray, edges: FloatArray) -> IntArray:
    """Return what `bin_index` does for equal-width bins, by arithmetic and one correction: much faster."""
    bins = len(edges) - 1
    index = np.minimum((p * bins).astype(np.int64), bins - 1)
    index += (p >= edges[index + 1]) & (index < bins - 1)
    index -= p < edges[index]
    return index


def _grouped_sums(p: FloatArray, y: FloatArray, groups: IntArray, index: IntArray, bins: int) -> FloatArray:
    """What each group adds to the sums of each bin: (G, 3 bins), counts, probabilities, outcomes."""
    cell, size = groups * bins + index, (int(groups.max()) + 1) * bins
    sums = [np.bincount(cell, weights, size).reshape(-1, bins) for weights in (None, p, y)]
    return np.concatenate(sums, axis=1).astype(np.float64)


def _unpack(rows: FloatArray) -> BinSums:
    count, probability, outcome = np.split(rows, 3, axis=-1)
    return BinSums(count, probability, outcome)
