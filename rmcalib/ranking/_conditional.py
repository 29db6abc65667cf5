"""Exact probabilities of events given a partial ranking.

If every item is listed, the orders within different bags of tied items are independent, for Plackett-Luce and
for Mallows. So the probability of an event is a product over bags.
"""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.ranking._distribution import RankingDistribution, TooCostlyError
from rmcalib.ranking._encodings import MAX_ENUMERATED_ITEMS, all_rankings
from rmcalib.ranking._partial import PartialRankings
from rmcalib.ranking.events import Family, as_events

__all__ = ["HasPartialRankings", "conditional_probabilities"]


@runtime_checkable
class HasPartialRankings(RankingDistribution, Protocol):
    """A distribution with probabilities of partial rankings."""

    def log_prob_partial(self, rankings: PartialRankings) -> FloatArray:
        """Return the log-probability of all rankings consistent with each partial one: (n, R)."""
        ...

    def within(self, bag: IntArray, later: IntArray) -> RankingDistribution:
        """Return the order of the items of ``bag``, given that they come before ``later`` and after the rest.

        It is a distribution. The items of the result are the positions in ``bag``.
        """
        ...


def conditional_probabilities(
    dist: HasPartialRankings, rankings: PartialRankings, events: ArrayLike, family: Family
) -> FloatArray:
    """Return the probability of each event, given the partial ranking that was observed of each instance.

    It is 0 or 1 where the observation decides the event. Under a calibrated forecast its mean is the
    probability of the event, so it can replace an outcome that was not observed.

    Parameters
    ----------
    dist : PlackettLuce or Mallows
        One distribution per instance.
    rankings : PartialRankings
        What was observed, one ranking per instance.
    events : int array (E, k)
        Items of each event.
    family : {"sub", "top"}
        Whether events are about relative order or about the first places.

    Returns
    -------
    float array (n, E)
        The probabilities.

    Raises
    ------
    TooCostlyError
        If all orders of more than 8 items are needed: for a tie in Plackett-Luce that is not the last one, or
        for items that are not listed.

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> dist = PlackettLuce(np.log([[0.5, 0.3, 0.2]]))
    >>> seen = PartialRankings.from_lists([[0]], n_items=3).with_unlisted_last()  # 0 came first
    >>> conditional_probabilities(dist, seen, [[0, 1], [1, 2]], "sub").round(3)
    array([[1. , 0.6]])
    """
    array = as_events(events, dist.n_items, family)
    if (len(rankings), rankings.n_items) != (len(dist), dist.n_items):
        raise ValueError(
            f"rankings: {len(rankings)} of {rankings.n_items} items for {len(dist)} instances of "
            f"{dist.n_items} items"
        )
    decided = rankings.outcomes(array, family)
    result = decided.astype(np.float64)
    distinct, which = rankings.distinct()
    for number in range(len(distinct)):
        rows = np.flatnonzero(which == number)
        columns = np.flatnonzero(decided[rows[0]] < 0)
        if len(columns):
            complete = (distinct.buckets[number] >= 0).all()
            compute = _by_bags if complete else _by_enumeration
            result[np.ix_(rows, columns)] = compute(dist.take(rows), distinct, number, array[columns], family)
    return result


def _by_bags(
    dist: HasPartialRankings, rankings: PartialRankings, row: int, events: IntArray, family: Family
) -> FloatArray:
    """Multiply the probabilities of each event's part within each bag: (n, E); all events are possible."""
    result = np.ones((len(dist), len(events)))
    bags = rankings.bags(row)
    buckets = rankings.buckets[row]
    for number, bag in enumerate(bags):
        inside = buckets[events] == number
        least = 2 if family == "sub" else 1
        involved = np.flatnonzero(inside.sum(axis=1) >= least)
        if len(bag) == 1 or not len(involved):
            continue
        order = dist.within(bag, np.concatenate([*bags[number + 1 :], bag[:0]]))
        place = np.full(len(buckets), -1)
        place[bag] = np.arange(len(bag))
        for size in np.unique(inside[involved].sum(axis=1)):
            chosen = involved[inside[involved].sum(axis=1) == size]
            parts = place[events[chosen][inside[chosen]].reshape(-1, size)]
            result[:, chosen] *= order.sub(parts) if family == "sub" else order.top(parts)
    return result


def _by_enumeration(
    dist: HasPartialRankings, rankings: PartialRankings, row: int, events: IntArray, family: Family
) -> FloatArray:
    """Sum over all orders of the relevant items, which are listed or in the event: (n, E)."""
    result = np.empty((len(dist), len(events)))
    buckets = rankings.buckets[row]
    for number, event in enumerate(events):
        matters = np.union1d(np.flatnonzero(buckets >= 0), event)
        if family == "top":
            matters = np.arange(len(buckets))
        if len(matters) > MAX_ENUMERATED_ITEMS:
            raise TooCostlyError(
                f"rankings: an event with unlisted items needs all orders of {len(matters)} items "
                f"(at most {MAX_ENUMERATED_ITEMS}); leave such events out, or say that unlisted items come "
                "last (with_unlisted_last)"
            )
        orders = matters[all_rankings(len(matters))]
        known = np.where(buckets[orders] < 0, -1, buckets[orders])
        highest = np.maximum.accumulate(known, axis=1)
        orders = orders[((known < 0) | (known == highest)).all(axis=1)]
        ranks = np.full((len(orders), len(buckets)), -1)
        np.put_along_axis(ranks, orders, np.arange(len(matters))[None, :], axis=1)
        if family == "top":
            happens = (ranks[:, event] == np.arange(len(event))).all(axis=1)
        else:
            happens = (np.diff(ranks[:, event], axis=1) > 0).all(axis=1)
        p = dist.sub(orders)
        result[:, number] = p[:, happens].sum(axis=1) / p.sum(axis=1)
    return result
