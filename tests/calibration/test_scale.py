"""Temperatures, information and maps, compared with slow code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import (
    Scale,
    Softmax,
    corp,
    equal_temperatures,
    fit_temperature,
)
from rmcalib.calibration.intervals import skew_interval
from rmcalib.calibration.maps import fit_sigmoid
from rmcalib.calibration.temperature import find_temperature
from rmcalib.ranking import ExplicitRankings, RankingDistribution, SparseRankings, all_rankings
from rmcalib.ranking.synthetic import synthetic_mallows, synthetic_plackett_luce


def rewards(
    n: int, scale: float, seed: int, responses: tuple[int, int] = (2, 6)
) -> tuple[FloatArray, FloatArray, IntArray]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(*responses, size=n)
    groups = np.repeat(np.arange(n), sizes)
    utility = rng.normal(scale=1.5, size=len(groups))
    noisy = utility + rng.gumbel(size=len(groups))
    best = np.repeat(np.maximum.reduceat(noisy, np.cumsum(sizes) - sizes), sizes)
    return scale * utility, (noisy == best).astype(np.float64), groups


def slow_loss(r: FloatArray, y: FloatArray, groups: IntArray, t: float) -> float:
    losses = []
    for group in np.unique(groups):
        own = r[groups == group] / t
        losses.append(np.logaddexp.reduce(own) - own[y[groups == group] == 1][0])
    return float(np.mean(losses))


def test_information_against_slow_code() -> None:
    r, y, groups = rewards(60, 2.0, 0)
    scale = Scale(Softmax.from_arrays(r, y, groups))
    uniform = float(np.mean([np.log((groups == g).sum()) for g in range(60)]))
    best = min(slow_loss(r, y, groups, t) for t in np.exp(np.linspace(0, 1.5, 301)))
    now = slow_loss(r, y, groups, 1.0)
    assert scale.lost == pytest.approx((now - best) / uniform, abs=1e-5)
    assert scale.usable == pytest.approx(1 - best / uniform, abs=1e-5)
    assert scale.kept == pytest.approx(1 - now / uniform)
    assert scale.kept + scale.lost == pytest.approx(scale.usable)
    for interval in (scale.lost_interval(), scale.usable_interval(), scale.temperature_interval()):
        assert interval.low < interval.value < interval.high
    for influence in (scale.lost_influence(), scale.usable_influence(), scale.kept_influence()):
        assert abs(influence.sum()) < 1e-9


@settings(max_examples=60)
@given(st.integers(1, 25), st.floats(0.01, 30), st.integers(0, 10**6))
def test_intervals_contain_their_values_in_any_order_of_rows(n: int, scale: float, seed: int) -> None:
    r, y, groups = rewards(n, scale, seed)
    found = Scale(Softmax.from_arrays(r, y, groups))
    for interval in (found.lost_interval(), found.usable_interval(), found.temperature_interval()):
        assert interval.low <= interval.value + 1e-9
        assert interval.value <= interval.high + 1e-9
    limits = found.temperature_interval()
    assert found.lost_interval().low == 0 or not limits.low <= 1 <= limits.high
    order = np.random.default_rng(seed).permutation(len(r))
    again = Scale(Softmax.from_arrays(r[order], y[order], groups[order]))
    assert again.lost_interval().high == pytest.approx(found.lost_interval().high, rel=1e-6, abs=1e-9)


def test_lost_information_without_noise_is_0_for_half_of_the_models_on_the_right_scale() -> None:
    shown = []
    for seed in range(12):
        scale = Scale(Softmax.from_arrays(*rewards(100, 1.0, seed)))
        low, high = scale.temperature_limits(0.95)
        if low <= 1 <= high:
            slope, curvature = scale.model.slopes(1.0)
            noise = chi2(1).median() * slope.var(ddof=1) / len(slope) / curvature.mean() / 2
            shown.append(scale.lost_centre() > 0)
            expected = max(scale.delta - noise, 0.0) / scale.unit
            assert scale.lost_centre() == pytest.approx(expected, rel=1e-3, abs=1e-3 * noise)
    assert 2 <= sum(shown) <= len(shown) - 2


def test_limits_of_the_temperature() -> None:
    r, groups = np.tile([2.0, 0.0], 20), np.repeat(np.arange(20), 2)
    cold = Scale(Softmax.from_arrays(r, np.tile([1, 0], 20), groups))
    assert (cold.fit.at_limit, cold.fit.optimum, cold.usable) == ("cold", 0.0, 1.0)
    assert cold.usable_interval().low < 0.9  # 20 right choices may hide wrong ones
    hot = Scale(Softmax.from_arrays(r, np.tile([0, 1], 20), groups))
    assert (hot.fit.at_limit, hot.temperature_interval().high) == ("hot", np.inf)
    assert hot.usable == pytest.approx(0, abs=1e-12)
    equal = Scale(Softmax.from_arrays(np.zeros(40), np.tile([0, 1], 20), groups))
    assert (equal.lost, equal.lost_interval().low) == (0, 0)


@pytest.mark.parametrize("size", [1e-90, 1e-30, 1e30, 1e90])
def test_information_does_not_depend_on_the_unit_of_rewards(size: float) -> None:
    r, y, groups = rewards(50, 1.0, 3)
    plain = Scale(Softmax.from_arrays(r, y, groups))
    scaled = Scale(Softmax.from_arrays(r * size, y, groups))
    assert scaled.usable == pytest.approx(plain.usable, rel=1e-6)
    assert scaled.fit.temperature == pytest.approx(plain.fit.temperature * size, rel=1e-6)


def test_pairs_and_prompts_of_two_responses_are_the_same() -> None:
    rng = np.random.default_rng(0)
    margins = rng.normal(1.0, 2.0, size=80)
    pairs = Scale(Softmax.of_pairs(margins, np.arange(80)))
    r = np.column_stack([margins, np.zeros(80)]).ravel()
    prompts = Scale(Softmax.from_arrays(r, np.tile([1, 0], 80), np.repeat(np.arange(80), 2)))
    assert pairs.lost == pytest.approx(prompts.lost, abs=1e-9)
    assert pairs.fit.temperature == pytest.approx(prompts.fit.temperature, rel=1e-6)


def test_the_upper_limit_of_a_temperature_allows_for_rare_large_errors() -> None:
    r, y, groups = rewards(200, 2.0, 3, (4, 5))
    r = r * np.repeat(np.random.default_rng(3).standard_exponential(200), 4)  # few margins are large
    scale = Scale(Softmax.from_arrays(r, y, groups))
    t = scale.temperature_limits(0.95)[1]
    likelihood = scale._likelihood_limits(0.95)[1]

    def slopes(t: float) -> FloatArray:  # of the mean loss by log T, slowly
        up, down = (scale.model.losses(t * np.exp(step)) for step in (-1e-4, 1e-4))
        return np.asarray((up - down) / 2e-4)

    assert skew_interval(slopes(likelihood))[1] > 0.01
    assert t > likelihood
    assert abs(skew_interval(slopes(t))[1]) < 0.001


def test_equal_temperatures_are_rejected_as_often_as_the_level_says() -> None:
    rejected = 0
    for seed in range(20):
        sets = [Softmax.from_arrays(*rewards(30, 1.0, 100 * seed + i)) for i in range(2)]
        rejected += equal_temperatures(sets, resamples=99).p_value <= 0.05
    assert rejected <= 4
    other = [Softmax.from_arrays(*rewards(200, scale, i)) for i, scale in enumerate((0.5, 3.0))]
    assert equal_temperatures(other, resamples=99).p_value <= 0.02


def likelihood(dist: RankingDistribution, orders: IntArray) -> float:
    return -float(np.diag(dist.log_prob(orders)).mean())


def sparse_case(rng: np.random.Generator) -> tuple[Any, IntArray]:
    listed = all_rankings(4)[:10]
    truth = SparseRankings(listed, rng.normal(size=(400, 10)), -1.0)
    return SparseRankings(listed, 2.5 * truth.logits, 2.5 * truth.unseen_logit), truth.sample(1, rng)[0]


def synthetic_case(make: Callable[..., Any]) -> Callable[[np.random.Generator], tuple[Any, IntArray]]:
    def case(rng: np.random.Generator) -> tuple[Any, IntArray]:
        data = make(400, 5, confidence=2.5, rng=rng)
        return data.forecast, data.orders

    return case


CASES = {
    "plackett_luce": synthetic_case(synthetic_plackett_luce),
    "mallows": synthetic_case(synthetic_mallows),
    "sparse": sparse_case,
}


@pytest.mark.parametrize("name", CASES)
def test_the_fitted_temperature_is_the_optimum(name: str) -> None:
    dist, orders = CASES[name](np.random.default_rng(0))
    fit = fit_temperature(dist, orders)
    assert fit.at_limit is None
    assert fit.temperature == pytest.approx(2.5, rel=0.2)
    best = likelihood(dist.at_temperature(fit.temperature), orders)
    for factor in (0.9, 0.999, 1.001, 1.1, 2.0):
        assert best < likelihood(dist.at_temperature(factor * fit.temperature), orders)
    assert fit_temperature(dist, dist.mode()).at_limit == "cold"


def test_a_sigmoid_is_fitted_to_labels() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=4000) * 2
    y = (rng.random(4000) < 1 / (1 + np.exp(-logits / 2 - 0.5))).astype(float)
    sigmoid = fit_sigmoid(logits, y)
    assert (sigmoid.temperature, sigmoid.threshold) == pytest.approx((2.0, -1.0), abs=0.25)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from([0.05, 0.2, 0.35, 0.5, 0.8, 0.95]), st.booleans()), min_size=1))
def test_the_parts_of_a_score_add_up(rows: list[tuple[float, bool]]) -> None:
    p, y = np.array([row[0] for row in rows]), np.array([float(row[1]) for row in rows])
    slow = {"brier": ((p - y) ** 2).mean(), "log": -np.log(np.where(y == 1, p, 1 - p)).mean()}
    for name, score in slow.items():
        parts = corp(p, y, score=name)  # type: ignore[arg-type]
        assert parts.score == pytest.approx(score)
        assert parts.miscalibration - parts.discrimination + parts.uncertainty == pytest.approx(parts.score)
        assert min(parts.miscalibration, parts.discrimination) >= -1e-12
        assert (np.diff(parts.frequency) >= 0).all()


def test_errors_name_the_bad_input() -> None:
    with pytest.raises(ValueError, match="1 outcomes for 2 rewards"):
        Softmax.from_arrays([1.0, 2.0], [1], [0, 0])
    with pytest.raises(ValueError, match="group number 0"):
        Softmax.from_arrays([1.0, 2.0], [1, 1], [0, 0])
    with pytest.raises(ValueError, match="ExplicitRankings"):
        fit_temperature(ExplicitRankings([[0, 1]], [[1.0]]), [[0, 1]])


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.floats(-3, 3), st.floats(1e-30, 1e30))
def test_a_temperature_does_not_depend_on_where_the_search_starts(
    seed: int, log_scale: float, near: float
) -> None:
    model = Softmax.from_arrays(*rewards(30, 10**log_scale, seed))
    expected, found = model.fit(), model.fit(near)
    assert found.at_limit == expected.at_limit
    assert found.temperature == pytest.approx(expected.temperature, rel=1e-9)


def test_the_temperature_of_many_choices_and_its_limits_are_exact() -> None:
    model = Softmax.from_arrays(*rewards(50_000, 2.0, 3))
    scale = Scale(model)
    assert scale.fit.temperature == pytest.approx(find_temperature(model.mean_slope).temperature, rel=1e-12)
    best = model.losses(scale.fit.temperature).mean()
    allowed = 1.959964**2 / 2 * scale.wider_factor(0.95)
    low, high = scale.temperature_limits(0.95)
    assert 50_000 * (model.losses(low).mean() - best) == pytest.approx(allowed, rel=1e-4)
    assert low < scale.fit.temperature < high
