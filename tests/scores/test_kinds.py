"""Scores of other kinds: steps, distributions, pairs, and responses without a score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from rmcalib._util.arrays import FloatArray
from rmcalib.scores import STEPS, Reading, Scores, load_all_scores, load_scores
from tests.runs.small_runs import row

SLOW: dict[str, Any] = {
    "product": np.prod,
    "min": np.min,
    "last": lambda values: values[-1],
    "mean": np.mean,
    "geometric_mean": lambda values: np.prod(values) ** (1 / len(values)),
}


def steps_rows(lists: list[list[Any]]) -> list[dict[str, Any]]:
    rows = [row(str(i // 2), i % 2, i % 2 == 0, steps=steps) for i, steps in enumerate(lists)]
    return [{key: value for key, value in one.items() if key != "reward"} for one in rows]


@given(
    st.lists(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=6), min_size=2, max_size=2),
    st.sampled_from(STEPS),
)
@settings(max_examples=50)
def test_steps_become_log_odds(lists: list[list[float]], steps: str) -> None:
    scores = Scores.from_rows(steps_rows(lists), reading=Reading(steps=steps))
    expected = [logit(SLOW[steps](np.array(values))) for values in lists]
    assert scores.reward == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert scores.manifest["steps"] == steps
    assert scores.manifest["scale"] == "log-utilities"


def test_the_softmax_of_log_odds_is_the_chance_to_be_the_one_correct_response() -> None:
    p = np.array([0.9, 0.3, 0.2])
    alone = np.array([p[i] * np.prod(np.delete(1 - p, i)) for i in range(3)])
    lists = [[value] for value in p]
    rows = [row("a", i, i == 0, steps=steps) for i, steps in enumerate(lists)]
    for one in rows:
        del one["reward"]
    reward = Scores.from_rows(rows).reward
    assert np.exp(reward) / np.exp(reward).sum() == pytest.approx(alone / alone.sum())


def test_certain_steps_stay_finite_and_in_order() -> None:
    scores = Scores.from_rows(steps_rows([[1.0, 1.0], [1.0, 0.0]]))
    assert np.isfinite(scores.reward).all()
    assert scores.reward[0] > 15 > -15 > scores.reward[1]


def test_steps_that_are_not_probabilities() -> None:
    rows = steps_rows([[2.0, -1.0], [0.5, 0.5]])
    with pytest.raises(ValueError, match="product needs scores from 0 to 1, and there is one of 2: use min"):
        Scores.from_rows(rows)
    scores = Scores.from_rows(rows, reading=Reading(steps="mean"))
    assert scores.reward.tolist() == [0.5, 0.5]
    assert scores.manifest["scale"] == "unknown"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "row 1: steps is \\[\\], not a list of numbers"),
        (["x"], "row 1: steps is \\['x'\\], not a list"),
        (0.5, "row 1: steps is 0.5, not a list"),
        ([0.5, float("nan")], "row 1: steps has a value that is not finite .*missing='lowest'"),
    ],
)
def test_bad_steps_are_named(bad: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scores.from_rows(steps_rows([[0.5], bad]))


def test_unknown_ways_are_refused() -> None:
    with pytest.raises(ValueError, match="steps"):
        Reading(steps="sum")
    with pytest.raises(ValueError, match="missing"):
        Reading(missing="guess")  # type: ignore[arg-type]


def normal_rows(mean: FloatArray, spread: FloatArray) -> list[dict[str, Any]]:
    return [
        row(str(i), j, j == 0, float(mean[i, j]), spread=float(spread[i, j]))
        for i in range(len(mean))
        for j in range(mean.shape[1])
    ]


def test_normal_rewards_become_probabilities(tmp_path: Path) -> None:
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    mean, spread = rng.normal(size=(5, 3)), np.exp(rng.normal(size=(5, 3)))
    scores = Scores.from_rows(normal_rows(mean, spread)[::-1])
    scores.to_parquet(tmp_path / "s.parquet")
    scores.to_jsonl(tmp_path / "s.jsonl")
    for again in (scores, *(load_scores(tmp_path / name) for name in ("s.parquet", "s.jsonl"))):
        draws = mean + spread * rng.normal(size=(200_000, 5, 3))
        largest = np.eye(3)[draws.argmax(axis=2)].mean(axis=0)[::-1].ravel()
        assert np.exp(again.reward) == pytest.approx(largest, abs=0.01)
        matrix = again.pair_probabilities
        assert matrix is not None
        found = matrix.reshape(5, 3, 3)[::-1]
        for i, j in ((0, 1), (2, 0)):
            gap = (mean[:, i] - mean[:, j]) / np.hypot(spread[:, i], spread[:, j])
            assert found[:, i, j] == pytest.approx(norm.cdf(gap))
    assert scores.manifest["scale"] == "log-probabilities"


def test_quantiles_of_a_normal_reward_are_that_reward() -> None:
    from scipy.stats import norm

    rng = np.random.default_rng(1)
    mean, spread = rng.normal(size=(4, 3)), np.exp(rng.normal(size=(4, 3)))
    rows = normal_rows(mean, spread)
    levels = norm.ppf(np.arange(1, 20) / 20)
    quantiles = [
        {key: value for key, value in one.items() if key not in ("reward", "spread")}
        | {"quantiles": (one["reward"] + one["spread"] * levels).tolist()}
        for one in rows
    ]
    one, other = Scores.from_rows(rows), Scores.from_rows(quantiles)
    assert one.reward == pytest.approx(other.reward, abs=1e-9)
    assert one.pair_probabilities == pytest.approx(other.pair_probabilities, abs=1e-9, nan_ok=True)


def test_bad_distributions_are_refused() -> None:
    rows = normal_rows(np.zeros((1, 2)), np.array([[1.0, 0.0]]))
    with pytest.raises(ValueError, match="row 1: spread is 0, and it must be above 0"):
        Scores.from_rows(rows)
    for one in rows:
        one["steps"] = [0.5]
    with pytest.raises(ValueError, match="columns steps and spread: give one of them"):
        Scores.from_rows(rows)
    short = [{**one, "quantiles": [0.0, 1.0][: 2 - i]} for i, one in enumerate(GOOD[:2])]
    with pytest.raises(ValueError, match="every response needs as many, at least 2"):
        Scores.from_rows(short)


GOOD = [row("a", 0, True, 2.0), row("a", 1, False, 1.0), row("b", 0, True, 3.0), row("b", 1, False, 0.5)]


def test_missing_scores_are_counted() -> None:
    rows = [{**one, "reward": None if i == 3 else one["reward"]} for i, one in enumerate(GOOD)]
    with pytest.raises(ValueError, match="row 3: nothing for reward"):
        Scores.from_rows(rows)
    lowest = Scores.from_rows(rows, reading=Reading(missing="lowest"))
    assert lowest.reward.tolist() == [2.0, 1.0, 3.0, 1.0]
    assert lowest.manifest["missing"] == {"responses": 1, "prompts": 1, "treated": "lowest"}
    dropped = Scores.from_rows(rows, reading=Reading(missing="drop"))
    assert dropped.item_id.tolist() == ["a", "a"]
    assert dropped.manifest["notes"] == ["1 response had no score; left out: 1 prompt."]
    nothing = [{**one, "reward": None} for one in GOOD]
    with pytest.raises(ValueError, match="no prompt has a score for each of its responses"):
        Scores.from_rows(nothing, reading=Reading(missing="drop"))


def test_pairs_without_rewards() -> None:
    rows = [{**one, "beats": [None, 0.8] if i % 2 == 0 else [0.2, None]} for i, one in enumerate(GOOD)]
    for one in rows:
        del one["reward"]
    scores = Scores.from_rows(rows)
    assert scores.reward.tolist() == [0.8, 0.2, 0.8, 0.2]
    assert scores.manifest["scale"] == "pairs"
    softer = scores.at_temperature(2.0).pair_probabilities
    assert softer is not None
    assert softer[1] == pytest.approx(expit(logit(0.8) / 2))


@pytest.mark.parametrize(
    ("beats", "message"),
    [
        (([None, 0.8], [0.3, None]), r"P\(0 beats 1\) = 0.8 and P\(1 beats 0\) = 0.3; the two must sum to 1"),
        (([None, 0.8], [None, None]), "the two must sum to 1"),
        (([None, 0.8, 0.1], [0.2, None, 0.9]), "beats has 3 entries for 2 responses"),
        (([None, 1.8], [0.2, None]), r"beats is \[None, 1.8\], not a list of probabilities"),
    ],
)
def test_pairs_that_contradict_each_other_are_refused(beats: Any, message: str) -> None:
    rows = [{**one, "beats": list(beats[i % 2])} for i, one in enumerate(GOOD)]
    with pytest.raises(ValueError, match=message):
        Scores.from_rows(rows)


def test_all_ways_to_combine_steps_side_by_side(tmp_path: Path) -> None:
    Scores.from_rows(GOOD).to_jsonl(tmp_path / "plain.jsonl")
    assert list(load_all_scores(tmp_path / "plain.jsonl", steps="all")) == ["plain"]
    import json

    lines = [json.dumps(one) for one in steps_rows([[0.9, 0.5], [0.6, 0.7]])]
    (tmp_path / "prm.jsonl").write_text("\n".join(lines))
    found = load_all_scores(tmp_path / "prm.jsonl", steps="all")
    assert list(found) == [f"prm ({steps})" for steps in STEPS]
    assert [scores.manifest["steps"] for scores in found.values()] == list(STEPS)
    with pytest.raises(ValueError, match="steps"):
        load_scores(tmp_path / "prm.jsonl", steps="all")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"steps": [10**400]}, "steps has a value that is not finite"),
        ({"steps": [1e308, 1e308]}, r"steps has a value that is too large \(at most 1e\+100\)"),
        ({"quantiles": [-1e308, 1e308]}, "quantiles has a value that is too large"),
        ({"reward": 0.0, "spread": 10**400}, "spread is too large"),
        ({"reward": 0.0, "spread": 1e300}, "spread is too large"),
        ({"reward": 0.0, "spread": 1e-200}, "spread is 1e-200, and it must be at least 1e-100"),
        ({"reward": 10**400, "spread": 1.0}, "reward is too large"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_numbers_that_overflow_are_refused(columns: dict[str, Any], message: str) -> None:
    rows = [{**row("a", j, j == 0), **columns} for j in (0, 1)]
    if "reward" not in columns:
        rows = [{key: value for key, value in one.items() if key != "reward"} for one in rows]
    with pytest.raises(ValueError, match=f"row 0: {message}"):
        Scores.from_rows(rows, reading=Reading(steps="mean"))
