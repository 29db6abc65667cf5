"""Every distribution, compared with an enumeration of all m! rankings in plain Python."""

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import permutations

import numpy as np
import pytest

from rmcalib._util.arrays import FloatArray
from rmcalib.ranking import (
    ExplicitRankings,
    HasTemperature,
    Mallows,
    Mixture,
    PairMarginals,
    PairwiseProbabilities,
    PlackettLuce,
    RankingDistribution,
    SparseRankings,
    all_rankings,
    enumerate_rankings,
)
from rmcalib.ranking.events import Family, all_events, subsets
from tests import oracles

Case = tuple[RankingDistribution, list[oracles.Density]]


def plackett_luce_case(m: int, rng: np.random.Generator) -> Case:
    utilities = rng.normal(scale=2, size=(3, m))
    utilities[2, : m // 2] = utilities[2, -1]  # ties
    return PlackettLuce(utilities), [oracles.plackett_luce(row) for row in utilities.tolist()]


def mallows_case(m: int, rng: np.random.Generator) -> Case:
    centers = np.array([rng.permutation(m) for _ in range(4)])
    dispersions = np.array([0.0, 0.3, 2.5, 1e-9])
    densities = [oracles.mallows(c, d) for c, d in zip(centers.tolist(), dispersions.tolist(), strict=True)]
    return Mallows(centers, dispersions), densities


def sparse_case(m: int, rng: np.random.Generator) -> Case:
    everything = all_rankings(m)
    listed = everything[rng.permutation(len(everything))[: max(1, len(everything) // 3)]]
    logits, unseen = rng.normal(size=(3, len(listed))), rng.normal(size=3)
    densities = [
        oracles.rank_classifier(listed.tolist(), z, c)
        for z, c in zip(logits.tolist(), unseen.tolist(), strict=True)
    ]
    return SparseRankings(listed, logits, unseen), densities


def explicit_case(m: int, rng: np.random.Generator) -> Case:
    everything = all_rankings(m)
    probabilities = rng.dirichlet(np.ones(len(everything)), size=2)
    tables = [dict(zip(map(tuple, everything.tolist()), row, strict=True)) for row in probabilities.tolist()]
    return ExplicitRankings(everything, probabilities), [table.__getitem__ for table in tables]


def mixture_case(m: int, rng: np.random.Generator) -> Case:
    parts = [mallows_case(m, rng), mallows_case(m, rng)]
    densities: list[oracles.Density] = [
        lambda order, a=a, b=b: 0.3 * a(order) + 0.7 * b(order)  # type: ignore[misc]
        for a, b in zip(parts[0][1], parts[1][1], strict=True)
    ]
    return Mixture([parts[0][0], parts[1][0]], [0.3, 0.7]), densities


CASES: dict[str, Callable[[int, np.random.Generator], Case]] = {
    "plackett_luce": plackett_luce_case,
    "mallows": mallows_case,
    "sparse": sparse_case,
    "explicit": explicit_case,
    "mixture": mixture_case,
}


@lru_cache
def happens_table(m: int, k: int, family: str) -> FloatArray:
    events, orders = permutations(range(m), k), list(permutations(range(m)))
    columns = [[oracles.happens(order, event, family) for order in orders] for event in events]
    return np.array(columns, dtype=np.float64).T


@pytest.mark.parametrize("m", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("name", CASES)
def test_marginals_equal_sums_over_all_rankings(name: str, m: int) -> None:
    dist, densities = CASES[name](m, np.random.default_rng(m))
    orders = list(permutations(range(m)))
    table = np.array([[density(order) for order in orders] for density in densities])
    assert np.abs(np.exp(dist.log_prob(orders)) - table).max() < 1e-9
    families: list[tuple[Family, int]] = [("sub", 2), ("top", 1)]
    for family, smallest in families:
        for k in range(smallest, m + 1):
            events = all_events(m, k)
            happens = happens_table(m, k, family)
            marginals = dist.sub(events) if family == "sub" else dist.top(events)
            assert np.abs(marginals - table @ happens).max() < 1e-9, (family, k)


@pytest.mark.parametrize("m", [3, 5])
@pytest.mark.parametrize("name", CASES)
def test_mode_is_a_most_probable_ranking(name: str, m: int) -> None:
    dist, densities = CASES[name](m, np.random.default_rng(m))
    for order, density in zip(dist.mode().tolist(), densities, strict=True):
        best = max(density(other) for other in permutations(range(m)))
        assert density(tuple(order)) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_samples_follow_the_distribution(name: str) -> None:
    dist, densities = CASES[name](4, np.random.default_rng(4))
    size = 40_000
    drawn = dist.sample(size, np.random.default_rng(0))
    assert drawn.shape == (size, len(dist), 4)
    for instance, density in enumerate(densities):
        codes = drawn[:, instance] @ np.array([64, 16, 4, 1])
        for order in permutations(range(4)):
            p = density(order)
            share = float((codes == np.array(order) @ np.array([64, 16, 4, 1])).mean())
            assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / size) + 1e-6


@pytest.mark.parametrize("name", CASES)
def test_same_seed_same_samples(name: str) -> None:
    dist, _ = CASES[name](4, np.random.default_rng(4))
    first, second = (dist.sample(5, np.random.default_rng(3)) for _ in range(2))
    assert (first == second).all()


def wide_distributions() -> dict[str, RankingDistribution]:
    rng = np.random.default_rng(0)
    orders = np.unique([rng.permutation(15) for _ in range(60)], axis=0)
    return {
        "plackett_luce": PlackettLuce(rng.normal(scale=3, size=(4, 15))),
        "mallows": Mallows([rng.permutation(15) for _ in range(4)], [0.0, 0.1, 1.0, 50.0]),
        "sparse": SparseRankings(orders, rng.normal(scale=3, size=(4, len(orders))), -25.0),
    }


@pytest.mark.parametrize("name", wide_distributions())
def test_marginals_of_fifteen_items_sum_to_one(name: str) -> None:
    dist = wide_distributions()[name]
    for k in (1, 2, 3):
        assert np.abs(dist.top(all_events(15, k)).sum(axis=1) - 1).max() < 1e-9
    for k in (2, 3, 4):
        subset = subsets(15, k)[::97]
        for items in subset:
            alternatives = items[all_events(k, k)]
            assert np.abs(dist.sub(alternatives).sum(axis=1) - 1).max() < 1e-9


def test_enumerated_and_original_agree() -> None:
    dist, _ = plackett_luce_case(4, np.random.default_rng(0))
    assert np.allclose(enumerate_rankings(dist).sub(all_events(4, 3)), dist.sub(all_events(4, 3)))


def test_unlisted_rankings_of_many_items_are_sampled_by_rejection() -> None:
    rng = np.random.default_rng(0)
    listed = np.unique([rng.permutation(10) for _ in range(20)], axis=0)
    drawn = SparseRankings(listed, np.full((2, len(listed)), -50.0), 0.0).sample(50, rng)
    known = {tuple(order) for order in listed.tolist()}
    assert not known & {tuple(order) for order in drawn.reshape(-1, 10).tolist()}


def test_pairwise_probabilities_have_only_pairs() -> None:
    matrix = np.array([[[0.5, 0.9, 0.6], [0.1, 0.5, 0.7], [0.4, 0.3, 0.5]]])
    pairs = PairwiseProbabilities(matrix)
    assert pairs.sub([[0, 1], [2, 1]]).tolist() == [[0.9, 0.3]]
    assert pairs.mode().tolist() == [[0, 1, 2]]
    assert isinstance(pairs, PairMarginals)
    assert not isinstance(pairs, RankingDistribution)
    with pytest.raises(ValueError, match="pairwise probabilities are known for k = 2"):
        pairs.sub([[0, 1, 2]])


@pytest.mark.parametrize("m", [3, 4])
def test_take_selects_instances(m: int) -> None:
    rng = np.random.default_rng(m)
    index = np.array([1, 0, 1])
    for case in (plackett_luce_case, mallows_case, sparse_case, explicit_case, mixture_case):
        dist, _ = case(m, rng)
        everything = all_rankings(m)
        assert (dist.take(index).log_prob(everything) == dist.log_prob(everything)[index]).all()


@pytest.mark.parametrize("m", [3, 4])
def test_a_temperature_raises_probabilities_to_a_power(m: int) -> None:
    rng = np.random.default_rng(m)
    plackett_luce, _ = plackett_luce_case(m, rng)
    assert isinstance(plackett_luce, PlackettLuce)
    assert np.allclose(plackett_luce.at_temperature(2.0).log_utilities, plackett_luce.log_utilities / 2)
    for case in (mallows_case, sparse_case):
        dist, _ = case(m, rng)
        assert isinstance(dist, HasTemperature)
        power = np.exp(dist.log_prob(all_rankings(m)) / 2.0)
        expected = power / power.sum(axis=1, keepdims=True)
        assert np.allclose(np.exp(dist.at_temperature(2.0).log_prob(all_rankings(m))), expected)


@pytest.mark.parametrize("case", [plackett_luce_case, mallows_case, sparse_case])
def test_the_temperature_slope_is_the_derivative_of_the_likelihood(case: Callable[..., Case]) -> None:
    rng = np.random.default_rng(0)
    dist, _ = case(4, rng)
    assert isinstance(dist, HasTemperature)
    orders = dist.sample(1, rng)[0]

    def loss(beta: float) -> float:
        return -float(np.diag(dist.at_temperature(1 / beta).log_prob(orders)).mean())

    for beta in (0.5, 1.0, 2.0):
        numeric = (loss(beta + 1e-5) - loss(beta - 1e-5)) / 2e-5
        assert dist.temperature_slope(orders)(beta) == pytest.approx(numeric, abs=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PlackettLuce([0.0, 1.0]), "log_utilities: expected an array of 2 axes"),
        (lambda: PlackettLuce([[0.0, np.inf]]), "log_utilities: inf at index (0, 1)"),
        (lambda: PlackettLuce(np.empty((0, 3))), "log_utilities: is empty"),
        (lambda: PlackettLuce([[0.0, 1.0]]).sub([[0, 1, 2]]), "k: 3 is out of range"),
        (lambda: PlackettLuce([[0.0, 1.0]]).top([[2]]), "events: row 0 is [2]"),
        (lambda: PlackettLuce([[0.0, 1.0]]).log_prob([[0, 1, 2]]), "rows have 3 items, expected 2"),
        (lambda: PlackettLuce([[0.0, 1.0]]).sample(0, np.random.default_rng(0)), "size: 0 is out of range"),
        (lambda: Mallows([[0, 1]], -1.0), "dispersion: -1.0 is negative"),
        (lambda: Mallows([[0, 1]], np.nan), "dispersion: nan"),
        (lambda: Mallows([[0, 2]], 1.0), "center: row 0 is [0, 2]"),
        (lambda: Mallows([[0, 1]] * 2, [1.0] * 3), "dispersion: 3 values for 2 centers"),
        (lambda: SparseRankings([[0, 1]], [[0.0, 1.0]], 0.0), "logits: 2 columns for 1 orders"),
        (lambda: SparseRankings([[0, 1]] * 2, [[0.0, 1.0]], 0.0), "[0, 1] is listed twice (rows 0 and 1)"),
        (lambda: SparseRankings([[0, 1]], [[0.0]], [0.0, 1.0]), "unseen_logit: 2 values for 1 instances"),
        (lambda: SparseRankings([[0, 1]], [[0.0]], np.nan), "unseen_logit: nan"),
        (lambda: ExplicitRankings([[0, 1]], [[0.5]]), "probabilities: row 0 sums to 0.5, expected 1"),
        (lambda: ExplicitRankings([[0, 1], [1, 0]], [[1.5, -0.5]]), "1.5 at index (0, 0) is outside [0, 1]"),
        (lambda: PairwiseProbabilities([[[0.5, 0.9], [0.3, 0.5]]]), "the two must sum to 1"),
        (lambda: PairwiseProbabilities([[[0.5, 0.9]]]), "expected shape (n, m, m)"),
        (lambda: Mixture([PlackettLuce([[0.0, 1.0]])], [0.5]), "weights: sum to 0.5"),
        (lambda: Mixture([PlackettLuce([[0.0, 1.0]])], [0.5, 0.5]), "2 weights for 1 components"),
    ],
)
def test_errors_name_the_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    assert message in str(caught.value)
