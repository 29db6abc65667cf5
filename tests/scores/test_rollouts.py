"""Rollouts of every framework: read while they grow, cut, written twice, with prompts that return."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from rmcalib.scores.rollouts import Rollouts, Step, load_rollouts

Sample = tuple[str, str, float, int]  # prompt, response, reward, label
ONE: list[Sample] = [("1 + 1?", "2", 1.5, 1), ("1 + 1?", "3!", -0.5, 0), ("2 + 2?", "5", 0.25, 0)]
TWO: list[Sample] = [("3 + 3?", "6", 2.0, 1), ("1 + 1?", "2.", 0.75, 1)]  # a prompt returns


def verl(folder: Path, step: int, samples: list[Sample]) -> Path:
    rows = [
        {"input": p, "output": a, "gts": "x", "score": r, "step": step, "acc": y, "request_id": "q7"}
        for p, a, r, y in samples
    ]
    return lines(folder / f"{step}.jsonl", rows)


def trl(folder: Path, step: int, samples: list[Sample]) -> Path:
    path = folder / "completions" / f"completions_{step:05d}.parquet"
    path.parent.mkdir(exist_ok=True)
    table = {
        "step": [step] * len(samples),
        "prompt": [[{"role": "user", "content": p}] for p, *_ in samples],
        "completion": [[{"role": "assistant", "content": a}] for _, a, *_ in samples],
        "reward_model": [r for *_, r, _ in samples],
        "exact_match": [float(y) for *_, y in samples],
        "advantage": [0.1] * len(samples),
    }
    pyarrow.parquet.write_table(pyarrow.table(table), path)
    return path


def swift(folder: Path, step: int, samples: list[Sample]) -> Path:
    flush = {
        "step": [str(step)] * len(samples),
        "prompt": [p for p, *_ in samples],
        "completion": [a for _, a, *_ in samples],
        "RewardModel": [r for *_, r, _ in samples],
        "accuracy": [y for *_, y in samples],
        "advantages": [0.0] * len(samples),
    }
    path = folder / "completions.jsonl"
    return lines(path, [flush], append=True)


def nemo(folder: Path, step: int, samples: list[Sample]) -> Path:
    rows = [
        {
            "content": [p, a],
            "rewards": [r],
            "correct": [y],
            "input_lengths": [7],
            "token_ids": [[1, 2]],
            "idx": i,
        }
        for i, (p, a, r, y) in enumerate(samples)
    ]
    return lines(folder / f"train_data_step{step}.jsonl", rows)


def lines(path: Path, rows: list[dict[str, Any]], *, append: bool = False) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text((path.read_text() if append and path.exists() else "") + text)
    return path


Writer = Callable[[Path, int, list[Sample]], Path]
FRAMEWORKS = pytest.mark.parametrize("write", [verl, trl, swift, nemo], ids=lambda one: one.__name__)


def check(step: Step, samples: list[Sample]) -> None:
    (reward,) = step.rewards.values()
    assert reward.tolist() == [r for *_, r, _ in samples]
    assert step.label is not None
    assert step.label.tolist() == [y for *_, y in samples]
    assert step.length is not None
    assert step.length.tolist() == [len(a) for _, a, *_ in samples]
    same = np.equal.outer(step.prompt, step.prompt)
    assert (same == np.equal.outer([p for p, *_ in samples], [p for p, *_ in samples])).all()


@FRAMEWORKS
def test_a_run_is_read_while_it_grows(write: Writer, tmp_path: Path) -> None:
    run = Rollouts(tmp_path)
    assert run.read() == []
    write(tmp_path, 1, ONE)
    (first,) = run.read()
    check(first, ONE)
    assert run.read() == []
    write(tmp_path, 2, TWO)
    second = run.read()[-1]
    assert second.step == 2
    check(second, TWO)
    assert second.prompt[1] == first.prompt[0]  # it returns


@FRAMEWORKS
def test_the_later_one_counts_if_a_step_is_written_twice(write: Writer, tmp_path: Path) -> None:
    write(tmp_path, 1, ONE)
    write(tmp_path, 2, ONE)
    write(tmp_path, 1, TWO)
    write(tmp_path, 2, TWO)
    steps = Rollouts(tmp_path).read()
    assert [one.step for one in steps] == [1, 2]
    for one in steps:
        check(one, TWO)


@FRAMEWORKS
def test_a_cut_end_is_read_the_next_time(write: Writer, tmp_path: Path) -> None:
    write(tmp_path, 1, ONE)
    path = write(tmp_path, 2, TWO)
    whole = path.read_bytes()
    run = Rollouts(tmp_path)
    path.write_bytes(whole[:-9])
    before = run.read()
    assert before[0].step == 1
    assert all(len(one.prompt) < len(TWO) for one in before if one.step == 2)
    path.write_bytes(whole)
    after = {one.step: one for one in run.read()}
    check(after[2], TWO)


def test_pairs_of_llama_factory(tmp_path: Path) -> None:
    path = tmp_path / "generated_predictions.jsonl"
    path.write_text(
        '{"chosen": 3.81, "rejected": -1.02}\n{"chosen": 0.5, "rejected": 0.75}'
    )  # no last newline
    (step,) = Rollouts(tmp_path).read()
    assert step.rewards["reward"].tolist() == [3.81, -1.02, 0.5, 0.75]
    assert step.label is not None
    assert step.label.tolist() == [1, 0, 1, 0]
    assert len(set(step.prompt)) == 2


def test_samples_of_any_loop(tmp_path: Path) -> None:
    rows = [
        {"step": s, "prompt": "p", "reward": r, "label": True}
        for s, r in ((1, 1.0), (1, 2.0), (2, 3.0), (1, 9.0))
    ]
    lines(tmp_path / "mine.jsonl", rows)
    steps = Rollouts(tmp_path / "mine.jsonl").read()
    assert [one.rewards["reward"].tolist() for one in steps] == [[9.0], [3.0]]  # step 1 was started again


def test_several_rewards_are_several_judges(tmp_path: Path) -> None:
    lines(
        tmp_path / "3.jsonl", [{"input": "p", "output": "a", "helpful": 1.0, "harmless": -2.0, "acc": 1}] * 2
    )
    found = load_rollouts(tmp_path)
    assert {name: one.reward.tolist() for name, one in found.items()} == {
        "helpful": [1.0, 1.0],
        "harmless": [-2.0, -2.0],
    }
    named = load_rollouts(tmp_path, "reward=-harmless")
    assert named["harmless"].reward.tolist() == [2.0, 2.0]


def test_samples_as_scores(tmp_path: Path) -> None:
    verl(tmp_path, 1, ONE)
    verl(tmp_path, 2, TWO)
    scores = load_rollouts(tmp_path)["score"]
    assert scores.n_items == 4
    assert scores.cluster is not None
    assert len(set(scores.cluster.tolist())) == 3
    assert scores.label.tolist() == [1, 0, 0, 1, 1]


def test_samples_without_a_reward_are_left_out(tmp_path: Path) -> None:
    rows = [{"input": "p", "output": "a", "score": r, "acc": 1} for r in (1.0, None, float("nan"), 2.0)]
    lines(tmp_path / "1.jsonl", rows)
    (step,) = Rollouts(tmp_path).read()
    assert step.rewards["score"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("rows", "columns", "named"),
    [
        ([{"input": "p", "score": 1.0, "acc": 1}], "label=truth", "truth"),
        ([{"input": "p", "score": 1.0, "acc": 1}], "reward=rm", "rm"),
        ([{"input": "p", "score": 1.0, "rating": 7}], "label=rating", "rating"),
        ([{"input": "p", "score": 1.0, "acc": 1, "exact_match": 0}], None, "exact_match"),
        ([{"input": "p", "output": "a"}], None, "reward"),
        ([{"text": "p", "score": 1.0}], None, "prompt"),
    ],
)
def test_questions_that_only_the_user_can_answer(
    rows: list[dict[str, Any]], columns: str | None, named: str, tmp_path: Path
) -> None:
    lines(tmp_path / "1.jsonl", rows)
    with pytest.raises(ValueError, match=named) as caught:
        Rollouts(tmp_path, columns).read()
    assert "1.jsonl" in str(caught.value)


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = verl(tmp_path, 1, ONE)
    path.write_text(path.read_text().replace("\n", "\n{oops\n", 1))
    with pytest.raises(ValueError, match="line 2"):
        Rollouts(tmp_path).read()
    with pytest.raises(ValueError, match="absent"):
        Rollouts(tmp_path / "absent").read()
