"""The inputs of a weak notion: the events, their forecast probabilities, and which of them happened.

The error of an event is the binned ECE of its probability over instances. The error of a notion is the
average over events. Events may be selected, but instances never are: dropping instances by their outcome
would bias the error.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, check_choice, check_integer, chunks
from rmcalib.calibration._binning import BinSums, ErrorOptions, bin_edges, bin_index, bin_sums, binned_error
from rmcalib.ranking import (
    HasPartialRankings,
    PairMarginals,
    PartialRankings,
    RankingDistribution,
    TooCostlyError,
    as_orders,
    conditional_probabilities,
)
from rmcalib.ranking.events import (
    Family,
    all_events,
    as_events,
    check_k,
    count_events,
    most_frequent,
    occurs_unchecked,
)

__all__ = [
    "MAX_EVENTS",
    "EventChunk",
    "MonteCarloWarning",
    "NotionInputs",
    "OpenEvents",
    "Orders",
    "Selection",
    "Weighting",
    "check_complete",
    "check_orders_for",
    "check_ranks",
    "event_chunks",
    "event_errors",
    "event_sums",
    "event_weights",
    "happened",
    "marginals",
    "n_bins",
]

MAX_EVENTS = 200_000
"""Above this many events, a notion uses the most frequent ones that make up ``DEFAULT_COVERAGE``."""
DEFAULT_COVERAGE = 0.95
_MONTE_CARLO_SIZE = 10_000

Weighting = Literal["uniform", "frequency", "probability"]
OpenEvents = Literal["leave_out", "marginalise"]
Orders = IntArray | PartialRankings


class MonteCarloWarning(UserWarning):
    """Marginals were estimated by sampling, because exact ones would have taken too long."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Which events a notion averages over; `sub_k` explains the options."""

    events: ArrayLike | None = None
    coverage: float | None = None
    counted_on: ArrayLike | None = None
    max_events: int = MAX_EVENTS

    def choose(self, orders: Orders, k: int, family: Family) -> tuple[IntArray, str]:
        """Return the events (E, k) and a short description of how they were chosen.

        >>> Selection(coverage=0.9).choose(np.array([[0, 1], [0, 1]]), 2, "sub")[1]
        'covering 90% of occurrences'
        """
        n_items = orders.n_items if isinstance(orders, PartialRankings) else orders.shape[1]
        if self.events is not None:
            if self.coverage is not None:
                raise ValueError("coverage: cannot be combined with events, which are already chosen")
            chosen = as_events(self.events, n_items, family)
            if chosen.shape[1] != k:
                raise ValueError(f"events: have {chosen.shape[1]} items each, expected k = {k}")
            return chosen, "given"
        check_integer(self.max_events, "max_events", 1)
        if self.coverage is None and count_events(n_items, k) <= self.max_events:
            return all_events(n_items, k), "all"
        share = DEFAULT_COVERAGE if self.coverage is None else self.coverage
        if not 0 < share <= 1:
            raise ValueError(f"coverage: {share} is out of range, expected a fraction above 0 and at most 1")
        if self.counted_on is not None:
            counted = as_orders(self.counted_on, "counted_on", n_items)
            return most_frequent(counted, k, family, share), (
                f"covering {share:.0%} of occurrences in the training fold"
            )
        if isinstance(orders, PartialRankings):
            raise ValueError(
                f"coverage: {count_events(n_items, k):,} events cannot be counted in partial rankings; pass "
                "complete ones as counted_on=, or events="
            )
        return most_frequent(orders, k, family, share), f"covering {share:.0%} of occurrences"

    def depends_on_outcomes(self, n_items: int, k: int) -> bool:
        """Return whether the events are chosen by their frequency in the evaluated rankings.

        >>> Selection(coverage=0.9).depends_on_outcomes(4, 2), Selection().depends_on_outcomes(4, 2)
        (True, False)
        """
        if self.events is not None or self.counted_on is not None:
            return False
        return self.coverage is not None or count_events(n_items, k) > self.max_events


