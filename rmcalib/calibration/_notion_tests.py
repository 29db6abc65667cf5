"""Uncertainty of the notions: intervals and null distributions of rankwise, sub-k and top-k errors."""

from collections.abc import Iterator
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
from rmcalib.ranking.events import Family, check_k, occurs_unchecked

__all__ = ["EventOptions", "notion_interval", "notion_null"]


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
    is recentred (see :func:`~rmcalib.calibration.recentred_interval`). Events and bins stay as they are.

    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(300, 3, rng=np.random.default_rng(0))
    >>> interval = notion_interval(data.forecast, data.orders, 2, "sub")
    >>> interval.low, bool(interval.value > 0)
    (0.0, True)
    """
    plan = _plan(dist, orders, k, family, rng, **options)
    n_replicates = check_integer(resamples, "resamples", 1)
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

    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(300, 3, confidence=3.0, rng=np.random.default_rng(0))
    >>> notion_null(data.forecast, data.orders, 2, "sub").p_value < 0.01
    True
    """
    plan = _plan(dist, orders, k, family, rng, **options)
    n_replicates = check_integer(resamples, "resamples", 1)
    worlds = dist.sample(n_replicates, plan.rng)
    observed, drawn = _Average((1,)), _Average((n_replicates,))
    for block in _blocks(plan, 1):
        sums = bin_sums(block.bin_of, block.probabilities, block.outcomes, n_bins(plan.error))
        observed.add(0, sums, plan)
        for number, world in enumerate(worlds):
            happened = occurs_unchecked(world, block.events, family).astype(np.float64)
            outcome = bin_sums(block.bin_of, happened, happened, n_bins(plan.error)).outcome
            drawn.add(number, BinSums(sums.count, sums.probability, outcome), plan)
    return compare_with_null(float(observed.values()[0]), drawn.values())


class _Plan(NamedTuple):
    dist: RankingDistribution
    orders: IntArray
    events: IntArray
    family: Family
    weighting: Weighting
    error: ErrorOptions
    rng: np.random.Generator


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

    def add(self, number: int, sums: BinSums, plan: _Plan) -> None:
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
    chosen, _ = select_events(array, k, family, **selection)
    error = ErrorOptions(as_bins(bins))
    return _Plan(dist, array, chosen, family, weighting, error, np.random.default_rng(rng))


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
