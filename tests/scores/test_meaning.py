"""What numbers mean: four files of one forecast, swapped labels, scales that are named, steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.scores import Scores, load_scores, look
from rmcalib.scores._meaning import SCALES, STEPS

N, M = 60, 4


def forecast(seed: int = 0) -> tuple[Any, Any]:
    """Return calibrated rewards (n, m), and which response is correct (n,)."""
    rng = np.random.default_rng(seed)
    rewards = 2 * rng.normal(size=(N, M))
    p = np.exp(rewards) / np.exp(rewards).sum(axis=1, keepdims=True)
    return rewards, np.array([rng.choice(M, p=own) for own in p])


def table(values: Any, best: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "prompt": np.repeat(np.arange(N), M),
            "response": np.tile(np.arange(M), N),
            "reward": np.ravel(values),
            "best": np.repeat(best, M),
        }
    )


def softmax(rewards: Any) -> Any:
    return np.exp(rewards) / np.exp(rewards).sum(axis=1, keepdims=True)


def sigmoid(rewards: Any) -> Any:
    return 1 / (1 + np.exp(-rewards))


def meaning(scores: Scores) -> dict[str, Any]:
    found: dict[str, Any] = scores.manifest["meaning"]
    return found


def test_probabilities_and_their_logarithms_and_percentages_are_certain() -> None:
    rewards, best = forecast()
    expected = softmax(rewards).ravel()
    for values, kind in (
        (softmax(rewards), "probability"),
        (100 * softmax(rewards), "probability"),
        (np.log(softmax(rewards)), "logprob"),
    ):
        scores = load_scores(table(values, best))
        np.testing.assert_allclose(scores.probabilities, expected, atol=1e-9)
        assert (meaning(scores)["measured_as"], meaning(scores)["certain"]) == (kind, True)
    rounded = load_scores(table(np.round(100 * softmax(rewards)), best))
    assert meaning(rounded)["certain"]
    np.testing.assert_allclose(rounded.probabilities, expected, atol=0.02)


@pytest.mark.parametrize(
    ("squash", "kind"),
    [
        (sigmoid, "logit"),
        (lambda r: np.round(100 * sigmoid(r)), "rating"),
        (lambda r: np.clip(np.round(5 + r), 1, 10), "rating"),
        (lambda r: np.log(sigmoid(r)), "logprob"),
    ],
)
def test_what_is_not_certain_is_measured_as_given_and_said(squash: Any, kind: str) -> None:
    rewards, best = forecast()
    scores = load_scores(table(squash(rewards), best))
    assert meaning(scores) | {"evidence": ""} == {
        "looks_like": kind,
        "certain": False,
        "evidence": "",
        "measured_as": "reward",
        "asked": False,
        "reversed": None,
    }
    np.testing.assert_array_equal(scores.reward, np.ravel(squash(rewards)))


@pytest.mark.parametrize(
    ("scale", "squash"),
    [
        ("logit", sigmoid),
        ("probability", sigmoid),
        ("probability", lambda r: 100 * sigmoid(r)),
        ("logprob", lambda r: np.log(sigmoid(r))),
        ("reward", lambda r: r),
    ],
)
def test_a_scale_that_is_named_gives_back_the_rewards(scale: str, squash: Any) -> None:
    rewards, best = forecast()
    scores = load_scores(table(squash(rewards), best), scale=scale)
    np.testing.assert_allclose(scores.reward, rewards.ravel(), atol=1e-6)
    assert meaning(scores)["asked"]
    assert meaning(scores)["measured_as"] == scale


def test_certain_zeros_stay_finite() -> None:
    scores = load_scores(table(np.tile([0.0, 0.5, 0.25, 0.25], (N, 1)), np.ones(N, dtype=int)))
    assert np.isfinite(scores.reward).all()
    assert scores.reward.reshape(N, M)[:, 0].max() < np.log(0.25)


def test_plain_rewards_have_nothing_to_say() -> None:
    rewards, best = forecast()
    for seed in range(20):
        rewards, best = forecast(seed)
        assert "meaning" not in load_scores(table(rewards, best)).manifest
    binary = load_scores(table(np.tile(np.arange(M) == 0, N), best))  # of an exact check
    assert binary.reward.tolist()[:2] == [1, 0]
    assert binary.manifest.get("meaning", {}).get("looks_like", "reward") == "reward"


def test_swapped_labels_and_turned_scores_are_named() -> None:
    rewards, best = forecast()
    turned = load_scores(table(-rewards, best))
    assert meaning(turned)["reversed"] > 0.6
    right = load_scores(table(-rewards, best), {"reward": "-reward", "response": "response"})
    assert "meaning" not in right.manifest
    swapped = table(rewards, best)
    swapped["label"] = swapped["response"] != swapped.pop("best")
    assert meaning(load_scores(swapped))["reversed"] > 0.6


def test_only_tables_of_others_are_guessed(tmp_path: Path) -> None:
    rewards, best = forecast()
    own = Scores.from_arrays(softmax(rewards), best)
    assert look(own).looks_like == "probability"
    assert load_scores(own) is own
    own.to_parquet(tmp_path / "scores.parquet")
    stored = load_scores(tmp_path / "scores.parquet")
    assert "meaning" not in stored.manifest
    assert np.array_equal(stored.reward, own.reward)
    asked = load_scores(tmp_path / "scores.parquet", scale="probability")
    np.testing.assert_allclose(asked.reward, np.log(own.reward))


@pytest.mark.parametrize("scale", ["probability", "logit", "logprob"])
def test_numbers_outside_a_scale_are_refused(scale: str) -> None:
    with pytest.raises(ValueError, match="scale"):
        load_scores(Scores.from_arrays([[1000.0, -1.0], [2.0, 1.0]]), scale=scale)
    with pytest.raises(ValueError, match=r"scale.*probability"):
        load_scores(Scores.from_arrays([[1.0, 0.0]]), scale="odds")
    assert scale in SCALES


COMBINED: dict[str, Any] = {"product": np.prod, "min": np.min, "last": lambda row: row[-1], "mean": np.mean}
COMBINED["geometric_mean"] = lambda row: np.prod(row) ** (1 / len(row))


@given(
    lists=st.lists(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=5), min_size=2, max_size=6),
    how=st.sampled_from(STEPS),
)
@settings(max_examples=50, deadline=None)
def test_step_scores_become_log_odds(lists: list[list[float]], how: str) -> None:
    frame = pd.DataFrame({"prompt": "a", "steps": lists})
    scores = load_scores(frame, steps=how)
    p = np.array([COMBINED[how](row) for row in lists])
    np.testing.assert_allclose(scores.reward, np.log(p) - np.log1p(-p), rtol=1e-6, atol=1e-9)
    assert scores.manifest["steps"] == how
    assert "meaning" not in scores.manifest


def test_steps_that_are_no_probabilities() -> None:
    frame = pd.DataFrame({"prompt": "a", "steps": [[3.0, -1.0], [0.5]]})
    assert load_scores(frame, steps="min").reward.tolist() == [-1.0, 0.5]
    with pytest.raises(ValueError, match=r"product.*min"):
        load_scores(frame)
    with pytest.raises(ValueError, match="steps"):
        load_scores(frame, steps="sum")
    bad: Any
    for bad in ([[], [1.0]], [["x"], [1.0]], [None, [1.0]], [[np.nan], [1.0]]):
        with pytest.raises(ValueError, match="row 0"):
            load_scores(frame.assign(steps=bad), steps="min")
