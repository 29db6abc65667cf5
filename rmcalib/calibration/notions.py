"""The paper's weak notions: rankwise, sub-k and top-k calibration, one engine under three names.

Every event ("these items stand in this order", "the ranking starts with these") is a separate kind in an
event table; the error is a weighted mean of the binned errors of the kinds. Many events come in chunks, and
the chunks share their worlds: rankings drawn from the forecast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Literal, NamedTuple, Protocol, Unpack

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, check_choice, check_integer, chunks
from rmcalib.calibration import binning
from rmcalib.calibration.binning import BinSums, ErrorOptions
from rmcalib.calibration.estimates import NullTest, compare_with_null
from rmcalib.calibration.intervals import Interval, check_level
from rmcalib.calibration.simulation import invert
from rmcalib.ranking import PairMarginals, PartialRankings, RankingDistribution, events
from rmcalib.ranking._partial import HasPartialRankings, conditional_probabilities
from rmcalib.ranking.events import Family

MAX_EVENTS = 200_000
"""Above this many events, a notion uses the most frequent ones that make up 95% of the occurrences."""
NotionProtocol = Literal["exact", "reference"]
"""How an error is computed: by its definition, or as the paper's public code does."""
Weighting = Literal["uniform", "frequency", "probability"]
OpenEvents = Literal["leave_out", "marginalise"]
Orders = IntArray | PartialRankings
_DEFAULT_COVERAGE = 0.95
# Sizes of miscalibration, as multiples of the observed one. Data sets are simulated for the first five; larger
# sizes are made from those of size 1.
_SHARES: FloatArray = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
_SIZES: FloatArray = np.array([*_SHARES, 1.25, 1.5, 2.0, 4.0, 8.0])
_SHARE_OF_SIZE = np.minimum(np.arange(len(_SIZES)), len(_SHARES) - 1)
_PAIR_SIZES: FloatArray = np.concatenate([np.linspace(0, 2, 17), [2.5, 3.0, 4.0, 6.0, 8.0]])


class NotionOptions(binning.ErrorKeywords, total=False):
    """The options of `sub_k`, `top_k` and `rankwise`; `sub_k` explains them."""

    coverage: float | None
    counted_on: ArrayLike | None
    max_events: int
    weighting: Weighting
    open_events: OpenEvents
    protocol: NotionProtocol
    support: ArrayLike | None


class Uncertainty(Protocol):
    """What computes the null test and the interval of a result."""

    def null(self, resamples: int, rng: np.random.Generator) -> NullTest:
        """Compare the error with that of a calibrated forecast."""

    def interval(self, resamples: int, level: float, rng: np.random.Generator) -> Interval:
        """Return the error with a confidence interval."""


@dataclass(frozen=True, eq=False)
class NotionResult:
    """The calibration error under one notion.

    Attributes
    ----------
    value : float
        The error, ``weights @ per_event``.
    per_event : float (E,)
        The error of each event.
    events : int (E, k)
        The events.
    weights : float (E,)
        Weights of the average, which sum to 1. Those of ``full_rank`` sum over the classes of each set of
        items and average over sets.
    family, k
        What the events are.
    n : int
        Number of instances.
    protocol : {"exact", "reference"}
        How it was computed.
    """

    value: float
    per_event: FloatArray
    events: IntArray
    weights: FloatArray
    family: Family
    k: int
    n: int
    protocol: NotionProtocol
    uncertainty: Uncertainty | None = field(default=None, repr=False)

    @property
    def n_events(self) -> int:
        """The number of events averaged over."""
        return len(self.events)

    def null(self, *, resamples: int = 200, rng: np.random.Generator | int = 0) -> NullTest:
        """Compare the error with the errors of a calibrated forecast at this sample size."""
        check_integer(resamples, "resamples", 1)
        return self._stated_uncertainty().null(resamples, np.random.default_rng(rng))

    def interval(
        self, *, resamples: int = 200, level: float = 0.95, rng: np.random.Generator | int = 0
    ) -> Interval:
        """Return a confidence interval of the error; for ``full_rank``, of its excess over the null mean."""
        check_level(level)
        check_integer(resamples, "resamples", 1)
        return self._stated_uncertainty().interval(resamples, level, np.random.default_rng(rng))

    def _stated_uncertainty(self) -> Uncertainty:
        if self.uncertainty is None:
            raise ValueError(f"protocol: the {self.protocol} protocol has no null test and no interval")
        return self.uncertainty

    def __repr__(self) -> str:
        """Show the value and where it comes from, not the arrays."""
        return (
            f"NotionResult({self.family}-{self.k}: {self.value:.6g}, {self.n_events:,} events, "
            f"{self.n:,} instances, {self.protocol})"
        )


