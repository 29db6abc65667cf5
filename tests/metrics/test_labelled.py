"""Few labels: weighted estimates against slow direct code, what is known of all prompts, and the guard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import rmcalib
from rmcalib import Scores
from rmcalib.calibration.estimates import Estimate
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.labelled import UNLIKE, labelled_facts
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import estimate_of
from rmcalib.metrics.views import whole_part

N, M = 400, 3


def world(n: int = 120, *, unequal: bool = False, factor: float = 2.0, drop: str = "") -> Scores:
    """Scores of N prompts, of which n are labelled, with the probabilities with which they were drawn."""
    rng = np.random.default_rng(5)
    utilities = rng.normal(size=(N, M))
    best = (utilities + rng.gumbel(size=(N, M))).argmax(axis=1)
    full = Scores.from_arrays(factor * utilities, best)
    inclusion = np.full(N, n / N)
    if unequal:
        inclusion = rng.uniform(0.2, 1.0, N)
        inclusion *= n / inclusion.sum()
    drawn = rng.random(N) < inclusion
    each = np.repeat(np.where(drawn, inclusion, np.nan), M)
    label = np.where(np.isnan(each), np.nan, full.label)
    extra = {} if drop == "inclusion" else {"inclusion": each}
    return replace(full, label=label, extra=extra)


def value(scores: Scores, metric: str) -> Estimate:
    found = estimate_of(catalogue()[metric], whole_part(scores), Settings(resamples=20))
    assert found is not None
    return found


def direct(scores: Scores) -> dict[str, Any]:
    """The estimators of a survey of the labelled prompts, written out."""
    p, label = scores.probabilities.reshape(-1, M), scores.label.reshape(-1, M)
    reward, inclusion = scores.reward.reshape(-1, M), scores.extra["inclusion"].reshape(-1, M)[:, 0]
    known = ~np.isnan(label[:, 0])
    w = 1 / inclusion[known]
    w /= w.sum()
    y = (p.argmax(axis=1) == np.nan_to_num(label).argmax(axis=1))[known].astype(float)

    def loss(t: float) -> float:
        z = reward[known] / t
        return float(w @ (np.log(np.exp(z).sum(axis=1)) - (z * label[known]).sum(axis=1)))

    t = float(minimize_scalar(lambda x: loss(np.exp(x)), bounds=(-5, 5), method="bounded").x)
    z = np.exp(reward / np.exp(t))
    f = (z / z.sum(axis=1, keepdims=True)).max(axis=1)
    mine, mean_y, mean_f = f[known], w @ y, w @ f[known]
    slope = (w**2 * (y - mean_y) * (mine - mean_f)).sum() / (w**2 * (mine - mean_f) ** 2).sum()
    slope = np.clip(slope, 0, 1)
    accuracy = slope * f.mean() + w @ (y - slope * mine)
    says = p.max(axis=1).mean()
    return {
        "mean_confidence": says,
        "accuracy": accuracy,
        "overconfidence": says - accuracy,
        "temperature": np.exp(t),
        "nll": loss(1.0),
        "kept_information": 1 - loss(1.0) / np.log(M),
        "lost_information": (loss(1.0) - loss(np.exp(t))) / np.log(M),
    }


@pytest.mark.parametrize("unequal", [False, True])
def test_estimates_are_those_of_a_survey(unequal: bool) -> None:
    scores = world(unequal=unequal)
    for name, expected in direct(scores).items():
        assert value(scores, name).value == pytest.approx(expected, rel=1e-5), name


def test_the_variance_of_a_weighted_mean_is_hajeks() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=300), rng.uniform(0.5, 2.0, 300)
    w /= w.mean()
    found = Estimate.mean(x, weight=w)
    share = w / w.sum()
    mean = share @ x
    se = np.sqrt(300 / 299 * (share**2 * (x - mean) ** 2).sum())
    assert found.value == pytest.approx(mean)
    limits = found.interval()
    assert limits is not None
    assert limits.high - limits.low == pytest.approx(2 * 1.968 * se, rel=0.02)


def test_equal_weights_change_nothing() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, 80).astype(float)
    for make in (Estimate.mean, Estimate.proportion):
        plain, weighted = make(x), make(x, weight=np.ones(80))
        one, other = plain.interval(), weighted.interval()
        assert one is not None
        assert other is not None
        assert (one.low, one.high) == pytest.approx((other.low, other.high))


def test_weights_remove_the_bias_of_unequal_draws() -> None:
    rng = np.random.default_rng(1)
    n = 20_000
    utilities = rng.normal(size=(n, 2)) * np.where(np.arange(n) < n // 2, 4.0, 0.3)[:, None]
    best = (utilities + rng.gumbel(size=(n, 2))).argmax(axis=1)
    full = Scores.from_arrays(utilities, best)
    inclusion = np.where(np.arange(n) < n // 2, 0.05, 0.5)  # hard prompts are drawn ten times as often
    each = np.repeat(np.where(rng.random(n) < inclusion, inclusion, np.nan), 2)
    few = replace(full, label=np.where(np.isnan(each), np.nan, full.label), extra={"inclusion": each})
    true = value(full, "accuracy").value
    assert true is not None
    blind = value(replace(few, extra={}), "accuracy").interval()
    aware = value(few, "accuracy").interval()
    assert blind is not None
    assert aware is not None
    assert blind.high < true - 0.05
    assert aware.low <= true <= aware.high


def test_a_second_judge_makes_the_interval_narrower() -> None:
    scores = world()
    full = world(N)
    right = scores.probabilities.reshape(N, M).argmax(axis=1) == np.nan_to_num(full.label).reshape(
        N, M
    ).argmax(axis=1)
    good = replace(scores, extra={**scores.extra, "second": np.repeat(np.where(right, 0.9, 0.1), M)})
    plain, helped = value(scores, "overconfidence").interval(), value(good, "overconfidence").interval()
    assert plain is not None
    assert helped is not None
    assert helped.high - helped.low < 0.5 * (plain.high - plain.low)


def test_metrics_without_a_weighted_form_say_so() -> None:
    scores = world(unequal=True)
    found = value(scores, "ece")
    assert found.value is None
    assert "unequal" in found.note
    report = rmcalib.evaluate(scores, resamples=20)
    assert report.value("overconfidence") is not None
    assert report.decisions is not None
    weight = 1 / scores.extra["inclusion"].reshape(N, M)[:, 0]
    right = np.nansum(
        weight * (scores.label == 1).reshape(N, M)[np.arange(N), scores.reward.reshape(N, M).argmax(axis=1)]
    )
    assert report.decisions.curve[-1]["right"] == pytest.approx(right / np.nansum(weight))


def test_compare_and_calibrate_use_the_weights() -> None:
    scores = world(unequal=True, factor=4.0)
    expected = direct(scores)["temperature"]
    assert rmcalib.calibrate(scores).temperature == pytest.approx(expected, rel=1e-4)
    table = rmcalib.compare(scores, scores.at_temperature(2.0), resamples=20).table
    difference = table.query("category == 'overall'").set_index("metric")["difference"]
    assert difference["accuracy"] == 0
    other = direct(scores.at_temperature(2.0))
    assert difference["nll"] == pytest.approx(other["nll"] - direct(scores)["nll"])


def test_labelled_prompts_that_are_unlike_the_others_allow_no_verdict() -> None:
    full = world(N)
    confidence = full.probabilities.reshape(N, M).max(axis=1)
    least = np.argsort(np.argsort(confidence)) < 80
    biased = replace(full, label=np.where(np.repeat(least, M), full.label, np.nan), extra={})
    facts = rmcalib.evaluate(biased, resamples=20).facts
    assert facts["sample"] is not None
    assert facts["sample"]["unlike"]
    assert facts["sample"]["outside"] == pytest.approx(0.8, abs=0.01)
    assert facts["shown"] == []
    assert facts["sample"]["says"] < facts["sample"]["says_all"]
    fair = rmcalib.evaluate(world(), resamples=20).facts
    assert not fair["sample"]["unlike"]
    assert fair["sample"]["drawn"] == "at random"
    assert "gap" in fair["shown"]
    assert labelled_facts(whole_part(Scores.from_arrays([[1.0, 0.0]] * 30))) is None


def test_random_draws_are_rarely_called_unlike() -> None:
    rng = np.random.default_rng(0)
    full = Scores.from_arrays(rng.normal(size=(300, 2)))
    called = []
    for _ in range(300):
        drawn = np.repeat(np.isin(np.arange(300), rng.choice(300, 60, replace=False)), 2)
        part = whole_part(replace(full, label=np.where(drawn, full.label, np.nan)))
        facts = labelled_facts(part)
        assert facts is not None
        called.append(abs(facts["z"]))
    assert np.mean(np.array(called) > 1.96) == pytest.approx(0.05, abs=0.03)
    assert UNLIKE == 3.0
    assert np.mean(np.array(called) > UNLIKE) < 0.02
