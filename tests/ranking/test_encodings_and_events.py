import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmcalib.ranking import all_rankings, as_orders, orders_from_ranks, ranks_from_orders
from rmcalib.ranking.events import (
    Family,
    all_events,
    most_frequent,
    observed,
    observed_counts,
    occurs,
    row_codes,
    unique_rows,
)
from tests import oracles


@given(st.integers(1, 9).flatmap(lambda m: st.lists(st.permutations(range(m)), min_size=1, max_size=5)))
def test_ranks_and_orders_are_inverse(orders: list[list[int]]) -> None:
    array = np.array(orders)
    ranks = ranks_from_orders(array)
    assert (orders_from_ranks(ranks) == array).all()
    assert (orders_from_ranks(ranks + 1, base=1) == array).all()
    for order, rank in zip(orders, ranks, strict=True):
        assert all(rank[item] == place for place, item in enumerate(order))


@pytest.mark.parametrize(("m", "k"), [(1, 1), (3, 1), (4, 2), (5, 3), (5, 5), (8, 8)])
def test_all_events_are_all_arrangements_in_order(m: int, k: int) -> None:
    assert [tuple(event) for event in all_events(m, k).tolist()] == list(permutations(range(m), k))


@pytest.mark.parametrize("family", ["sub", "top"])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_occurs_follows_the_definition(family: Family, k: int) -> None:
    rng = np.random.default_rng(k)
    orders = np.array([rng.permutation(5) for _ in range(7)])
    events = all_events(5, k)
    expected = [[oracles.happens(tuple(o), e, family) for e in events.tolist()] for o in orders.tolist()]
    assert (occurs(orders, events, family) == np.array(expected)).all()


@pytest.mark.parametrize("family", ["sub", "top"])
def test_observed_counts_occurrences(family: Family) -> None:
    rng = np.random.default_rng(0)
    orders = np.array([rng.permutation(5) for _ in range(20)])
    events, counts = observed_counts(orders, 3, family)
    assert (observed(orders, 3, family) == events).all()
    expected = occurs(orders, all_events(5, 3), family).sum(axis=0)
    assert (events == all_events(5, 3)[expected > 0]).all()
    assert (counts == expected[expected > 0]).all()
    assert counts.sum() == 20 * (math.comb(5, 3) if family == "sub" else 1)


def test_most_frequent_is_the_smallest_set_that_reaches_the_mass() -> None:
    orders = [[0, 1, 2]] * 5 + [[1, 0, 2]] * 3 + [[2, 1, 0]] * 2
    assert most_frequent(orders, 3, "top", mass=0.5).tolist() == [[0, 1, 2]]
    assert most_frequent(orders, 3, "top", mass=0.51).tolist() == [[0, 1, 2], [1, 0, 2]]
    assert len(most_frequent(orders, 3, "top", mass=1.0)) == 3


def test_most_frequent_does_not_depend_on_the_order_of_rows() -> None:
    rng = np.random.default_rng(1)
    orders = np.array([rng.permutation(4) for _ in range(30)])
    shuffled = orders[rng.permutation(30)]
    assert (most_frequent(orders, 2, "sub") == most_frequent(shuffled, 2, "sub")).all()


def test_rows_too_long_for_a_code_are_still_distinguished() -> None:
    rng = np.random.default_rng(2)
    rows = np.array([rng.permutation(30) for _ in range(6)])
    assert row_codes(rows, 30) is None
    distinct, index = unique_rows(rows[[0, 1, 0]], 30)
    assert len(distinct) == 2
    assert (distinct[index] == rows[[0, 1, 0]]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: as_orders([[0, 0, 1]]), "orders: row 0 is [0, 0, 1]"),
        (lambda: as_orders([[1, 2, 3]]), "not a permutation of 0..2"),
        (lambda: as_orders([0, 1]), "expected an array of 2 axes, got shape (2,)"),
        (lambda: as_orders(np.empty((0, 3))), "is empty"),
        (lambda: as_orders([[0.5, 1.0]]), "0.5 at index (0, 0) is not a whole number"),
        (lambda: as_orders([[np.nan, 1.0]]), "nan at index (0, 0)"),
        (lambda: as_orders([["a", "b"]]), "expected numbers"),
        (lambda: orders_from_ranks([[1, 1, 3]], base=1), "ranks: row 0 is [1, 1, 3]"),
        (lambda: orders_from_ranks([[0, 2]]), "ties and gaps"),
        (lambda: all_rankings(9), "n_items: 9! = 362,880"),
        (lambda: all_events(4, 5), "k: 5 is out of range, expected a whole number from 1 to 4"),
        (lambda: all_events(20, 10), "too many to list"),
        (lambda: occurs([[0, 1]], [[0, 2]], "sub"), "events: row 0 is [0, 2]"),
        (lambda: occurs([[0, 1]], [[0]], "sub"), "k: 1 is out of range"),
        (lambda: occurs([[0, 1]], [[0, 1]], "best"), "family: unknown 'best'"),  # type: ignore[arg-type]
        (lambda: most_frequent([[0, 1]], 1, "top", mass=0.0), "mass: 0.0 is out of range"),
        (lambda: observed(np.tile(np.arange(40), (5, 1)), 20, "sub"), "too many to count"),
    ],
)
def test_errors_name_the_bad_input(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        call()  # type: ignore[operator]
    assert message in str(caught.value)
