"""Uncertainty of the weak notions: null tests and intervals of rankwise, sub-k and top-k errors."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, check_integer
from rmcalib.calibration._binning import BinSums
from rmcalib.calibration._intervals import (
    SIZES,
    Interval,
    check_level,
    recentred,
    recentred_interval,
    resampling_weights,
)
from rmcalib.calibration._nulls import NullTest, compare_with_null
from rmcalib.calibration._rankings.inputs import (
    EventChunk,
    NotionInputs,
    Orders,
    check_complete,
    check_ranks,
    event_chunks,
    event_errors,
    event_sums,
    event_weights,
    happened,
    n_bins,
)
from rmcalib.ranking import PartialRankings, RankingDistribution
from rmcalib.ranking.events import unique_rows

__all__ = ["RankwiseUncertainty"]

# Fractions of the observed miscalibration. Those above 1 use the data sets of 1.
_SHARES = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 4.0, 8.0])


@dataclass(frozen=True, eq=False)
class RankwiseUncertainty:
    """The null test and the interval of the error of a weak notion."""

    inputs: NotionInputs

    def null(self, *, resamples: int, rng: np.random.Generator | int) -> NullTest:
        """Compare the error with its distribution under rankings drawn from the forecast."""
        inputs, generator = self.inputs, np.random.default_rng(rng)
        dist = check_ranks(inputs.dist, "the null test")
        drawn = dist.sample(check_integer(resamples, "resamples", 1), generator)
        sets = [inputs.orders, *(_observed(inputs, orders) for orders in drawn)]
        chosen = [inputs.choose_in(orders) for orders in sets] if inputs.reselects else None
        values = _Average((len(sets),), inputs)
        for chunk, columns in _chunks_with_columns(inputs, chosen, generator):
            for number, orders in enumerate(sets):
                local = columns(number)
                outcomes = happened(inputs, orders, chunk.events[local])
                values.add(
                    number, _sums(inputs, chunk.bin_of[:, local], chunk.probabilities[:, local], outcomes)
                )
        observed, *null = values.means()
        return compare_with_null(float(observed), np.array(null))

    def interval(self, *, resamples: int, level: float, rng: np.random.Generator | int) -> Interval:
        """Return the interval: all true errors under which the observed error is not extreme.

        Data sets are simulated with a fraction s of the observed miscalibration: with probability s an
        instance is replaced by a resampled one, otherwise its ranking is drawn from the forecast. The
        interval contains the true errors of all s at which the observed error is not extreme. At s = 0 the
        data sets are those of the null test, so the interval excludes 0 exactly if the test rejects.

        The result is the union with a second interval, which treats the error as a linear function of the
        gaps. This is right for large gaps, because their signs are known.
        """
        check_level(level)
        n_replicates, generator = check_integer(resamples, "resamples", 1), np.random.default_rng(rng)
        if isinstance(self.inputs.dist, RankingDistribution):
            return _simulated_interval(self.inputs, self.inputs.dist, n_replicates, level, generator)
        return _resampled_interval(self.inputs, n_replicates, level, generator)


def _simulated_interval(
    inputs: NotionInputs, dist: RankingDistribution, resamples: int, level: float, rng: np.random.Generator
) -> Interval:
    n, mixed = len(dist), _SHARES[_SHARES <= 1]
    rankings = dist.sample(resamples, rng)
    drawn_orders = [_observed(inputs, orders) for orders in rankings]
    resampled, uniform = rng.integers(n, size=(resamples, n)), rng.random((resamples, n))

    def simulated(share: int, replicate: int) -> tuple[BoolArray, IntArray]:
        """Return which instances are resampled, and their numbers: (n,) each. Shares use the same draws."""
        kept = uniform[replicate] < mixed[share]
        return kept, np.where(kept, resampled[replicate], np.arange(n))

    chosen = None
    if inputs.reselects:
        orders = check_complete(dist, inputs.orders, "a selection by frequency")
        sets = [
            np.where(kept[:, None], orders[rows], rankings[replicate])
            for share in range(len(mixed))
            for replicate in range(resamples)
            for kept, rows in [simulated(share, replicate)]
        ]
        chosen = [inputs.choose_in(one) for one in [*sets, orders]]
    draws, truths = (_Average((len(_SHARES), resamples), inputs) for _ in "ab")
    value, linear = _Average((1,), inputs), _LinearError(resamples, inputs)
    for chunk, columns in _chunks_with_columns(inputs, chosen, rng):
        own = columns(-1)
        observed = _sums(inputs, chunk.bin_of, chunk.probabilities, chunk.outcomes)
        value.add(0, _take(observed, own))
        for replicate, observed_orders in enumerate(drawn_orders):
            drawn = happened(inputs, observed_orders, chunk.events)
            for share in range(len(mixed)):
                local = columns(share * resamples + replicate)
                kept, rows = simulated(share, replicate)
                outcomes = np.where(kept[:, None], chunk.outcomes[rows], drawn)
                sums = _sums(inputs, chunk.bin_of[rows], chunk.probabilities[rows], outcomes)
                if share == len(mixed) - 1:
                    linear.add(replicate, _take(observed, own), _take(sums, own))
                sums, total = _take(sums, local), _take(observed, local)
                for place in range(share, len(_SHARES) if share == len(mixed) - 1 else share + 1):
                    # Up to a share of 1, the data set contains the miscalibration. Above 1, add the rest.
                    beyond = max(float(_SHARES[place]), 1.0)
                    draws.add((place, replicate), recentred(total, sums, beyond))
                    if replicate == 0 or chosen is not None:
                        truths.add((place, replicate), recentred(total, total, float(_SHARES[place])))
    # Data sets with the same events have the same true errors.
    true = truths.means()[:, 0] if chosen is None else truths.means().mean(axis=1)
    return _inverted(float(value.means()[0]), draws.means(), true, linear.values(), level)


def _inverted(
    value: float, draws: FloatArray, truths: FloatArray, linear: FloatArray, level: float
) -> Interval:
    """Invert errors drawn at each share (S, R), with true errors (S,), and add the linear interval."""
    alpha = 1 - level

    def true_error(tail: float) -> float:
        """Return the true error at which the observed value is this quantile of the draws."""
        # Errors grow with the miscalibration; running maxima remove simulation noise.
        return float(np.interp(value, np.maximum.accumulate(np.quantile(draws, tail, axis=1)), truths))

    high = max(true_error(alpha / 2), value - float(np.quantile(linear, alpha / 2)))
    if compare_with_null(value, draws[0]).p_value > alpha:
        return Interval(value, 0.0, high, level, draws.shape[1])
    # Noise increases an average of absolute gaps. Resampling increases it once more, but by less: the ratio
    # of the two increases is up to 0.8 / (1.13 − 0.8) = 2.4, for gaps that are all noise.
    noise = 2 * (float(draws[_SHARES == 1].mean()) - value)
    linear_low = value - noise - float(np.quantile(linear, 1 - alpha / 2))
    possible = [low for low in (true_error(1 - alpha / 2), linear_low) if low > 0]
    return Interval(value, min([*possible, true_error(1 - alpha)]), high, level, draws.shape[1])


def _resampled_interval(
    inputs: NotionInputs, resamples: int, level: float, rng: np.random.Generator
) -> Interval:
    """Return the interval for pair marginals, which cannot simulate rankings: resample and recentre sums."""
    weights = resampling_weights(resamples, len(inputs.dist), rng)
    draws, truths = _Average((len(SIZES), resamples), inputs), _Average((len(SIZES),), inputs)
    for chunk in event_chunks(inputs, inputs.choose()[0], rng, replicates=resamples):
        total = _sums(inputs, chunk.bin_of, chunk.probabilities, chunk.outcomes)
        replicates = _weighted_sums(weights, chunk, n_bins(inputs.error))
        for number, share in enumerate(SIZES):
            draws.add(number, recentred(total, replicates, share))
            truths.add(number, recentred(total, total, share))
    true = truths.means()
    return recentred_interval(float(true[SIZES == 1][0]), draws.means(), true, level=level)


class _Average:
    """A weighted average over events that arrive in chunks, kept for many data sets at once."""

    def __init__(self, shape: tuple[int, ...], inputs: NotionInputs) -> None:
        self._errors, self._weights, self._inputs = np.zeros(shape), np.zeros(shape), inputs

    def add(self, number: int | tuple[int, int], sums: BinSums) -> None:
        weights = event_weights(self._inputs.weighting, sums)
        self._errors[number] += (weights * event_errors(sums, self._inputs.error)).sum(axis=-1)
        self._weights[number] += weights.sum(axis=-1)

    def means(self) -> FloatArray:
        return self._errors / np.maximum(self._weights, 1e-300)


class _LinearError:
    """How much resampling moves the average error if every gap keeps its sign: (R,)."""

    def __init__(self, resamples: int, inputs: NotionInputs) -> None:
        self._moved, self._weight, self._inputs = np.zeros(resamples), np.zeros(resamples), inputs

    def add(self, number: int, observed: BinSums, resampled: BinSums) -> None:
        weights = event_weights(self._inputs.weighting, observed)
        gap = observed.outcome - observed.probability
        moved = np.sign(gap) * (resampled.outcome - resampled.probability - gap)
        per_event = moved.sum(axis=-1) / np.maximum(observed.count.sum(axis=-1), 1)
        self._moved[number] += (weights * per_event).sum()
        self._weight[number] += weights.sum()

    def values(self) -> FloatArray:
        return self._moved / np.maximum(self._weight, 1e-300)


_Columns = Callable[[int], IntArray | slice]


def _chunks_with_columns(
    inputs: NotionInputs, chosen: Sequence[IntArray] | None, rng: np.random.Generator
) -> Iterator[tuple[EventChunk, _Columns]]:
    """Yield chunks of all events, and a function from a data set's number to its events in the chunk.

    ``chosen``: the events of each data set; None if all have the same.
    """
    if chosen is None:
        for chunk in event_chunks(inputs, inputs.choose()[0], rng):
            yield chunk, lambda _: slice(None)
        return
    events, index = unique_rows(np.concatenate(chosen), inputs.dist.n_items)
    # event_chunks sorts by items; sorting here keeps its order.
    order = np.lexsort(np.sort(events, axis=1).T[::-1])
    place = np.argsort(order)
    ends = np.cumsum([len(part) for part in chosen])[:-1]
    columns = [np.sort(place[part]) for part in np.split(index, ends)]
    start = 0
    for chunk in event_chunks(inputs, events[order], rng):
        first, last = start, start + len(chunk.events)

        def local(number: int, first: int = first, last: int = last) -> IntArray:
            own = columns[number]
            return own[slice(*np.searchsorted(own, [first, last]))] - first

        yield chunk, local
        start = last


def _observed(inputs: NotionInputs, orders: IntArray) -> Orders:
    """Return what would have been observed of the complete rankings ``orders`` (n, m)."""
    return inputs.orders.coarsen(orders) if isinstance(inputs.orders, PartialRankings) else orders


def _sums(inputs: NotionInputs, bin_of: IntArray, p: FloatArray, outcomes: FloatArray) -> BinSums:
    return event_sums(bin_of, p, outcomes, n_bins(inputs.error))


def _take(sums: BinSums, events: IntArray | slice) -> BinSums:
    return BinSums(sums.count[events], sums.probability[events], sums.outcome[events])


def _weighted_sums(weights: FloatArray, chunk: EventChunk, size: int) -> BinSums:
    """Return the bin sums of resamples with ``weights`` (R, n): arrays (R, e, B)."""
    counts = ~np.isnan(chunk.outcomes)
    members = [(chunk.bin_of == number) & counts for number in range(size)]

    def stack(values: FloatArray | float) -> FloatArray:
        return np.stack([weights @ (member * values) for member in members], axis=-1)

    return BinSums(stack(1.0), stack(chunk.probabilities), stack(np.nan_to_num(chunk.outcomes)))
