"""The audit by group: against a direct computation, its correction for many groups, and its bad input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmcalib.metrics import audit
from rmcalib.metrics._audit import holm
from rmcalib.report import evaluate, write_evaluation
from rmcalib.scores import Scores
from tests.metrics import slow_metrics as slow
from tests.metrics.worlds import calibrated_scores, prompts_of, ragged_scores, scores_of


def grouped_scores(n: int, seed: int, *, groups: int = 5, bold: tuple[int, float] | None = None) -> Scores:
    """Calibrated prompts in several categories; the rewards of one of them may be too large."""
    rng = np.random.default_rng(seed)
    u = rng.normal(0, 1.5, (n, 3))
    winner = (u + rng.gumbel(size=u.shape)).argmax(axis=1)
    category = np.arange(n) % groups
    scale = np.where(category == bold[0], bold[1], 1.0) if bold else np.ones(n)
    return Scores.from_columns(
        {
            "item_id": np.repeat([f"p{i}" for i in range(n)], 3),
            "category": np.repeat([f"c{k}" for k in category], 3),
            "response": np.tile(np.arange(3), n),
            "is_correct": (np.arange(3) == winner[:, None]).ravel(),
            "reward": (u * scale[:, None]).ravel(),
        }
    )


def test_groups_equal_a_direct_computation() -> None:
    scores = ragged_scores(180, seed=4)
    one = [p for p in prompts_of(scores) if sum(p.correct) == 1]
    found = {(row["group_by"], row["group"]): row for row in audit(scores).rows}
    groups: dict[tuple[str, str], list[slow.Prompt]] = {}
    for prompt in one:
        groups.setdefault(("category", prompt.category), []).append(prompt)
        groups.setdefault(("responses", f"{len(prompt.rewards)} responses"), []).append(prompt)
    assert set(groups) <= set(found)
    for key, members in groups.items():
        row = found[key]
        says = sum(p for p, _ in slow.confidence_rows(members)) / len(members)
        assert row["n"] == len(members)
        assert row["says"] == pytest.approx(says)
        assert row["right"] == pytest.approx(slow.accuracy(members))
        assert row["gap"] == pytest.approx(row["says"] - row["right"])
        if row["low"] is not None:
            assert row["low"] <= row["gap"] <= row["high"]
    quarters = [row for row in audit(scores).rows if row["group_by"] == "length"]
    assert [row["group"] for row in quarters] == [
        "shortest quarter",
        "second quarter",
        "third quarter",
        "longest quarter",
    ]
    assert sum(row["n"] for row in quarters) == len(one)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_step_down_tests_reject(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for alpha in (0.01, 0.05, 0.3):
        # Step down: compare the smallest with alpha/k, the next with alpha/(k - 1), until one fails.
        rejected, left = set(), len(p_values)
        for i in np.argsort(p_values, kind="stable"):
            if p_values[i] * left > alpha:
                break
            rejected.add(int(i))
            left -= 1
        assert {i for i, p in enumerate(adjusted) if p <= alpha} == rejected


def test_calibrated_models_are_rarely_flagged_and_a_bad_category_is_found() -> None:
    flagged = sum(
        any(row["flagged"] for row in audit(grouped_scores(400, seed), group_by=["category"]).rows)
        for seed in range(60)
    )
    assert flagged <= 8  # a binomial(60, 0.05) is above 8 with probability 0.003
    found = audit(grouped_scores(1000, 1, bold=(2, 6.0)), group_by=["category"])
    assert [row["group"] for row in found.rows if row["flagged"]] == ["c2"]
    assert found.summary.startswith("Over-confident on c2 (+0.")
    assert found.summary.endswith("nothing found elsewhere.")
    assert found.table["p_adjusted"].between(0, 1).all()


def test_a_group_that_is_always_right_has_an_interval() -> None:
    sure = [slow.Prompt("easy", [4.0, 0.0], [True, False], [1, 1])] * 30
    hard = [slow.Prompt("hard", [0.1, 0.0], [True, False], [1, 1])] * 30
    rows = {row["group"]: row for row in audit(scores_of([*sure, *hard]), group_by=["category"]).rows}
    assert rows["easy"]["low"] < 0 < rows["easy"]["high"]
    assert not rows["easy"]["flagged"]
    assert rows["hard"]["high"] < 0  # says 52% and is right 30 times of 30
    assert rows["hard"]["flagged"]


def test_small_groups_are_not_tested_and_single_groups_left_out() -> None:
    few = [slow.Prompt("few", [1.0, 0.0], [True, False], [1, 1])] * 3
    many = [slow.Prompt("many", [1.0, 0.0], [i % 4 > 0, i % 4 == 0], [1, 1]) for i in range(40)]
    found = audit(scores_of([*few, *many]))
    assert {row["group_by"] for row in found.rows} == {"category"}  # all lengths and sizes are the same
    row = next(row for row in found.rows if row["group"] == "few")
    assert (row["low"], row["p_adjusted"], row["flagged"]) == (None, None, False)
    assert row["note"] == "fewer than 10 prompts"


def test_own_columns() -> None:
    scores = calibrated_scores(60)
    language = {str(i): "en" if i % 3 else "de" for i in range(50)}  # some prompts have none
    rows = audit(scores, group_by=["language"], columns={"language": language}).rows
    assert [(row["group"], row["n"]) for row in rows] == [("de", 17), ("en", 33)]
    with pytest.raises(ValueError, match=r"unknown 'tongue'.*have: category, length, responses, language"):
        audit(scores, group_by=["tongue"], columns={"language": language})


def test_an_evaluation_reports_groups(tmp_path: Path) -> None:
    report = evaluate(grouped_scores(200, 3), model="org/rm", resamples=20, group_by=["category"])
    write_evaluation(report, tmp_path)
    with (tmp_path / "groups.csv").open(encoding="utf-8") as lines:
        assert [row["group"] for row in csv.DictReader(lines)] == [f"c{k}" for k in range(5)]
    assert len(json.loads((tmp_path / "metrics.json").read_text())["groups"]) == 5
    without = evaluate(grouped_scores(200, 3), model="org/rm", resamples=20)
    write_evaluation(without, tmp_path)
    assert not (tmp_path / "groups.csv").exists()
    assert report.made_from != without.made_from
