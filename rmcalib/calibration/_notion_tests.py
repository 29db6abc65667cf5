"""Uncertainty of the notions: intervals and null distributions of rankwise, sub-k and top-k errors."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, check_choice, check_integer, chunks
from rmcalib.calibration._binning import BinSums, ErrorOptions, as_bins, bin_sums, binned_error
from rmcalib.calibration._intervals import (
    SHARES,
    Interval,
    recentred,
    recentred_interval,
    resampling_weights,
)
from rmcalib.calibration._notions import (
    Selection,
    Weighting,
    check_orders_for,
    event_chunks,
    event_weights,
    n_bins,
    select_events,
)
from rmcalib.calibration._nulls import NullTest, compare_with_null
from rmcalib.ranking import RankingDistribution
from rmcalib.ranking.events import Family, check_k, occurs_unchecked, unique_rows

__all__ = ["EventOptions", "notion_interval", "notion_null"]

# Shares of the observed miscalibration at which events are selected again: fewer than SHARES, as each costs
# its own data sets. Those above 1 use the data sets of 1.
_RESELECTED_SHARES = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 4.0, 8.0])


class EventOptions(Selection, total=False):
    """Which events, how they are weighted, and the bins: as in ``NotionOptions``."""

    weighting: Weighting
    bins: int | ArrayLike


def notion_interval(
    dist: RankingDistribution,
    orders: ArrayLike,
    k: int,
    family: Family,
    *,
    resamples: int = 200,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    **options: Unpack[EventOptions],
) -> Interval:
    """Return the value of ``sub_k`` or ``top_k`` with a recentred bootstrap interval over instances.

    The average of many small ECEs is mostly bias when there are few instances, which is why the interval
    is recentred (see :func:`~rmcalib.calibration.recentred_interval`). The bins stay as they are, and so do
    the events, unless they were selected by their frequency in ``orders``. Then noise decides in part which
    events are looked at, so they are selected again in every simulated data set. There, each instance is
    replaced by a resampled one with probability s, the share of the observed miscalibration, and else its
    ranking is drawn from the forecast.

    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(300, 3, rng=np.random.default_rng(0))
    >>> interval = notion_interval(data.forecast, data.orders, 2, "sub")
    >>> interval.low, bool(interval.value > 0)
    (0.0, True)
    """
    plan = _plan(dist, orders, k, family, rng, **options)
    n_replicates = check_integer(resamples, "resamples", 1)
    if plan.select is not None:
        return _reselected_interval(plan, plan.select, n_replicates, level)
    weights = resampling_weights(n_replicates, len(dist), plan.rng)
    drawn, true = _Average((len(SHARES), n_replicates)), _Average((len(SHARES),))
    for block in _blocks(plan, n_replicates):
        total = bin_sums(block.bin_of, block.probabilities, block.outcomes, n_bins(plan.error))
        replicates = _weighted_sums(weights, block, n_bins(plan.error))
        for number, share in enumerate(SHARES):
            drawn.add(number, recentred(total, replicates, share), plan)
            true.add(number, recentred(total, total, share), plan)
    truths = true.values()
    return recentred_interval(float(truths[SHARES == 1][0]), drawn.values(), truths, level=level)


def notion_null(
    dist: RankingDistribution,
    orders: ArrayLike,
    k: int,
    family: Family,
    *,
    resamples: int = 200,
    rng: np.random.Generator | int = 0,
    **options: Unpack[EventOptions],
) -> NullTest:
    """Compare the value of ``sub_k`` or ``top_k`` with what rankings drawn from the forecast itself show.

    Events that were selected by their frequency in ``orders`` are selected again in every draw.

    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(300, 3, confidence=3.0, rng=np.random.default_rng(0))
    >>> notion_null(data.forecast, data.orders, 2, "sub").p_value < 0.01
    True
    """
    plan = _plan(dist, orders, k, family, rng, **options)
    n_replicates = check_integer(resamples, "resamples", 1)
    worlds = dist.sample(n_replicates, plan.rng)
    if plan.select is not None:
        return _reselected_null(plan, plan.select, worlds)
    observed, drawn = _Average((1,)), _Average((n_replicates,))
    for block in _blocks(plan, 1):
        sums = bin_sums(block.bin_of, block.probabilities, block.outcomes, n_bins(plan.error))
        observed.add(0, sums, plan)
        for number, world in enumerate(worlds):
            happened = occurs_unchecked(world, block.events, family).astype(np.float64)
            outcome = bin_sums(block.bin_of, happened, happened, n_bins(plan.error)).outcome
            drawn.add(number, BinSums(sums.count, sums.probability, outcome), plan)
    return compare_with_null(float(observed.values()[0]), drawn.values())


_Select = Callable[[IntArray], IntArray]


class _Plan(NamedTuple):
    """What to compute. ``select`` maps rankings (n, m) to events; None where the events are fixed."""

    dist: RankingDistribution
    orders: IntArray
    events: IntArray
    family: Family
    weighting: Weighting
    error: ErrorOptions
    rng: np.random.Generator
    select: _Select | None


class _Block(NamedTuple):
    """Some of the events (e, k) with their forecasts, outcomes and bins (n, e)."""

    events: IntArray
    probabilities: FloatArray
    outcomes: FloatArray
    bin_of: IntArray


class _Average:
    """A weighted average over events that arrive in blocks, kept for many replicates at once."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._errors, self._weights = np.zeros(shape), np.zeros(shape)

    def add(self, number: int | tuple[int, int], sums: BinSums, plan: _Plan) -> None:
        weights = event_weights(plan.weighting, sums)
        self._errors[number] += (weights * binned_error(sums, plan.error)).sum(axis=-1)
        self._weights[number] += weights.sum(axis=-1)

    def values(self) -> FloatArray:
        return self._errors / np.maximum(self._weights, 1e-300)