@dataclass(frozen=True, eq=False)
class NotionInputs:
    """All inputs of the error of a notion, its null test and its interval."""

    dist: PairMarginals
    orders: Orders
    k: int
    family: Family
    selection: Selection = field(default_factory=Selection)
    weighting: Weighting = "uniform"
    error: ErrorOptions = field(default_factory=ErrorOptions)
    open_events: OpenEvents = "leave_out"

    def __post_init__(self) -> None:
        """Check every option at once."""
        check_k(self.k, self.dist.n_items, self.family)
        check_choice(self.weighting, "weighting", ("uniform", "frequency", "probability"))
        check_choice(self.open_events, "open_events", ("leave_out", "marginalise"))
        if self.family == "top":
            check_ranks(self.dist, "top_k")

    def choose(self) -> tuple[IntArray, str]:
        """Return the events (E, k) and how they were chosen."""
        return self.selection.choose(self.orders, self.k, self.family)

    def choose_in(self, orders: Orders) -> IntArray:
        """Return the events (E, k) that would have been chosen for other rankings."""
        return self.selection.choose(orders, self.k, self.family)[0]

    @property
    def reselects(self) -> bool:
        """Whether the events depend on the outcomes and must be selected again in simulated data."""
        return self.selection.depends_on_outcomes(self.dist.n_items, self.k)


class EventChunk(NamedTuple):
    """Some events (e, k) and their numbers (e,), with forecasts, outcomes (NaN: left out) and bins (n, e)."""

    columns: IntArray
    events: IntArray
    probabilities: FloatArray
    outcomes: FloatArray
    bin_of: IntArray
    marginal_error: float


def event_chunks(
    inputs: NotionInputs, events: IntArray, rng: np.random.Generator, *, replicates: int = 1
) -> Iterator[EventChunk]:
    """Yield the events in chunks, so that memory stays bounded even with ``replicates`` bin sums per event.

    >>> from rmcalib.ranking import PlackettLuce
    >>> inputs = NotionInputs(PlackettLuce([[0.0, 0.0]]), np.array([[0, 1]]), 2, "sub")
    >>> chunks = event_chunks(inputs, inputs.choose()[0], np.random.default_rng(0))
    >>> [chunk.bin_of.tolist() for chunk in chunks]
    [[[5, 5]]]
    """
    slices = list(chunks(len(events), len(inputs.dist)))
    order = np.arange(len(events))
    if len(slices) > 1:
        # Marginals of events with the same items share most of the work: keep them in one chunk.
        order = np.lexsort(np.sort(events, axis=1).T[::-1])
    for part in slices:
        columns = order[part]
        probabilities, marginal_error = marginals(inputs.dist, events[columns], inputs.family, rng)
        outcomes = happened(inputs, inputs.orders, events[columns])
        index = bin_index(probabilities, bin_edges(probabilities, inputs.error))
        for block in chunks(len(columns), replicates * n_bins(inputs.error)):
            yield EventChunk(
                columns[block],
                events[columns[block]],
                probabilities[:, block],
                outcomes[:, block],
                index[:, block],
                marginal_error,
            )


def happened(inputs: NotionInputs, orders: Orders, events: IntArray) -> FloatArray:
    """Return the outcomes (n, e) of ``events`` in ``orders``: 1 or 0 where they are known.

    Otherwise the outcome is NaN (leave_out), or the event's probability given the observation (marginalise).

    >>> from rmcalib.ranking import PlackettLuce
    >>> inputs = NotionInputs(PlackettLuce([[0.0, 0.0]]), PartialRankings([[0, 0]]), 2, "sub")
    >>> happened(inputs, inputs.orders, np.array([[0, 1]]))
    array([[nan]])
    """
    if not isinstance(orders, PartialRankings):
        return occurs_unchecked(orders, events, inputs.family).astype(np.float64)
    if inputs.open_events == "marginalise":
        if not isinstance(inputs.dist, HasPartialRankings):
            raise ValueError(
                f"open_events: {type(inputs.dist).__name__} has no probabilities of partial rankings "
                "(PlackettLuce and Mallows have); use open_events='leave_out'"
            )
        return conditional_probabilities(inputs.dist, orders, events, inputs.family)
    decided = orders.outcomes(events, inputs.family)
    return np.where(decided < 0, np.nan, decided)