def sub_k(
    dist: PairMarginals, orders: ArrayLike | PartialRankings, k: int, **options: Unpack[NotionOptions]
) -> NotionResult:
    """Return the rankwise sub-k calibration error (Definition 6 of the paper).

    For every sub-k event, an ordered choice of k items, the forecast gives the probability that these items
    are in this relative order. The error of the event is the binned ECE of that probability over instances.
    The result is the average over events.

    Parameters
    ----------
    dist : RankingDistribution, or PairMarginals for k = 2
        The forecast: n instances, m items.
    orders : int (n, m) or PartialRankings
        What happened: the items of each instance, best first.
    k : int
        Number of items of an event, from 2 to m.
    **options
        Which events, how they are averaged, and how the error of one is computed; see the notes.

    Returns
    -------
    NotionResult
        The error as ``value``; its methods ``null`` and ``interval`` give its uncertainty.

    Notes
    -----
    The options, which `top_k` and `rankwise` share:

    - ``coverage``, float: only the most frequent events that together make up this fraction of all occurrences;
      default all events, or 0.95 if there are more than ``max_events`` (200,000).
    - ``counted_on``, int (N, m): rankings in which events are counted, such as the training fold. By default they
      are counted in ``orders``, which makes rare events look more frequent than they are. ``null`` and ``interval``
      of the result allow for that; the value alone does not.
    - ``weighting``: "uniform", by "frequency" in the data, or by mean "probability".
    - ``open_events``: where a partial ranking does not decide an event, "leave_out" leaves the instance out of that
      event; "marginalise" uses the probability of the event given what was observed.
    - ``protocol``: "exact" follows the definition; "reference" does what the paper's public code does, which sums
      over the rankings ``support``, int (R, m).
    - ``bins``, ``spacing``, ``discrepancy``, ``norm``, ``debias``: as in `ece`.

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> result = sub_k(PlackettLuce([[2.0, 0.0, 0.0]] * 3), [[0, 1, 2]] * 3, 2)
    >>> round(result.value, 4), result.n_events
    (0.2461, 6)
    """
    return _notion(dist, orders, k, "sub", **options)


def top_k(
    dist: RankingDistribution, orders: ArrayLike | PartialRankings, k: int, **options: Unpack[NotionOptions]
) -> NotionResult:
    """Return the rankwise top-k calibration error (Definition 7 of the paper): "the ranking starts with these k".

    Parameters
    ----------
    dist : RankingDistribution
        The forecast: n instances, m items.
    orders : int (n, m) or PartialRankings
        What happened: the items of each instance, best first.
    k : int
        Number of items of an event, from 1 to m.
    **options
        As for `sub_k`.

    Returns
    -------
    NotionResult

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> top_k(PlackettLuce([[0.0, 0.0]] * 2), [[0, 1], [1, 0]], 1).value
    0.0
    """
    return _notion(dist, orders, k, "top", **options)


def rankwise(
    dist: RankingDistribution, orders: ArrayLike | PartialRankings, **options: Unpack[NotionOptions]
) -> NotionResult:
    """Return the rankwise calibration error (Definition 2 of the paper): `top_k` with k = m.

    Parameters
    ----------
    dist, orders, **options
        As for `top_k`.

    Returns
    -------
    NotionResult

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> rankwise(PlackettLuce([[0.0, 0.0]] * 2), [[0, 1], [1, 0]]).value
    0.0
    """
    return top_k(dist, orders, dist.n_items, **options)


