"""Samples of training frameworks: files that grow, cut lines, steps written twice, prompts that return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmcalib.scores import Scores
from rmcalib.scores.rollouts import RolloutReader

PROMPTS = ["How far is the moon?", "Add 2 and 3."]


def samples(step: int, shift: float = 0.0) -> list[dict[str, Any]]:
    """Return two samples of each prompt; the prompts return in every step."""
    return [
        {
            "step": step,
            "prompt": prompt,
            "text": f"answer {i}",
            "rm": step + i + shift,
            "right": float(i == 0),
        }
        for prompt in PROMPTS
        for i in range(2)
    ]


def write_verl(folder: Path, step: int, shift: float = 0.0) -> None:
    rows = [
        {
            "input": s["prompt"],
            "output": s["text"],
            "gts": None,
            "score": s["rm"],
            "step": step,
            "acc": s["right"],
        }
        for s in samples(step, shift)
    ]
    (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_trl(folder: Path, step: int, shift: float = 0.0) -> None:
    (folder / "completions").mkdir(exist_ok=True)
    rows = [
        {
            "step": step,
            "prompt": [{"role": "user", "content": s["prompt"]}],
            "completion": [{"role": "assistant", "content": s["text"]}],
            "score": s["rm"],
            "exact_match": s["right"],
            "advantage": 0.5,
        }
        for s in samples(step, shift)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "completions" / f"completions_{step:05d}.parquet")


def loaded(reader: RolloutReader) -> dict[str, Scores]:
    """Return what a reader has as scores, by reward."""
    return {name: Scores.from_columns(*content) for name, content in reader.read().items()}


def load_rollouts(source: Path, columns: Any = None) -> dict[str, Scores]:
    """Read a folder once."""
    return loaded(RolloutReader(source, columns))


def write_swift(folder: Path, step: int, shift: float = 0.0) -> None:
    rows = samples(step, shift)
    flush = {
        "step": [str(step)] * len(rows),
        "prompt": [s["prompt"] for s in rows],
        "completion": [s["text"] for s in rows],
        "score": [s["rm"] for s in rows],
        "accuracy": [s["right"] for s in rows],
        "advantages": [0.0] * len(rows),
    }
    with (folder / "completions.jsonl").open("a") as file:
        file.write(json.dumps(flush) + "\n")


def write_nemo(folder: Path, step: int, shift: float = 0.0) -> None:
    rows = [
        {"content": [s["prompt"], s["text"]], "rewards": [s["rm"]], "correct": [s["right"]], "idx": i}
        for i, s in enumerate(samples(step, shift))
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"train_data_step{step}.jsonl").write_text(text)


WRITERS = {"verl": write_verl, "trl": write_trl, "ms-swift": write_swift, "nemo-rl": write_nemo}


@pytest.mark.parametrize("framework", WRITERS)
def test_a_run_that_grows_and_is_restarted(framework: str, tmp_path: Path) -> None:
    write = WRITERS[framework]
    write(tmp_path, 1)
    reader = RolloutReader(tmp_path)
    (first,) = loaded(reader).values()
    assert first.reward.tolist() == [1, 2, 1, 2]
    assert first.label.tolist() == [1, 0, 1, 0]
    assert first.extra["step"].tolist() == [1] * 4
    write(tmp_path, 2)
    write(tmp_path, 10)
    (later,) = loaded(reader).values()
    assert later.extra["step"].tolist() == [1] * 4 + [2] * 4 + [10] * 4
    assert later.n_items == 6
    assert later.cluster is not None
    assert len(set(later.cluster.tolist())) == 2  # prompts that return
    write(tmp_path, 2, shift=100.0)  # again
    (again,) = loaded(reader).values()
    at_2 = again.reward[again.extra["step"] == 2]
    assert at_2.tolist() == [102, 103, 102, 103]
    assert (again.extra["characters"] > 0).all()


@pytest.mark.parametrize("framework", ["verl", "ms-swift", "nemo-rl"])
def test_a_cut_last_line_is_read_next_time(framework: str, tmp_path: Path) -> None:
    WRITERS[framework](tmp_path, 1)
    WRITERS[framework](tmp_path, 2)
    path = sorted(tmp_path.glob("*.jsonl"))[-1]
    whole = path.read_text()
    path.write_text(whole[: len(whole) - 20])
    reader = RolloutReader(tmp_path)
    (cut,) = loaded(reader).values()
    path.write_text(whole)
    (full,) = loaded(reader).values()
    assert len(cut) < len(full) == 8
    path.write_text("{oops\n" + whole)
    with pytest.raises(ValueError, match="line 1"):
        loaded(reader)


def test_several_rewards_are_several_judges(tmp_path: Path) -> None:
    rows = [
        {
            "step": 1,
            "prompt": "p",
            "completion": "c",
            "my_rm": 0.1 * i,
            "my_rm_probability": 0.5,
            "length": float(i),
            "is_correct": i > 1,
        }
        for i in range(4)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "completions_00001.parquet")
    found = load_rollouts(tmp_path)
    assert list(found) == ["my_rm", "length"]
    assert found["my_rm"].label.tolist() == [0, 0, 1, 1]
    assert found["my_rm"].manifest["model"] == "my_rm"
    chosen = load_rollouts(tmp_path, "reward=-length,label=my_rm")
    assert chosen["length"].reward.tolist() == [0, -1, -2, -3]
    np.testing.assert_allclose(chosen["length"].label, [0, 0.1, 0.2, 0.3])


def test_what_is_not_clear_is_asked(tmp_path: Path) -> None:
    row = {"input": "p", "output": "o", "score": 1.0, "step": 1, "acc": 0, "correct": 1, "judge": 7.5}
    (tmp_path / "1.jsonl").write_text(json.dumps(row))
    with pytest.raises(ValueError, match=r"acc or correct.*label=acc"):
        load_rollouts(tmp_path)
    with pytest.raises(ValueError, match=r"judge is 7.5.*label="):
        load_rollouts(tmp_path, {"label": "judge"})
    with pytest.raises(ValueError, match="'nothing'"):
        load_rollouts(tmp_path, {"label": "acc", "reward": "nothing"})
    assert load_rollouts(tmp_path, {"label": "acc"})["score"].label.tolist() == [0]
    with pytest.raises(ValueError, match="empty"):
        load_rollouts(tmp_path / "empty")


def test_samples_without_labels_or_rewards(tmp_path: Path) -> None:
    rows = [{"input": "p", "output": "o", "score": value, "step": 3} for value in (1.0, float("nan"), 2.0)]
    (tmp_path / "3.jsonl").write_text("\n".join(map(json.dumps, rows)))
    scores = load_rollouts(tmp_path)["score"]
    assert scores.reward.tolist() == [1.0, 2.0]
    assert np.isnan(scores.label).all()
    assert scores.manifest["missing"]["responses"] == 1


def test_an_unfinished_parquet_file_is_read_next_time(tmp_path: Path) -> None:
    write_trl(tmp_path, 1)
    write_trl(tmp_path, 2)
    path = tmp_path / "completions" / "completions_00002.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    reader = RolloutReader(tmp_path)
    assert set(loaded(reader)["score"].extra["step"].tolist()) == {1}
    path.write_bytes(whole)
    assert set(loaded(reader)["score"].extra["step"].tolist()) == {1, 2}


def test_the_last_step_of_ms_swift_written_again_at_once(tmp_path: Path) -> None:
    write_swift(tmp_path, 1)
    write_swift(tmp_path, 2)
    write_swift(tmp_path, 2, shift=100.0)
    scores = loaded(RolloutReader(tmp_path))["score"]
    assert scores.reward[scores.extra["step"] == 2].tolist() == [102, 103, 102, 103]


def rows_of(reader_source: Path, **settings: Any) -> list[tuple[float, int, int, float]]:
    """Return step, prompts, samples and mean reward of each step."""
    look = RolloutReader(reader_source, **settings).look()
    (steps,) = look.changed.values()
    return [(one.step, len({*one.prompt.tolist()}), len(one), float(one.reward.mean())) for one in steps]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_verl_v1_has_no_extra_keys(tmp_path: Path) -> None:
    row = {"input": "p", "output": "o", "gts": "4", "score": 0.5, "step": 7, "uid": "a-1"}
    (tmp_path / "7.jsonl").write_text(lines([row, row, {**row, "input": "q"}]))
    assert rows_of(tmp_path) == [(7.0, 2, 3, 0.5)]
    with pytest.raises(ValueError, match="input, output, gts, score, step, uid"):
        load_rollouts(tmp_path, "reward=reward_model")


def test_nested_content_of_nemo_rl(tmp_path: Path) -> None:
    nested = [
        {"content": [[f"prompt {i // 2}", f"answer {i}"]], "rewards": [float(i)], "idx": i} for i in range(4)
    ]
    (tmp_path / "train_data_step3.jsonl").write_text(lines(nested))
    assert rows_of(tmp_path) == [(3.0, 2, 4, 1.5)]
    chat = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
    ]
    other = [*chat[:2], {"role": "assistant", "content": "b"}]
    rows = [{"content": one, "rewards": 1.0} for one in (chat, other)]
    (tmp_path / "train_data_step3.jsonl").write_text(lines(rows))
    assert rows_of(tmp_path) == [(3.0, 1, 2, 1.0)]
    (tmp_path / "train_data_step3.jsonl").write_text(lines([{"content": [], "rewards": 1.0}]))
    with pytest.raises(ValueError, match=r"step3\.jsonl.*line 1.*content"):
        rows_of(tmp_path)


def test_ms_swift_with_megatron_and_ray(tmp_path: Path) -> None:
    flush = {"gen_step": [4, 4], "prompt": ["p", "p"], "completion": ["a", "a"], "rm": [1.0, 2.0]}
    (tmp_path / "completions.jsonl").write_text(lines([flush]))
    assert rows_of(tmp_path) == [(4.0, 1, 2, 1.5)]
    ray = [{"gen_step": 1 + i // 2, "prompt": "p", "completion": "a", "rm": float(i)} for i in range(4)]
    (tmp_path / "completions.jsonl").write_text(lines(ray))
    assert rows_of(tmp_path) == [(1.0, 1, 2, 0.5), (2.0, 1, 2, 2.5)]


def test_evaluations_of_skyrl(tmp_path: Path) -> None:
    for step in (0, 10):
        folder = tmp_path / "dumped_evals" / f"global_step_{step}_evals"
        folder.mkdir(parents=True)
        row = {"input_prompt": "p", "output_response": "o", "score": [0.0, 1.0], "env_extras": {"a": 1}}
        (folder / "gsm8k.jsonl").write_text(lines([row, row]))
        (folder / "aime.jsonl").write_text(lines([{**row, "input_prompt": "q", "score": 0.25}]))
        (folder / "aggregated_results.jsonl").write_text(lines([{"eval/all/avg_score": 1.0}]))
    expected = [(0.0, 2, 3, 0.75), (10.0, 2, 3, 0.75)]
    assert rows_of(tmp_path) == expected
    assert rows_of(tmp_path / "dumped_evals") == expected


def test_dumps_of_areal_share_a_step(tmp_path: Path) -> None:
    for version, task in ((1, 5), (1, 6), (2, 7)):
        folder = tmp_path / "rollout" / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        row: dict[str, Any] = {
            "task_id": task,
            "sample_idx": 0,
            "seqlen": 9,
            "prompt_len": 4,
            "head_version": version,
        }
        row |= {"tail_version": version, "reward": float(task), "prompt": f"p{task}", "completion": "c"}
        (folder / f"{task}.jsonl").write_text(lines([row, {**row, "sample_idx": 1}]))
    expected = [(1.0, 2, 4, 5.5), (2.0, 1, 2, 7.0)]
    assert rows_of(tmp_path) == expected
    assert rows_of(tmp_path / "rollout") == expected


def test_the_log_of_a_server(tmp_path: Path) -> None:
    row = {
        "time": 1.0,
        "step": 3,
        "prompt": "p",
        "response": "o",
        "reward": 0.5,
        "probability": 0.6,
        "label": 1,
    }
    (tmp_path / "rewards-00001.jsonl").write_text(lines([row, {**row, "step": 4}]))
    (tmp_path / "rewards-00002.jsonl").write_text(lines([{**row, "step": 4}]))
    assert rows_of(tmp_path) == [(3.0, 1, 1, 0.5), (4.0, 1, 2, 0.5)]
    for path in tmp_path.iterdir():
        path.unlink()
    silent = {name: value for name, value in row.items() if name != "step"}
    (tmp_path / "rewards-00001.jsonl").write_text(lines([silent] * 300))
    assert [size for _, _, size, _ in rows_of(tmp_path)] == [256, 44]
    assert load_rollouts(tmp_path, "reward=reward")["reward"].n_items == 2  # the prompt, at each of two steps


def test_rewards_are_summed(tmp_path: Path) -> None:
    row = {"step": 1, "prompt": "p", "completion": "c", "rm": 1.0, "format": 0.5, "cost": 0.25}
    pq.write_table(pa.Table.from_pylist([row, row]), tmp_path / "completions_00001.parquet")
    scores = load_rollouts(tmp_path, "reward=rm+format+-cost")
    assert {name: one.reward.tolist() for name, one in scores.items()} == {"rm+format+cost": [1.25, 1.25]}
