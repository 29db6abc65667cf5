import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import (
    cross_fit,
    cross_fitted_temperature,
    ece,
    equal_temperatures,
    fit_beta,
    fit_isotonic,
    fit_platt,
    fit_temperature,
    fit_temperature_per_group,
    fit_top_1_temperature,
    log_score,
    recalibrate_pairs,
    scale_loss,
    sub_k,
    top_1_probabilities,
)
from rmcalib.ranking import (
    ExplicitRankings,
    HasTemperature,
    Mallows,
    PairwiseProbabilities,
    PlackettLuce,
    RankingDistribution,
    SparseRankings,
    all_rankings,
)
from rmcalib.ranking.synthetic import synthetic_mallows, synthetic_plackett_luce


def likelihood(dist: RankingDistribution, orders: IntArray) -> float:
    return -float(np.diag(dist.log_prob(orders)).mean())


def sparse_case(rng: np.random.Generator) -> tuple[HasTemperature, IntArray]:
    listed = all_rankings(4)[:10]
    truth = SparseRankings(listed, rng.normal(size=(400, 10)), -1.0)
    sharp = SparseRankings(listed, 2.5 * truth.logits, 2.5 * truth.unseen_logit)
    return sharp, truth.sample(1, rng)[0]


CASES: dict[str, Callable[[np.random.Generator], tuple[Any, IntArray]]] = {
    "plackett_luce": lambda rng: (lambda d: (d.forecast, d.orders))(
        synthetic_plackett_luce(400, 5, confidence=2.5, rng=rng)
    ),
    "mallows": lambda rng: (lambda d: (d.forecast, d.orders))(
        synthetic_mallows(400, 5, confidence=2.5, rng=rng)
    ),
    "sparse": sparse_case,
}


@pytest.mark.parametrize("name", CASES)
def test_the_fitted_temperature_is_the_optimum(name: str) -> None:
    dist, orders = CASES[name](np.random.default_rng(0))
    fit = fit_temperature(dist, orders)
    assert fit.at_limit is None
    assert abs(fit.slope) < 1e-9
    assert fit.temperature == pytest.approx(2.5, rel=0.2)
    best = likelihood(dist.at_temperature(fit.temperature), orders)
    for factor in (0.9, 0.999, 1.001, 1.1, 2.0):
        assert best < likelihood(dist.at_temperature(factor * fit.temperature), orders)


@pytest.mark.parametrize("name", CASES)
def test_optima_at_a_limit_are_reported(name: str) -> None:
    dist, _ = CASES[name](np.random.default_rng(0))
    assert fit_temperature(dist, dist.mode()).at_limit == "cold"
    if name == "plackett_luce":
        assert fit_temperature(dist, dist.mode()[:, ::-1]).at_limit == "hot"


def test_temperature_of_far_apart_utilities() -> None:
    utilities = 1e4 * np.random.default_rng(0).normal(size=(50, 6))
    orders = PlackettLuce(utilities / 1e4).sample(1, np.random.default_rng(1))[0]
    assert fit_temperature(PlackettLuce(utilities), orders).temperature == pytest.approx(1e4, rel=0.5)


def test_each_group_gets_its_own_temperature() -> None:
    rng = np.random.default_rng(0)
    utilities = rng.normal(size=(2000, 4))
    factor = np.repeat([1.0, 4.0], 1000)
    orders = PlackettLuce(utilities).sample(1, rng)[0]
    fits = fit_temperature_per_group(
        PlackettLuce(utilities * factor[:, None]), orders, np.where(factor == 1, "calm", "bold")
    )
    assert fits["calm"].temperature == pytest.approx(1.0, rel=0.15)
    assert fits["bold"].temperature == pytest.approx(4.0, rel=0.15)