class Stagewise(NamedTuple):
    """The results of k = 2, 3, ..., their null tests, and the first k whose error is too large, or None.

    There are no null tests if a threshold decides.
    """

    results: tuple[NotionResult, ...]
    nulls: tuple[NullTest, ...]
    uncalibrated_from: int | None


def stagewise(
    dist: RankingDistribution,
    orders: ArrayLike,
    *,
    k_max: int | None = None,
    threshold: float | None = None,
    level: float = 0.95,
    resamples: int = 200,
    family: Family = "sub",
    rng: np.random.Generator | int = 0,
    **options: Unpack[NotionOptions],
) -> Stagewise:
    """Evaluate k = 2, 3, ... and stop at the first error that is too large for a calibrated forecast.

    The paper recommends to stop where the error is large, such as above 0.1 (``threshold=0.1``). How large errors
    are depends on k and on the number of instances: longer rankings have smaller probabilities, and noise alone
    makes an error. So by default, each error is compared with its null, the errors of a calibrated forecast on as
    many instances. With K values of k, each is tested at (1 − level)/K, so that a calibrated forecast is stopped in
    at most 1 − level of all cases.

    A large error at one k says nothing certain about others: rankwise calibration at k implies rankwise
    calibration neither at larger nor at smaller k.

    Parameters
    ----------
    dist : RankingDistribution
        The forecast: n instances, m items.
    orders : int array (n, m)
        What happened: the items of each instance, best first.
    k_max : int, optional
        Last k, by default m.
    threshold : float, optional
        Stop at the first error above this, instead of testing.
    level : float
        Confidence level of all tests together.
    resamples : int
        Number of simulated data sets of each null test; more are drawn if K tests need them.
    family : {"sub", "top"}
        Which events.
    rng : numpy Generator or int
        Source of randomness.
    **options
        As for `sub_k`.

    Returns
    -------
    Stagewise
        The ``results`` with their ``nulls``, and ``uncalibrated_from``: the k at which the error is too large.

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> stages = stagewise(PlackettLuce([[2.0, 0.0, 0.0]] * 30), [[2, 1, 0]] * 30)
    >>> stages.uncalibrated_from, len(stages.results)
    (2, 1)
    """
    check_level(level)
    last = events.check_k(dist.n_items if k_max is None else k_max, dist.n_items, family)
    notion = sub_k if family == "sub" else top_k
    share = (1 - level) / max(last - 1, 1)
    draws = max(check_integer(resamples, "resamples", 1), int(np.ceil(1 / share)))
    results: list[NotionResult] = []
    nulls: list[NullTest] = []
    for k in range(2, last + 1):
        results.append(notion(dist, orders, k, **options))
        if threshold is None:
            nulls.append(results[-1].null(resamples=draws, rng=rng))
            too_large = nulls[-1].p_value <= share
        else:
            too_large = results[-1].value > threshold
        if too_large:
            return Stagewise(tuple(results), tuple(nulls), k)
    return Stagewise(tuple(results), tuple(nulls), None)


