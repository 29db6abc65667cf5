"""The weak notions of the paper: rankwise, rankwise sub-k and rankwise top-k, and the stagewise walk.

The error of one event is the binned ECE of (its probability, did it happen) over instances; a notion's
error is the average over events. Nothing is dropped on the way: events may be chosen, instances never are,
because conditioning on the outcome biases the error.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, check_choice, check_integer, chunks
from rmcalib.calibration._binning import (
    BinSums,
    Discrepancy,
    EceOptions,
    ErrorOptions,
    Norm,
    Spacing,
    as_bins,
    bin_edges,
    bin_index,
    bin_sums,
    binned_error,
)
from rmcalib.calibration._ece import round_off
from rmcalib.ranking import Mallows, RankingDistribution, TooCostlyError, as_orders
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
    "DEFAULT_COVERAGE",
    "MAX_EVENTS",
    "MonteCarloWarning",
    "NotionOptions",
    "NotionResult",
    "Protocol",
    "Stagewise",
    "Weighting",
    "marginals",
    "rankwise",
    "stagewise",
    "sub_k",
    "top_k",
]

MAX_EVENTS = 200_000
"""Above this many events a notion turns to the most frequent ones that make up ``DEFAULT_COVERAGE``."""
DEFAULT_COVERAGE = 0.95
_MONTE_CARLO_SIZE = 10_000

Protocol = Literal["exact", "reference"]
Weighting = Literal["uniform", "frequency", "probability"]


class MonteCarloWarning(UserWarning):
    """Marginals were estimated by sampling because exact ones would have cost too much."""


@dataclass(frozen=True)
class NotionResult:
    """The calibration error under one notion.

    value: the error, weights @ per_event. per_event (E,): each event's own. events (E, k). weights (E,): of
    the average, sum 1; those of ``full_rank`` add up the classes of each set of items and average over sets.
    selection: how the events were chosen. marginal_error: the largest standard error of a marginal,
    0 where all of them are exact.
    """

    value: float
    per_event: FloatArray
    events: IntArray
    weights: FloatArray
    family: Family
    k: int
    n: int
    protocol: Protocol
    selection: str
    marginal_error: float = 0.0

    @property
    def n_events(self) -> int:
        """The number of events averaged over."""
        return len(self.events)

    def __repr__(self) -> str:
        """Show the value and where it comes from, not the arrays."""
        return (
            f"NotionResult({self.family}-{self.k}: {self.value:.6g}, {self.n_events:,} events "
            f"({self.selection}), {self.n:,} instances, {self.protocol})"
        )


class Selection(TypedDict, total=False):
    """Which events a notion looks at; see :class:`NotionOptions`."""

    events: ArrayLike | None
    coverage: float | None
    counted_on: ArrayLike | None
    max_events: int


class NotionOptions(Selection, EceOptions, total=False):
    """Options that rankwise, sub_k and top_k share.

    events (E, k): the events to look at; otherwise all of them where there are at most ``max_events``
    (200,000), else as with coverage=0.95. coverage: only the most frequent events that together make up
    this share of occurrences, counted in ``counted_on`` (rankings (N, m) of the training fold; without
    it in the judged rankings themselves, which makes rare events look more frequent than they are:
    ``notion_null`` and ``notion_interval`` allow for that, the value by itself does not).
    weighting of the average over events: uniform, by frequency in the data, or by mean probability.
    protocol: "exact", or "reference" for what the paper's public code computes (see
    :mod:`rmcalib.calibration._reference`), where ``support`` lists the rankings it would know of.
    The rest are the options of :func:`~rmcalib.calibration._ece`. rng (generator or seed): used only if
    marginals have to be estimated.
    """

    weighting: Weighting
    protocol: Protocol
    support: ArrayLike | None
    rng: np.random.Generator | int


def rankwise(dist: RankingDistribution, orders: ArrayLike, **options: Unpack[NotionOptions]) -> NotionResult:
    """Return the rankwise calibration error (Definition 2): every full ranking is an event.

    >>> from rmcalib.ranking import PlackettLuce
    >>> rankwise(PlackettLuce([[0.0, 0.0]] * 2), [[0, 1], [1, 0]]).value
    0.0
    """
    return _notion(dist, orders, dist.n_items, "top", **options)


def sub_k(
    dist: RankingDistribution, orders: ArrayLike, k: int, **options: Unpack[NotionOptions]
) -> NotionResult:
    """Return the rankwise sub-k calibration error (Definition 6) for rankings ``orders`` (n, m).

    >>> from rmcalib.ranking import PlackettLuce
    >>> result = sub_k(PlackettLuce([[2.0, 0.0, 0.0]] * 3), [[0, 1, 2]] * 3, 2)
    >>> round(result.value, 4), result.n_events
    (0.2461, 6)
    """
    return _notion(dist, orders, k, "sub", **options)


def top_k(
    dist: RankingDistribution, orders: ArrayLike, k: int, **options: Unpack[NotionOptions]
) -> NotionResult:
    """Return the rankwise top-k calibration error (Definition 7) for rankings ``orders`` (n, m).

    >>> from rmcalib.ranking import PlackettLuce
    >>> top_k(PlackettLuce([[0.0, 0.0]] * 4), [[0, 1], [0, 1], [0, 1], [1, 0]], 1).value
    0.25
    """
    return _notion(dist, orders, k, "top", **options)


class Stagewise(NamedTuple):
    """The outcome of :func:`stagewise`: the results for k = 2, 3, ... and a sentence on them."""

    results: tuple[NotionResult, ...]
    uncalibrated_from: int | None
    verdict: str


def stagewise(
    dist: RankingDistribution,
    orders: ArrayLike,
    *,
    k_max: int | None = None,
    threshold: float = 0.1,
    family: Family = "sub",
    **options: Unpack[NotionOptions],
) -> Stagewise:
    """Walk k = 2, 3, ... up to ``k_max`` and stop where the error exceeds ``threshold`` (the paper's advice).

    A model that is off on pairs is off on longer rankings, although their ECE gets small simply because
    their probabilities do.

    >>> from rmcalib.ranking import PlackettLuce
    >>> stagewise(PlackettLuce([[2.0, 0.0, 0.0]] * 3), [[0, 1, 2]] * 3).verdict
    'uncalibrated from k = 2 on: the sub-2 error of 0.246 is above 0.1'
    """
    last = check_k(dist.n_items if k_max is None else k_max, dist.n_items, family)
    results: list[NotionResult] = []
    for k in range(2, last + 1):
        result = _notion(dist, orders, k, family, **options)
        results.append(result)
        if result.value > threshold:
            verdict = (
                f"uncalibrated from k = {k} on: the {family}-{k} error of {result.value:.3f} "
                f"is above {threshold:g}"
            )
            return Stagewise(tuple(results), k, verdict)
    return Stagewise(tuple(results), None, f"no error above {threshold:g} up to k = {last}")


def marginals(
    dist: RankingDistribution, events: IntArray, family: Family, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """Return the marginals (n, E) of ``events`` and their largest standard error, 0 where they are exact.

    >>> from rmcalib.ranking import PlackettLuce
    >>> marginals(PlackettLuce([[0.0, 0.0]]), np.array([[0, 1]]), "sub", np.random.default_rng(0))
    (array([[0.5]]), 0.0)
    """
    if family == "top":
        return dist.top(events), 0.0
    try:
        return dist.sub(events), 0.0
    except TooCostlyError as error:
        if not isinstance(dist, Mallows):
            raise
        estimate = dist.sub_estimate(events, _MONTE_CARLO_SIZE, rng)
        worst = float(estimate.standard_errors.max())
        warnings.warn(
            f"{error}. Estimated from {_MONTE_CARLO_SIZE:,} sampled rankings instead, standard error up to "
            f"{worst:.2g} (marginal_error of the result)",
            MonteCarloWarning,
            stacklevel=2,
        )
        return estimate.probabilities, worst


class EventChunk(NamedTuple):
    """Some of the events, by number (e,): their forecasts (n, e), outcomes (n, e) and bins (n, e)."""

    columns: IntArray
    probabilities: FloatArray
    outcomes: FloatArray
    bin_of: IntArray
    marginal_error: float


def event_chunks(
    dist: RankingDistribution,
    orders: IntArray,
    events: IntArray,
    family: Family,
    error: ErrorOptions,
    rng: np.random.Generator,
) -> Iterator[EventChunk]:
    """Go through the events in chunks of bounded memory.

    >>> from rmcalib.ranking import PlackettLuce
    >>> data = event_chunks(PlackettLuce([[0.0, 0.0]]), np.array([[0, 1]]), np.array([[0, 1]]), "sub",
    ...                     ErrorOptions(), np.random.default_rng(0))
    >>> [chunk.bin_of.tolist() for chunk in data]
    [[[5]]]
    """
    slices = list(chunks(len(events), len(dist)))
    order = np.arange(len(events))
    if len(slices) > 1:
        # Events of the same items share most of their marginals' work: keep them in one chunk.
        order = np.lexsort(np.sort(events, axis=1).T[::-1])
    for part in slices:
        columns = order[part]
        probabilities, marginal_error = marginals(dist, events[columns], family, rng)
        happened = occurs_unchecked(orders, events[columns], family).astype(np.float64)
        index = bin_index(probabilities, bin_edges(probabilities, error))
        yield EventChunk(columns, probabilities, happened, index, marginal_error)


def select_events(
    orders: IntArray,
    k: int,
    family: Family,
    *,
    events: ArrayLike | None = None,
    coverage: float | None = None,
    counted_on: ArrayLike | None = None,
    max_events: int = MAX_EVENTS,
) -> tuple[IntArray, str]:
    """Return the events a notion looks at and a few words on how they were chosen.

    >>> select_events(np.array([[0, 1], [0, 1]]), 2, "sub", coverage=0.9)[1]
    'covering 90% of occurrences'
    """
    n_items = orders.shape[1]
    if events is not None:
        if coverage is not None:
            raise ValueError("coverage: cannot be combined with events, which are already chosen")
        chosen = as_events(events, n_items, family)
        if chosen.shape[1] != k:
            raise ValueError(f"events: have {chosen.shape[1]} items each, expected k = {k}")
        return chosen, "given"
    check_integer(max_events, "max_events", 1)
    if coverage is None and count_events(n_items, k) <= max_events:
        return all_events(n_items, k), "all"
    share = DEFAULT_COVERAGE if coverage is None else coverage
    if not 0 < share <= 1:
        raise ValueError(f"coverage: {share} is out of range, expected a share above 0 and at most 1")
    counted = orders if counted_on is None else as_orders(counted_on, "counted_on", n_items)
    where = "" if counted_on is None else " in the training fold"
    return most_frequent(counted, k, family, share), f"covering {share:.0%} of occurrences{where}"


def check_orders_for(dist: RankingDistribution, orders: ArrayLike) -> IntArray:
    """Return ``orders`` (n, m), one for each instance of ``dist``, or say what does not fit.

    >>> from rmcalib.ranking import PlackettLuce
    >>> check_orders_for(PlackettLuce([[0.0, 0.0]]), [[0, 1], [1, 0]])
    Traceback (most recent call last):
    ...
    ValueError: orders: 2 rankings for 1 instances of the distribution
    """
    array = as_orders(orders, n_items=dist.n_items)
    if len(array) != len(dist):
        raise ValueError(f"orders: {len(array)} rankings for {len(dist)} instances of the distribution")
    return array


def event_weights(weighting: Weighting, sums: BinSums) -> FloatArray:
    """Return unnormalised weights (..., E) of events with bin sums (..., E, B).

    >>> event_weights("frequency", BinSums(np.ones((2, 1)), np.ones((2, 1)), np.array([[0.0], [1.0]])))
    array([0., 1.])
    """
    if weighting == "uniform":
        return np.ones(sums.count.shape[:-1])
    total: FloatArray = (sums.outcome if weighting == "frequency" else sums.probability).sum(axis=-1)
    return total


def _notion(
    dist: RankingDistribution,
    orders: ArrayLike,
    k: int,
    family: Family,
    *,
    weighting: Weighting = "uniform",
    protocol: Protocol = "exact",
    support: ArrayLike | None = None,
    bins: int | ArrayLike = 10,
    spacing: Spacing = "width",
    discrepancy: Discrepancy = "abs",
    norm: Norm = 1,
    debias: bool = False,
    rng: np.random.Generator | int = 0,
    **selection: Unpack[Selection],
) -> NotionResult:
    array = check_orders_for(dist, orders)
    k = check_k(k, dist.n_items, family)
    check_choice(weighting, "weighting", ("uniform", "frequency", "probability"))
    check_choice(protocol, "protocol", ("exact", "reference"))
    error = ErrorOptions(as_bins(bins), spacing, discrepancy, norm, debias)
    if protocol == "reference":
        from rmcalib.calibration._reference import reference_notion

        coverage = selection.pop("coverage", None)
        if any(value is not None for value in selection.values()):
            raise ValueError(f"{', '.join(selection)}: the reference protocol chooses its own events")
        return reference_notion(
            dist, array, k, family, coverage=coverage, weighting=weighting, support=support, error=error
        )
    if support is not None:
        raise ValueError("support: belongs to protocol='reference'; exact marginals need no list of rankings")
    chosen, how = select_events(array, k, family, **selection)
    per_event, weights = np.empty(len(chosen)), np.empty(len(chosen))
    worst = 0.0
    for chunk in event_chunks(dist, array, chosen, family, error, np.random.default_rng(rng)):
        sums = bin_sums(chunk.bin_of, chunk.probabilities, chunk.outcomes, n_bins(error))
        per_event[chunk.columns] = binned_error(sums, error)
        weights[chunk.columns] = event_weights(weighting, sums)
        worst = max(worst, chunk.marginal_error)
    if weights.sum() == 0:
        raise ValueError(f"weighting: {weighting!r} gives every one of the {len(chosen)} events weight 0")
    weights /= weights.sum()
    value = round_off(float(weights @ per_event))
    return NotionResult(value, per_event, chosen, weights, family, k, len(array), "exact", how, worst)


def n_bins(error: ErrorOptions) -> int:
    """Return how many bins the options make.

    >>> n_bins(ErrorOptions(bins=(0.0, 0.5, 1.0)))
    2
    """
    return len(error.bins) - 1 if isinstance(error.bins, tuple) else error.bins