def _plan(
    dist: RankingDistribution,
    orders: ArrayLike,
    k: int,
    family: Family,
    rng: np.random.Generator | int,
    *,
    weighting: Weighting = "uniform",
    bins: int | ArrayLike = 10,
    **selection: Unpack[Selection],
) -> _Plan:
    array = check_orders_for(dist, orders)
    check_k(k, dist.n_items, family)
    check_choice(weighting, "weighting", ("uniform", "frequency", "probability"))
    chosen, how = select_events(array, k, family, **selection)
    fixed = how in ("given", "all") or selection.get("counted_on") is not None

    def select(rankings: IntArray) -> IntArray:
        return select_events(rankings, k, family, **selection)[0]

    error = ErrorOptions(as_bins(bins))
    generator = np.random.default_rng(rng)
    return _Plan(dist, array, chosen, family, weighting, error, generator, None if fixed else select)


def _reselected_null(plan: _Plan, select: _Select, worlds: IntArray) -> NullTest:
    """Compare the observed rankings with ``worlds`` (R, n, m), each with the events selected in it."""
    sets = [plan.orders, *worlds]
    plan, columns = _with_all_events(plan, [select(orders) for orders in sets])
    values = _Average((len(sets),))
    for block, total, number, local in _selected_blocks(plan, columns):
        happened = occurs_unchecked(sets[number], block.events[local], plan.family)
        row, event = np.nonzero(happened)
        size = n_bins(plan.error)
        cell = event * size + block.bin_of[row, local[event]]
        outcome = np.bincount(cell, minlength=len(local) * size).reshape(-1, size).astype(np.float64)
        values.add(number, BinSums(total.count[local], total.probability[local], outcome), plan)
    observed, *drawn = values.values()
    return compare_with_null(float(observed), np.array(drawn))


