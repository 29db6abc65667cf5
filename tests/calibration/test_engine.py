"""The engine on event tables: worlds, sums, nulls, intervals, clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import Events, ece, ece_interval, ece_null, mean_interval
from rmcalib.calibration.binning import ErrorOptions
from rmcalib.calibration.errors import binned
from rmcalib.calibration.events import Independent, OneOf, Voters
from rmcalib.calibration.intervals import (
    Interval,
    clopper_pearson,
    difference,
    jump_interval,
    mean_difference,
    proportion_interval,
    stated_interval,
)
from rmcalib.calibration.simulation import Cells, Features, draw_sums, expected_sums
from rmcalib.metrics.views import whole_part
from rmcalib.scores import Scores
from tests import oracles


def forecasts(n: int, m: int, seed: int, scale: float = 1.0) -> tuple[FloatArray, FloatArray, IntArray]:
    """Top-1 forecasts whose outcomes are drawn from rewards ``scale`` times smaller: calibrated for 1."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(n, m)) * 1.5
    winner = (rewards + rng.gumbel(size=(n, m))).argmax(axis=1)
    logits = scale * rewards
    p = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    return p.ravel(), np.eye(m)[winner].ravel(), np.repeat(np.arange(n), m)


def joints() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    p, _, _ = forecasts(30, 3, 1)
    part = whole_part(Scores.from_arrays(rng.normal(size=(20, 4))))
    return {
        "independent": Independent(rng.random(40)),
        "shared": Independent(rng.random(40) / 2, np.full(40, 0.5)),
        "one of": OneOf(p, np.full(30, 3)),
        "voters": Voters(rng.random(25), rng.integers(1, 9, size=25), 0.2),
        "winners": part.pairs.joint,
    }


def slow_world(joint: Any, rng: np.random.Generator) -> FloatArray:
    """Draw the outcomes of a table, prompt by prompt: NaN where an event is not observed."""
    if isinstance(joint, Independent):
        share = np.ones(len(joint.p)) if joint.share is None else joint.share
        return np.array([s * (rng.random() < p / s) for p, s in zip(joint.p, share, strict=True)])
    if isinstance(joint, Voters):
        size = (1 - joint.correlation) / joint.correlation
        return np.array(
            [
                rng.binomial(n, rng.beta(p * size, (1 - p) * size)) / n
                for p, n in zip(joint.p, joint.votes, strict=True)
            ]
        )
    p = joint.p if isinstance(joint, OneOf) else np.exp(joint.log_p)
    won, start = np.zeros(len(p), dtype=bool), 0
    for size in joint.sizes:
        own = p[start : start + size]
        won[start + rng.choice(size, p=own / own.sum())] = True
        start += size
    if isinstance(joint, OneOf):
        return won.astype(np.float64)
    return np.where(won[joint.winner], 1.0, np.where(won[joint.other], 0.0, np.nan))


@pytest.mark.parametrize("name", joints())
def test_alternatives_add_what_worlds_show(name: str) -> None:
    """The expected sums of the listed alternatives are the mean sums of worlds that are drawn directly."""
    joint, rng = joints()[name], np.random.default_rng(5)
    cell = (np.arange(len(joint.p)) % 3).astype(np.int64)
    listed = joint.alternatives(cell, 3)
    (expected,) = expected_sums(listed, [joint.probabilities()])
    worlds = [slow_world(joint, rng) for _ in range(1000)]
    shown = np.array([np.bincount(cell, np.nan_to_num(y), 3) for y in worlds])
    assert np.allclose(expected[-3:], shown.mean(axis=0), rtol=0.05, atol=0.15)
    drawn, _ = draw_sums(
        listed, [joint.probabilities()], (), resamples=1500, most=0, rng=np.random.default_rng(6)
    )
    assert np.allclose(drawn[:, -3:].std(axis=0), shown.std(axis=0), rtol=0.1, atol=0.05)


