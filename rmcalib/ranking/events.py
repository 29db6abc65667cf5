"""Orders, ranks and events: conversions, lists of events, frequent events, and which events happened.

An order lists the items of a ranking, best first; ranks are the positions of the items. An event is an
ordered tuple of k items. A *sub*-k event happens if these items are in this relative order. A *top*-k event
happens if the ranking starts with exactly these items, in this order (equations 5 and 6 of the paper).
Several events are an int array (E, k).
"""

import math
from collections.abc import Iterable
from itertools import chain, combinations, permutations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import CHUNK_ELEMENTS, BoolArray, IntArray, as_integers, check_choice, check_integer

__all__ = [  # what users may call; the other names are shared by packages
    "Family",
    "all_events",
    "all_rankings",
    "as_orders",
    "most_frequent",
    "observed",
    "occurs",
    "orders_from_ranks",
    "ranks_from_orders",
]

MAX_ENUMERATED_ITEMS = 8
"""All m! rankings are enumerated only up to this many items (8! = 40,320)."""


def as_orders(orders: ArrayLike, name: str = "orders", n_items: int | None = None) -> IntArray:
    """Check that each row of ``orders`` is a permutation of 0..m-1, and return them as an int array.

    Parameters
    ----------
    orders : int array (n, m)
        Rankings, best item first.
    name : str
        The name of the argument in error messages.
    n_items : int, optional
        Expected number m of items.

    Returns
    -------
    int array (n, m)
        The rankings.

    Examples
    --------
    >>> as_orders([[2, 0, 1]])
    array([[2, 0, 1]])
    >>> as_orders([[1, 2, 3]])
    Traceback (most recent call last):
    ...
    ValueError: orders: row 0 is [1, 2, 3], not a permutation of 0..2
    """
    array = as_integers(orders, name, ndim=2)
    m = array.shape[1]
    if n_items is not None and m != n_items:
        raise ValueError(f"{name}: rows have {m} items, expected {n_items}")
    _check_permutations(array, 0, name)
    return array


def orders_from_ranks(ranks: ArrayLike, *, base: int = 0) -> IntArray:
    """Convert ranks (the position of each item) to orders (the items, best first).

    Parameters
    ----------
    ranks : int array (n, m)
        Entry [i, j] is the position of item j in row i.
    base : int
        Number of the best position: 0, or 1 as in most data files.

    Returns
    -------
    int array (n, m)
        Rankings, best item first.

    Examples
    --------
    >>> orders_from_ranks([[3, 1, 2]], base=1)
    array([[1, 2, 0]])
    """
    array = as_integers(ranks, "ranks", ndim=2)
    _check_permutations(array, base, "ranks")
    return np.argsort(array, axis=1)


def ranks_from_orders(orders: ArrayLike) -> IntArray:
    """Convert orders (the items, best first) to ranks (the position of each item), counted from 0.

    Parameters
    ----------
    orders : int array (n, m)
        Rankings, best item first.

    Returns
    -------
    int array (n, m)
        Entry [i, j] is the position of item j in row i.

    Examples
    --------
    >>> ranks_from_orders([[1, 2, 0]])
    array([[2, 0, 1]])
    """
    return np.argsort(as_orders(orders), axis=1)


def all_rankings(n_items: int) -> IntArray:
    """Return all m! orders of ``n_items`` items, in lexicographic order.

    Parameters
    ----------
    n_items : int
        The number m of items, at most 8.

    Returns
    -------
    int array (m!, m)
        The orders.

    Examples
    --------
    >>> all_rankings(3).tolist()
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
    """
    return all_events(check_integer(n_items, "n_items", 1, MAX_ENUMERATED_ITEMS), n_items)


def _check_permutations(array: IntArray, base: int, name: str) -> None:
    m = array.shape[1]
    bad = (np.sort(array, axis=1) != np.arange(base, base + m)).any(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"{name}: row {row} is {array[row].tolist()}, not a permutation of {base}..{base + m - 1}"
        )


Family = Literal["sub", "top"]

_MAX_PROJECTIONS = 200_000_000


def check_k(k: object, n_items: int, family: Family) -> int:
    """Return ``k`` after checking that the family has such events: 2..m for sub, 1..m for top."""
    check_choice(family, "family", ("sub", "top"))
    return check_integer(k, "k", 2 if family == "sub" else 1, n_items)


def as_events(events: ArrayLike, n_items: int, family: Family = "top") -> IntArray:
    """Check that each row of ``events`` has distinct items below ``n_items``, and return an int array."""
    array = as_integers(events, "events", ndim=2)
    check_k(array.shape[1], n_items, family)
    ordered = np.sort(array, axis=1)
    bad = (ordered[:, 0] < 0) | (ordered[:, -1] >= n_items) | (np.diff(ordered, axis=1) == 0).any(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"events: row {row} is {array[row].tolist()}; an event has distinct items from 0 to {n_items - 1}"
        )
    return array


def all_events(n_items: int, k: int) -> IntArray:
    """Return all events of k items, in lexicographic order.

    Parameters
    ----------
    n_items : int
        The number m of items.
    k : int
        Number of items of an event.

    Returns
    -------
    int array (m!/(m-k)!, k)
        The events.

    Examples
    --------
    >>> all_events(3, 1).tolist()
    [[0], [1], [2]]
    """
    m = check_integer(n_items, "n_items", 1)
    check_integer(k, "k", 1, m)
    if math.perm(m, k) * k > CHUNK_ELEMENTS * 10:
        raise ValueError(
            f"k: {math.perm(m, k):,} events of {k} of {m} items are too many to list; "
            "choose the frequent ones with coverage=0.95 or pass events="
        )
    return _rows_of(permutations(range(m), k), math.perm(m, k), k)


