"""Metrics of models that are right on every prompt, of tied rewards, and of several correct responses."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from rmcalib.metrics import FEWEST, Settings, catalogue, compare_scores, find_value, metric_rows
from rmcalib.report import headline
from rmcalib.scores import Scores

FEW = Settings(resamples=99)


def rows_of(scores: Scores, metrics: list[str], settings: Settings = FEW) -> list[dict[str, object]]:
    return metric_rows(scores, model="m", benchmark="b", metrics=metrics, settings=settings)


def test_no_interval_collapses_when_every_choice_is_right() -> None:
    n = 40
    scores = Scores.from_arrays(np.tile([8.0, 0.0, -1.0], (n, 1)))
    rate = 1 - 0.025 ** (1 / n)
    least = {  # how much each value changes if this fraction of the choices is wrong
        "accuracy": -rate,
        "overconfidence": rate,
        "pairwise_accuracy": -rate / 2,
        "pairwise_overconfidence": rate / 3,
        "nll": 3 * rate,
        "brier": rate,
        "pairwise_brier": rate / 4,
        "reference_top_1": rate / 2,
        "usable_information": -rate,
        "ece": rate / 3,
        "confidence_ece": rate / 2,
        "pairwise_ece": rate / 8,
    }
    rows = rows_of(scores, list(least))
    for metric, change in least.items():
        row = find_value(rows, metric)
        assert row is not None
        moved = (row["high"] if change > 0 else row["low"]) - row["value"]
        assert moved / change > 0.999, metric


def test_models_that_always_agree_may_still_differ() -> None:
    rng = np.random.default_rng(0)
    rewards = np.column_stack([rng.uniform(2, 4, 40), rng.normal(size=40)])
    a, b = Scores.from_arrays(rewards), Scores.from_arrays(rewards + rng.normal(scale=0.1, size=(40, 2)))
    found = {row["metric"]: row for row in compare_scores(a, b, settings=FEW) if row["category"] == "overall"}
    assert found["accuracy"]["difference"] == 0
    assert found["accuracy"]["high"] == pytest.approx(1 - 0.025 ** (1 / 40))
    scaled = compare_scores(a, Scores.from_arrays(2 * rewards), settings=FEW)
    same = find_value(scaled, "accuracy")
    assert same is not None
    assert (same["low"], same["high"]) == (0, 0)  # the order of the responses is the same everywhere


def test_tied_rewards_depend_neither_on_the_order_of_responses_nor_on_a_seed() -> None:
    rng = np.random.default_rng(1)
    rewards = np.round(rng.normal(size=(80, 4)))
    correct = (rewards + rng.gumbel(size=(80, 4))).argmax(axis=1)
    shuffle = np.argsort(rng.random((80, 4)), axis=1)
    moved = (shuffle == correct[:, None]).argmax(axis=1)
    names = [
        "mean_confidence", "accuracy", "overconfidence", "confidence_ece", "pairwise_ece", "nll",
        "brier_miscalibration", "log_miscalibration", "brier_discrimination",
    ]  # fmt: skip
    one = rows_of(Scores.from_arrays(rewards, correct), names)
    other = rows_of(Scores.from_arrays(np.take_along_axis(rewards, shuffle, 1), moved), names)
    reseeded = rows_of(Scores.from_arrays(rewards, correct), names, Settings(resamples=99, seed=5))
    for a, b, c in zip(one, other, reseeded, strict=True):
        assert a["value"] == pytest.approx(b["value"], abs=1e-12), a["metric"]
        assert a["value"] == c["value"], a["metric"]


def test_several_correct_responses_have_a_mean_and_a_frequency_and_no_error() -> None:
    assert not [name for name in catalogue() if name.startswith("correct_first_ece")]
    columns = {
        "item_id": np.repeat(["a", "b", "c"], 3),
        "category": ["x"] * 9,
        "response": np.tile(np.arange(3), 3),
        "is_correct": [True, True, False, True, True, False, True, False, False],
        "reward": [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0],
    }
    rows = rows_of(
        Scores.from_columns(columns), ["correct_first_probability", "correct_first", "pairwise_ece"]
    )
    found = {row["metric"]: row for row in rows if row["category"] == "overall"}
    e = np.e
    assert found["correct_first_probability"]["value"] == pytest.approx(((e + 1) + 2) / (2 * (e + 2)))
    assert (found["correct_first"]["value"], found["correct_first"]["n"]) == (0.5, 2)
    assert found["pairwise_ece"]["n"] == 1  # the prompt with one correct response


@pytest.mark.parametrize("scale", [1e-90, 1e-17, 1e90])
def test_results_that_do_not_depend_on_scale_do_not_depend_on_extreme_scales(scale: float) -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(60, 4))
    correct = (2 * rewards + rng.gumbel(size=(60, 4))).argmax(axis=1)
    names = ["accuracy", "pairwise_accuracy", "usable_information", "nll_at_temperature", "temperature"]
    usual, extreme = (rows_of(Scores.from_arrays(rewards * s, correct), names) for s in (1.0, scale))
    for a, b in zip(usual, extreme, strict=True):
        factor = scale if a["metric"] == "temperature" else 1.0
        for name in ("value", "low", "high"):
            assert b[name] / factor == pytest.approx(a[name], rel=1e-6), a["metric"]  # type: ignore[operator]


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_rewards_beyond_floating_point_arithmetic_are_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="reward is"):
        Scores.from_arrays([[1.5 * scale, 0.0], [scale, 0.0]])


def test_pairs_of_many_responses_take_little_memory() -> None:
    rng = np.random.default_rng(0)
    scores = Scores.from_arrays(rng.normal(size=(2, 1500)))
    tracemalloc.start()
    row = find_value(rows_of(scores, ["pairwise_ece", "pairwise_accuracy", "ece"]), "pairwise_ece")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert row is not None
    assert row["low"] is not None
    assert peak < 100e6  # the 4.5 million pairs alone would take 144 MB


@pytest.mark.parametrize("n", [1, 2, 19, 20])
def test_few_prompts_have_no_verdict(n: int) -> None:
    names = ["mean_confidence", "accuracy", "overconfidence", "lost_information", "usable_information"]
    rows = rows_of(Scores.from_arrays(np.tile([0.0, 9.0], (n, 1))), names)
    assert find_value(rows, "accuracy")["n"] == n  # type: ignore[index]
    assert ("over-confident by" in headline(rows)) == (n >= FEWEST)
