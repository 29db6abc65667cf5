"""Decisions: thresholds with a guarantee, the surest choices, and regret."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import bdtr, expit, logit

import rmcalib
from rmcalib.metrics.views import whole_part
from rmcalib.repair import Calibrator, calibrate, decide
from rmcalib.repair.decisions import (
    THRESHOLDS,
    Decisions,
    _fewest,
    _first_size,
    safe_threshold,
)
from rmcalib.report.decisions import decision_sentences
from rmcalib.scores import Scores
from rmcalib.scores.scale import Scale
from tests.repair.test_calibrate import drawn, sampled


def slow_threshold(p: list[float], wrong: list[bool], alpha: float) -> float | None:
    """Test accept-all at 1%, then one threshold after the other at 4%, with the binomial distribution."""
    if bdtr(sum(wrong), len(wrong), alpha) <= 0.01:
        return 0.0
    level = 0.96
    if len(p) < _fewest(alpha, level):
        return None
    first = _first_size(len(p), alpha, level)
    best = None
    for t in THRESHOLDS:
        errors = [bad for value, bad in zip(p, wrong, strict=True) if value >= t]
        if len(errors) < first:
            continue
        if bdtr(sum(errors), len(errors), alpha) > 1 - level:
            break
        best = t
    return best


@given(
    st.lists(st.tuples(st.floats(0.3, 0.9999), st.floats(0, 1)), min_size=30, max_size=200),
    st.sampled_from([0.05, 0.1, 0.3]),
    st.floats(0.0, 1.5),
)
@settings(max_examples=60)
def test_the_threshold_equals_that_of_direct_sequential_testing(
    drawn_choices: list[tuple[float, float]], alpha: float, skill: float
) -> None:
    p = [value for value, _ in drawn_choices]
    wrong = [lot < skill * (1 - value) for value, lot in drawn_choices]
    found = safe_threshold(logit(np.array(p)), np.array(wrong), alpha=alpha)
    expected = slow_threshold(p, wrong, alpha)
    assert found.threshold == expected
    if expected is not None:
        errors = [bad for value, bad in zip(p, wrong, strict=True) if value >= expected]
        assert (found.n, found.wrong) == (len(errors), sum(errors) / len(errors))
        assert found.wrong is not None
        assert found.high is not None
        assert found.wrong <= found.high <= alpha


@given(st.integers(0, 50), st.floats(0.1, 10.0))
@settings(max_examples=20)
def test_equal_weights_change_nothing(seed: int, each: float) -> None:
    rng = np.random.default_rng(seed)
    odds = rng.normal(2.0, 1.0, 300)
    wrong = rng.random(300) < 0.5 * expit(-odds)
    plain, weighted = (safe_threshold(odds, wrong, weight=w) for w in (None, np.full(300, each)))
    assert (plain.threshold, plain.n, plain.fewest) == (weighted.threshold, weighted.n, weighted.fewest)
    assert (plain.wrong, plain.high) == pytest.approx((weighted.wrong, weighted.high))


@pytest.mark.parametrize("where", ["everywhere", "where weights are large", "where weights are small"])
@pytest.mark.parametrize("spread", [0.3, 1.5])
def test_the_bound_of_weighted_choices_holds_for_all_outcomes(where: str, spread: float) -> None:
    """All 2^10 outcomes, with their probabilities, where the weighted error rate is just alpha."""
    alpha, level, n = 0.3, 0.8, 10
    rng = np.random.default_rng(3)
    weight = np.exp(spread * rng.normal(size=n))
    outcomes = (np.arange(2**n)[:, None] >> np.arange(n)) % 2 == 1
    order = weight.argsort()[:: -1 if where == "where weights are large" else 1]
    rate = np.full(n, alpha)
    for share in (1.0, 0.6, 0.4):  # of the prompts that are wrong at all
        if where != "everywhere":
            rate = np.zeros(n)
            rate[order[: round(share * n)]] = 1.0
            rate *= alpha * weight.sum() / (weight @ rate)
        if rate.max() > 1:
            continue
        chance = np.where(outcomes, rate, 1 - rate).prod(axis=1)
        passed = [
            safe_threshold(np.full(n, 2.0), wrong, alpha=alpha, level=level, weight=weight).threshold
            is not None
            for wrong in outcomes
        ]
        assert chance @ passed <= 1 - level


def test_weights_undo_a_draw_of_mostly_safe_choices() -> None:
    """Of all prompts, 20% are wrong; those that are safe are drawn six times as often."""
    rng = np.random.default_rng(4)
    safe = rng.random(20_000) < 0.6
    wrong = ~safe & (rng.random(20_000) < 0.5)
    inclusion = np.where(safe, 0.3, 0.05)
    drawn_ones = rng.random(20_000) < inclusion
    odds, weight = np.full(drawn_ones.sum(), 2.0), 1 / inclusion[drawn_ones]
    assert safe_threshold(odds, wrong[drawn_ones]).threshold == 0
    found = safe_threshold(odds, wrong[drawn_ones], weight=weight)
    assert found.threshold is None
    assert found.wrong is not None
    assert found.wrong == pytest.approx(0.2, abs=0.03)
    best = decided_by_inclusion(odds, wrong[drawn_ones], inclusion[drawn_ones], wrong_at_most=0.25)
    assert best.choice == safe_threshold(odds, wrong[drawn_ones], weight=weight / weight.mean(), alpha=0.25)
    assert best.curve[-1]["right"] == pytest.approx(1 - found.wrong)
    assert best.regret is not None
    assert best.regret.cost == pytest.approx(min(found.wrong, 0.25), abs=1e-9)


def decided_by_inclusion(odds: Any, wrong: Any, inclusion: Any, **options: Any) -> Decisions:
    rewards = np.column_stack([odds, np.zeros(len(odds))])
    scores = Scores.from_arrays(rewards, wrong.astype(int))
    return decide(replace(scores, extra={"inclusion": np.repeat(inclusion, 2)}), **options)


def test_an_error_rate_just_above_alpha_is_rarely_accepted() -> None:
    """Error-free choices, followed by ones just above alpha: the hardest case for a sequence of tests."""
    rng = np.random.default_rng(0)
    runs, violated = 600, 0
    for _ in range(runs):
        sure = rng.random(800) < 0.5
        wrong = rng.random(800) < np.where(sure, 0.0, 0.2001)
        found = safe_threshold(np.where(sure, 3.05, 1.05), wrong, alpha=0.1).threshold
        assert found is not None
        violated += found < 0.7
    assert violated / runs <= 0.05 + 2 * (0.05 * 0.95 / runs) ** 0.5


def test_a_judge_that_is_mostly_right_is_accepted_although_its_surest_choices_are_its_worst() -> None:
    rng = np.random.default_rng(1)
    odds = rng.normal(2.0, 1.0, size=1000)
    wrong = rng.random(1000) < np.where(odds > np.quantile(odds, 0.9), 0.2, 0.03)
    found = safe_threshold(odds, wrong, alpha=0.1)
    assert (found.threshold, found.accepted) == (0.0, 1.0)
    assert found.high is not None
    assert found.high <= 0.1


def test_the_curve_ends_at_the_overall_accuracy_and_confidence() -> None:
    scores = drawn(400, scale=2.0)
    found = decide(scores)
    first = whole_part(scores).first_choice
    headline = {"accuracy": first.y.mean(), "mean_confidence": first.p.mean()}
    last = found.curve[-1]
    assert last["right"] == pytest.approx(headline["accuracy"])
    assert last["says"] == pytest.approx(headline["mean_confidence"])
    assert [row["n"] for row in found.curve] == [20 * i for i in range(1, 21)]
    assert found.table["right"].iloc[0] > found.table["right"].iloc[-1]
    for row in found.curve:
        p = np.exp(scores.reward.reshape(-1, 4)) / np.exp(scores.reward.reshape(-1, 4)).sum(1, keepdims=True)
        assert (p.max(axis=1) >= row["threshold"] - 1e-12).sum() == row["n"]


def test_regret_is_the_cost_of_a_wrong_scale() -> None:
    bold = decide(drawn(2000, scale=4.0), wrong_at_most=0.2).regret
    fair = decide(drawn(2000, scale=1.0), wrong_at_most=0.2).regret
    assert bold is not None
    assert fair is not None
    assert bold.low > 0
    assert bold.believed < bold.cost - 0.05
    assert fair.low <= 0 <= fair.high
    assert fair.believed == pytest.approx(fair.cost, abs=0.02)
    scores = drawn(2000, scale=4.0)
    rewards, right = scores.reward.reshape(-1, 4), scores.is_correct.reshape(-1, 4)
    p = np.exp(rewards - rewards.max(axis=1, keepdims=True))
    top = (p / p.sum(axis=1, keepdims=True)).max(axis=1)
    hit = right[np.arange(2000), rewards.argmax(axis=1)]
    assert bold.cost == pytest.approx(np.where(top >= 0.8, ~hit, 0.2).mean())
    assert bold.accepted == pytest.approx((top >= 0.8).mean())


def test_every_outcome() -> None:
    accepted = rmcalib.decide(drawn(1000, scale=1.0, seed=2).to_pandas(), wrong_at_most=0.2)
    assert accepted.choice.threshold is not None
    assert 0 < accepted.choice.threshold < 1
    assert accepted.asked + accepted.choice.accepted == 1
    rng = np.random.default_rng(5)
    lost = decide(Scores.from_arrays(rng.normal(size=(400, 4)), 0))
    assert lost.choice.threshold is None
    assert lost.choice.wrong is not None
    few = decide(drawn(10, scale=1.0))
    assert (few.choice.fewest, few.choice.wrong, few.regret) == (31, None, None)
    sure = decide(Scores.from_arrays(np.tile([[1.0, 0.0]], (60, 1))))
    assert sure.choice.threshold == 0


def test_copies_of_a_prompt_do_not_count() -> None:
    rewards = np.tile([[1.0, 0.0]], (60, 1))
    copies = Scores.from_arrays(rewards, cluster=[str(i // 6) for i in range(60)])
    assert decide(Scores.from_arrays(rewards)).choice.threshold == 0
    assert decide(copies).choice.threshold is None
    assert decide(copies).choice.fewest == 6 * 31


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"wrong_at_most": 0.0}, "wrong_at_most: 0.0 is not between 0 and 1"),
        ({"ask_cost": 1.5}, "ask_cost: 1.5 is not between 0 and 1"),
        ({"level": 2.0}, "level"),
    ],
)
def test_bad_options_are_named(options: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decide(drawn(50, scale=1.0), **options)  # type: ignore[arg-type]


def test_single_responses_are_decided_by_the_label_of_the_first_choice() -> None:
    scores = sampled(800, temperature=1.0, threshold=0.0, seed=4)
    rewards, right = scores.reward.reshape(-1, 4), scores.is_correct.reshape(-1, 4)
    labels = right.astype(float)
    labels[:50, :] = np.nan  # nothing is known
    labels[50:90] = np.where(
        rewards[50:90] == rewards[50:90].max(axis=1, keepdims=True), np.nan, labels[50:90]
    )
    found = decide(Scores.from_arrays(rewards, labels, labels_are="correct"), wrong_at_most=0.2)
    first = rewards[90:].argmax(axis=1)
    odds, wrong = rewards[90:].max(axis=1), ~right[90:][np.arange(710), first]
    direct = safe_threshold(odds, wrong, alpha=0.2)
    assert direct.threshold is not None
    assert found.choice == direct
    assert (found.n, found.left_out) == (710, 90)
    assert found.calibrator.rule is not None
    assert (found.calibrator.rule.of, found.calibrator.rule.responses) == ("correct", (4, 4))
    assert found.curve[-1]["right"] == pytest.approx(1 - wrong.mean())
    assert found.regret is not None
    assert found.regret.cost == pytest.approx(np.where(expit(odds) >= 0.8, wrong, 0.2).mean())
    labels[rewards == rewards.max(axis=1, keepdims=True)] = np.nan
    with pytest.raises(ValueError, match="largest reward"):
        decide(Scores.from_arrays(rewards, labels, labels_are="correct"))


def test_a_shared_first_place_is_right_only_if_all_of_it_is() -> None:
    rewards = np.tile([[2.0, 2.0, 0.0]], (120, 1))
    both, one = (np.tile(labels, (120, 1)) for labels in ([[True, True, False]], [[True, False, False]]))
    found = [
        decide(Scores.from_arrays(rewards, labels, labels_are="correct")).choice for labels in (both, one)
    ]
    assert [(choice.threshold, choice.wrong) for choice in found] == [(0.0, 0.0), (None, 1.0)]


def test_a_calibrator_must_fit_the_labels() -> None:
    samples = sampled(300, temperature=3.0, threshold=7.0)
    stated = samples.with_scale(Scale("utility", "trained with a Bradley-Terry loss"))
    with pytest.raises(ValueError, match="calibrat") as refused:
        decide(stated)
    assert "calibrator" in str(refused.value)
    assert "\n" not in str(refused.value)
    fitted = calibrate(sampled(300, temperature=3.0, threshold=7.0, seed=1)).calibrator
    found = decide(stated, wrong_at_most=0.3, calibrator=fitted)
    assert replace(found.calibrator, rule=None) == fitted
    with pytest.raises(ValueError, match="best"):
        decide(stated, calibrator=Calibrator(2.0, 1.8, 2.3))


@pytest.mark.parametrize("view", ["best", "correct"])
def test_there_is_no_guarantee_on_the_prompts_of_the_fit(view: str) -> None:
    if view == "best":
        scores, others = (drawn(600, scale=4.0, seed=seed) for seed in (2, 3))
    else:
        scores, others = (sampled(600, temperature=3.0, threshold=2.0, seed=seed) for seed in (2, 3))
    fitted = calibrate(scores).calibrator
    same, new = (decide(each, wrong_at_most=0.4, calibrator=fitted) for each in (scores, others))
    for found, in_fit in ((same, 600), (new, 0)):
        rule = found.calibrator.rule
        assert rule is not None
        assert rule.threshold is not None
        assert rule.in_fit == in_fit
        promised = [text for text in (str(rule), *decision_sentences(found)) if "at most 40%" in text.lower()]
        assert bool(promised) == (in_fit == 0)
    assert decide(scores).content()["rule"]["in_fit"] == 0


def test_prompts_that_are_wrong_together_count_as_one() -> None:
    names = np.repeat(np.arange(60), 5)
    odds, wrong = np.ones(300), names < 2  # 2 of 60 questions, or 10 of 300 prompts
    assert safe_threshold(odds, wrong, alpha=0.1).threshold == 0
    assert safe_threshold(odds, wrong, alpha=0.1, cluster=names).threshold is None
    assert safe_threshold(odds, names % 5 == 9, alpha=0.1, cluster=names).threshold == 0


def test_a_threshold_that_accepts_few_clusters_has_no_test() -> None:
    """25 clusters may all be right although one in ten is wrong: with probability .07."""
    sure, unsure = np.repeat(np.arange(25), 12), 25 + np.arange(400)
    odds, wrong = np.repeat([3.0, -1.0], [300, 400]), np.arange(700) % 2 == 0
    wrong[:300] = np.arange(300) % 100 == 0
    together = np.concatenate([sure, unsure])
    assert safe_threshold(odds, wrong, alpha=0.1, cluster=np.arange(700)).threshold is not None
    assert safe_threshold(odds, wrong, alpha=0.1, cluster=together).threshold is None


def test_a_few_large_clusters_that_are_all_right_do_not_help() -> None:
    cluster = np.concatenate([np.repeat(np.arange(4), 20), 4 + np.arange(220)])
    wrong = np.isin(np.arange(300), 80 + np.arange(0, 220, 16))  # 14 single prompts
    odds = np.full(300, 2.0)
    assert safe_threshold(odds, wrong, alpha=0.1).threshold == 0
    assert safe_threshold(odds, wrong, alpha=0.1, cluster=cluster).threshold is None
    assert safe_threshold(odds, wrong, alpha=0.1, cluster=np.arange(300)).threshold == 0
