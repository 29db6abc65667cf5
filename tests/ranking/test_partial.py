"""Partial rankings, compared with an enumeration of all m! rankings in plain Python."""

import math
from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
import pytest

from rmcalib.ranking import (
    HasPartialRankings,
    Mallows,
    PartialRankings,
    PlackettLuce,
    TooCostlyError,
    conditional_probabilities,
)
from rmcalib.ranking.events import Family, all_events
from tests import oracles

Case = tuple[HasPartialRankings, list[oracles.Density]]


def plackett_luce(n: int, m: int, rng: np.random.Generator) -> Case:
    utilities = rng.normal(scale=1.5, size=(n, m))
    return PlackettLuce(utilities), [oracles.plackett_luce(row) for row in utilities.tolist()]


def mallows(n: int, m: int, rng: np.random.Generator) -> Case:
    centers = np.array([rng.permutation(m) for _ in range(n)])
    dispersions = rng.uniform(0, 1.5, size=n)
    dispersions[0] = 0.0
    densities = [oracles.mallows(c, d) for c, d in zip(centers.tolist(), dispersions.tolist(), strict=True)]
    return Mallows(centers, dispersions), densities


def random_partial(n: int, m: int, rng: np.random.Generator, *, complete: bool = False) -> PartialRankings:
    rows = []
    for _ in range(n):
        listed = m if complete else int(rng.integers(1, m + 1))
        items = rng.permutation(m)[:listed].tolist()
        ranking: list[list[int]] = []
        for item in items:
            if ranking and rng.random() < 0.5:
                ranking[-1].append(item)
            else:
                ranking.append([item])
        rows.append(ranking)
    return PartialRankings.from_lists(rows, n_items=m)


def consistent(order: Sequence[int], buckets: Sequence[int]) -> bool:
    seen = [buckets[item] for item in order if buckets[item] >= 0]
    return seen == sorted(seen)


CASES = pytest.mark.parametrize("case", [plackett_luce, mallows])


@CASES
@pytest.mark.parametrize("m", [2, 3, 4, 5, 6])
def test_likelihoods_sum_over_all_consistent_rankings(
    case: Callable[[int, int, np.random.Generator], Case], m: int
) -> None:
    rng = np.random.default_rng(m)
    dist, densities = case(3, m, rng)
    rankings = random_partial(6, m, rng)
    found = np.exp(dist.log_prob_partial(rankings))
    for i, density in enumerate(densities):
        for r, buckets in enumerate(rankings.buckets.tolist()):
            expected = math.fsum(density(o) for o in permutations(range(m)) if consistent(o, buckets))
            assert found[i, r] == pytest.approx(expected, abs=1e-12)


@CASES
@pytest.mark.parametrize("m", [3, 4, 5])
@pytest.mark.parametrize("family", ["sub", "top"])
def test_outcomes_and_conditional_probabilities_by_enumeration(
    case: Callable[[int, int, np.random.Generator], Case], m: int, family: Family
) -> None:
    rng = np.random.default_rng(10 * m)
    dist, densities = case(5, m, rng)
    for complete in (False, True):
        rankings = random_partial(5, m, rng, complete=complete)
        for k in range(2 if family == "sub" else 1, m + 1):
            events = all_events(m, k)
            settled = rankings.outcomes(events, family)
            found = conditional_probabilities(dist, rankings, events, family)
            for i, density in enumerate(densities):
                fits = [o for o in permutations(range(m)) if consistent(o, rankings.buckets[i].tolist())]
                total = math.fsum(map(density, fits))
                for e, event in enumerate(events.tolist()):
                    true = [o for o in fits if oracles.happens(o, event, family)]
                    truth = 1 if len(true) == len(fits) else (-1 if true else 0)
                    assert settled[i, e] == truth, (rankings.buckets[i], event)
                    expected = math.fsum(map(density, true)) / total
                    assert found[i, e] == pytest.approx(expected, abs=1e-12)