def test_top_1_temperature_of_ragged_prompts() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 7, size=3000)
    groups = np.repeat(np.arange(3000), sizes)
    rewards = rng.normal(size=len(groups))
    p = top_1_probabilities(rewards, groups)
    assert np.allclose(np.bincount(groups, p), 1)
    draws = rewards + rng.gumbel(size=len(groups))
    best = np.full(3000, -np.inf)
    np.maximum.at(best, groups, draws)
    outcomes = (draws == best[groups]).astype(float)
    fit = fit_top_1_temperature(3 * rewards, outcomes, groups)
    assert fit.temperature == pytest.approx(3.0, rel=0.08)
    assert abs(fit.slope) < 1e-9

    def loss(t: float) -> float:
        return log_score(top_1_probabilities(3 * rewards, groups, temperature=t), outcomes, groups=groups)

    assert loss(fit.temperature) < min(loss(0.99 * fit.temperature), loss(1.01 * fit.temperature))


def test_top_1_probabilities_of_extreme_rewards() -> None:
    p = top_1_probabilities([1e4, -1e4, 0.0, 0.0], [0, 0, 1, 1])
    assert p.tolist() == [1.0, 0.0, 0.5, 0.5]


def test_cross_fitting_never_predicts_training_rows() -> None:
    seen: list[set[int]] = []

    def fit(train: IntArray) -> set[int]:
        return set(train.tolist())

    def predict(model: set[int], test: IntArray) -> FloatArray:
        assert not model & set(test.tolist())
        seen.append(set(test.tolist()))
        return test.astype(np.float64)

    groups = np.repeat(np.arange(10), 3)
    result = cross_fit(30, fit, predict, folds=4, groups=groups)
    assert result.tolist() == list(range(30))
    assert set().union(*seen) == set(range(30))
    for part in seen:
        assert all(
            len({groups[row] for row in part} & {groups[row] for row in other}) == 0
            for other in seen
            if other != part
        )


def test_cross_fitted_temperature_helps_on_unseen_data() -> None:
    d = synthetic_plackett_luce(800, 4, confidence=3.0, rng=np.random.default_rng(0))
    assert isinstance(d.forecast, HasTemperature)
    after = cross_fitted_temperature(d.forecast, d.orders)
    assert sub_k(after, d.orders, 2).value < 0.4 * sub_k(d.forecast, d.orders, 2).value


def test_platt_and_beta_agree_with_a_generic_optimiser() -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    p = rng.beta(2, 5, size=500)
    y = (rng.random(500) < p**2).astype(float)
    n = y.sum()
    targets = np.where(y == 1, (n + 1) / (n + 2), 1 / (500 - n + 2))

    def loss(weights: FloatArray, features: FloatArray, /) -> float:
        x = features @ weights
        return float((np.logaddexp(0, x) - targets * x).mean())

    logit, ones = np.log(p / (1 - p)), np.ones(500)
    found = minimize(loss, [0.0, 0.0], args=(np.column_stack([logit, ones]),), tol=1e-12).x
    platt = fit_platt(p, y)
    assert (platt.slope, platt.intercept) == pytest.approx(tuple(found), abs=1e-4)
    features = np.column_stack([np.log(p), -np.log(1 - p), ones])
    found = minimize(loss, [0.0, 0.0, 0.0], args=(features,), tol=1e-12).x
    beta = fit_beta(p, y)
    if min(found[:2]) >= 0:
        assert (beta.a, beta.b, beta.intercept) == pytest.approx(tuple(found), abs=1e-3)
    assert min(beta.a, beta.b) >= 0


def test_isotonic_agrees_with_scikit_learn() -> None:
    isotonic = pytest.importorskip("sklearn.isotonic")
    rng = np.random.default_rng(0)
    p = np.round(rng.random(400), 2)
    y = (rng.random(400) < p**2).astype(float)
    theirs = isotonic.IsotonicRegression(out_of_bounds="clip").fit(p, y)
    x = np.linspace(0, 1, 101)
    assert np.allclose(fit_isotonic(p, y)(x), theirs.predict(x), atol=1e-9)


