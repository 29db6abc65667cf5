"""Properties that hold for all parameters: relabelled items, subsets of items, extreme values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.ranking import Mallows, PlackettLuce, RankingDistribution, SparseRankings, TooCostlyError
from rmcalib.ranking import _mallows as mallows_module
from rmcalib.ranking.events import all_events

utilities = st.integers(3, 6).flatmap(
    lambda m: st.lists(st.floats(-50, 50), min_size=m, max_size=m).map(lambda row: np.array([row]))
)
seeds = st.integers(0, 10_000)


def relabelled(dist: RankingDistribution, names: IntArray) -> RankingDistribution:
    """The same distribution with item i called names[i]."""
    back = np.argsort(names)
    if isinstance(dist, PlackettLuce):
        return PlackettLuce(dist.log_utilities[:, back])
    if isinstance(dist, Mallows):
        return Mallows(names[dist.center], dist.dispersion)
    assert isinstance(dist, SparseRankings)
    return SparseRankings(names[dist.orders], dist.logits, dist.unseen_logit)


def some_distribution(kind: str, m: int, rng: np.random.Generator) -> RankingDistribution:
    if kind == "plackett_luce":
        return PlackettLuce(rng.normal(scale=5, size=(2, m)))
    if kind == "mallows":
        return Mallows([rng.permutation(m) for _ in range(2)], rng.uniform(0, 3, size=2))
    orders = np.unique([rng.permutation(m) for _ in range(5)], axis=0)
    return SparseRankings(orders, rng.normal(size=(2, len(orders))), rng.normal())


@pytest.mark.parametrize("kind", ["plackett_luce", "mallows", "sparse"])
@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_relabelling_items_relabels_results(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(3, 7))
    dist, names = some_distribution(kind, m, rng), rng.permutation(m)
    k = int(rng.integers(2, m + 1))
    events, renamed = all_events(m, k), relabelled(dist, names)
    assert np.allclose(dist.sub(events), renamed.sub(names[events]), atol=1e-12)
    assert np.allclose(dist.top(events), renamed.top(names[events]), atol=1e-12)
    assert np.allclose(dist.log_prob(all_events(m, m)), renamed.log_prob(names[all_events(m, m)]))


@given(u=utilities, data=st.data())
@settings(deadline=None)
def test_plackett_luce_on_a_subset_is_plackett_luce_of_the_subset(u: FloatArray, data: st.DataObject) -> None:
    m = u.shape[1]
    items = np.array(data.draw(st.lists(st.integers(0, m - 1), min_size=2, max_size=m, unique=True)))
    alone = PlackettLuce(u[:, items])
    k = len(items)
    local = all_events(k, k)
    assert np.allclose(PlackettLuce(u).sub(items[local]), np.exp(alone.log_prob(local)), atol=1e-12)


@pytest.mark.parametrize("kind", ["plackett_luce", "mallows", "sparse"])
@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_top_m_and_sub_m_are_the_likelihood(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 6))
    dist, orders = some_distribution(kind, m, rng), all_events(m, m)
    assert np.allclose(dist.top(orders), np.exp(dist.log_prob(orders)), atol=1e-14)
    assert np.allclose(dist.sub(orders), np.exp(dist.log_prob(orders)), atol=1e-14)


@given(u=utilities, shift=st.floats(-1e6, 1e6))
@settings(deadline=None)
def test_plackett_luce_depends_only_on_differences(u: FloatArray, shift: float) -> None:
    events = all_events(u.shape[1], 2)
    assert np.allclose(PlackettLuce(u).top(events), PlackettLuce(u + shift).top(events), atol=1e-6)


@pytest.mark.parametrize("scale", [1e4, 1e300])
def test_extreme_utilities_give_finite_correct_results(scale: float) -> None:
    rng = np.random.default_rng(0)
    m = 30
    u = scale * np.array([np.linspace(1, -1, m), rng.permutation(m) / m, np.zeros(m)])
    dist = PlackettLuce(u)
    order = dist.mode()
    for k in (1, 2, 3):
        events = order[:, :k]
        assert np.allclose(np.diag(dist.top(events))[:2], 1.0)
    assert np.isfinite(dist.log_prob(order)).all()
    assert np.allclose(dist.top(all_events(m, 1))[2], 1 / m)
    pairs = dist.sub(all_events(m, 2))
    assert np.isfinite(pairs).all()
    assert np.allclose(pairs[0], np.round(pairs[0]), atol=1e-200)
    assert np.allclose(pairs[2], 0.5)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_mallows_without_dispersion_is_uniform_for_thirty_items(k: int) -> None:
    rng = np.random.default_rng(k)
    events = np.array([rng.permutation(30)[:k] for _ in range(50)])
    dist = Mallows(rng.permutation(30), [0.0, 1e-300, 1e-12])
    assert np.allclose(dist.sub(events), 1 / math.factorial(k), atol=1e-10)
    assert np.allclose(dist.top(events), math.factorial(30 - k) / math.factorial(30), rtol=1e-9)


def test_mallows_with_huge_dispersion_is_always_the_centre() -> None:
    center = np.random.default_rng(0).permutation(30)
    dist = Mallows(center, 50.0)
    assert dist.sub(center[[[0, 1, 2], [3, 9, 27]]]).tolist() == [[1.0, 1.0]]
    assert dist.sub(center[[[1, 0, 2]]])[0, 0] == pytest.approx(math.exp(-50), rel=1e-9)
    assert dist.top(center[None, :30])[0, 0] == pytest.approx(1.0)
    assert np.isfinite(dist.log_prob([center[::-1]])).all()


@given(gap=st.integers(1, 28), dispersion=st.floats(0.05, 20))
def test_mallows_pairs_have_the_closed_form(gap: int, dispersion: float) -> None:
    def h(j: int) -> float:
        return j / -math.expm1(-dispersion * j)

    dist = Mallows(np.arange(30), dispersion)
    assert dist.sub([[0, gap]])[0, 0] == pytest.approx(h(gap + 1) - h(gap), abs=1e-12)


def test_mallows_ignores_items_outside_the_chosen_range() -> None:
    inner = Mallows(np.arange(6), 0.4).sub(all_events(6, 3))
    outer = Mallows(np.arange(12), 0.4).sub(all_events(6, 3) + 3)
    assert np.allclose(inner, outer, atol=1e-14)


def test_mallows_instances_keep_their_own_parameters() -> None:
    rng = np.random.default_rng(0)
    centers = np.array([rng.permutation(7) for _ in range(3)])[[0, 1, 2, 0, 1]]
    dispersions = np.array([0.1, 0.5, 0.1, 0.5, 0.5])
    together = Mallows(centers, dispersions).sub(all_events(7, 3))
    for row, (center, dispersion) in enumerate(zip(centers, dispersions, strict=True)):
        assert np.allclose(together[row], Mallows(center, dispersion).sub(all_events(7, 3))[0], atol=1e-14)


def test_marginals_that_take_too_long_raise_and_can_be_estimated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dist = Mallows([np.random.default_rng(0).permutation(10)], 0.3)
    events = all_events(10, 3)[::17]
    exact = dist.sub(events)
    monkeypatch.setattr(mallows_module, "MAX_WORK", 10.0)
    with pytest.raises(TooCostlyError, match="sub_estimate"):
        dist.sub(events)
    estimate = dist.sub_estimate(events, 20_000, np.random.default_rng(1))
    z = (estimate.probabilities - exact) / estimate.standard_errors
    assert np.abs(z).max() < 5
    assert z.std() == pytest.approx(1.0, abs=0.35)


def test_rank_classifier_with_more_rankings_than_int64_can_hold() -> None:
    rng = np.random.default_rng(0)
    orders = np.unique([rng.permutation(25) for _ in range(10)], axis=0)
    dist = SparseRankings(orders, np.zeros((1, len(orders))), -math.lgamma(26))
    assert dist.sub(all_events(25, 2)).sum() == pytest.approx(math.comb(25, 2))
    assert np.isfinite(dist.log_prob([np.arange(25)])).all()