def marginals(
    dist: PairMarginals, events: IntArray, family: Family, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """Return the marginals (n, E) of ``events`` and their largest standard error, 0 where they are exact.

    >>> from rmcalib.ranking import PlackettLuce
    >>> marginals(PlackettLuce([[0.0, 0.0]]), np.array([[0, 1]]), "sub", np.random.default_rng(0))
    (array([[0.5]]), 0.0)
    """
    if family == "top":
        return check_ranks(dist, "top_k").top(events), 0.0
    try:
        return dist.sub(events), 0.0
    except TooCostlyError as error:
        sub_estimate = getattr(dist, "sub_estimate", None)
        if sub_estimate is None:
            raise
        estimate = sub_estimate(events, _MONTE_CARLO_SIZE, rng)
        worst = float(estimate.standard_errors.max())
        warnings.warn(
            f"{error}. Estimated from {_MONTE_CARLO_SIZE:,} sampled rankings instead, standard error up to "
            f"{worst:.2g} (marginal_error of the result)",
            MonteCarloWarning,
            stacklevel=2,
        )
        return estimate.probabilities, worst


def event_sums(bin_of: IntArray, p: FloatArray, outcomes: FloatArray, size: int) -> BinSums:
    """Return the bin sums (e, B) of events with bins, forecasts and outcomes (n, e); NaN does not count.

    >>> event_sums(np.array([[0, 0]]), np.array([[0.5, 0.5]]), np.array([[1.0, np.nan]]), 1).count
    array([[1.],
           [0.]])
    """
    left_out = np.isnan(outcomes)
    if not left_out.any():
        return bin_sums(bin_of, p, outcomes, size)
    sums = bin_sums(np.where(left_out, size, bin_of), p, np.nan_to_num(outcomes), size + 1)
    return BinSums(sums.count[..., :size], sums.probability[..., :size], sums.outcome[..., :size])


def event_errors(sums: BinSums, error: ErrorOptions) -> FloatArray:
    """Return the binned error of each event (..., E), 0 where no instance counts.

    >>> event_errors(BinSums(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 2))), ErrorOptions())
    array([0.])
    """
    with np.errstate(invalid="ignore"):
        errors = binned_error(sums, error)
    return np.where(sums.count.sum(axis=-1) > 0, errors, 0.0)


def event_weights(weighting: Weighting, sums: BinSums) -> FloatArray:
    """Return unnormalised weights (..., E) of events with bin sums (..., E, B).

    >>> event_weights("frequency", BinSums(np.ones((2, 1)), np.ones((2, 1)), np.array([[0.0], [1.0]])))
    array([0., 1.])
    """
    if weighting == "uniform":
        return (sums.count.sum(axis=-1) > 0).astype(np.float64)
    total: FloatArray = (sums.outcome if weighting == "frequency" else sums.probability).sum(axis=-1)
    return total


def check_orders_for(dist: PairMarginals, orders: ArrayLike | PartialRankings) -> Orders:
    """Return ``orders`` after checking that there is one ranking per instance of ``dist``.

    >>> from rmcalib.ranking import PlackettLuce
    >>> check_orders_for(PlackettLuce([[0.0, 0.0]]), [[0, 1], [1, 0]])
    Traceback (most recent call last):
    ...
    ValueError: orders: 2 rankings for 1 instances of the distribution
    """
    array = orders if isinstance(orders, PartialRankings) else as_orders(orders, n_items=dist.n_items)
    if isinstance(array, PartialRankings) and array.n_items != dist.n_items:
        raise ValueError(f"orders: rows have {array.n_items} items, expected {dist.n_items}")
    if len(array) != len(dist):
        raise ValueError(f"orders: {len(array)} rankings for {len(dist)} instances of the distribution")
    return array


def check_complete(dist: PairMarginals, orders: ArrayLike | PartialRankings, what: str) -> IntArray:
    """Return complete ``orders`` (n, m), one per instance; partial rankings raise a ValueError.

    >>> from rmcalib.ranking import PlackettLuce
    >>> check_complete(PlackettLuce([[0.0, 0.0]]), PartialRankings([[0, 0]]), "full_rank")
    Traceback (most recent call last):
    ...
    ValueError: orders: full_rank needs complete rankings; sub_k and top_k take partial ones
    """
    array = check_orders_for(dist, orders)
    if isinstance(array, PartialRankings):
        raise ValueError(f"orders: {what} needs complete rankings; sub_k and top_k take partial ones")
    return array


def check_ranks(dist: PairMarginals, what: str) -> RankingDistribution:
    """Return ``dist`` if it is a distribution over rankings; pair marginals alone raise a ValueError.

    >>> from rmcalib.ranking import PairwiseProbabilities
    >>> check_ranks(PairwiseProbabilities([[[0.5, 0.5], [0.5, 0.5]]]), "top_k")
    Traceback (most recent call last):
    ...
    ValueError: dist: PairwiseProbabilities has pair marginals only; top_k needs a distribution over rankings
    """
    if not isinstance(dist, RankingDistribution):
        raise ValueError(
            f"dist: {type(dist).__name__} has pair marginals only; {what} needs a distribution over rankings"
        )
    return dist


def n_bins(error: ErrorOptions) -> int:
    """Return the number of bins.

    >>> n_bins(ErrorOptions(bins=(0.0, 0.5, 1.0)))
    2
    """
    return len(error.bins) - 1 if isinstance(error.bins, tuple) else error.bins
