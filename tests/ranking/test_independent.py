"""Independent random rewards, compared with fine grids and draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr, ndtri

from rmcalib._util.arrays import FloatArray
from rmcalib.ranking import IndependentRewards, PairMarginals


def brute_force(mean: FloatArray, spread: FloatArray) -> FloatArray:
    """P(R_i is the largest) from the midpoint rule on a very fine grid."""
    low, high = (mean - 10 * spread).min(), (mean + 10 * spread).max()
    x = np.linspace(low, high, 400_001)
    x, step = (x[1:] + x[:-1]) / 2, x[1] - x[0]
    z = (x - mean[:, None]) / spread[:, None]
    density, cdf = np.exp(-z * z / 2) / (spread[:, None] * np.sqrt(2 * np.pi)), ndtr(z)
    others = [np.prod(np.delete(cdf, i, axis=0), axis=0) for i in range(len(mean))]
    return np.array([(density[i] * others[i]).sum() * step for i in range(len(mean))])


@pytest.mark.parametrize("m", [2, 3, 4, 10])
@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0])
def test_the_largest_normal_reward(m: int, scale: float) -> None:
    rng = np.random.default_rng(m)
    mean, spread = scale * rng.normal(size=(2, m)), np.exp(rng.normal(size=(2, m)))
    found = IndependentRewards.normal(mean, spread).first()
    expected = np.array([brute_force(*both) for both in zip(mean, spread, strict=True)])
    assert found == pytest.approx(expected, abs=1e-6)
    assert found.sum(axis=1) == pytest.approx(1.0)


@given(st.floats(-40, 40), st.floats(0.05, 20), st.floats(0.05, 20))
@settings(max_examples=30)
def test_two_normal_rewards_have_a_formula(gap: float, one: float, other: float) -> None:
    rewards = IndependentRewards.normal([[gap, 0.0]], [[one, other]])
    d = gap / np.hypot(one, other)
    assert rewards.sub([[0, 1]])[0, 0] == pytest.approx(ndtr(d), abs=1e-12)
    assert rewards.log_first()[0] == pytest.approx([log_ndtr(d), log_ndtr(-d)], rel=1e-6, abs=1e-9)


def test_quantiles_against_draws() -> None:
    rng = np.random.default_rng(0)
    quantiles = np.sort(rng.normal(size=(2, 3, 9)) ** 3, axis=2)  # skewed, with long tails
    rewards = IndependentRewards.from_quantiles(quantiles)
    levels = np.arange(1, 10) / 10
    z = rng.normal(size=(100_000, 2, 3))
    draws = np.empty_like(z)
    for i in range(2):
        for j in range(3):
            own, scores = quantiles[i, j], ndtri(levels)
            slope = (own[-1] - own[0]) / (scores[-1] - scores[0])
            inside = np.interp(z[:, i, j], scores, own)
            below, above = np.minimum(z[:, i, j] - scores[0], 0), np.maximum(z[:, i, j] - scores[-1], 0)
            draws[:, i, j] = inside + slope * (below + above)
    largest = np.eye(3)[draws.argmax(axis=2)].mean(axis=0)
    assert rewards.first() == pytest.approx(largest, abs=0.01)
    assert rewards.sub([[0, 1], [2, 1]])[:, 1] == pytest.approx(
        (draws[..., 2] > draws[..., 1]).mean(axis=0), abs=0.01
    )
    # A quantile is where the distribution function has its level.
    for level, place in zip(levels, range(9), strict=True):
        z_at, _ = rewards._normal_scores(quantiles[:, 0, place : place + 1], slice(None))
        assert ndtr(z_at[:, 0, 0]) == pytest.approx(level, abs=1e-9)


def test_order_of_quantiles_and_of_instances_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    quantiles = rng.normal(size=(5, 2, 7))
    rewards = IndependentRewards.from_quantiles(quantiles)
    assert IndependentRewards.from_quantiles(quantiles[..., ::-1]).first() == pytest.approx(rewards.first())
    assert rewards.take(np.array([3])).first() == pytest.approx(rewards.first()[3:4])
    assert isinstance(rewards, PairMarginals)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IndependentRewards.normal([[0.0, 1.0]], [[1.0]]), "spread: expected shape"),
        (lambda: IndependentRewards.normal([[0.0, 1.0]], [[1.0, -1.0]]), "item 1 has -1; a spread must be"),
        (lambda: IndependentRewards.normal([[0.0]], [[1.0]]), "points: expected shape"),
        (lambda: IndependentRewards.from_quantiles([[[1.0], [2.0]]]), "at least 2 for each reward, got 1"),
        (lambda: IndependentRewards.from_quantiles([[[1.0, 1.0], [2.0, 3.0]]]), "item 0 are all equal"),
        (lambda: IndependentRewards.normal([[0.0, 1.0, 2.0]], [[1.0] * 3]).sub([[0, 1, 2]]), "in pairs"),
    ],
)
def test_bad_rewards_raise(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