def _notion(
    dist: PairMarginals,
    orders: ArrayLike | PartialRankings,
    k: int,
    family: Family,
    **options: Unpack[NotionOptions],
) -> NotionResult:
    notion = Notion(dist=dist, orders=check_orders_for(dist, orders), k=k, family=family, **options)
    if notion.protocol == "reference":
        from rmcalib.calibration.reference import reference_notion

        return reference_notion(notion)
    return notion.result()


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some events (e, k) with their places (e,), forecasts (n, e) and bins (n, e): one kind per event."""

    places: IntArray
    events: IntArray
    p: FloatArray
    bin_of: IntArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Notion(ErrorOptions):
    """All inputs of the error of a notion, its null test and its interval; `sub_k` explains the options."""

    dist: PairMarginals
    orders: Orders
    k: int
    family: Family
    coverage: float | None = None
    counted_on: ArrayLike | None = None
    max_events: int = MAX_EVENTS
    weighting: Weighting = "uniform"
    open_events: OpenEvents = "leave_out"
    protocol: NotionProtocol = "exact"
    support: ArrayLike | None = None

    def __post_init__(self) -> None:
        """Check every option."""
        super().__post_init__()
        events.check_k(self.k, self.dist.n_items, self.family)
        check_integer(self.max_events, "max_events", 1)
        check_choice(self.weighting, "weighting", ("uniform", "frequency", "probability"))
        check_choice(self.open_events, "open_events", ("leave_out", "marginalise"))
        check_choice(self.protocol, "protocol", ("exact", "reference"))
        if self.family == "top":
            check_ranks(self.dist, "top_k")
        if self.coverage is not None and not 0 < self.coverage <= 1:
            raise ValueError(
                f"coverage: {self.coverage} is out of range, expected a fraction above 0 and at most 1"
            )
        if self.support is not None and self.protocol == "exact":
            raise ValueError(
                "support: only for protocol='reference'; exact marginals need no list of rankings"
            )

    def result(self) -> NotionResult:
        """Return the error by its definition."""
        chosen = self.choose(self.orders)
        per_event, weights = np.empty(len(chosen)), np.empty(len(chosen))
        for chunk in self.chunks(chosen):
            sums = self.sums(chunk, self.outcomes(self.orders, chunk.events))
            weights[chunk.places], per_event[chunk.places] = self.weighted(sums)
        if weights.sum() == 0:
            raise ValueError(
                f"orders: these rankings decide none of the {len(chosen)} events, or give all of them weight 0"
            )
        weights /= weights.sum()
        value = float(weights @ per_event)
        value = 0.0 if abs(value) < 1e-15 else value
        n = len(self.dist)
        return NotionResult(value, per_event, chosen, weights, self.family, self.k, n, "exact", self)

    def null(self, resamples: int, rng: np.random.Generator) -> NullTest:
        """Compare the error with its distribution under rankings drawn from the forecast."""
        drawn = check_ranks(self.dist, "the null test").sample(resamples, rng)
        worlds = [self.orders, *(self.observed(orders) for orders in drawn)]
        selection, values = _Selection(self, worlds), _Average(len(worlds))
        for chunk in self.chunks(selection.events):
            for number, orders in enumerate(worlds):
                sums = self.sums(chunk, self.outcomes(orders, chunk.events))
                values.add(number, *self.weighted(sums, selection.of(number, chunk)))
        observed, *null = values.means()
        return compare_with_null(float(observed), np.array(null))

    def interval(self, resamples: int, level: float, rng: np.random.Generator) -> Interval:
        """Return the interval: all true errors under which the observed error is not extreme."""
        if isinstance(self.dist, RankingDistribution):
            return _simulated_interval(self, self.dist, resamples, level, rng)
        return _resampled_interval(self, resamples, level, rng)

    @property
    def selects(self) -> bool:
        """Whether only the most frequent events are used."""
        return self.coverage is not None or math.perm(self.dist.n_items, self.k) > self.max_events

    def choose(self, orders: Orders) -> IntArray:
        """Return the events (E, k) for these rankings."""
        if not self.selects:
            return events.all_events(self.dist.n_items, self.k)
        if self.counted_on is not None:
            counted = events.as_orders(self.counted_on, "counted_on", self.dist.n_items)
        else:
            counted = check_complete(self.dist, orders, "coverage without counted_on=")
        return events.most_frequent(counted, self.k, self.family, self.coverage or _DEFAULT_COVERAGE)

    def chunks(self, chosen: IntArray, copies: int = 1) -> Iterator[Chunk]:
        """Yield events in chunks, so that memory for ``copies`` of the data stays bounded."""
        slices = list(chunks(len(chosen), copies * max(len(self.dist), self.bins)))
        order = np.arange(len(chosen))
        if len(slices) > 1:
            # Marginals of events with the same items share most of the work: keep them in one chunk.
            order = np.lexsort(np.sort(chosen, axis=1).T[::-1])
        for part in slices:
            places = order[part]
            p = marginals(self.dist, chosen[places], self.family)
            yield Chunk(places, chosen[places], p, binning.bin_index(p, binning.bin_edges(p, self)))

    def outcomes(self, orders: Orders, chosen: IntArray) -> FloatArray:
        """Return 1 or 0 for events (e, k) that are decided by ``orders``, NaN for others: (n, e)."""
        if not isinstance(orders, PartialRankings):
            return events.occurs_unchecked(orders, chosen, self.family).astype(np.float64)
        if self.open_events == "marginalise":
            if not isinstance(self.dist, HasPartialRankings):
                raise ValueError(
                    f"open_events: {type(self.dist).__name__} has no probabilities of partial rankings"
                )
            return conditional_probabilities(self.dist, orders, chosen, self.family)
        decided = orders.outcomes(chosen, self.family)
        return np.where(decided < 0, np.nan, decided)

    def observed(self, orders: IntArray) -> Orders:
        """Return what would have been observed of the complete rankings ``orders`` (n, m)."""
        return self.orders.coarsen(orders) if isinstance(self.orders, PartialRankings) else orders

    def sums(self, chunk: Chunk, outcomes: FloatArray, rows: IntArray | None = None) -> BinSums:
        """Return the bin sums (..., e, B) of the events of a chunk for instances ``rows`` (..., n).

        ``outcomes`` are (..., n, e); NaN does not count.
        """
        p, bin_of = (chunk.p, chunk.bin_of) if rows is None else (chunk.p[rows], chunk.bin_of[rows])
        unknown, size = np.isnan(outcomes), self.bins
        if not unknown.any():
            return binning.bin_sums(bin_of, p, outcomes, size)
        sums = binning.bin_sums(np.where(unknown, size, bin_of), p, np.nan_to_num(outcomes), size + 1)
        return sums[..., :size]

    def weighted(self, sums: BinSums, times: FloatArray | float = 1.0) -> tuple[FloatArray, FloatArray]:
        """Return unnormalised weights and errors (..., e) of events that count ``times``; 0 without an instance."""
        counts = sums.count.sum(axis=-1) > 0
        with np.errstate(invalid="ignore"):
            errors = np.where(counts, binning.binned_error(sums, self), 0.0)
        if self.weighting == "uniform":
            return times * counts, errors
        weights = sums.outcome if self.weighting == "frequency" else sums.probability
        return times * weights.sum(axis=-1), errors


def _simulated_interval(
    notion: Notion, dist: RankingDistribution, resamples: int, level: float, rng: np.random.Generator
) -> Interval:
    """Return the interval for a distribution over rankings, from data sets with growing miscalibration.

    A data set with the share s of the observed miscalibration is a mixture: each of its instances is a copy of
    a random one, with its forecast and its ranking, with probability s. The others keep their forecasts, and
    their rankings are drawn from these. Sizes above 1 use the data sets of share 1, and add the rest of the
    miscalibration to their bin sums.
    """
    n = len(dist)
    drawn = dist.sample(resamples, rng)
    donors, uniform = rng.integers(n, size=(resamples, n)), rng.random((resamples, n))

    def mixtures(replicate: int) -> tuple[BoolArray, IntArray]:
        """Return which instances are copies (S, n, 1), and whose forecast each one has (S, n), for each share."""
        copied = uniform[replicate] < _SHARES[:, None]
        return copied[:, :, None], np.where(copied, donors[replicate], np.arange(n))

    def data_sets() -> Iterator[IntArray]:
        """Yield the observed rankings, then those of all data sets, which may have events of their own."""
        orders = check_complete(dist, notion.orders, "a selection by frequency")
        yield orders
        for replicate in range(resamples):
            copied, rows = mixtures(replicate)
            yield from np.where(copied, orders[rows], drawn[replicate])

    selection = _Selection(notion, data_sets())
    value, linear = _Average(1), _Average(resamples)
    draws, truths = _Average(resamples, len(_SIZES)), _Average(len(_SIZES))
    for chunk in notion.chunks(selection.events, copies=len(_SIZES)):
        outcomes = notion.outcomes(notion.orders, chunk.events)
        observed = notion.sums(chunk, outcomes)
        weights, errors = notion.weighted(observed, selection.of(0, chunk))
        value.add(0, weights, errors)
        times = np.zeros((len(_SIZES), len(errors)))
        for replicate in range(resamples):
            simulated = notion.outcomes(notion.observed(drawn[replicate]), chunk.events)
            copied, rows = mixtures(replicate)
            sums = notion.sums(chunk, np.where(copied, outcomes[rows], simulated), rows)
            # The last share is 1, all instances are copies: a bootstrap.
            linear.add(replicate, weights, _moved(observed, sums[-1]))
            first = 1 + replicate * len(_SHARES)
            chosen = np.stack([selection.of(first + number, chunk) for number in range(len(_SHARES))])
            enlarged = _recentred(observed, sums[_SHARE_OF_SIZE], np.maximum(_SIZES, 1.0))
            draws.add(replicate, *notion.weighted(enlarged, chosen[_SHARE_OF_SIZE]))
            times += chosen[_SHARE_OF_SIZE]
        truths.add(..., *notion.weighted(_recentred(observed, observed, _SIZES), times))
    return _inverted(float(value.means()[0]), draws.means().T, truths.means(), linear.means(), level)


def _inverted(
    value: float, draws: FloatArray, truths: FloatArray, linear: FloatArray, level: float
) -> Interval:
    """Invert errors drawn at each size (S, R), with true errors (S,), and add the linear interval."""
    alpha = 1 - level

    def true_error(tail: float) -> float:
        """Return the true error at which the observed value is this quantile of the draws."""
        return invert(value, np.quantile(draws, tail, axis=1), truths)

    high = max(true_error(alpha / 2), value - float(np.quantile(linear, alpha / 2)))
    if compare_with_null(value, draws[0]).p_value > alpha:
        return Interval(value, 0.0, high, level)
    # Noise increases an average of absolute gaps. Resampling increases it once more, but by less: the ratio
    # of the two increases is up to 0.8 / (1.13 − 0.8) = 2.4, for gaps that are all noise.
    noise = 2 * (float(draws[_SIZES == 1].mean()) - value)
    linear_low = value - noise - float(np.quantile(linear, 1 - alpha / 2))
    possible = [low for low in (true_error(1 - alpha / 2), linear_low) if low > 0]
    return Interval(value, min([*possible, true_error(1 - alpha)]), high, level)


def _resampled_interval(notion: Notion, resamples: int, level: float, rng: np.random.Generator) -> Interval:
    """Return the interval for pair marginals, which no rankings can be drawn from: resample and recentre."""
    n = len(notion.dist)
    donors = rng.integers(n, size=(resamples, n))
    draws, truths = _Average(resamples, len(_PAIR_SIZES)), _Average(len(_PAIR_SIZES))
    for chunk in notion.chunks(notion.choose(notion.orders)):
        outcomes = notion.outcomes(notion.orders, chunk.events)
        total = notion.sums(chunk, outcomes)
        truths.add(..., *notion.weighted(_recentred(total, total, _PAIR_SIZES)))
        for replicate, rows in enumerate(donors):
            sums = notion.sums(chunk, outcomes[rows], rows)
            draws.add(replicate, *notion.weighted(_recentred(total, sums, _PAIR_SIZES)))
    true = truths.means()
    value = float(true[_PAIR_SIZES == 1][0])
    smallest, largest = np.quantile(draws.means(), [(1 - level) / 2, (1 + level) / 2], axis=0)
    low = invert(value, largest, true) if largest[0] < value else 0.0
    high = invert(value, smallest, true)
    return Interval(value, min(low, value), max(high, value), level)


def _recentred(total: BinSums, replicates: BinSums, sizes: FloatArray) -> BinSums:
    """Subtract 1 − size of each bin's observed gap from replicates (..., e, B), for sizes (S,): (S, e, B)."""
    gap = (total.outcome - total.probability) / np.maximum(total.count, 1)
    outcome = replicates.outcome - (1 - sizes[:, None, None]) * replicates.count * gap
    return BinSums(replicates.count, replicates.probability, np.clip(outcome, 0.0, replicates.count))


