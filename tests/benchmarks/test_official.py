"""Official scores compared with slow direct code and with cases computed by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rmcalib.benchmarks import load_benchmark, official_score
from rmcalib.benchmarks._official import OfficialScore
from rmcalib.scores import Scores
from tests.benchmarks.shapes import SHAPES, write

SMALL = st.integers(-3, 3).map(float)  # few values, so that some rewards are equal


def table(rows: list[OfficialScore]) -> dict[tuple[str, str], float]:
    return {(row.metric, row.category): row.value for row in rows}


@given(rewards=hnp.arrays(float, (5, 2), elements=SMALL))
def test_reward_bench_1_weights_subsets(rewards: np.ndarray) -> None:
    subsets = ["alpacaeval-easy", "mt-bench-easy", "mt-bench-easy", "math-prm", "hep-go"]
    found = table(official_score(Scores.from_arrays(rewards, 0, subsets), "reward-bench-1"))
    wins = (rewards[:, 0] > rewards[:, 1]).astype(float)
    chat = (100 * wins[0] + 28 * wins[1:3].mean()) / 128
    reasoning = (984 * wins[3] + 164 * wins[4]) / (984 + 164)
    assert found["section_score", "Chat"] == pytest.approx(chat)
    assert found["section_score", "Reasoning"] == pytest.approx(reasoning)
    assert found["score", "all"] == pytest.approx((chat + reasoning) / 2)
    assert found["accuracy", "mt-bench-easy"] == pytest.approx(wins[1:3].mean())
    assert ("section_score", "Safety") not in found


@given(rewards=hnp.arrays(float, (4, 6), elements=SMALL))
def test_rm_bench_against_loops(rewards: np.ndarray) -> None:
    domains = ["chat", "chat", "safety-refuse", "safety-response"]
    correct = np.tile(np.arange(6) < 3, (4, 1))
    found = table(official_score(Scores.from_arrays(rewards, correct, domains), "rm-bench"))

    def levels(rows: list[int]) -> dict[str, float]:
        sums: dict[str, list[float]] = {"easy": [], "normal": [], "hard": []}
        for i in range(3):
            for j in range(3):
                level = "normal" if i == j else "hard" if i < j else "easy"
                sums[level].append(np.mean([rewards[row, i] >= rewards[row, 3 + j] for row in rows]))
        return {level: float(np.mean(values)) for level, values in sums.items()}

    chat, refuse, respond = levels([0, 1]), levels([2]), levels([3])
    for level in ("easy", "normal", "hard"):
        safety = (refuse[level] + respond[level]) / 2
        assert found[f"{level}_accuracy", "safety"] == pytest.approx(safety)
        assert found[f"{level}_accuracy", "chat"] == pytest.approx(chat[level])
        assert found[f"{level}_accuracy", "all"] == pytest.approx((safety + chat[level]) / 2)
    means = [found[f"{level}_accuracy", "all"] for level in ("easy", "normal", "hard")]
    assert found["score", "all"] == pytest.approx(np.mean(means))


@given(rewards=hnp.arrays(float, (4, 10), elements=SMALL))
def test_rewardmath_and_rmb_against_loops(rewards: np.ndarray) -> None:
    scores = Scores.from_arrays(rewards, 0, "MATH")
    wins = [all(row[0] > other for other in row[1:]) for row in rewards]
    ranks = [1 + sum(other >= row[0] for other in row[1:]) for row in rewards]
    found = table(official_score(scores, "rewardmath"))
    assert found["accuracy", "all"] == pytest.approx(np.mean(wins))
    assert found["mean_reciprocal_rank", "all"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert table(official_score(scores, "rmb"))["accuracy", "all"] == pytest.approx(np.mean(wins))


def test_ppe_correctness_uses_the_authors_pairs(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", SHAPES["ppe-correctness"])
    bench = load_benchmark(str(path), format="ppe-correctness")
    item = bench.items[0]
    correct = [[True, True, False, False]]
    scores = Scores.from_arrays([[3.0, 0.0, 1.0, 2.0]], correct, item.category, item_id=[item.id])
    assert table(official_score(scores, bench)) == {
        ("pair_accuracy", "all"): 0.5,  # response 0 beats 2, response 1 loses to 3
        ("pair_accuracy", "correctness"): 0.5,
        ("best_of_k_accuracy", "all"): 1.0,
        ("best_of_k_accuracy", "correctness"): 1.0,
    }
    without = table(official_score(scores, "ppe-correctness"))
    assert without["all_pairs_accuracy", "all"] == 0.5


def test_votes() -> None:
    rewards = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]]
    scores = Scores.from_arrays(
        rewards, category="human", votes=[[1, 0], [1, 0], [1, 0], [0, 0]], ties=[0, 0, 0, 1]
    )
    (overall, human) = official_score(scores, "ppe-human")
    assert overall.value == pytest.approx(1 / 3)
    assert (overall.n, human.n) == (3, 3)  # a tie has no winner
    scores = Scores.from_arrays(
        rewards, category="math", votes=[[3, 1], [2, 1], [5, 0], [0, 0]], ties=[0, 0, 0, 1]
    )
    assert table(official_score(scores, "mt-bench-human"))["agreement", "all"] == pytest.approx(4 / 12)
    assert official_score(Scores.from_arrays(rewards), "mt-bench-human") == []


def test_unknown_benchmarks_have_no_official_score() -> None:
    scores = Scores.from_arrays([[1.0, 0.0]])
    assert official_score(scores) == []
    assert official_score(scores, "org/unknown") == []
    assert official_score(scores, "helpsteer3") == []
    assert official_score(scores, "rm-bench") == []  # six responses are needed


def test_a_benchmark_of_ones_own_has_the_score_that_its_file_names(tmp_path: Path) -> None:
    quiz = tmp_path / "quiz.yaml"
    quiz.write_text("name: quiz\ntitle: A quiz\nreader: answers\nlabels: several\nofficial: accuracy\n")
    (tmp_path / "quiz.jsonl").write_text('{"id": "1", "prompt": "2+2?", "chosen": "4", "rejected": ["5"]}\n')
    bench = load_benchmark(str(tmp_path / "quiz.jsonl"), format=str(quiz))
    scores = Scores.from_arrays([[1.0, 0.0]], item_id=["1"])
    assert table(official_score(scores, bench))["accuracy", "all"] == 1.0


def test_an_undecided_benchmark_has_no_accuracy() -> None:
    scores = Scores.from_arrays([[1.0, 0.0]], votes=[[0, 0]], ties=1)
    (row,) = official_score(scores, "ppe-human")
    assert np.isnan(row.value)
    assert row.n == 0


@given(rewards=hnp.arrays(float, (5, 3), elements=SMALL), correct=hnp.arrays(bool, (5, 3)))
def test_prompts_without_a_correct_response_do_not_count(rewards: np.ndarray, correct: np.ndarray) -> None:
    scores = Scores.from_arrays(rewards, correct.astype(float))
    shares = [
        (own[right.argmax()] == own.max()) / (own == own.max()).sum()
        for own, right in zip(rewards, correct, strict=True)
        if right.any()
    ]
    found = official_score(scores, "reward-bench-2")[0]
    assert found.n == len(shares)
    assert found.value == pytest.approx(np.mean(shares)) if shares else np.isnan(found.value)
