"""The temperatures of one model on several benchmarks, and their effects on the others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmcalib.calibration import equal_temperatures, scale_loss
from rmcalib.metrics import NO_TEMPERATURE, transfer
from rmcalib.scores import Scores


def made(seed: int, scale: float, n: int = 250, m: int = 4) -> Scores:
    """Scores whose right temperature is ``scale``."""
    rng = np.random.default_rng(seed)
    utilities = 1.5 * rng.normal(size=(n, m))
    correct = (utilities + rng.gumbel(size=(n, m))).argmax(axis=1)
    return Scores.from_arrays(scale * utilities, correct)


def log_loss(scores: Scores, temperature: float) -> float:
    """Compute it directly, prompt by prompt."""
    total = []
    for start, end in zip(scores.offsets[:-1], scores.offsets[1:], strict=True):
        r = scores.reward[start:end] / temperature
        total.append(np.log(np.exp(r).sum()) - r[scores.is_correct[start:end]][0])
    return float(np.mean(total))


def test_effects_equal_a_direct_computation() -> None:
    scores = {"a": made(0, 2.0), "b": made(1, 0.5, m=6)}
    found = transfer(scores)
    best = {row["benchmark"]: row["temperature"] for row in found.temperatures}
    for row in found.effects:
        own = scores[row["used_on"]]
        uniform = np.log(len(own) / own.n_items)
        lost = (log_loss(own, row["temperature"]) - log_loss(own, best[row["used_on"]])) / uniform
        change = (log_loss(own, row["temperature"]) - log_loss(own, 1.0)) / uniform
        assert row["lost_information"] == pytest.approx(lost, abs=1e-9)
        assert row["change"] == pytest.approx(change, abs=1e-9)
        assert row["information"] == pytest.approx(1 - log_loss(own, row["temperature"]) / uniform)
        assert row["low"] <= row["lost_information"] <= row["high"]
        assert row["change_low"] <= row["change"] <= row["change_high"]
    assert {row["fitted_on"] for row in found.effects} == {NO_TEMPERATURE, "a", "b", "all together"}


def test_without_a_temperature_the_loss_equals_that_of_the_report() -> None:
    scores = made(0, 2.0)
    (row,) = [r for r in transfer({"a": scores}).effects if r["fitted_on"] == NO_TEMPERATURE]
    groups = np.repeat(np.arange(scores.n_items), 4)
    assert row["lost_information"] == scale_loss(scores.reward, scores.is_correct, groups).lost.value
    assert transfer({"a": scores}).equality is None


def test_the_test_finds_different_temperatures_and_accepts_equal_ones() -> None:
    different = transfer({"a": made(0, 1.0), "b": made(1, 3.0)}).equality
    same = transfer({"a": made(0, 3.0), "b": made(1, 3.0)}).equality
    assert different is not None
    assert same is not None
    assert different.p_value <= 0.001
    assert same.p_value > 0.05
    assert 2.3 < same.temperature < 3.9


def test_the_common_temperature_is_the_best_of_a_fine_grid() -> None:
    sets = [made(0, 1.0), made(1, 3.0, m=3), made(2, 5.0, n=80)]
    data = [(one.reward, one.is_correct, one.item_id) for one in sets]
    found = equal_temperatures(data)
    assert found.degrees == 2
    # Both models are right at their best temperature, so no correction is needed.
    grid = np.exp(np.linspace(0, 2, 2001))
    total = [sum(one.n_items * log_loss(one, t) for one in sets) for t in grid]
    assert found.temperature == pytest.approx(grid[int(np.argmin(total))], rel=0.05)


@pytest.mark.parametrize(("n", "spread"), [(50, 1.0), (20, 5.0)], ids=["usual", "few and saturated"])
def test_a_calibrated_model_is_rarely_refused(n: int, spread: float) -> None:
    """In 100 data sets with one true temperature, p ≤ 0.05 occurs about five times."""
    rng = np.random.default_rng(0)
    rejected = 0
    for _ in range(100):
        sets = []
        for m in (4, 3, 4):
            utilities = spread * rng.normal(size=(n, m))
            correct = (utilities + rng.gumbel(size=(n, m))).argmax(axis=1)
            outcomes = (np.arange(m) == correct[:, None]).ravel()
            sets.append((2.0 * utilities.ravel(), outcomes, np.repeat(np.arange(n), m)))
        rejected += equal_temperatures(sets, resamples=99).p_value <= 0.05
    assert rejected <= 11  # binomial(100, 0.05) is above 11 with probability 0.004


def test_an_uninformative_model_has_no_temperature() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(200, 4))
    backwards = Scores.from_arrays(-np.abs(rewards) * [1, 0, 0, 0])  # the correct one is always last
    found = transfer({"a": backwards, "b": backwards})
    assert [row["temperature"] for row in found.temperatures] == [math.inf, math.inf]
    assert found.equality is not None
    assert (found.equality.temperature, found.equality.p_value) == (math.inf, 1.0)
    assert {row["fitted_on"] for row in found.effects} == {NO_TEMPERATURE}


def test_benchmarks_with_few_prompts_are_left_out() -> None:
    found = transfer({"a": made(0, 2.0), "b": made(1, 2.0, n=19)})
    assert found.left_out == ["b"]
    assert [row["benchmark"] for row in found.temperatures] == ["a"]
    with pytest.raises(ValueError, match="at least two sets"):
        equal_temperatures([([1.0, 0.0], [1, 0], [0, 0])])