def _moved(observed: BinSums, resampled: BinSums) -> FloatArray:
    """Return how much resampling moves the error of each event (e,) if every gap keeps its sign."""
    gap = observed.outcome - observed.probability
    moved = np.sign(gap) * (resampled.outcome - resampled.probability - gap)
    per_event: FloatArray = moved.sum(axis=-1) / np.maximum(observed.count.sum(axis=-1), 1)
    return per_event


class _Average:
    """A weighted average over events that arrive in chunks, kept for many data sets at once."""

    def __init__(self, *shape: int) -> None:
        self._total, self._weight = np.zeros(shape), np.zeros(shape)

    def add(self, place: int | EllipsisType, weights: FloatArray, values: FloatArray) -> None:
        self._total[place] += (weights * values).sum(axis=-1)
        self._weight[place] += weights.sum(axis=-1)

    def means(self) -> FloatArray:
        return self._total / np.maximum(self._weight, 1e-300)


class _Selection:
    """The events of several data sets. If events are selected by their frequency in it, each has its own."""

    def __init__(self, notion: Notion, data_sets: Iterable[Orders]) -> None:
        self._places: list[IntArray] | None = None
        if not notion.selects or notion.counted_on is not None:
            self.events = notion.choose(notion.orders)
            return
        chosen = [notion.choose(orders) for orders in data_sets]
        self.events, places = events.unique_rows(np.concatenate(chosen), notion.dist.n_items)
        self._places = np.split(places, np.cumsum([len(part) for part in chosen])[:-1])

    def of(self, number: int, chunk: Chunk) -> FloatArray:
        """Return 1 for the events of a chunk (e,) that the data set with this number has, 0 for the others.

        If all data sets have the same events, it is a single 1.
        """
        if self._places is None:
            return np.ones(1)
        return np.isin(chunk.places, self._places[number]).astype(np.float64)


