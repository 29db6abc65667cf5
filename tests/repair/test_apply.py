"""`apply`: the input's rows in order, with what each reward means."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import rmcalib
from rmcalib.repair import AcceptRule, Calibrator, calibrate, decide
from rmcalib.repair.calibrator import Input
from tests.repair.test_calibrate import drawn, sampled

REFERENCE = tuple(np.linspace(-2.0, 2.0, 101))
CALIBRATOR = Calibrator(2.0, 1.8, 2.3, reference=REFERENCE)


def shuffled() -> pd.DataFrame:
    """Three prompts whose rows are mixed, with columns of their own and no labels."""
    return pd.DataFrame(
        {
            "note": ["x", "y", None, "z", "w", "v"],
            "prompt": ["a", "b", "a", "c", "b", "a"],
            "score": [1.0, 3.0, -1.0, 0.5, 3.0, 5.0],
        }
    )


def test_rows_and_columns_keep_their_order() -> None:
    table = shuffled()
    found = rmcalib.apply(table, CALIBRATOR).table
    assert list(found.columns[:3]) == list(table.columns)
    assert found["score"].tolist() == table["score"].tolist()
    for prompt in "abc":
        rows = table["prompt"] == prompt
        r = table["score"][rows].to_numpy() / 2
        expected = np.exp(r) / np.exp(r).sum()
        np.testing.assert_allclose(found["probability"][rows], expected)


def test_what_a_reward_means() -> None:
    table = shuffled()
    found = rmcalib.apply(table, CALIBRATOR).table
    assert found["percentile"].tolist() == pytest.approx([75, 100, 25, 62.5, 100, 100])
    others = [expit((1 - other) / 2) for other in (-1.0, 5.0)]
    assert found["beats_typical"][0] == pytest.approx(np.mean(others))
    assert found["beats_typical"][1] == pytest.approx(0.5)  # two equal rewards
    alone = np.mean(expit((0.5 - np.array(REFERENCE)) / 2))
    assert found["beats_typical"][3] == pytest.approx(alone)


def test_single_responses_have_a_probability_of_being_correct() -> None:
    calibrator = calibrate(sampled(500, temperature=3.0, threshold=7.0)).calibrator
    others = sampled(2000, temperature=3.0, threshold=7.0, seed=5)
    p = rmcalib.apply(others, calibrator).table["p_correct"]
    assert p.mean() == pytest.approx(others.is_correct.mean(), abs=0.03)
    assert "p_correct" not in rmcalib.apply(others, CALIBRATOR).table


def rule(of: Any, threshold: float | None, responses: tuple[int, int] = (2, 3)) -> AcceptRule:
    return AcceptRule(of, threshold, 0.1, 0.95, n=400, accepted=0.5, wrong=0.05, responses=responses)


@pytest.mark.parametrize(
    ("threshold", "decisions"),
    [
        (0.0, ["", "accept", "", "ask", "", "accept"]),  # c has one response, b a shared first place
        (0.7, ["", "ask", "", "ask", "", "accept"]),
        (1.0, ["", "ask", "", "ask", "", "ask"]),
        (None, ["", "ask", "", "ask", "", "ask"]),
    ],
)
def test_only_the_accepted_response_says_accept(threshold: float | None, decisions: list[str]) -> None:
    ruled = replace(CALIBRATOR, rule=rule("best", threshold))
    found = rmcalib.apply(shuffled(), replace(ruled, reference=(-2.0, 5.0)))
    assert found.table["decision"].tolist() == decisions
    beyond = rmcalib.apply(shuffled(), ruled)  # two prompts have a reward beyond the range of this fit
    assert beyond.n_outside == 3
    assert beyond.accepted == 0
    assert found.accepted == decisions.count("accept") / 3
    assert found.n_other_sizes == 1
    assert "decision" not in rmcalib.apply(shuffled(), CALIBRATOR).table


def test_single_responses_are_accepted_by_their_own_probability() -> None:
    calibrator = Calibrator(2.0, 1.8, 2.3, threshold=1.0, rule=rule("correct", 0.7, (1, 3)))
    found = rmcalib.apply(shuffled(), calibrator)
    assert found.table["decision"].tolist() == ["", "accept", "", "ask", "", "accept"]
    np.testing.assert_allclose(found.table["p_correct"], expit((shuffled()["score"] - 1) / 2))
    assert found.n_other_sizes == 0


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("kind", ["best", "correct"])
def test_the_rule_accepts_what_was_tested(tmp_path: Path, kind: str, scale: float) -> None:
    """On the prompts of the test, `apply` accepts exactly the fraction that `decide` says, as often wrong."""
    if kind == "best":
        scores, others = (drawn(1500, scale=scale, seed=seed) for seed in (2, 3))
    else:
        scores, others = (sampled(1500, temperature=scale, threshold=scale, seed=seed) for seed in (2, 3))
    fitted = calibrate(others).calibrator if scale > 1 else None
    decisions = decide(scores, wrong_at_most=0.25, calibrator=fitted)
    assert decisions.choice.threshold is not None
    path = decisions.calibrator.save(tmp_path / "rule.json")
    assert Calibrator.load(path) == decisions.calibrator
    found = rmcalib.apply(scores, path)
    accept = found.table["decision"].to_numpy() == "accept"
    assert accept.sum() == round(decisions.choice.accepted * 1500) == decisions.choice.n
    assert (~scores.is_correct[accept]).mean() == decisions.choice.wrong
    new = drawn(4000, scale=scale, seed=9) if kind == "best" else None
    new = new or sampled(4000, temperature=scale, threshold=scale, seed=9)
    accept = rmcalib.apply(new, decisions).table["decision"].to_numpy() == "accept"
    assert (~new.is_correct[accept]).mean() <= 0.25
    first = found.table.groupby("item_id")["reward"].transform("max") == found.table["reward"]
    assert (found.table["decision"][~first] == "").all()
    assert (found.table["decision"][first] != "").all()


def test_a_rule_is_not_about_prompts_beyond_the_fit() -> None:
    """`decide` tests its rule without the prompts that `apply` does not accept."""
    fitted = replace(calibrate(drawn(800, scale=4.0, seed=3)).calibrator, reference=(-8.0, 8.0))
    scores = drawn(800, scale=4.0, seed=2)
    decisions = decide(scores, wrong_at_most=0.4, calibrator=fitted)
    found = rmcalib.apply(scores, decisions)
    accept = found.table["decision"].to_numpy() == "accept"
    assert found.n_outside > 0
    assert 0 < accept.sum() == decisions.choice.n
    assert found.accepted == pytest.approx(decisions.choice.accepted)
    assert (~scores.is_correct[accept]).mean() == decisions.choice.wrong
    with pytest.raises(ValueError, match="range"):
        decide(scores, calibrator=replace(fitted, reference=(90.0, 99.0)))


def test_rewards_of_another_run_or_judge_are_named() -> None:
    def run(name: str) -> Any:
        scores = drawn(300, scale=4.0)
        return replace(scores, manifest={**scores.manifest, "model": name, "kind": "causal"})

    fitted = calibrate(run("org/a")).calibrator
    assert rmcalib.apply(run("org/b"), fitted).other_model == "org/b"
    assert rmcalib.apply(run("org/a"), fitted).other_model == ""
    assert rmcalib.apply(drawn(300, scale=4.0), fitted).other_model == ""
    inputs = tuple(Input(name, 1.0, None, None, 0.0, 1.0) for name in ("org/a", "org/b"))
    panel = Calibrator(1.0, 1.0, 1.0, inputs=inputs)
    assert rmcalib.apply([run("org/a"), run("org/b")], panel).other_model == ""
    for names in (("org/b", "org/a"), ("org/a", "org/a")):
        with pytest.raises(ValueError, match="order org/a, org/b"):
            rmcalib.apply([run(name) for name in names], panel)


def test_plain_numbers() -> None:
    calibrator = Calibrator(2.0, 1.8, 2.3, threshold=1.0, reference=(-1.0, 3.0), rule=rule("correct", 0.7))
    rewards = np.array([[3.5, -1.0], [0.0, 1.0]])
    np.testing.assert_allclose(calibrator.p_correct(rewards), expit((rewards - 1) / 2))
    assert calibrator.p_correct(1.0) == 0.5
    assert calibrator.outside(rewards).tolist() == [[True, False], [False, False]]
    assert calibrator.outside([np.nan]).tolist() == [True]
    assert calibrator.accept([2.5, 3.0, 0.0], ["b", "b", "a"]).tolist() == [False, True, False]
    assert calibrator.accept([3.0, 3.5, 0.0], ["b", "b", "a"]).tolist() == [False, False, False]
    assert calibrator.accept([3.0, -1.5, 0.0], ["b", "b", "a"]).tolist() == [False, False, False]
    p = calibrator.p_best([3.0, 3.5, 0.0], ["b", "b", "a"])
    np.testing.assert_allclose(p, [expit(-0.25), expit(0.25), 1.0])
    assert (calibrator.view, CALIBRATOR.view) == ("pointwise", "top_1")
    assert len(repr(calibrator).splitlines()) == len(repr(CALIBRATOR).splitlines()) == 3
    with pytest.raises(ValueError, match="best of its prompt"):
        CALIBRATOR.p_correct([1.0])
    with pytest.raises(ValueError, match="decide"):
        CALIBRATOR.accept([1.0], ["a"])
    with pytest.raises(ValueError, match="prompt"):
        calibrator.p_best([1.0, 2.0], ["a"])
    with pytest.raises(ValueError, match="rewards"):
        calibrator.p_best([1.0, np.nan], ["a", "a"])


def test_pairs_in_one_row_have_a_column_per_response() -> None:
    table = pd.DataFrame({"chosen": [2.0, 0.0], "rejected": [0.0, 2.0]})
    found = rmcalib.apply(table, CALIBRATOR).table
    np.testing.assert_allclose(found["probability_0"], expit([1.0, -1.0]))
    np.testing.assert_allclose(found["probability_1"], expit([-1.0, 1.0]))


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_files(tmp_path: Path, ending: str) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / f"out.{ending}"
    rows = shuffled().to_dict("records")
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    calibrator = CALIBRATOR.save(tmp_path / "c.json")
    rmcalib.apply(source, calibrator).save(target)
    readers: dict[str, Any] = {
        "csv": pd.read_csv,
        "tsv": lambda path: pd.read_csv(path, sep="\t"),
        "jsonl": lambda path: pd.read_json(path, lines=True),
        "parquet": pd.read_parquet,
    }
    found = readers[ending](target)
    assert found["prompt"].tolist() == [row["prompt"] for row in rows]
    np.testing.assert_allclose(found["score"].astype(float), shuffled()["score"])
    expected = rmcalib.apply(shuffled(), CALIBRATOR).table["probability"]
    np.testing.assert_allclose(found["probability"], expected)


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="probability"):
        rmcalib.apply(shuffled().assign(probability=0.5), CALIBRATOR, columns="reward=score")
    with pytest.raises(ValueError, match=r"out\.doc"):
        rmcalib.apply(shuffled(), CALIBRATOR).save(tmp_path / "out.doc")
    assert not list(tmp_path.iterdir())
