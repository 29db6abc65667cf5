"""Orders, ranks and events, compared with their definitions in plain Python."""

import math
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmcalib.ranking import all_rankings, orders_from_ranks, ranks_from_orders
from rmcalib.ranking.events import Family, all_events, as_orders, most_frequent, observed, occurs
from tests import oracles


@given(st.integers(1, 9).flatmap(lambda m: st.lists(st.permutations(range(m)), min_size=1, max_size=5)))
def test_ranks_and_orders_are_inverse(orders: list[list[int]]) -> None:
    ranks = ranks_from_orders(orders)
    assert orders_from_ranks(ranks).tolist() == orders
    assert orders_from_ranks(ranks + 1, base=1).tolist() == orders
    assert all(
        rank[item] == place for o, rank in zip(orders, ranks, strict=True) for place, item in enumerate(o)
    )


@pytest.mark.parametrize("family", ["sub", "top"])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_events_follow_the_definition(family: Family, k: int) -> None:
    rng = np.random.default_rng(k)
    orders = np.array([rng.permutation(5) for _ in range(12)])
    events = all_events(5, k)
    assert [tuple(event) for event in events.tolist()] == list(permutations(range(5), k))
    expected = [[oracles.happens(tuple(o), e, family) for e in events.tolist()] for o in orders.tolist()]
    happened = occurs(orders, events, family)
    assert happened.tolist() == expected
    assert observed(orders, k, family).tolist() == events[happened.any(axis=0)].tolist()
    assert happened.sum() == 12 * (math.comb(5, k) if family == "sub" else 1)


def test_most_frequent_is_the_smallest_set_that_reaches_the_mass() -> None:
    orders = np.array([[0, 1, 2]] * 5 + [[1, 0, 2]] * 3 + [[2, 1, 0]] * 2)
    for mass, size in ((0.5, 1), (0.51, 2), (1.0, 3)):
        assert len(most_frequent(orders, 3, "top", mass=mass)) == size
    shuffled = orders[np.random.default_rng(1).permutation(10)]
    assert (most_frequent(orders, 2, "sub") == most_frequent(shuffled, 2, "sub")).all()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: as_orders([[0, 0, 1]]), r"orders: row 0 is \[0, 0, 1\]"),
        (lambda: as_orders([0, 1]), "orders"),
        (lambda: as_orders(np.empty((0, 3))), "orders"),
        (lambda: as_orders([[0.5, 1.0]]), "orders: 0.5"),
        (lambda: as_orders([["a", "b"]]), "orders"),
        (lambda: orders_from_ranks([[1, 1, 3]], base=1), "ranks: row 0"),
        (lambda: all_rankings(9), "n_items: 9"),
        (lambda: all_events(4, 5), "k: 5"),
        (lambda: all_events(20, 10), "k: "),
        (lambda: occurs([[0, 1]], [[0, 2]], "sub"), "events: row 0"),
        (lambda: occurs([[0, 1]], [[0]], "sub"), "k: 1"),
        (lambda: occurs([[0, 1]], [[0, 1]], "best"), "family: unknown 'best'"),  # type: ignore[arg-type]
        (lambda: most_frequent([[0, 1]], 1, "top", mass=0.0), "mass: 0.0"),
    ],
)
def test_errors_name_the_bad_input(call: Callable[[], object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        call()
