"""Probabilities from rewards, and the forecasts of pairs and sets, against direct computations."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.metrics import forecast, select_prompts, top_1_prompts
from rmcalib.metrics._events import correct_first_probability, pairwise_forecasts
from rmcalib.metrics._forecasts import log_softmax
from tests.metrics import slow_metrics as slow
from tests.metrics.worlds import prompts_of, ragged_scores, scores_of

rewards = st.lists(st.lists(st.floats(-60, 60), min_size=2, max_size=7), min_size=1, max_size=8)


@given(rewards, st.floats(0.1, 10))
@settings(max_examples=60)
def test_probabilities_are_softmax_of_each_prompt(rows: list[list[float]], temperature: float) -> None:
    offsets = np.cumsum([0, *map(len, rows)])
    flat = [value for row in rows for value in row]
    found = np.exp(log_softmax(flat, offsets, temperature=temperature))
    expected = [p for row in rows for p in slow.probabilities(row, temperature)]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(np.add.reduceat(found, offsets[:-1]), 1.0, rtol=1e-12)


@given(rewards, st.floats(-1e6, 1e6))
@settings(max_examples=40)
def test_a_constant_added_to_a_prompt_changes_nothing(rows: list[list[float]], shift: float) -> None:
    offsets = np.cumsum([0, *map(len, rows)])
    flat = np.array([value for row in rows for value in row])
    np.testing.assert_allclose(log_softmax(flat + shift, offsets), log_softmax(flat, offsets), atol=1e-8)


def test_huge_rewards_do_not_overflow() -> None:
    logs = log_softmax([1e300, -1e300, 5.0, 5.0], np.array([0, 2, 4]))
    assert logs[0] == 0.0
    assert np.isfinite(logs[2:]).all()


def test_temperature_may_differ_by_prompt() -> None:
    scores = ragged_scores(5, seed=1)
    temperatures = np.array([0.5, 1.0, 2.0, 3.0, 4.0])
    found = forecast(scores, temperature=temperatures)
    for number, prompt in enumerate(prompts_of(scores)):
        rows = slice(found.offsets[number], found.offsets[number + 1])
        np.testing.assert_allclose(
            found.probability[rows], slow.probabilities(prompt.rewards, temperatures[number]), rtol=1e-12
        )


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf, [1.0, 2.0]])
def test_bad_temperatures_are_refused(temperature: object) -> None:
    with pytest.raises(ValueError, match=r"temperature: expected a positive number"):
        log_softmax([0.0, 1.0], np.array([0, 2]), temperature=temperature)  # type: ignore[arg-type]


def test_pairs_and_sets_equal_a_direct_computation() -> None:
    scores = ragged_scores(40, seed=2)
    found = forecast(scores)
    prompts = prompts_of(scores)
    p, y, prompt = pairwise_forecasts(found)
    assert sorted(zip(p.round(10), y, strict=True)) == sorted(
        (round(q, 10), float(happened)) for q, happened in slow.pairs(prompts)
    )
    # Both orders of a pair belong to the same prompt.
    np.testing.assert_allclose(np.bincount(prompt, y) * 2, np.bincount(prompt))
    expected = [p for p, correct in slow.sets(prompts) if correct]
    np.testing.assert_allclose(correct_first_probability(found), expected)


def test_selected_prompts_keep_their_rows() -> None:
    scores = ragged_scores(30, seed=3)
    everything = forecast(scores)
    kept = np.arange(30) % 3 == 0
    part = select_prompts(everything, kept)
    assert part.source.tolist() == list(range(0, 30, 3))
    np.testing.assert_allclose(np.add.reduceat(part.probability, part.starts), 1.0)
    for number, source in enumerate(part.source):
        mine = part.reward[part.offsets[number] : part.offsets[number + 1]]
        theirs = everything.reward[everything.offsets[source] : everything.offsets[source + 1]]
        assert mine.tolist() == theirs.tolist()


def test_one_answer_means_one_correct_response_outside_ties() -> None:
    prompts = [
        slow.Prompt("Math", [1.0, 0.0], [True, False], [1, 1]),
        slow.Prompt("Math", [1.0, 0.0, 2.0], [True, True, False], [1, 1, 1]),
        slow.Prompt("Ties", [1.0, 0.0], [True, False], [1, 1]),
    ]
    by_ids = scores_of(prompts, ids=["a", "b", "ref:7"])
    assert top_1_prompts(forecast(by_ids)).tolist() == [True, False, False]
    by_name = scores_of(prompts)  # a category that only has this name
    assert top_1_prompts(forecast(by_name)).tolist() == [True, False, True]
    for name in ("reward-bench-2", "allenai/reward-bench-2"):
        of_benchmark = dataclasses.replace(by_name, manifest={"benchmark": name})
        assert top_1_prompts(forecast(of_benchmark)).tolist() == [True, False, False]


def test_lengths_must_fit() -> None:
    with pytest.raises(ValueError, match="lengths: 1 lengths for"):
        forecast(ragged_scores(3), lengths=[1.0])