@pytest.mark.parametrize("fit", [fit_platt, fit_beta, fit_isotonic])
def test_maps_improve_an_over_confident_forecast(fit: Callable[..., Callable[..., FloatArray]]) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=6000)
    y = rng.random(6000) < 1 / (1 + np.exp(-logits))
    p = 1 / (1 + np.exp(-3 * logits))
    repaired = fit(p[:3000], y[:3000])(p[3000:])
    assert ece(repaired, y[3000:]) < 0.3 * ece(p[3000:], y[3000:])
    assert (np.diff(repaired[np.argsort(p[3000:])]) >= -1e-12).all()


def test_separable_data_has_a_finite_map() -> None:
    platt = fit_platt([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1])
    assert math.isfinite(platt.slope)
    assert math.isfinite(platt.intercept)


def test_symmetric_platt_keeps_pairs_consistent() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(300)
    y = (rng.random(300) < 0.5 + (p - 0.5) / 3).astype(float)
    one, other = fit_platt(p, y, symmetric=True), fit_platt(1 - p, 1 - y, symmetric=True)
    assert one.intercept == 0
    assert one.slope == pytest.approx(other.slope)
    pairs = PairwiseProbabilities([[[0.5, 0.9, 0.3], [0.1, 0.5, 0.6], [0.7, 0.4, 0.5]]])
    mapped = recalibrate_pairs(pairs, one)
    assert np.allclose(mapped.sub([[0, 1]]) + mapped.sub([[1, 0]]), 1)
    assert np.allclose(mapped.sub([[2, 0]]), one([0.7]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PlackettLuce([[0.0, 1.0]]).at_temperature(0.0), "temperature: 0.0 is not positive"),
        (lambda: PlackettLuce([[0.0, 1.0]]).at_temperature([1.0, 2.0]), "2 values for 1 instances"),
        (lambda: fit_temperature(ExplicitRankings([[0, 1]], [[1.0]]), [[0, 1]]), "has no temperature"),
        (lambda: fit_top_1_temperature([1.0, 2.0], [1, 1], [0, 0]), "group number 0 has 2 outcomes of 1"),
        (lambda: fit_top_1_temperature([1.0, 2.0], [1], [0, 0]), "outcomes: 1 outcomes for 2 rewards"),
        (lambda: top_1_probabilities([1.0], [0], temperature=-1.0), "temperature: -1.0"),
        (
            lambda: cross_fit(3, lambda t: t, lambda _, t: t.astype(float), folds=4),
            "folds: 4 is out of range",
        ),
        (
            lambda: fit_temperature(SparseRankings([[0, 1]], [[0.0]], -np.inf), [[1, 0]]),
            "probability 0 at every",
        ),
        (
            lambda: fit_temperature_per_group(Mallows([[0, 1]], 1.0), [[0, 1]], ["a", "b"]),
            "groups: expected 1",
        ),
    ],
)
def test_errors_name_the_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    assert message in str(caught.value)


@pytest.mark.parametrize("unit", [1e-300, 1e-90, 1e-12, 1e12, 1e90])
def test_temperatures_of_rewards_on_any_scale(unit: float) -> None:
    """The information does not depend on the unit, also where temperatures are extreme."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(40, 2)) + np.array([0.5, 0.0])
    correct, groups = np.tile([1, 0], 40), np.repeat(np.arange(40), 2)
    plain, found = (scale_loss(values.ravel(), correct, groups) for values in (rewards, unit * rewards))
    assert np.isfinite([found.usable.value, found.lost.value]).all()
    if unit > 1e-100:
        assert found.at_limit is None
        assert found.usable.value == pytest.approx(plain.usable.value, rel=1e-9)
        assert found.temperature.value == pytest.approx(unit * plain.temperature.value, rel=1e-6)
        halves = [(unit * rewards[i::2].ravel(), correct[:40], groups[:40]) for i in (0, 1)]
        known = [(rewards[i::2].ravel(), correct[:40], groups[:40]) for i in (0, 1)]
        assert equal_temperatures(halves).p_value == pytest.approx(
            equal_temperatures(known).p_value, rel=1e-4
        )