def test_long_top_lists_need_no_enumeration() -> None:
    rng = np.random.default_rng(0)
    m = 30
    rankings = PartialRankings.from_lists([rng.permutation(m)[:4].tolist() for _ in range(5)], n_items=m)
    lists = rankings.with_unlisted_last()
    pairs = np.array([rng.permutation(m)[:2] for _ in range(40)])
    for dist in (PlackettLuce(rng.normal(size=(5, m))), Mallows([rng.permutation(m)] * 5, 0.2)):
        p = conditional_probabilities(dist, lists, pairs, "sub")
        reversed_p = conditional_probabilities(dist, lists, pairs[:, ::-1], "sub")
        assert np.allclose(p + reversed_p, 1)
        tops = np.array([np.concatenate(lists.bags(i)[:4]) for i in range(5)])
        assert np.allclose(np.diag(dist.log_prob_partial(lists)), np.log(np.diag(dist.top(tops))))


def test_conditional_probabilities_average_to_the_marginal() -> None:
    rng = np.random.default_rng(0)
    dist = PlackettLuce(np.tile(rng.normal(size=5), (4000, 1)))
    shape = PartialRankings.from_lists([[{0, 1}, 2]] * 4000, n_items=5).with_unlisted_last()
    observed = shape.coarsen(dist.sample(1, rng)[0])
    pairs = all_events(5, 2)
    soft = conditional_probabilities(dist, observed, pairs, "sub").mean(axis=0)
    assert np.abs(soft - dist.sub(pairs)[0]).max() < 0.03


def test_coarsening_keeps_what_is_listed_and_the_sizes_of_ties() -> None:
    rng = np.random.default_rng(0)
    rankings = random_partial(50, 6, rng)
    orders = np.array([rng.permutation(6) for _ in range(50)])
    seen = rankings.coarsen(orders)
    assert ((seen.buckets < 0) == (rankings.buckets < 0)).all()
    assert (np.sort(seen.buckets, axis=1) == np.sort(rankings.buckets, axis=1)).all()
    assert all(consistent(o, b) for o, b in zip(orders.tolist(), seen.buckets.tolist(), strict=True))


def test_results_that_take_too_long_raise() -> None:
    many = PlackettLuce(np.zeros((1, 20)))
    with pytest.raises(TooCostlyError, match="a tie of 18 items"):
        many.log_prob_partial(PartialRankings.from_lists([[set(range(18)), 18]], n_items=20))
    tied = PartialRankings.from_lists([[set(range(9))]], n_items=20).with_unlisted_last()
    with pytest.raises(TooCostlyError, match="a tie of 9 items"):
        conditional_probabilities(many, tied, [[0, 1]], "sub")
    unknown = PartialRankings.from_lists([list(range(10))], n_items=20)
    with pytest.raises(TooCostlyError, match="all orders of 11 items"):
        conditional_probabilities(many, unknown, [[0, 15]], "sub")
    tied = PartialRankings.from_lists([[set(range(8))]], n_items=20)
    with pytest.raises(TooCostlyError, match="ties allow 40,320 orders"):
        Mallows([np.arange(20)], 1.0).log_prob_partial(tied)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PartialRankings([[0, 2]]), "buckets: row 0 is [0, 2]; expected bucket numbers"),
        (lambda: PartialRankings([[-1, -1]]), "at least one"),
        (lambda: PartialRankings([[-2, 0]]), "-1 for items that are not listed"),
        (lambda: PartialRankings.from_lists([[0, 0]], n_items=2), "rankings: row 0 has item 0 twice"),
        (lambda: PartialRankings.from_lists([[5]], n_items=2), "item 5, expected 0 to 1"),
        (
            lambda: conditional_probabilities(
                PlackettLuce([[0.0, 1.0]]), PartialRankings([[0, 1]] * 2), [[0, 1]], "sub"
            ),
            "rankings: 2 of 2 items for 1 instances",
        ),
    ],
)
def test_errors_name_the_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    assert message in str(caught.value)
