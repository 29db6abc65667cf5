"""What rewards are and what labels mean is the same in every command, and in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rmcalib
from rmcalib.scores import Scores, load_scores
from tests.cli.conftest import Invoke


def policy_samples(n: int, m: int, *, seed: int = 0, factor: float = 1.0) -> pd.DataFrame:
    """Samples of a policy, each correct or not; rewards are `factor` times the log-odds of being correct."""
    rng = np.random.default_rng(seed)
    odds = 1 + rng.normal(size=(n, 1)) + rng.normal(size=(n, m))
    correct = rng.random((n, m)) < 1 / (1 + np.exp(-odds))
    return pd.DataFrame(
        {
            "prompt": np.repeat(np.arange(n), m),
            "reward": (factor * odds).ravel(),
            "correct": correct.ravel(),
        }
    )


def pairs_with_ties(n: int, ties: float, *, factor: float = 3.0, seed: int = 0) -> pd.DataFrame:
    """Pairs whose winners follow a Bradley-Terry model; rewards are `factor` times its utilities."""
    rng = np.random.default_rng(seed)
    utility = rng.normal(size=(n, 2))
    first = rng.random(n) < 1 / (1 + np.exp(utility[:, 1] - utility[:, 0]))
    winner = np.where(rng.random(n) < ties, "tie", np.where(first, "A", "B"))
    return pd.DataFrame(
        {"score_A": factor * utility[:, 0], "score_B": factor * utility[:, 1], "winner": winner}
    )


def best_of_all(table: pd.DataFrame) -> float:
    return float(table.loc[table.groupby("prompt")["reward"].idxmax(), "correct"].mean())


def test_no_command_selects_prompts_by_how_many_responses_are_correct() -> None:
    good, bold = policy_samples(400, 8), policy_samples(400, 8, factor=3.0)
    truth = best_of_all(good)
    report = rmcalib.evaluate(good, resamples=50)
    assert report.scores.labels == "correct"
    assert report.value("best_of_n") == pytest.approx(truth)
    assert abs(report.value("pointwise_gap") or 1) < 0.03
    assert report.value("accuracy") is None
    compared = rmcalib.compare(good, bold, names=("good", "bold"), resamples=50)
    gap = compared.row("pointwise_gap")
    assert gap is not None
    assert gap["a"] == pytest.approx(report.value("pointwise_gap"))
    assert gap["better"] == "a"
    row = compared.row("best_of_n")
    assert row is not None
    assert (row["a"], row["difference"]) == (pytest.approx(truth), 0)
    assert compared.row("accuracy") is None
    board = rmcalib.leaderboard({"good": good, "bold": bold}, resamples=50)
    rows = {row["model"]: row for row in board.table.to_dict("records")}
    assert rows["good"]["rank"] == 1
    assert rows["good"]["pointwise_kept_information"] > rows["bold"]["pointwise_kept_information"]
    assert rows["good"]["best_of_n"] == pytest.approx(truth)


def test_the_first_correct_row_does_not_decide_a_score() -> None:
    table = policy_samples(200, 4)
    shuffled = table.sample(frac=1, random_state=0)
    one, other = (rmcalib.evaluate(each, resamples=20) for each in (table, shuffled))
    for metric in ("best_of_n", "rewardbench_score", "pointwise_gap"):
        assert one.value(metric) == pytest.approx(other.value(metric)) if one.value(metric) else True
    assert one.value("rewardbench_score") is None


@pytest.mark.parametrize("ties", [0.05, 0.094, 0.104, 0.3])
def test_ties_of_winners_are_ties_at_any_share(ties: float) -> None:
    table = pairs_with_ties(1500, ties)
    scores = load_scores(table)
    assert (scores.labels, scores.view) == ("best", "top_1")
    report = rmcalib.evaluate(scores, resamples=20)
    tied = int((table["winner"] == "tie").sum())
    assert report.facts["tied"] == tied
    rows = {row["metric"]: row for row in report.rows if row["category"] == "overall"}
    assert rows["overconfidence"]["n"] == 1500 - tied
    assert rmcalib.calibrate(scores).temperature == pytest.approx(3.0, rel=0.15)
    forecast = rmcalib.evaluate(scores, ties="davidson", resamples=20)
    assert forecast.value("vote_tie_share") == pytest.approx(tied / 1500)


def test_shared_ranks_are_ties() -> None:
    rng = np.random.default_rng(0)
    ranks = np.array([[1, 1, 2], *([[1, 2, 3]] * 3)] * 30)
    table = pd.DataFrame(
        {"prompt": np.repeat(np.arange(120), 3), "reward": rng.normal(size=360), "rank": ranks.ravel()}
    )
    report = rmcalib.evaluate(table, resamples=20)
    assert (report.scores.labels, report.facts["tied"]) == ("best", 30)


def test_a_condition_tests_the_number_that_the_page_shows(tmp_path: Path, invoke: Invoke) -> None:
    file = tmp_path / "samples.csv"
    policy_samples(300, 4, factor=3.0).to_csv(file, index=False)
    report = rmcalib.evaluate(str(file), resamples=20)
    gap = report.value("pointwise_gap")
    assert gap is not None
    for name in ("gap", "overconfidence", "pointwise_gap"):
        for limit, code in ((gap - 0.001, 1), (gap + 0.001, 0)):
            args = [
                "eval",
                "--scores",
                str(file),
                "-o",
                str(tmp_path / "out"),
                "--fail-if",
                f"{name}>{limit}",
            ]
            assert invoke(*args, "--resamples", "20", "--quiet").code == code


def test_labels_on_some_prompts_only_are_counted() -> None:
    rng = np.random.default_rng(0)
    label = np.full((500, 4), np.nan)
    label[:100] = np.eye(4)[rng.integers(4, size=100)]
    scores = Scores.from_arrays(rng.normal(size=(500, 4)), label)
    report = rmcalib.evaluate(scores, resamples=20)
    assert (report.facts["prompts"], report.facts["labelled"]) == (500, 100)
    assert any("100 of 500" in note for note in report.notes)


def test_labels_that_are_not_found_are_an_error_that_names_the_columns(
    tmp_path: Path, invoke: Invoke
) -> None:
    table = policy_samples(30, 4).rename(columns={"correct": "verdikt"})
    with pytest.raises(ValueError, match="verdikt"):
        rmcalib.evaluate(table)
    table.to_csv(tmp_path / "t.csv", index=False)
    result = invoke("eval", "--scores", str(tmp_path / "t.csv"), "-o", str(tmp_path / "out"))
    assert result.code == 2
    assert "verdikt" in result.err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_one_command_opens_all_open(tmp_path: Path) -> None:
    scores = rmcalib.load_board("rewardmath")["openbmb/Eurus-RM-7b"].part("1/4")
    folder = tmp_path / "runs/org__model/rewardmath"
    folder.mkdir(parents=True)
    scores.to_parquet(folder / "scores.parquet")
    for place in (folder, tmp_path / "runs/org__model", tmp_path / "runs"):
        assert load_scores(place).n_items == scores.n_items
    top = str(tmp_path / "runs")
    assert rmcalib.evaluate(top, resamples=20).value("accuracy") is not None
    fitted = rmcalib.calibrate(top)
    assert len(rmcalib.apply(top, fitted.calibrator).table) == len(scores)


@pytest.mark.parametrize("is_correct", [True, False])
def test_what_a_column_is_called_decides_before_percentages(is_correct: bool) -> None:
    label = np.array([[1, 0, 0]] * 80 + [[1, 1, 0]] * 20).ravel()
    name = "is_correct" if is_correct else "is_best"
    table = pd.DataFrame({"prompt": np.repeat(np.arange(100), 3), "reward": np.arange(300.0), name: label})
    assert load_scores(table).labels == ("correct" if is_correct else "best")
    assert load_scores(table, labels_are="best").labels == "best"
    assert load_scores(table, labels_are="correct").labels == "correct"


@pytest.mark.parametrize(("share", "expected"), [(0.9, "best"), (0.89, "correct")])
def test_bare_labels_name_the_best_response_if_nine_of_ten_prompts_have_one(
    share: float, expected: str
) -> None:
    label = np.zeros((100, 3))
    label[:, 0] = 1
    label[round(100 * share) :, 1] = 1
    table = pd.DataFrame(
        {"prompt": np.repeat(np.arange(100), 3), "reward": np.arange(300.0), "label": label.ravel()}
    )
    assert load_scores(table).labels == expected


def test_scale_and_labels_are_saved_with_the_scores(tmp_path: Path) -> None:
    scores = load_scores(policy_samples(30, 4), scale="utility")
    scores.to_parquet(tmp_path / "s.parquet")
    again = load_scores(tmp_path / "s.parquet")
    assert (again.scale, again.labels) == (scores.scale, scores.labels)
    assert again.scale.kind == "utility"


def test_a_bradley_terry_reward_states_nothing_about_a_single_response() -> None:
    table = policy_samples(200, 4, factor=3.0)
    report = rmcalib.evaluate(load_scores(table, scale="utility"), resamples=20)
    assert report.value("pointwise_gap") is None
    assert report.value("best_of_n") == pytest.approx(best_of_all(table))
    assert rmcalib.calibrate(load_scores(table, scale="utility")).calibrator.threshold is not None


@pytest.mark.parametrize("scale", [None, "probability"])
def test_probabilities_of_single_responses_are_stated_as_they_are(scale: str | None) -> None:
    table = policy_samples(300, 4)
    p = 1 / (1 + np.exp(-table["reward"]))
    scores = load_scores(table.assign(reward=p), scale=scale)
    assert (scores.scale.kind, scores.scale.of) == ("probability", "correct")
    report = rmcalib.evaluate(scores, resamples=20)
    assert report.value("pointwise_confidence") == pytest.approx(p.mean())


def test_the_registry_says_what_the_rewards_of_a_known_model_are() -> None:
    rewards = np.random.default_rng(0).normal(size=(30, 4))
    scores = Scores.from_arrays(rewards, manifest={"model": "nicolinho/QRM-Gemma-2-27B"})
    assert scores.scale.kind == "none"
    assert rmcalib.evaluate(scores, resamples=20).value("overconfidence") is None
