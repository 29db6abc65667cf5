"""Orders and ranks, the two encodings of rankings, and conversions between them."""

import math

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, IntArray, as_integers, check_integer

__all__ = [
    "MAX_ENUMERATED_ITEMS",
    "all_rankings",
    "arrangements",
    "as_orders",
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
    bad = ~_are_permutations(array)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"{name}: row {row} is {array[row].tolist()}, not a permutation of 0..{m - 1}")
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
    m = array.shape[1]
    bad = ~_are_permutations(array - base)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"ranks: row {row} is {array[row].tolist()}, not a permutation of {base}..{m - 1 + base} "
            "(ties and gaps are not rankings)"
        )
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
    m = check_integer(n_items, "n_items", 1)
    if m > MAX_ENUMERATED_ITEMS:
        raise ValueError(
            f"n_items: {m}! = {math.factorial(m):,} rankings are too many to enumerate "
            f"(at most {MAX_ENUMERATED_ITEMS} items); use the exact sub-k and top-k marginals instead"
        )
    return arrangements(m, m)


def arrangements(n_items: int, k: int) -> IntArray:
    """Return all arrangements of ``k`` of the items 0..m-1, in lexicographic order.

    Parameters
    ----------
    n_items : int
        The number m of items.
    k : int
        How many items an arrangement has.

    Returns
    -------
    int array (m!/(m-k)!, k)
        The arrangements.

    Examples
    --------
    >>> arrangements(3, 2).tolist()
    [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]
    """
    rows = np.zeros((1, 0), dtype=np.int64)
    left = np.arange(n_items, dtype=np.int64)[None, :]
    for _ in range(k):
        # Extend each row by every item it has left. `left` is sorted, so rows stay sorted.
        n_rows, n_left = left.shape
        rows = np.column_stack([np.repeat(rows, n_left, axis=0), left.reshape(-1)])
        keep = ~np.eye(n_left, dtype=bool)
        left = np.broadcast_to(left[:, None, :], (n_rows, n_left, n_left))[:, keep].reshape(
            n_rows * n_left, n_left - 1
        )
    return rows


def _are_permutations(array: IntArray) -> BoolArray:
    result: BoolArray = (np.sort(array, axis=1) == np.arange(array.shape[1])).all(axis=1)
    return result
