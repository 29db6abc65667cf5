"""Partial rankings, compared with an enumeration of all m! rankings in plain Python, and PrefLib files."""

import math
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from rmcalib.ranking import (
    Mallows,
    PartialRankings,
    PlackettLuce,
    conditional_probabilities,
    read_preflib,
)
from rmcalib.ranking.events import Family, all_events
from tests import oracles


def case(
    name: str, n: int, m: int, rng: np.random.Generator
) -> tuple[PlackettLuce | Mallows, list[oracles.Density]]:
    if name == "plackett_luce":
        utilities = rng.normal(scale=1.5, size=(n, m))
        return PlackettLuce(utilities), [oracles.plackett_luce(row) for row in utilities.tolist()]
    centers = np.array([rng.permutation(m) for _ in range(n)])
    dispersions = np.linspace(0, 1.5, n)
    densities = [oracles.mallows(c, d) for c, d in zip(centers.tolist(), dispersions.tolist(), strict=True)]
    return Mallows(centers, dispersions), densities


def random_partial(n: int, m: int, rng: np.random.Generator) -> PartialRankings:
    rows = []
    for number in range(n):
        ranking: list[list[int]] = []
        for item in rng.permutation(m)[: m if number % 2 else int(rng.integers(1, m + 1))].tolist():
            if ranking and rng.random() < 0.5:
                ranking[-1].append(item)
            else:
                ranking.append([item])
        rows.append(ranking)
    return PartialRankings.from_lists(rows, n_items=m)


def consistent(order: Sequence[int], buckets: Sequence[int]) -> bool:
    seen = [buckets[item] for item in order if buckets[item] >= 0]
    return seen == sorted(seen)


@pytest.mark.parametrize("name", ["plackett_luce", "mallows"])
@pytest.mark.parametrize("m", [2, 4])
def test_likelihoods_outcomes_and_conditional_probabilities(name: str, m: int) -> None:
    rng = np.random.default_rng(m)
    dist, densities = case(name, 4, m, rng)
    rankings = random_partial(4, m, rng)
    likelihood = np.exp(dist.log_prob_partial(rankings))
    families: tuple[Family, ...] = ("sub", "top")
    for i, density in enumerate(densities):
        fits = [o for o in permutations(range(m)) if consistent(o, rankings.buckets[i].tolist())]
        total = math.fsum(map(density, fits))
        assert likelihood[i, i] == pytest.approx(total, abs=1e-12)
        for family in families:
            for k in range(2, m + 1):
                events = all_events(m, k)
                settled = rankings.outcomes(events, family)[i]
                found = conditional_probabilities(dist, rankings, events, family)[i]
                for e, event in enumerate(events.tolist()):
                    true = [o for o in fits if oracles.happens(o, event, family)]
                    assert settled[e] == (1 if len(true) == len(fits) else -1 if true else 0)
                    assert found[e] == pytest.approx(math.fsum(map(density, true)) / total, abs=1e-12)


def test_long_top_lists_need_no_enumeration() -> None:
    rng = np.random.default_rng(0)
    m = 30
    tops = np.array([rng.permutation(m)[:4] for _ in range(5)])
    lists = PartialRankings.from_lists(tops.tolist(), n_items=m).with_unlisted_last()
    pairs = np.array([rng.permutation(m)[:2] for _ in range(40)])
    for dist in (PlackettLuce(rng.normal(size=(5, m))), Mallows([rng.permutation(m)] * 5, 0.2)):
        p = [conditional_probabilities(dist, lists, order, "sub") for order in (pairs, pairs[:, ::-1])]
        np.testing.assert_allclose(p[0] + p[1], 1)
        np.testing.assert_allclose(np.exp(dist.log_prob_partial(lists)), dist.top(tops))


def test_coarsening_keeps_what_is_listed_and_the_sizes_of_ties() -> None:
    rng = np.random.default_rng(0)
    rankings = random_partial(50, 6, rng)
    orders = np.array([rng.permutation(6) for _ in range(50)])
    seen = rankings.coarsen(orders).buckets
    assert ((seen < 0) == (rankings.buckets < 0)).all()
    assert (np.sort(seen, axis=1) == np.sort(rankings.buckets, axis=1)).all()
    assert all(consistent(o, b) for o, b in zip(orders.tolist(), seen.tolist(), strict=True))


