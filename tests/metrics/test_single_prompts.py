"""A single prompt has values but no intervals, because all its resamples are equal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmcalib.metrics import Settings, compare_scores, find_value, metric_rows
from rmcalib.metrics._boards._models import measure_model
from rmcalib.metrics._catalogue._rewardbench import lone_categories
from rmcalib.metrics._rewardbench import category_scores
from rmcalib.metrics._statistic import NO_INTERVAL
from rmcalib.report import evaluate, write_evaluation
from rmcalib.scores import Scores
from tests.metrics.slow_metrics import Prompt
from tests.metrics.worlds import scores_of

FAST = Settings(resamples=50)


def made(math: int, pairs: int, *, more_refs: int = 0, seed: int = 0) -> Scores:
    """Prompts of Math with one correct response of three, and pairs of Ties with three correct of five."""
    rng = np.random.default_rng(seed)
    kinds = [("Math", f"m{i}", 1, 3) for i in range(math)]
    kinds += [("Ties", f"{kind}:{i}", n, 5) for i in range(pairs) for kind, n in (("ref", 1), ("tied", 3))]
    kinds += [("Ties", f"ref:{pairs + i}", 1, 5) for i in range(more_refs)]
    prompts = [
        Prompt(
            category,
            rng.normal(0, 1, size).tolist(),
            [i < n for i in range(size)],
            rng.integers(1, 50, size).astype(float).tolist(),
        )
        for category, _, n, size in kinds
    ]
    return scores_of(prompts, ids=[name for _, name, _, _ in kinds])


def score_of(rows: list[dict[str, Any]], category: str) -> dict[str, Any]:
    found = find_value(rows, "rewardbench_score", category)
    assert found is not None
    return dict(found)


@pytest.mark.parametrize("more_refs", [0, 4])
def test_a_single_pair_of_ties_has_a_score_and_no_interval(more_refs: int) -> None:
    scores = made(40, 1, more_refs=more_refs)
    rows = metric_rows(scores, model="m", benchmark="b", settings=FAST)
    ties, math, overall = (score_of(rows, name) for name in ("Ties", "Math", "overall"))
    assert lone_categories(scores) == {"Ties"}
    assert ties["value"] == pytest.approx(category_scores(scores)["Ties"])
    assert overall["value"] == pytest.approx(np.mean(list(category_scores(scores).values())))
    assert (ties["low"], ties["high"], overall["low"], overall["high"]) == (None,) * 4
    assert ties["note"] == overall["note"]
    assert "no interval: a category has only one prompt" in ties["note"]
    assert math["low"] < math["high"]


def test_two_pairs_of_ties_have_an_interval() -> None:
    scores = made(6, 2)
    assert lone_categories(scores) == frozenset()
    rows = metric_rows(scores, model="m", benchmark="b", settings=FAST, metrics=["rewardbench_score"])
    assert len(rows) == 3
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)


def test_no_metric_of_a_single_prompt_has_an_interval() -> None:
    rows = metric_rows(made(1, 0), model="m", benchmark="b", settings=FAST)
    assert [row["metric"] for row in rows if row["low"] is not None or row["high"] is not None] == []
    noted = {row["metric"] for row in rows if row["note"] == NO_INTERVAL and row["value"] is not None}
    assert {"ece", "accuracy", "brier", "smooth_ece", "rewardbench_score", "reference_top_1"} <= noted


def test_other_categories_keep_their_intervals() -> None:
    rows = metric_rows(made(8, 1), model="m", benchmark="b", settings=FAST)
    ece = find_value(rows, "ece", "Math")
    first = find_value(rows, "correct_first", "Ties")
    assert ece is not None
    assert ece["low"] < ece["high"]
    assert first is not None
    assert (first["n"], first["low"] is None) == (2, False)


@pytest.mark.parametrize("seed", range(4))
def test_reports_of_a_single_prompt_can_be_written(seed: int, tmp_path: Path) -> None:
    scores = made(1, 0, seed=seed)
    confident = Scores.from_columns(
        {**{name: getattr(scores, name) for name in ("item_id", "category", "response", "is_correct")}}
        | {"reward": np.where(scores.is_correct, -30.0, 30.0 * (scores.response == 1))}
    )
    for number, one in enumerate((scores, confident)):
        result = evaluate(one, model="org/rm", resamples=20)
        write_evaluation(result, tmp_path / str(number))
        content = json.loads((tmp_path / str(number) / "metrics.json").read_text())
        assert content["metrics"]
        assert "nan" not in result.summary
    measured = measure_model(scores, model="org/rm", settings=FAST).metrics
    assert {row["low"] for row in measured} == {None}


def test_one_prompt_does_not_show_which_model_is_better() -> None:
    rows = compare_scores(made(1, 0), made(1, 0, seed=5), settings=FAST)
    assert {(row["low"], row["high"], row["p_value"]) for row in rows} == {(None, None, None)}
    lone = compare_scores(made(6, 1), made(6, 1, seed=5), settings=FAST)
    shown = {row["category"]: row["low"] for row in lone if row["metric"] == "rewardbench_score"}
    assert shown["Ties"] is None
    assert shown["overall"] is None
    assert shown["Math"] is not None


def test_an_accuracy_of_one_has_an_interval_below_one() -> None:
    scores = made(30, 0)
    columns = {name: getattr(scores, name) for name in ("item_id", "category", "response", "is_correct")}
    for right in (True, False):
        reward = np.where(scores.is_correct == right, 1.0, 0.0)
        one = Scores.from_columns({**columns, "reward": reward})
        least = 0.025 ** (1 / 30)  # the error rate at which 30 of 30 are right in 2.5% of the samples
        expected = (least, 1.0) if right else (0.0, 1 - least)
        rows = [
            *metric_rows(one, model="m", benchmark="b", settings=FAST),
            *measure_model(one, model="m", settings=FAST).metrics,
        ]
        found = [row for row in rows if (row["metric"], row["category"]) == ("accuracy", "Math")]
        found.append(score_of(rows, "Math"))
        assert len(found) == 3
        for row in found:
            assert row["value"] == right
            assert (row["low"], row["high"]) == pytest.approx(expected)


def test_a_perfect_category_adds_to_the_interval_of_the_mean() -> None:
    easy, hard = made(30, 0), made(40, 0, seed=3)
    names = ("item_id", "category", "response", "is_correct", "reward")
    columns = {name: np.concatenate([getattr(easy, name), getattr(hard, name)]) for name in names}
    first = np.arange(len(columns["reward"])) < len(easy)
    columns["item_id"] = np.char.add(np.where(first, "e", "h"), columns["item_id"].astype(str))
    columns["category"] = np.where(first, "Easy", "Hard")
    columns["reward"] = np.where(first, columns["is_correct"] * 1.0, columns["reward"])
    settings = Settings(resamples=200)
    rows = metric_rows(Scores.from_columns(columns), model="m", benchmark="b", settings=settings)
    mean, easy_one, hard_one = (score_of(rows, name) for name in ("overall", "Easy", "Hard"))
    least = 0.025 ** (1 / 30)
    assert easy_one["low"] == pytest.approx(least)
    assert easy_one["high"] == 1.0
    below = np.hypot((hard_one["value"] - hard_one["low"]) / 2, (1 - least) / 2)
    assert mean["value"] - mean["low"] == pytest.approx(below)
    assert mean["high"] - mean["value"] == pytest.approx((hard_one["high"] - hard_one["value"]) / 2)


def test_ties_whose_resamples_are_equal_have_no_interval() -> None:
    scores = made(20, 4)
    columns = {name: getattr(scores, name) for name in ("item_id", "category", "response", "is_correct")}
    perfect = Scores.from_columns({**columns, "reward": scores.is_correct * 1.0})
    rows = metric_rows(perfect, model="m", benchmark="b", settings=FAST)
    for category in ("Ties", "overall"):
        row = score_of(rows, category)
        assert row["value"] is not None
        assert (row["low"], row["high"]) == (None, None)
        assert "all resamples of Ties are equal" in row["note"]