@pytest.mark.parametrize("features", [False, True])
def test_sums_from_moments_have_the_moments_of_sums_drawn_one_by_one(
    features: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, _, _ = forecasts(3000, 3, 0)
    sizes, cell = np.full(3000, 3), np.minimum((p * 5).astype(np.int64), 4)
    dense = np.eye(5)[cell]
    listed = (
        Features(sizes, 5, lambda part: dense[3 * part.start : 3 * part.stop])
        if features
        else Cells(sizes, cell, 5)
    )
    shifted = OneOf(p, sizes).probabilities(np.where(cell == 4, -0.1, 0.0))
    both = []
    for limit in (10_000, 100):
        monkeypatch.setattr("rmcalib.calibration.simulation._DRAWN_ONE_BY_ONE", limit)
        both.append(
            draw_sums(listed, [p, shifted], (4,), resamples=3000, most=1500, rng=np.random.default_rng(1))
        )
    for one, other in zip(*both, strict=True):
        assert one.shape == other.shape
        assert np.allclose(
            one.mean(axis=0), other.mean(axis=0), atol=4 * one.std(axis=0).max() / np.sqrt(1500)
        )
        assert np.allclose(one.std(axis=0), other.std(axis=0), rtol=0.12)


def test_calibrated_forecasts_are_rejected_as_often_as_the_level_says() -> None:
    p_values = []
    for seed in range(60):
        p, y, groups = forecasts(80, 4, seed)
        p_values.append(ece_null(p, y, groups=groups, resamples=99).p_value)
    assert 0 <= np.mean(np.array(p_values) <= 0.05) <= 0.15
    assert 0.3 < np.mean(p_values) < 0.7


@pytest.mark.parametrize("scale", [0.4, 1.0, 1.3, 3.0])
def test_an_interval_excludes_zero_exactly_if_the_test_rejects(scale: float) -> None:
    for seed in range(6):
        p, y, groups = forecasts(100, 4, seed, scale)
        test = ece_null(p, y, groups=groups, resamples=199, rng=seed)
        interval = ece_interval(p, y, groups=groups, resamples=199, rng=seed)
        assert (interval.low > 0) is (test.p_value <= 0.05)
        assert interval.low <= interval.value <= interval.high
        assert interval.value == pytest.approx(oracles.ece(p.tolist(), y.tolist()), abs=1e-12)


@settings(max_examples=25)
@given(n=st.integers(1, 30), m=st.integers(2, 5), seed=st.integers(0, 10**6), scale=st.floats(0.01, 50))
def test_errors_do_not_depend_on_the_order_of_rows(n: int, m: int, seed: int, scale: float) -> None:
    p, y, groups = forecasts(n, m, seed, scale)
    order = np.random.default_rng(seed).permutation(len(p))
    a = ece_interval(p, y, groups=groups, resamples=19)
    b = ece_interval(p[order], y[order], groups=groups[order], resamples=19)
    assert (a.low, a.value, a.high) == pytest.approx((b.low, b.value, b.high), abs=1e-9)
    assert 0 <= a.low <= a.value <= a.high <= 1


def test_the_influence_of_prompts_predicts_the_error_without_them() -> None:
    p, y, groups = forecasts(400, 4, 2, 3.0)
    found: Any = binned(Events.from_arrays(p, y, groups=groups), ErrorOptions(), resamples=9)
    influence = found.influence()
    order = np.argsort(influence)
    for prompt in (order[0], order[-1]):
        kept = groups != prompt
        assert ece(p[kept], y[kept]) - found.value == pytest.approx(-influence[prompt], abs=2e-4)


def duplicated(copies: int, seed: int) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    p, y, groups = forecasts(80, 4, seed)
    again = [groups + 80 * copy for copy in range(copies)]
    return np.tile(p, copies), np.tile(y, copies), np.concatenate(again), np.tile(groups, copies)


def test_near_duplicates_count_as_one() -> None:
    rejected, covered = 0, 0
    for seed in range(25):
        p, y, groups, clusters = duplicated(5, seed)
        rejected += ece_null(p, y, groups=groups, clusters=clusters, resamples=99).p_value <= 0.05
        first = (
            p.reshape(-1, 4).max(axis=1)
            - y.reshape(-1, 4)[np.arange(len(p) // 4), p.reshape(-1, 4).argmax(axis=1)]
        )
        limits = mean_interval(first, clusters=clusters[::4])
        covered += limits.low <= 0 <= limits.high
    assert rejected <= 5
    assert covered >= 21
    assert ece_null(p, y, groups=groups, resamples=99).p_value < 0.5


@pytest.mark.parametrize("discrepancy", ["abs", "kl", "jeffreys", "jeffreys_unit"])
def test_clusters_give_finite_limits(discrepancy: Any) -> None:
    p, y, groups = forecasts(60, 3, 0)
    found = ece_interval(
        p, y, groups=groups, clusters=groups // 2, resamples=50, rng=1, discrepancy=discrepancy
    )
    assert 0 <= found.low <= found.value <= found.high < np.inf


def test_exact_limits_of_proportions() -> None:
    low, high = clopper_pearson(0, 100)
    assert (low, high) == pytest.approx((0, 1 - 0.025 ** (1 / 100)))
    from scipy.stats import binomtest

    theirs = binomtest(7, 50).proportion_ci(method="exact")
    assert clopper_pearson(7, 50) == pytest.approx((theirs.low, theirs.high))
    ties = np.array([0.5] * 20 + [1.0] * 20)
    narrow, wide = proportion_interval(ties), clopper_pearson(30, 40)
    assert narrow[1] - narrow[0] < wide[1] - wide[0]


def test_intervals_allow_for_errors_that_were_not_seen() -> None:
    zero, one = np.zeros(100), np.ones(100)
    assert jump_interval(zero, zero, [one]) == pytest.approx((0.0, 1 - 0.025 ** (1 / 100)))
    assert jump_interval(zero, zero, []) == (0.0, 0.0)


@pytest.mark.parametrize("right", range(13))
def test_the_limits_of_a_gap_are_possible_ones(right: int) -> None:
    p, y = np.linspace(0.25, 0.3, 12), np.arange(12) < right
    low, high = jump_interval(p - y, p - 1, [p])
    assert p.mean() - 1.05 < low <= (p - y).mean() <= high < p.mean() + 0.05
    p = np.tile([0.99, 0.01], 40)
    y = np.tile([1.0, 0.0], 40)
    interval = ece_interval(p, y, groups=np.repeat(np.arange(40), 2), resamples=199)
    assert interval.low == 0
    assert interval.high > 3 / 40 / 2


@pytest.mark.parametrize("n", [12, 40])
def test_the_interval_of_the_confidence_allows_for_unsure_prompts_that_were_not_seen(n: int) -> None:
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(6.3, 1.4, size=200_000)))  # mean 0.995
    held = [low <= p.mean() <= high for low, high in (stated_interval(rng.choice(p, n)) for _ in range(300))]
    assert np.mean(held) > 0.93
    assert stated_interval(np.full(n, 0.4)) == pytest.approx((0.4, 0.4))


def test_bad_groups_are_named() -> None:
    with pytest.raises(ValueError, match="group number 0"):
        ece_null([0.5, 0.6], [1, 0], groups=[0, 0], draw="one_per_group")
    with pytest.raises(ValueError, match="groups"):
        ece_null([0.5], [1], draw="one_per_group")
    with pytest.raises(ValueError, match="level"):
        ece_interval([0.5], [1], level=2)


def test_errors_that_noise_explains_are_not_taken_to_move_together() -> None:
    influence = np.random.default_rng(0).normal(size=50) * 1e-4
    small, large = Interval(0.02, 0.0, 0.05, 0.95), Interval(0.03, 0.0, 0.06, 0.95)
    sure = Interval(0.08, 0.05, 0.11, 0.95)

    def limits(a: Interval, b: Interval, centres: tuple[float, float]) -> tuple[float, float]:
        found = difference(a, b, influence, influence, centres=centres)
        return found.low, found.high

    # Both reach 0: the distances add up. One does: they are independent. None does: the same influences cancel.
    assert limits(small, large, (0.01, 0.01)) == pytest.approx((-0.05, 0.06))
    assert limits(small, sure, (0.01, 0.08)) == pytest.approx(
        (0.07 - np.hypot(0.03, 0.04), 0.07 + np.hypot(0.03, 0.01))
    )
    low, high = limits(sure, Interval(0.09, 0.06, 0.12, 0.95), (0.08, 0.09))
    assert high - low < 0.01


def test_a_difference_that_few_prompts_decide_has_wide_limits() -> None:
    moved = np.zeros(300)
    moved[:4] = [1.0, 1.1, 0.9, 1.0]
    assert mean_difference(np.zeros(300), moved).low < 0
    assert mean_difference(np.zeros(300), np.full(300, 1.0) + np.tile([0.1, -0.1], 150)).low > 0.9