def marginals(dist: PairMarginals, chosen: IntArray, family: Family) -> FloatArray:
    """Return the marginals (n, E) of events (E, k)."""
    return check_ranks(dist, "top_k").top(chosen) if family == "top" else dist.sub(chosen)


def check_orders_for(dist: PairMarginals, orders: ArrayLike | PartialRankings) -> Orders:
    """Return ``orders`` after checking that there is one ranking per instance of ``dist``."""
    array = orders if isinstance(orders, PartialRankings) else events.as_orders(orders, n_items=dist.n_items)
    if isinstance(array, PartialRankings) and array.n_items != dist.n_items:
        raise ValueError(f"orders: rows have {array.n_items} items, expected {dist.n_items}")
    if len(array) != len(dist):
        raise ValueError(f"orders: {len(array)} rankings for {len(dist)} instances of the distribution")
    return array


def check_complete(dist: PairMarginals, orders: ArrayLike | PartialRankings, what: str) -> IntArray:
    """Return complete ``orders`` (n, m), one per instance; partial rankings raise a ValueError."""
    array = check_orders_for(dist, orders)
    if isinstance(array, PartialRankings):
        raise ValueError(f"orders: {what} needs complete rankings; sub_k and top_k take partial ones")
    return array


def check_ranks(dist: PairMarginals, what: str) -> RankingDistribution:
    """Return ``dist`` if it is a distribution over rankings; pair marginals alone raise a ValueError."""
    if not isinstance(dist, RankingDistribution):
        raise ValueError(
            f"dist: {type(dist).__name__} has pair marginals only; {what} needs a distribution over rankings"
        )
    return dist