def subsets(n_items: int, k: int) -> IntArray:
    """Return all sets of k items."""
    return _rows_of(combinations(range(n_items), k), math.comb(n_items, k), k)


def _rows_of(tuples: Iterable[tuple[int, ...]], size: int, k: int) -> IntArray:
    return np.fromiter(chain.from_iterable(tuples), dtype=np.int64, count=size * k).reshape(size, k)


def observed(orders: ArrayLike, k: int, family: Family) -> IntArray:
    """Return the events that happen in at least one of the rankings.

    Parameters
    ----------
    orders : int array (n, m)
        Rankings, best item first.
    k : int
        Number of items of an event.
    family : {"sub", "top"}
        Which events.

    Returns
    -------
    int array (E, k)
        The events, sorted.

    Examples
    --------
    >>> observed([[0, 1, 2], [0, 2, 1]], 2, "top").tolist()
    [[0, 1], [0, 2]]
    """
    return observed_counts(orders, k, family)[0]


def observed_counts(orders: ArrayLike, k: int, family: Family) -> tuple[IntArray, IntArray]:
    """Return the events that happen in the rankings, and how often each does."""
    array = as_orders(orders)
    n, m = array.shape
    check_k(k, m, family)
    rows = array[:, :k]
    if family == "sub" and n * math.comb(m, k) * k > _MAX_PROJECTIONS:
        raise ValueError(
            f"k: {n} rankings have {n * math.comb(m, k):,} sub-{k} events, too many to count; "
            "use a smaller k or pass events="
        )
    if family == "sub":
        # Items at increasing positions of an order are that order's projection onto those items.
        rows = array[:, subsets(m, k)].reshape(-1, k)
    distinct, index = unique_rows(rows, m)
    return distinct, np.bincount(index).astype(np.int64)


def most_frequent(orders: ArrayLike, k: int, family: Family, mass: float = 0.95) -> IntArray:
    """Return the fewest events that make up ``mass`` of all occurrences in ``orders``.

    Ties in frequency are broken lexicographically, so the choice does not depend on the order of the rows.

    Parameters
    ----------
    orders : int array (n, m)
        Rankings, best item first.
    k : int
        Number of items of an event.
    family : {"sub", "top"}
        Which events.
    mass : float
        Fraction of the occurrences, above 0 and at most 1.

    Returns
    -------
    int array (E, k)
        The events, the most frequent one first.

    Examples
    --------
    >>> most_frequent([[0, 1], [0, 1], [0, 1], [1, 0]], 2, "sub", mass=0.75).tolist()
    [[0, 1]]
    """
    if not 0 < mass <= 1:
        raise ValueError(f"mass: {mass} is out of range, expected a fraction above 0 and at most 1")
    events, counts = observed_counts(orders, k, family)
    ranking = np.argsort(-counts, kind="stable")
    reached = np.cumsum(counts[ranking]) >= mass * counts.sum() * (1 - 1e-12)
    return events[ranking[: int(np.argmax(reached)) + 1]]


def occurs(orders: ArrayLike, events: ArrayLike, family: Family) -> BoolArray:
    """Return which events happen in which rankings.

    Parameters
    ----------
    orders : int array (n, m)
        Rankings, best item first.
    events : int array (E, k)
        Events.
    family : {"sub", "top"}
        Which events they are.

    Returns
    -------
    bool array (n, E)
        Whether event e happens in ranking i.

    Examples
    --------
    >>> occurs([[2, 0, 1]], [[0, 1], [2, 0], [2, 1]], "sub").tolist()
    [[True, True, True]]
    >>> occurs([[2, 0, 1]], [[0, 1], [2, 0], [2, 1]], "top").tolist()
    [[False, True, False]]
    """
    array = as_orders(orders)
    return occurs_unchecked(array, as_events(events, array.shape[1], family), family)


def occurs_unchecked(orders: IntArray, events: IntArray, family: Family) -> BoolArray:
    """Return the same as `occurs`, without checking the arrays."""
    ranks = np.argsort(orders, axis=1).astype(np.int16)
    result = np.ones((len(orders), len(events)), dtype=bool)
    if family == "top":
        for place in range(events.shape[1]):
            result &= ranks[:, events[:, place]] == place
        return result
    before = ranks[:, events[:, 0]]
    for place in range(1, events.shape[1]):
        after = ranks[:, events[:, place]]
        result &= before < after
        before = after
    return result


def index_of_rows(listed: IntArray, rows: IntArray) -> IntArray:
    """Return the number of each row (R, m) among distinct ``listed`` ones (N, m); N if it is not there.

    >>> index_of_rows(np.array([[1, 0], [0, 1]]), np.array([[0, 1], [1, 0]]))
    array([1, 0])
    """
    distinct, number = unique_rows(np.concatenate([listed, rows]), int(max(listed.max(), rows.max())) + 1)
    place = np.full(len(distinct), len(listed))
    place[number[: len(listed)]] = np.arange(len(listed))
    return place[number[len(listed) :]]


def unique_rows(rows: IntArray, base: int) -> tuple[IntArray, IntArray]:
    """Return the distinct rows, and the index of each row among them; items are below ``base``."""
    k = rows.shape[1]
    if base**k > np.iinfo(np.int64).max:
        unique, index = np.unique(rows, axis=0, return_inverse=True)
        return unique, index.reshape(-1)
    # Numbers that sort like the rows: much faster than rows.
    codes = rows @ (base ** np.arange(k - 1, -1, -1, dtype=np.int64))
    _, first, index = np.unique(codes, return_index=True, return_inverse=True)
    return rows[first], index.reshape(-1)
