"""Learners: they learn, are reproducible with a seed, and agree with brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from rmcalib.ranking import Mallows, PlackettLuce
from rmcalib.tabular import LEARNERS, PlackettLuceLearner, Training, synthetic_dataset
from rmcalib.tabular._learners import (
    MallowsLearner,
    PairwiseLearner,
    RankClassifier,
    newman_utilities,
)
from tests.golden import predictions
from tests.tabular.files import small


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_are_reproducible_with_a_seed(name: str) -> None:
    data = small()
    events = [[0, 1], [2, 1]]
    first, second = (
        LEARNERS[name](3).fit(data.numeric, data.orders).predict(data.numeric).sub(events) for _ in "ab"
    )
    np.testing.assert_array_equal(first, second)
    assert first.shape == (60, 2)


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_refuse_mismatched_data(name: str) -> None:
    with pytest.raises(ValueError, match="2 rankings for 1 rows"):
        LEARNERS[name](0).fit([[0.0]], [[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="at least two labels"):
        LEARNERS[name](0).fit([[0.0]], [[0]])


def test_plackett_luce_approximates_the_true_distribution() -> None:
    data, truth = synthetic_dataset(1500, 4, spread=2.0)
    model = PlackettLuceLearner(Training(hidden=(20,), epochs=40, learning_rate=1e-2))
    learned = model.fit(data.numeric[:1000], data.orders[:1000]).predict(data.numeric[1000:])
    assert isinstance(learned, PlackettLuce)
    pairs = list(itertools.permutations(range(4), 2))
    gap = np.abs(learned.sub(pairs) - PlackettLuce(truth.log_utilities[1000:]).sub(pairs)).mean()
    assert gap < 0.05


def test_mallows_has_the_maximum_likelihood_over_all_centres() -> None:
    rng = np.random.default_rng(1)
    orders = Mallows([2, 0, 3, 1], np.full(200, 0.6)).sample(1, rng)[0]
    model = MallowsLearner().fit(np.zeros((200, 1)), orders)

    def likelihood(center: tuple[int, ...], dispersion: float) -> float:
        return float(Mallows(center, dispersion).log_prob(orders).sum())

    best = likelihood(tuple(model.center_), model.dispersion_)
    grid = np.linspace(max(model.dispersion_ - 0.3, 0), model.dispersion_ + 0.3, 41)
    others = [likelihood(c, x) for c in itertools.permutations(range(4)) for x in grid]
    assert best >= max(others) - 1e-9


def test_rank_classifier_keeps_mass_for_unseen_rankings() -> None:
    orders = [[0, 1, 2]] * 8 + [[2, 1, 0]] * 7 + [[1, 0, 2]]
    features = np.linspace(-1, 1, 16)[:, None]
    model = RankClassifier(Training(epochs=0)).fit(features, orders)
    forecast = model.predict(features)
    every = np.array(list(itertools.permutations(range(3))))
    p = np.exp(forecast.log_prob(every))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    # With logits of zero, the three unseen rankings share the Good-Turing probability; one was seen once.
    unseen = 1.5 / 17
    assert model.unseen_logit_ == pytest.approx(np.log(unseen / (1 - unseen)))
    assert len(forecast.orders) == 3


def test_pairs_with_one_order_only_get_a_smoothed_frequency() -> None:
    features = np.arange(10.0)[:, None]
    forecast = PairwiseLearner().fit(features, [[0, 1, 2]] * 5 + [[0, 2, 1]] * 5).predict(features)
    np.testing.assert_allclose(forecast.sub([[0, 1], [1, 0]]), [[11 / 12, 1 / 12]] * 10)
    assert forecast.sub([[1, 2]])[0, 0] > 0.5 > forecast.sub([[1, 2]])[-1, 0]


@settings(deadline=None, max_examples=10)
@given(npst.arrays(np.float64, (2, 5), elements=st.floats(-3, 3)))
def test_newman_recovers_the_utilities_of_bradley_terry_pairs(utilities: np.ndarray) -> None:
    theta = np.exp(utilities)
    matrix = theta[:, :, None] / (theta[:, :, None] + theta[:, None, :])
    found = newman_utilities(matrix, iterations=2000)
    gaps = (found - found[:, :1]) - (utilities - utilities[:, :1])
    assert np.abs(gaps).max() < 1e-4


@pytest.mark.parametrize(
    ("name", "fraction"), [("iris", 0.66), ("political", 1.0), ("authorship", 0.99), ("glass", 1.0)]
)
def test_plackett_luce_from_pairs_equals_the_public_code_on_its_pairs(name: str, fraction: float) -> None:
    # The public code starts at random. If pairs are nearly certain, 100 iterations depend on the start.
    golden = predictions(name)
    utilities = newman_utilities(golden["rpc_pairwise"].astype(np.float64))
    found = np.exp(PlackettLuce(np.maximum(utilities, np.log(1e-6))).log_prob(golden["orders"] - 1))
    gaps = np.abs(found - golden["probs_PlackettLuceRPC"]).max(axis=1)
    assert np.mean(gaps < 1e-5) >= fraction
