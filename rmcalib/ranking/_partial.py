"""Partial rankings: rankings with ties and with items that are not listed.

Tied items form a bag: they are next to each other, in an order that was not observed. A partial ranking
therefore stands for the set of all complete rankings that are consistent with it.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmcalib._util.arrays import BoolArray, IntArray, as_integers
from rmcalib.ranking._encodings import as_orders
from rmcalib.ranking.events import Family, as_events

__all__ = ["PartialRankings"]


class PartialRankings:
    """Rankings of m items with ties and unlisted items.

    Parameters
    ----------
    buckets : int array (n, m)
        The bucket of each item, 0 for the best. Items of one bucket are tied. −1 means that the item is not
        listed, and that nothing is known about its place (unless you use `with_unlisted_last`).

    Examples
    --------
    >>> rankings = PartialRankings.from_lists([[2, {0, 1}], [1]], n_items=3)
    >>> rankings.buckets.tolist()
    [[1, 1, 0], [-1, 0, -1]]
    >>> rankings.with_unlisted_last().buckets.tolist()
    [[1, 1, 0], [1, 0, 1]]
    """

    def __init__(self, buckets: ArrayLike) -> None:
        """Check buckets (n, m); every row uses the numbers 0, 1, ... without gaps."""
        array = as_integers(buckets, "buckets", ndim=2)
        largest = array.max(axis=1, keepdims=True)
        used = (array[:, :, None] == np.arange(array.shape[1])).any(axis=1)
        bad = (used.sum(axis=1) != largest[:, 0] + 1) | (array.min(axis=1) < -1) | (largest[:, 0] < 0)
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(
                f"buckets: row {row} is {array[row].tolist()}; expected bucket numbers 0, 1, ... without "
                "gaps, at least one, and -1 for items that are not listed"
            )
        self.buckets = array

    @staticmethod
    def from_lists(rankings: Iterable[Sequence[int | Iterable[int]]], *, n_items: int) -> "PartialRankings":
        """Make partial rankings from lists of items, best first; a tie is a set or list of items.

        >>> PartialRankings.from_lists([[0, [1, 2]]], n_items=4).buckets
        array([[ 0,  1,  1, -1]])
        """
        rows = []
        for number, ranking in enumerate(rankings):
            row = np.full(n_items, -1, dtype=np.int64)
            for bucket, entry in enumerate(ranking):
                for item in [entry] if isinstance(entry, int | np.integer) else entry:
                    if not 0 <= item < n_items:
                        raise ValueError(
                            f"rankings: row {number} has item {item}, expected 0 to {n_items - 1}"
                        )
                    if row[item] >= 0:
                        raise ValueError(f"rankings: row {number} has item {item} twice")
                    row[item] = bucket
            rows.append(row)
        return PartialRankings(np.array(rows, dtype=np.int64).reshape(-1, n_items))

    @staticmethod
    def from_orders(orders: IntArray) -> "PartialRankings":
        """Make partial rankings from complete orders (n, m).

        >>> PartialRankings.from_orders(np.array([[2, 0, 1]])).buckets
        array([[1, 2, 0]])
        """
        return PartialRankings(np.argsort(as_orders(orders), axis=1))

    def __len__(self) -> int:
        """Return the number of rankings."""
        return len(self.buckets)

    def __repr__(self) -> str:
        """Show the size."""
        return f"PartialRankings({len(self)} rankings, {self.n_items} items)"

    @property
    def n_items(self) -> int:
        """The number m of items."""
        return int(self.buckets.shape[1])

    def take(self, rows: IntArray) -> "PartialRankings":
        """Return the rankings of the given rows, by number.

        >>> len(PartialRankings([[0, 1], [1, 0]]).take(np.array([0, 0, 1])))
        3
        """
        return PartialRankings(self.buckets[rows])

    def with_unlisted_last(self) -> "PartialRankings":
        """Return the rankings with all unlisted items tied after the listed ones, as in a top-k list.

        >>> PartialRankings([[0, -1, -1]]).with_unlisted_last().buckets
        array([[0, 1, 1]])
        """
        last = self.buckets.max(axis=1, keepdims=True) + 1
        return PartialRankings(np.where(self.buckets < 0, last, self.buckets))

    def bags(self, row: int) -> list[IntArray]:
        """Return the items of each bucket of one ranking, best bucket first.

        >>> [bag.tolist() for bag in PartialRankings([[1, 0, 1, -1]]).bags(0)]
        [[1], [0, 2]]
        """
        buckets = self.buckets[row]
        return [np.flatnonzero(buckets == number) for number in range(int(buckets.max()) + 1)]

    def distinct(self) -> tuple["PartialRankings", IntArray]:
        """Return the distinct rankings and the number of each row's ranking among them: (n,).

        >>> PartialRankings([[1, 0], [0, 1], [1, 0]]).distinct()[1]
        array([1, 0, 1])
        """
        rows, index = np.unique(self.buckets, axis=0, return_inverse=True)
        return PartialRankings(rows), index.reshape(-1)

    def coarsen(self, orders: IntArray) -> "PartialRankings":
        """Return what would have been observed if the complete rankings had been ``orders`` (n, m).

        In each row the same items are listed, and the bags have the same sizes.

        >>> PartialRankings([[0, 1, 1], [-1, 0, 1]]).coarsen(np.array([[2, 1, 0], [2, 1, 0]])).buckets
        array([[ 1,  1,  0],
               [-1,  1,  0]])
        """
        beyond = self.n_items
        listed = self.buckets >= 0
        places = np.argsort(np.where(listed, np.argsort(orders, axis=1), beyond), axis=1, kind="stable")
        numbers = np.sort(np.where(listed, self.buckets, beyond), axis=1)
        result = np.empty_like(self.buckets)
        np.put_along_axis(result, places, numbers, axis=1)
        return PartialRankings(np.where(listed, result, -1))

    def outcomes(self, events: IntArray, family: Family) -> NDArray[np.int8]:
        """Return which ``events`` (E, k) happened in each ranking: (n, E), 1 yes, 0 no, −1 undecided.

        An event is undecided if it happens in some of the complete rankings that are consistent with the
        observation, but not in all of them.

        >>> PartialRankings([[0, 1, 1]]).outcomes(np.array([[0, 1], [1, 0], [1, 2]]), "sub")
        array([[ 1,  0, -1]], dtype=int8)
        """
        array = as_events(events, self.n_items, family)
        buckets = self.buckets[:, array]
        unknown = buckets < 0
        possible, certain = _ordered(buckets, unknown)
        if family == "top":
            # All listed items before the last item of the event must be in the event.
            last = buckets.max(axis=2)
            inside = ((buckets < last[:, :, None]) & ~unknown).sum(axis=2)
            before = np.stack(
                [
                    ((self.buckets >= 0) & (self.buckets < number)).sum(axis=1)
                    for number in range(self.n_items)
                ],
                axis=1,
            )
            possible &= inside == np.take_along_axis(before, np.maximum(last, 0), axis=1)
            sizes = (self.buckets[:, :, None] == self.buckets[:, None, :]).sum(axis=2)
            complete = (self.buckets >= 0).all(axis=1, keepdims=True)
            certain = np.logical_and((sizes[:, array] == 1).all(axis=2), complete)
        return np.where(possible, np.where(certain, 1, -1), 0).astype(np.int8)


def _ordered(buckets: IntArray, unknown: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Return whether the items of events, with buckets (n, E, k), can be in order, and whether they must."""
    possible: BoolArray = np.ones(buckets.shape[:2], dtype=bool)
    certain: BoolArray = np.logical_not(unknown.any(axis=2))
    for first in range(buckets.shape[2]):
        for second in range(first + 1, buckets.shape[2]):
            both = ~(unknown[:, :, first] | unknown[:, :, second])
            possible &= ~(both & (buckets[:, :, first] > buckets[:, :, second]))
            certain &= buckets[:, :, first] < buckets[:, :, second]
    return possible, certain