def _reselected_interval(plan: _Plan, select: _Select, resamples: int, level: float) -> Interval:
    n, shares = len(plan.orders), _RESELECTED_SHARES
    mixed = shares[shares <= 1]
    worlds = plan.dist.sample(resamples, plan.rng)
    resampled = plan.rng.integers(n, size=(resamples, n))
    uniform = plan.rng.random((resamples, n))

    def data_set(number: int) -> tuple[IntArray, IntArray]:
        """Return instances (n,) and their rankings (n, m); one replicate has the same draws at all shares."""
        share, replicate = divmod(number, resamples)
        observed = uniform[replicate] < mixed[share]
        rows = np.where(observed, resampled[replicate], np.arange(n))
        return rows, np.where(observed[:, None], plan.orders[rows], worlds[replicate])

    chosen = [select(data_set(number)[1]) for number in range(len(mixed) * resamples)]
    plan, columns = _with_all_events(plan, [*chosen, plan.events])
    drawn, true = _Average((len(shares), resamples)), _Average((len(shares), resamples))
    value = _Average((1,))
    for block, total, number, local in _selected_blocks(plan, columns):
        own = BinSums(total.count[local], total.probability[local], total.outcome[local])
        if number == len(chosen):
            value.add(0, own, plan)
            continue
        mine, replicate = divmod(number, resamples)
        sums = _data_set_sums(block, local, *data_set(number), plan)
        for place in range(mine, len(shares) if mixed[mine] == 1 else mine + 1):
            # Up to a share of 1 the data set has the miscalibration in it; what goes beyond is added.
            beyond = max(float(shares[place]), 1.0)
            drawn.add((place, replicate), recentred(own, sums, beyond), plan)
            true.add((place, replicate), recentred(own, own, float(shares[place])), plan)
    truths = true.values().mean(axis=1)
    return recentred_interval(float(value.values()[0]), drawn.values(), truths, level=level)


def _with_all_events(plan: _Plan, chosen: Sequence[IntArray]) -> tuple[_Plan, list[IntArray]]:
    """Return a plan for all events that are ``chosen`` in some data set, and where those of each set are.

    The events are sorted so that ``event_chunks`` keeps their order.
    """
    events, index = unique_rows(np.concatenate(chosen), plan.dist.n_items)
    order = np.lexsort(np.sort(events, axis=1).T[::-1])
    place = np.argsort(order)
    ends = np.cumsum([len(part) for part in chosen])[:-1]
    columns = [np.sort(place[part]) for part in np.split(index, ends)]
    return plan._replace(events=events[order]), columns


def _selected_blocks(
    plan: _Plan, columns: Sequence[IntArray]
) -> Iterator[tuple[_Block, BinSums, int, IntArray]]:
    """Yield each block, its observed bin sums (e, B), a data set's number, and its events in the block."""
    start = 0
    for block in _blocks(plan, 1):
        total = bin_sums(block.bin_of, block.probabilities, block.outcomes, n_bins(plan.error))
        stop = start + len(block.events)
        for number, own in enumerate(columns):
            low, high = np.searchsorted(own, [start, stop])
            if low < high:
                yield block, total, number, own[low:high] - start
        start = stop


def _data_set_sums(block: _Block, local: IntArray, rows: IntArray, orders: IntArray, plan: _Plan) -> BinSums:
    """Bin sums (e, B) of the events ``local`` of a block in instances ``rows`` with rankings ``orders``."""
    happened = occurs_unchecked(orders, block.events[local], plan.family).astype(np.float64)
    cells = np.ix_(rows, local)
    return bin_sums(block.bin_of[cells], block.probabilities[cells], happened, n_bins(plan.error))


def _blocks(plan: _Plan, replicates: int) -> Iterator[_Block]:
    """Go through the events in blocks whose replicated bin sums stay within bounds."""
    for chunk in event_chunks(plan.dist, plan.orders, plan.events, plan.family, plan.error, plan.rng):
        events = plan.events[chunk.columns]
        for part in chunks(len(events), replicates * n_bins(plan.error)):
            yield _Block(
                events[part], chunk.probabilities[:, part], chunk.outcomes[:, part], chunk.bin_of[:, part]
            )


def _weighted_sums(weights: FloatArray, block: _Block, size: int) -> BinSums:
    """Bin sums of resamples with ``weights`` (R, n): arrays (R, e, B)."""
    members = [block.bin_of == number for number in range(size)]

    def stack(values: FloatArray | float) -> FloatArray:
        return np.stack([weights @ (member * values) for member in members], axis=-1)

    return BinSums(stack(1.0), stack(block.probabilities), stack(block.outcomes))
