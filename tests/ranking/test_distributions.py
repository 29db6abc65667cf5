"""Every distribution, compared with an enumeration of all m! rankings in plain Python."""

import math
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.ranking import (
    ExplicitRankings,
    Mallows,
    Mixture,
    PairwiseProbabilities,
    PlackettLuce,
    RankingDistribution,
    SparseRankings,
    all_rankings,
)
from rmcalib.ranking.events import Family, all_events, subsets
from tests import oracles

Case = tuple[RankingDistribution, list[oracles.Density]]


def plackett_luce_case(m: int, rng: np.random.Generator) -> Case:
    utilities = rng.normal(scale=2, size=(3, m))
    utilities[2, : m // 2] = utilities[2, -1]  # ties
    return PlackettLuce(utilities), [oracles.plackett_luce(row) for row in utilities.tolist()]


def mallows_case(m: int, rng: np.random.Generator) -> Case:
    centers = np.array([rng.permutation(m) for _ in range(3)])
    dispersions = np.array([0.0, 0.3, 2.5])
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
    probabilities = rng.dirichlet(np.ones(len(everything)), size=3)
    tables = [dict(zip(map(tuple, everything.tolist()), row, strict=True)) for row in probabilities.tolist()]
    return ExplicitRankings(everything, probabilities), [table.__getitem__ for table in tables]


def mixture_case(m: int, rng: np.random.Generator) -> Case:
    (one, first), (other, second) = mallows_case(m, rng), plackett_luce_case(m, rng)
    densities: list[oracles.Density] = [
        lambda order, a=a, b=b: 0.3 * a(order) + 0.7 * b(order)  # type: ignore[misc]
        for a, b in zip(first, second, strict=True)
    ]
    return Mixture([one, other], [0.3, 0.7]), densities


CASES = {
    "plackett_luce": plackett_luce_case,
    "mallows": mallows_case,
    "sparse": sparse_case,
    "explicit": explicit_case,
    "mixture": mixture_case,
}
FAMILIES: tuple[tuple[Family, int], ...] = (("sub", 2), ("top", 1))


@pytest.mark.parametrize("m", [2, 3, 5])
@pytest.mark.parametrize("name", CASES)
def test_marginals_mode_and_samples_follow_the_density(name: str, m: int) -> None:
    dist, densities = CASES[name](m, np.random.default_rng(m))
    orders = list(permutations(range(m)))
    table = np.array([[density(order) for order in orders] for density in densities])
    np.testing.assert_allclose(np.exp(dist.log_prob(orders)), table, atol=1e-9)
    for family, smallest in FAMILIES:
        for k in range(smallest, m + 1):
            events = all_events(m, k)
            happens = np.array([[oracles.happens(o, e, family) for e in events.tolist()] for o in orders])
            marginals = dist.sub(events) if family == "sub" else dist.top(events)
            np.testing.assert_allclose(marginals, table @ happens, atol=1e-9, err_msg=f"{family}-{k}")
    for order, row in zip(dist.mode().tolist(), table, strict=True):
        assert row[orders.index(tuple(order))] == pytest.approx(row.max())
    drawn = dist.sample(8_000, np.random.default_rng(0))
    assert (drawn[:5] == dist.sample(8_000, np.random.default_rng(0))[:5]).all()
    for instance, row in enumerate(table):
        seen = (drawn[:, instance, None] == np.array(orders)).all(axis=2).mean(axis=0)
        assert (np.abs(seen - row) < 5 * np.sqrt(row * (1 - row) / 8_000) + 1e-3).all()
    index = np.array([1, 0, 1])
    assert (dist.take(index).log_prob(orders) == dist.log_prob(orders)[index]).all()


@pytest.mark.parametrize("name", ["plackett_luce", "mallows", "sparse"])
def test_temperatures(name: str) -> None:
    rng = np.random.default_rng(0)
    dist, _ = CASES[name](4, rng)
    assert isinstance(dist, PlackettLuce | Mallows | SparseRankings)
    orders = dist.sample(1, rng)[0]
    if name != "plackett_luce":  # a temperature raises probabilities to a power
        power = np.exp(dist.log_prob(all_rankings(4)) / 2.0)
        after = np.exp(dist.at_temperature(2.0).log_prob(all_rankings(4)))
        np.testing.assert_allclose(after, power / power.sum(axis=1, keepdims=True))

    def loss(beta: float) -> float:
        return -float(np.diag(dist.at_temperature(1 / beta).log_prob(orders)).mean())

    for beta in (0.5, 2.0):
        numeric = (loss(beta + 1e-5) - loss(beta - 1e-5)) / 2e-5
        assert dist.temperature_slope(orders)(beta) == pytest.approx(numeric, abs=1e-6)


def test_marginals_of_fifteen_items_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    orders = np.unique([rng.permutation(15) for _ in range(60)], axis=0)
    for dist in (
        PlackettLuce(rng.normal(scale=3, size=(4, 15))),
        Mallows([rng.permutation(15) for _ in range(4)], [0.0, 0.1, 1.0, 50.0]),
        SparseRankings(orders, rng.normal(scale=3, size=(4, len(orders))), -25.0),
    ):
        for k in (1, 2, 3):
            np.testing.assert_allclose(dist.top(all_events(15, k)).sum(axis=1), 1, atol=1e-9)
        for k in (2, 3, 4):
            for items in subsets(15, k)[::197]:
                np.testing.assert_allclose(dist.sub(items[all_events(k, k)]).sum(axis=1), 1, atol=1e-9)


@pytest.mark.parametrize("scale", [1e4, 1e300])
def test_extreme_utilities(scale: float) -> None:
    dist = PlackettLuce(scale * np.array([np.linspace(1, -1, 30), np.zeros(30)]))
    assert dist.top([[0]])[:, 0].tolist() == pytest.approx([1.0, 1 / 30])
    assert dist.sub([[0, 29], [29, 0]]).tolist() == [[1.0, 0.0], [0.5, 0.5]]
    assert np.isfinite(dist.log_prob(dist.mode())).all()


def test_extreme_dispersions() -> None:
    rng = np.random.default_rng(0)
    center = rng.permutation(30)
    events = np.array([rng.permutation(30)[:4] for _ in range(20)])
    flat = Mallows(center, [0.0, 1e-300, 1e-12])
    np.testing.assert_allclose(flat.sub(events), 1 / 24, atol=1e-10)
    np.testing.assert_allclose(flat.top(events), math.factorial(26) / math.factorial(30), rtol=1e-9)
    sharp = Mallows(center, 50.0)
    assert sharp.sub(center[[[0, 1, 2], [3, 9, 27]]]).tolist() == [[1.0, 1.0]]
    assert sharp.sub(center[[[1, 0, 2]]])[0, 0] == pytest.approx(math.exp(-50), rel=1e-9)


@given(gap=st.integers(1, 28), dispersion=st.floats(0.05, 20))
@settings(deadline=None)
def test_mallows_pairs_have_the_closed_form(gap: int, dispersion: float) -> None:
    def h(j: int) -> float:
        return j / -math.expm1(-dispersion * j)

    dist = Mallows(np.arange(30), dispersion)
    assert dist.sub([[0, gap]])[0, 0] == pytest.approx(h(gap + 1) - h(gap), abs=1e-12)


def test_rank_classifier_of_many_items() -> None:
    rng = np.random.default_rng(0)
    orders = np.unique([rng.permutation(25) for _ in range(10)], axis=0)  # 25! does not fit in int64
    dist = SparseRankings(orders, np.zeros((1, len(orders))), -math.lgamma(26))
    assert dist.sub(all_events(25, 2)).sum() == pytest.approx(math.comb(25, 2))
    unseen = SparseRankings(orders, np.full((1, len(orders)), -99.0), 0.0).sample(50, rng).reshape(-1, 25)
    assert not set(map(tuple, orders.tolist())) & set(map(tuple, unseen.tolist()))


def test_mixture_weights_have_the_largest_likelihood() -> None:
    rng = np.random.default_rng(0)
    n, m = 1_000, 9
    parts = [PlackettLuce(rng.normal(scale=2, size=(n, m))), PlackettLuce(np.zeros((n, m)))]
    orders = Mixture(parts, [0.7, 0.3]).sample(1, rng)[0]
    fitted = Mixture.fit(parts, orders)
    assert fitted.weights.tolist() == pytest.approx([0.7, 0.3], abs=0.05)

    def likelihood(weight: float) -> float:
        dist = Mixture(parts, [weight, 1 - weight]).take(np.arange(200))
        return float(np.diag(dist.log_prob(orders[:200])).mean())

    best = Mixture.fit([part.take(np.arange(200)) for part in parts], orders[:200]).weights[0]
    assert likelihood(best) >= max(likelihood(best - 0.01), likelihood(best + 0.01))
    assert (fitted.mode() == parts[0].mode()).all()  # too many items to enumerate
    with pytest.raises(ValueError, match="orders: row 1"):
        Mixture.fit([ExplicitRankings([[0, 1]], [[1.0]] * 2)], [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: PlackettLuce([0.0, 1.0]), "log_utilities"),
        (lambda: PlackettLuce([[0.0, np.inf]]), "log_utilities: inf"),
        (lambda: PlackettLuce(np.empty((0, 3))), "log_utilities"),
        (lambda: PlackettLuce([[0.0, 1.0]]).sub([[0, 1, 2]]), "k: 3"),
        (lambda: PlackettLuce([[0.0, 1.0]]).top([[2]]), "events: row 0"),
        (lambda: PlackettLuce([[0.0, 1.0]]).log_prob([[0, 1, 2]]), "orders"),
        (lambda: PlackettLuce([[0.0, 1.0]]).sample(0, np.random.default_rng(0)), "size: 0"),
        (lambda: Mallows([[0, 1]], -1.0), "dispersion: -1"),
        (lambda: Mallows([[0, 2]], 1.0), "center: row 0"),
        (lambda: Mallows([[0, 1]] * 2, [1.0] * 3), "dispersion: 3"),
        (lambda: SparseRankings([[0, 1]], [[0.0, 1.0]], 0.0), "logits: 2"),
        (lambda: SparseRankings([[0, 1]] * 2, [[0.0, 1.0]], 0.0), "orders"),
        (lambda: SparseRankings([[0, 1]], [[0.0]], [0.0, 1.0]), "unseen_logit: 2"),
        (lambda: ExplicitRankings([[0, 1]], [[0.5]]), "probabilities: row 0"),
        (lambda: PairwiseProbabilities([[[0.5, 0.9], [0.3, 0.5]]]), "matrix: instance 0"),
        (lambda: PairwiseProbabilities(np.full((1, 3, 3), 0.5)).sub([[0, 1, 2]]), "k: 3"),
        (lambda: Mixture([PlackettLuce([[0.0, 1.0]])], [0.5]), "weights"),
    ],
)
def test_errors_name_the_bad_input(call: Callable[[], object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        call()