def test_results_that_take_too_long_raise() -> None:
    many, lists = PlackettLuce(np.zeros((1, 20))), PartialRankings.from_lists
    costly: list[Callable[[], object]] = [
        lambda: many.log_prob_partial(lists([[set(range(18)), 18]], n_items=20)),
        lambda: conditional_probabilities(
            many, lists([[set(range(9))]], n_items=20).with_unlisted_last(), [[0, 1]], "sub"
        ),
        lambda: conditional_probabilities(many, lists([list(range(10))], n_items=20), [[0, 15]], "sub"),
        lambda: Mallows([np.arange(20)], 1.0).log_prob_partial(lists([[set(range(8))]], n_items=20)),
    ]
    for call in costly:
        with pytest.raises(ValueError, match="rankings"):
            call()


@pytest.mark.parametrize("buckets", [[[0, 2]], [[-1, -1]], [[-2, 0]]])
def test_bad_buckets(buckets: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="buckets: row 0"):
        PartialRankings(buckets)


HEADER = """# FILE NAME: 00000-00000001.{kind}
# NUMBER ALTERNATIVES: 4
# NUMBER VOTERS: {voters}
# NUMBER UNIQUE ORDERS: {orders}
# ALTERNATIVE NAME 1: Tea: green
# ALTERNATIVE NAME 2: Café
"""


def write(folder: Path, kind: str, *votes: str) -> Path:
    voters = sum(int(vote.split(":")[0]) for vote in votes)
    path = folder / f"votes.{kind}"
    text = HEADER.format(kind=kind, voters=voters, orders=len(votes)) + "\n".join(votes) + "\n"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("kind", "votes", "buckets"),
    [
        ("soc", ["10: 1,2,3,4", "3: 4,3,1,2"], [[0, 1, 2, 3], [2, 3, 1, 0]]),
        ("soi", ["5: 2,1", "1: 3"], [[1, 0, -1, -1], [-1, -1, 0, -1]]),
        ("toc", ["10: 1,2,{3,4}", "2: {1,2,3,4}"], [[0, 1, 2, 2], [0, 0, 0, 0]]),
        ("toi", ["7: {2,4},1", "1: 3 , {1, 2}"], [[1, 0, -1, 0], [1, 1, 0, -1]]),
    ],
)
def test_preflib_files(kind: str, votes: list[str], buckets: list[list[int]], tmp_path: Path) -> None:
    profile = read_preflib(write(tmp_path, kind, *votes))
    assert profile.alternatives == ("Tea: green", "Café", "3", "4")
    assert profile.rankings.buckets.tolist() == buckets
    assert profile.counts.tolist() == [int(vote.split(":")[0]) for vote in votes]
    assert len(profile) == profile.counts.sum() == len(profile.per_voter())


@pytest.mark.parametrize(
    ("kind", "vote"),
    [
        *(("soc", "1: 1,2,3"), ("soc", "1: 1,2,{3,4}"), ("toc", "1: 1,2,{3,4"), ("toc", "1: 1,2,3,,4")),
        *(("toi", "1: {}"), ("soi", "1: 1,5"), ("soi", "1: 1,x"), ("soi", "1: 1,2,1")),
        *(("soi", "0: 1,2"), ("soi", "1:")),
    ],
)
def test_errors_name_file_and_line_of_a_bad_vote(kind: str, vote: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"votes\.{kind}: line 7"):
        read_preflib(write(tmp_path, kind, vote))


@pytest.mark.parametrize(
    "name", ["cut.soc", "empty.soc", "votes.csv", "headless.soc", "nowhere.soc", "binary.soc"]
)
def test_errors_name_a_bad_file(name: str, tmp_path: Path) -> None:
    whole = write(tmp_path, "soc", "10: 1,2,3,4", "3: 4,3,1,2").read_bytes()
    cut, binary = whole[: whole.index(b"3: 4")], b"\xff\xfe\x00"
    contents = {
        "cut.soc": cut,
        "empty.soc": b"",
        "votes.csv": whole,
        "headless.soc": b"5: 1,2\n",
        "binary.soc": binary,
    }
    if name in contents:
        (tmp_path / name).write_bytes(contents[name])
    with pytest.raises(ValueError, match=name):
        read_preflib(tmp_path / name)
