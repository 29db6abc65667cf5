"""Intervals that allow for wrong choices which a sample does not show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from rmcalib._util.arrays import first_and_next
from rmcalib.calibration import ErrorOptions, binned_inference, jump_interval, pairwise_inference, scale_loss
from rmcalib.calibration._intervals import clopper_pearson
from rmcalib.calibration._rare import frequency_distances, outcome_limits


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 200), st.data())
def test_clopper_pearson_equals_quantiles_of_beta_distributions(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = clopper_pearson(k, n)
    assert low == pytest.approx(beta.ppf(0.025, k, n - k + 1) if k else 0.0)
    assert high == pytest.approx(beta.ppf(0.975, k + 1, n - k) if k < n else 1.0)


@pytest.mark.parametrize(("accuracy", "n"), [(0.97, 12), (0.97, 40), (0.995, 40), (0.995, 100)])
def test_a_calibrated_model_is_rarely_called_over_or_under_confident(accuracy: float, n: int) -> None:
    rng = np.random.default_rng(n)
    runs, called, missed = 400, 0, 0
    for _ in range(runs):
        p = np.clip(accuracy + rng.uniform(-1, 1, n) * (1 - accuracy), 0.5, 1.0)
        wrong = rng.random(n) > p
        low, high = jump_interval(p - ~wrong, p - 1, [p])
        called += not low <= 0 <= high
        loss, right, other = np.where(wrong, -np.log1p(-p), -np.log(p)), -np.log(p), -np.log1p(-p)
        q = np.linspace(2 * accuracy - 1, 1, 20_001)[:-1] + (1 - accuracy) / 20_000
        truth = -(q * np.log(q) + (1 - q) * np.log1p(-q)).mean()
        low, high = jump_interval(loss, right, [other])
        missed += not low <= truth <= high
    assert called / runs <= 0.07
    assert missed / runs <= 0.07 + 2 * (0.07 * 0.93 / runs) ** 0.5


def test_frequency_distances_equal_measures_of_the_outcome_limits() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=60)
    happened = (np.arange(3) == (rng.random(60) > p.max(axis=1))[:, None] * rng.integers(1, 3, (60, 1))) * 1.0
    order = np.argsort(-p, axis=1)
    happened = np.take_along_axis(happened, np.argsort(order, axis=1), axis=1)  # the first choice, or another
    loss, sizes = -np.log(p).reshape(-1), np.full(60, 3)
    first, second = first_and_next(p.reshape(-1), sizes)
    row = np.flatnonzero(happened.reshape(-1))
    more, fewer = frequency_distances(loss[row] - loss[first], loss[second] - loss[first], 0.95)
    low, high = outcome_limits(p.reshape(-1), happened.reshape(-1), sizes)
    assert (loss * high).sum() / 60 - loss[row].mean() == pytest.approx(more)
    assert loss[row].mean() - (loss * low).sum() / 60 == pytest.approx(fewer)
    assert low.reshape(60, 3).sum(axis=1) == pytest.approx(1)
    assert high.reshape(60, 3).sum(axis=1) == pytest.approx(1)


def test_errors_and_information_allow_for_the_rule_of_three() -> None:
    n = 40
    rewards, correct, groups = np.tile([4.0, 0.0], n), np.tile([1.0, 0.0], n), np.repeat(np.arange(n), 2)
    p = np.tile([1, np.exp(-4)], n) / (1 + np.exp(-4))
    found = scale_loss(rewards, correct, groups)
    rate = 1 - 0.025 ** (1 / n)  # so many errors go unseen among n prompts in 2.5% of the samples
    entropy = -(rate * np.log2(rate) + (1 - rate) * np.log2(1 - rate))
    assert found.usable.value == found.usable.high == 1
    assert found.usable.low == pytest.approx(1 - entropy, abs=1e-6)
    assert found.lost.low == 0
    assert found.temperature.high == pytest.approx(4 / np.log((1 - rate) / rate), rel=1e-6)
    gap = abs(p[0] - (1 - rate))
    ece = binned_inference(p, correct, groups, ErrorOptions(), one_per_group=True, resamples=99).interval()
    assert ece.high >= gap - 1e-9
    pairs = pairwise_inference(np.log(p), correct == 1, groups, resamples=99).interval()
    assert pairs.high >= gap - 1e-9


def test_a_tied_choice_that_is_surely_half_right_has_no_error() -> None:
    half = np.full(30, 0.5)
    found = binned_inference(
        half, half, np.arange(30), ErrorOptions(), one_per_group=False, share=half, resamples=99
    )
    assert found.value == 0
    assert found.null == pytest.approx(np.zeros(99))


def test_usable_information_near_zero_is_not_zero_for_sure() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(100):
        utility = rng.normal(scale=0.1, size=(40, 2))
        winner = (utility + rng.gumbel(size=(40, 2))).argmax(axis=1)
        correct = (np.arange(2) == winner[:, None]).reshape(-1)
        found = scale_loss(utility.reshape(-1), correct, np.repeat(np.arange(40), 2)).usable
        held += found.low <= 0.0036 <= found.high
    assert held >= 93
