"""Best of n on arrays: exact values, joint intervals, and what they say about the number of samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import comb

from rmcalib.calibration.best_of import (
    Gains,
    best_of_values,
    chosen_weights,
    curve_limits,
    doubled,
    gains_of,
    joint_level,
    numbers_of_samples,
)


def brute_force(rewards: Sequence[float], values: Sequence[float], k: int) -> float:
    """Average over all subsets of k samples, and over equal rewards."""
    found = []
    for subset in combinations(range(len(rewards)), k):
        largest = max(rewards[i] for i in subset)
        found.append(np.mean([values[i] for i in subset if rewards[i] == largest]))
    return float(np.mean(found))


@given(st.data())
@settings(max_examples=60)
def test_values_are_averages_over_all_subsets(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    rewards = [data.draw(st.lists(st.integers(0, 3), min_size=m, max_size=m)) for m in sizes]  # with ties
    values = [data.draw(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=m, max_size=m)) for m in sizes]
    k = np.arange(1, min(sizes) + 1)
    found = best_of_values(np.concatenate(rewards).astype(float), np.concatenate(values), np.array(sizes), k)
    expected = [[brute_force(r, v, int(one)) for one in k] for r, v in zip(rewards, values, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("m", [2, 7, 64, 400])
def test_weights_are_ratios_of_binomial_coefficients(m: int) -> None:
    k = doubled(m)
    found = chosen_weights(m, k)
    for column, one in zip(found.T, k.tolist(), strict=True):
        expected = [comb(m - 1 - r, one - 1, exact=True) / comb(m, one, exact=True) for r in range(m)]
        np.testing.assert_allclose(column, expected, rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(found.sum(axis=0), 1.0, rtol=1e-12)


def test_the_label_as_reward_gives_pass_at_k() -> None:
    correct, m = 3, 10
    label = (np.arange(m) < correct).astype(float)
    found = best_of_values(label, label, np.array([m]), np.arange(1, m + 1))[0]
    expected = [1 - comb(m - correct, k, exact=True) / comb(m, k, exact=True) for k in range(1, m + 1)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_which_numbers_of_samples() -> None:
    assert numbers_of_samples(5).tolist() == [1, 2, 3, 4, 5]
    assert numbers_of_samples(32).tolist() == list(range(1, 33))
    assert numbers_of_samples(48).tolist() == [1, 2, 4, 8, 16, 32, 48]


def test_the_joint_level_is_between_one_interval_and_independent_ones() -> None:
    rng = np.random.default_rng(0)
    one = rng.normal(size=(400, 1))
    independent, equal = rng.normal(size=(400, 4)), one * np.ones(4)
    assert joint_level(one) == pytest.approx(0.95, abs=0.003)
    assert joint_level(equal) == pytest.approx(0.95, abs=0.003)
    assert joint_level(independent) == pytest.approx(0.95**0.25, abs=0.003)
    assert joint_level(np.ones((10, 3))) == 0.95
    # A column that does not vary changes nothing; clusters make equal rows of one observation.
    assert joint_level(np.column_stack([one, np.zeros(400)])) == joint_level(one)
    twice = np.repeat(independent, 2, axis=0)
    assert joint_level(twice, np.repeat(np.arange(400), 2)) == pytest.approx(joint_level(independent))


def gains(low: list[float], high: list[float]) -> Gains:
    """All pairs of 1, 2, 4, in the order (1, 2), (1, 4), (2, 4)."""
    fewer, more = np.array([1, 1, 2]), np.array([2, 4, 4])
    return Gains(fewer, more, (np.array(low) + high) / 2, np.array(low), np.array(high))


def test_what_limits_say() -> None:
    helps = gains([0.1, 0.2, 0.05], [0.2, 0.3, 0.1])
    assert (helps.useful_up_to(), helps.enough_at(0.01), helps.over_optimised_from()) == (4, None, None)
    first = gains([0.1, 0.1, -0.02], [0.2, 0.2, 0.009])
    assert (first.useful_up_to(), first.enough_at(0.01), first.over_optimised_from()) == (2, 2, None)
    falls = gains([0.1, -0.1, -0.3], [0.2, 0.1, -0.1])
    assert (falls.useful_up_to(), falls.enough_at(0.01), falls.over_optimised_from()) == (2, 2, 4)
    unknown = gains([-0.1] * 3, [0.1] * 3)
    assert (unknown.useful_up_to(), unknown.enough_at(0.01), unknown.over_optimised_from()) == (
        1,
        None,
        None,
    )
    # With a cost of a sample, gains may be larger the more samples they take.
    assert unknown.enough_at(0.0, cost=0.1) == 1
    assert unknown.enough_at(0.0, cost=0.06) == 2


def drawn(n: int, m: int, p: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    label = (rng.random(n * m) < p).astype(float)
    return label + rng.normal(size=n * m), label, np.full(n, m)


def test_intervals_allow_for_errors_that_were_not_seen() -> None:
    """If every sample is right, a rare prompt may still be wrong: 40 prompts show at most about 1 in 10."""
    k = doubled(8)
    values = np.ones((40, len(k)))
    low = [one for one, _ in curve_limits(values)]
    assert all(0.85 < one < 0.95 for one in low)
    found = gains_of(values, k, np.full(40, 8))
    assert (found.low < -0.02).all()
    assert (found.high > 0.02).all()
    assert found.useful_up_to() == 1
    assert found.over_optimised_from() is None


def test_clusters_widen_the_limits() -> None:
    rng = np.random.default_rng(1)
    reward, label, sizes = drawn(60, 4, 0.4, rng)
    k = doubled(4)
    values = best_of_values(reward, label, sizes, k)
    alone = gains_of(values, k, sizes)
    copied = np.repeat(values, 5, axis=0)
    together = gains_of(copied, k, np.repeat(sizes, 5), np.repeat(np.arange(60), 5))
    naive = gains_of(copied, k, np.repeat(sizes, 5))
    np.testing.assert_allclose(together.value, alone.value)
    width, true, wrong = (one.high - one.low for one in (alone, together, naive))
    np.testing.assert_allclose(true, width, rtol=0.1)
    assert (wrong < 0.6 * width).all()


def test_one_correct_response_of_m_fixes_the_mean_of_one_sample() -> None:
    values = np.column_stack([np.full(50, 0.25), np.repeat([0.0, 1.0], 25)])
    limits = curve_limits(values)
    assert limits[0] == (0.25, 0.25)
    assert limits[1][0] < 0.4 < 0.6 < limits[1][1]


def test_limits_hold_for_all_pairs_at_once() -> None:
    """Joint coverage of 200 data sets, and of the curve; scripts/measure_best_of_n.py has many worlds."""
    rng, k, m, n = np.random.default_rng(2), doubled(8), 8, 60
    world = drawn(200_000, m, 0.3, rng)
    truth = best_of_values(*world, k).mean(axis=0)
    first, last = np.triu_indices(len(k), 1)
    pairs = curve = 0
    for _ in range(200):
        reward, label, sizes = drawn(n, m, 0.3, rng)
        values = best_of_values(reward, label, sizes, k)
        found = gains_of(values, k, sizes)
        moved = truth[last] - truth[first]
        pairs += bool(((found.low <= moved) & (moved <= found.high)).all())
        curve += all(low <= one <= high for one, (low, high) in zip(truth, curve_limits(values), strict=True))
    assert 0.91 <= pairs / 200 <= 0.995
    assert 0.91 <= curve / 200 <= 0.995
