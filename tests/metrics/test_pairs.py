"""Metrics of pairs against slow loops, for judges with rewards and for judges that know only pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit

from rmcalib.calibration import pair_scale_loss, scale_loss
from rmcalib.metrics import Settings, compare_scores, metric_rows
from rmcalib.scores import Scores
from rmcalib.scores._formats import star

PAIRS = ("pairwise_confidence", "pairwise_accuracy", "pairwise_overconfidence", "pairwise_brier")


def values(scores: Scores, no_calibration: str | None = None) -> dict[str, dict[str, Any]]:
    rows = metric_rows(scores, model="m", benchmark="b", no_calibration=no_calibration)
    return {row["metric"]: row for row in rows if row["category"] == "overall"}


def slow(pairs: list[list[float]]) -> dict[str, float]:
    """Means over prompts of means over pairs, from P(correct one wins)."""
    says = [np.mean([max(p, 1 - p) for p in own]) for own in pairs]
    right = [np.mean([1.0 if p > 0.5 else 0.5 if p == 0.5 else 0.0 for p in own]) for own in pairs]
    brier = [np.mean([(1 - p) ** 2 for p in own]) for own in pairs]
    found = [np.mean(says), np.mean(right), np.mean(says) - np.mean(right), np.mean(brier)]
    return dict(zip(PAIRS, map(float, found), strict=True))


def test_rewards_are_compared_in_pairs() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(40, 5)) + np.array([1.0, 0, 0, 0, 0])
    found = values(Scores.from_arrays(rewards))
    expected = slow(expit(rewards[:, :1] - rewards[:, 1:]).tolist())
    assert {name: found[name]["value"] for name in PAIRS} == pytest.approx(expected)
    d = (rewards[:, :1] - rewards[:, 1:]).ravel()

    def nll(log_t: float) -> float:
        return float(np.logaddexp(0, -d * np.exp(-log_t)).mean())

    best = minimize_scalar(nll, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10})
    lost = found["pairwise_lost_information"]
    assert lost["value"] == pytest.approx((nll(0.0) - best.fun) / np.log(2), abs=1e-8)
    assert lost["low"] is not None
    assert lost["low"] <= lost["value"] <= lost["high"]


def pairs_only(wins: list[list[float | None]]) -> Scores:
    n, m = len(wins), len(wins[0]) + 1
    columns = {
        "item_id": np.repeat([str(i) for i in range(n)], m),
        "category": np.repeat(["x"], n * m),
        "response": np.tile(np.arange(m), n),
        "is_correct": np.tile(np.arange(m) == 0, n),
        "beats": star(wins),
    }
    return Scores.from_columns(columns)


def test_verdicts_have_metrics_of_pairs_and_no_others() -> None:
    rng = np.random.default_rng(1)
    wins = rng.choice([0.0, 0.5, 1.0], size=(30, 4), p=[0.2, 0.1, 0.7]).tolist()
    found = values(pairs_only(wins), "it compares two responses")
    assert {name: found[name]["value"] for name in PAIRS} == pytest.approx(slow(wins))
    assert found["mean_confidence"]["value"] is None
    assert found["mean_confidence"]["note"] == "it compares two responses"
    assert found["pairwise_lost_information"]["value"] is None
    assert "wrong verdict with probability 1" in str(found["pairwise_lost_information"]["note"])
    p = np.array(wins).ravel()
    both = np.concatenate([p, 1 - p])
    happened = np.repeat([1.0, 0.0], len(p))
    bins = np.minimum((both * 10).astype(int), 9)
    gaps = [abs((both - happened)[bins == b].sum()) for b in range(10)]
    assert found["pairwise_ece"]["value"] == pytest.approx(sum(gaps) / len(both))


def test_pairs_that_are_not_known_are_left_out() -> None:
    wins: list[list[float | None]] = [[0.9, None], [None, None], [0.4, 0.8]]
    found = values(pairs_only(wins), "pairs")
    known = [[p for p in own if p is not None] for own in wins]
    expected = slow([own for own in known if own])
    assert {name: found[name]["value"] for name in PAIRS} == pytest.approx(expected)
    assert found["pairwise_confidence"]["n"] == 2


def test_soft_pairs_agree_with_the_rewards_that_they_come_from() -> None:
    rewards = np.random.default_rng(2).normal(size=(30, 3)) + np.array([1.0, 0, 0])
    ours = values(Scores.from_arrays(rewards))
    theirs = values(pairs_only(expit(rewards[:, :1] - rewards[:, 1:]).tolist()), "pairs")
    for name in (*PAIRS, "pairwise_lost_information", "pairwise_ece"):
        assert theirs[name]["value"] == pytest.approx(ours[name]["value"])


def test_categories_select_their_own_pairs() -> None:
    wins = [[0.9, 0.8], [0.3, 0.2], [0.6, 0.7]]
    scores = pairs_only(wins)  # type: ignore[arg-type]
    columns = scores.columns() | {"category": np.repeat(["x", "y", "x"], 3)}
    rows = metric_rows(Scores.from_columns(columns), model="m", benchmark="b", metrics=PAIRS)
    for category, own in (("x", [wins[0], wins[2]]), ("y", [wins[1]])):
        found = {row["metric"]: row["value"] for row in rows if row["category"] == category}
        assert found == pytest.approx(slow(own))


def test_a_judge_of_pairs_is_compared_with_a_reward_model() -> None:
    rewards = np.random.default_rng(3).normal(size=(30, 3)) + np.array([1.0, 0, 0])
    soft = pairs_only(expit(rewards[:, :1] - rewards[:, 1:]).tolist())
    rows = compare_scores(Scores.from_arrays(rewards, category="x"), soft, no_calibration=(None, "pairs"))
    found = {row["metric"]: row for row in rows if row["category"] == "overall"}
    assert found["pairwise_overconfidence"]["difference"] == pytest.approx(0, abs=1e-12)
    assert found["mean_confidence"]["b"] is None


def test_one_pair_per_prompt_is_the_lost_information_of_two_responses() -> None:
    rng = np.random.default_rng(4)
    for scale in (0.3, 1.0, 4.0):
        d = rng.normal(size=200) * scale
        won = np.where(rng.random(200) < expit(d), d, -d)
        rewards = np.column_stack([won, np.zeros(200)]).ravel()
        whole = scale_loss(rewards, np.tile([1, 0], 200), np.repeat(np.arange(200), 2))
        pairs, influence = pair_scale_loss(won, np.arange(200))
        assert pairs.value == pytest.approx(whole.lost.value, abs=1e-9)
        assert influence == pytest.approx(whole.lost_influence, abs=1e-9)
        assert pairs.low <= pairs.value <= pairs.high


def test_copies_of_a_pair_do_not_make_the_interval_narrower() -> None:
    rng = np.random.default_rng(5)
    d = rng.normal(size=100) * 3
    one, _ = pair_scale_loss(d, np.arange(100))
    many, _ = pair_scale_loss(np.repeat(d, 9), np.repeat(np.arange(100), 9))
    assert many.value == pytest.approx(one.value)
    assert many.high == pytest.approx(one.high)
    assert many.low <= one.low + 1e-9


def test_intervals_of_pairs_depend_on_the_number_of_prompts() -> None:
    # Pairs of one prompt are all right or all wrong: 100 prompts, not 900 pairs.
    rng = np.random.default_rng(6)
    wins = np.repeat(rng.random((100, 1)) < 0.7, 9, axis=1).astype(float)
    found = values(pairs_only(wins.tolist()), "pairs")["pairwise_accuracy"]
    width = found["high"] - found["low"]
    assert width == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / 100), rel=0.15)


def test_settings_level_reaches_pairs() -> None:
    rewards = np.random.default_rng(7).normal(size=(50, 3))
    rows = [
        metric_rows(
            Scores.from_arrays(rewards),
            model="m",
            benchmark="b",
            settings=Settings(level=level),
            metrics=["pairwise_lost_information"],
        )[0]
        for level in (0.5, 0.99)
    ]
    assert rows[0]["high"] < rows[1]["high"]


def test_a_scale_that_is_far_too_large_is_not_taken_for_chance() -> None:
    rng = np.random.default_rng(8)
    d = rng.normal(size=900) * 100
    won = np.where(rng.random(900) < expit(d / 100), d, -d)
    found, _ = pair_scale_loss(won, np.repeat(np.arange(100), 9))
    assert 0.5 * found.value < found.low < found.high < 2 * found.value
