"""Published files (RewardBench, RewardMATH) and the built-in boards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rmcalib
from rmcalib.scores import Scores, load_all_scores, load_board, load_scores
from tests.scores.rewardmath import AUTHORS, PAIRWISE, PROBLEMS, SCORES, write_own, write_tidy

DEMO = Path(rmcalib.__file__).parent / "demo"


def rewardbench(ids: list[Any], **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    n = len(ids)
    subsets = ["Factuality"] * (n - 2) + ["Math", "Math"]
    scores = rng.normal(size=(n, 4)).tolist()
    return {"id": ids, "subset": subsets, "scores": scores, "num_correct": [1] * n, "model": "m"} | more


def written(content: Any, folder: Path, name: str = "x.json") -> Path:
    (folder / name).write_text(json.dumps(content))
    return folder / name


def test_the_known_defect_of_ids_is_repaired_and_said(tmp_path: Path) -> None:
    clean = [str(i) for i in range(60)] + ["30", "31"]
    broken = [str(i) for i in range(30, 40)] + clean[10:]
    good = load_scores(written(rewardbench(clean), tmp_path, "good.json"))
    repaired = load_scores(written(rewardbench(broken), tmp_path, "broken.json"))
    assert repaired.manifest["repaired_ids"] == 10
    assert "repaired_ids" not in good.manifest
    assert good.to_pandas().equals(repaired.to_pandas())
    for other in ([*broken[:9], "0", *broken[10:]], ["7", *clean[1:]], [*broken[:-2], "31", "31"]):
        with pytest.raises(ValueError, match="appears twice"):
            load_scores(written(rewardbench(other), tmp_path))


@pytest.mark.parametrize("scores", [[[1.0, 2.0, 3.0]], [[[1.0], [2.0], [3.0]]], [[1, [2.0], 3.0]]])
def test_rewardbench_scores_flat_and_nested(scores: Any, tmp_path: Path) -> None:
    content = {"id": ["7"], "subset": ["Ties"], "scores": scores, "num_correct": [2], "text": [[]]}
    loaded = load_scores(written(content, tmp_path))
    assert loaded.reward.tolist() == [1.0, 2.0, 3.0]
    assert loaded.is_correct.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"subset": []}, "different lengths"),
        ({"id": [""]}, "prompt"),
        ({"scores": [None]}, "generative judge"),
        ({"scores": [[]]}, "row 0"),
        ({"scores": [[1, None]]}, "reward is None"),
        ({"scores": [[1, [2, 3]]]}, "reward is"),
        *(({"num_correct": [value]}, "num_correct") for value in (None, "one", 0, 1.5)),
    ],
)
def test_bad_rewardbench_files_are_named(change: dict[str, Any], part: str, tmp_path: Path) -> None:
    content = {"id": [1], "subset": ["M"], "scores": [[1, 2]], "num_correct": [1]} | change
    with pytest.raises(ValueError, match=part):
        load_scores(written(content, tmp_path))


def test_rewardmath_in_its_own_layout(tmp_path: Path) -> None:
    write_own(tmp_path)
    rewards = load_scores(tmp_path / "classifier.json")
    assert rewards.reward.tolist() == [value for own in SCORES["classifier"] for value in own]
    assert rewards.is_correct.tolist() == [True, False, False] * len(PROBLEMS)
    assert rewards.manifest["benchmark"] == "rewardmath"
    assert "scale" not in rewards.manifest
    assert load_scores(tmp_path / "rating.json").scale.kind == "rating"
    assert load_scores(tmp_path / "prm.json", steps="min").manifest["steps"] == "min"


def test_verdicts_are_pairs_of_the_correct_response(tmp_path: Path) -> None:
    write_own(tmp_path)
    scores = load_scores(tmp_path / "pairwise.json")
    matrix = scores.pair_probabilities
    assert matrix is not None
    assert matrix.reshape(-1, 3, 3)[:, 0, 1:].tolist() == [[1.0, 0.0], [0.5, 1.0]]
    counts = {"pairs": 4, "unclear": 1, "right_at_A": 0.75, "right_at_B": 0.5}
    assert scores.manifest["verdicts"] == counts
    # The correct response is best only where it wins all comparisons.
    assert scores.reward.reshape(-1, 3).argmax(axis=1).tolist() == [2, 0]


def test_both_layouts_of_rewardmath_agree(tmp_path: Path) -> None:
    write_own(tmp_path)
    write_tidy(tmp_path)
    tidy = load_all_scores(tmp_path / "scores.parquet") | load_all_scores(tmp_path / "pairwise.parquet")
    assert list(tidy) == ["classifier", "rating", "prm", "pairwise (pairs)"]
    for name, scores in tidy.items():
        own = load_scores(tmp_path / f"{name.split()[0]}.json")
        assert own.to_pandas().equals(scores.to_pandas())
        assert own.manifest.get("scale") == scores.manifest.get("scale")
    with pytest.raises(ValueError, match="classifier, rating, prm"):
        load_scores(tmp_path / "scores.parquet")
    with pytest.raises(ValueError, match="'ratings'"):
        load_scores(tmp_path / "scores.parquet", model="ratings")
    assert load_scores(tmp_path / "scores.parquet", model="rating").n_items == len(PROBLEMS)


def test_ratings_that_are_missing_and_problems_that_repeat(tmp_path: Path) -> None:
    content = [{"problem": p, "solution_reference": AUTHORS, "score": [8, float("nan"), 3]} for p in PROBLEMS]
    path = written([*content, content[0]], tmp_path)
    scores = load_scores(path)
    assert scores.reward.tolist() == [8, 3, 3] * 2
    assert scores.manifest["missing"] == {"responses": 2, "prompts": 2, "treated": "lowest"}
    assert len(scores.manifest["notes"]) == 2
    with pytest.raises(ValueError, match="reward is nan"):
        load_scores(path, missing="refuse")
    write_tidy(tmp_path, {"rating": [[8, None, 3], [5, 1, 2]]})
    assert load_scores(tmp_path / "scores.parquet", missing="drop").item_id.tolist() == ["1"] * 3


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"score": [1.0]}, "entry 1"),
        ({"solution_reference": ["x", "y", "z"]}, "entry 1"),
        ({"score": [1.0, "x", 0.0]}, "reward is 'x'"),
        ({"score": [1.0, 10**400, 0.0]}, "reward"),
        ({"score": [], "solution_reference": []}, "entry 1"),
        ({"chosen_position": ["A", "Z", "A"], "first": True}, "Z"),
    ],
)
def test_bad_entries_of_rewardmath_are_named(tmp_path: Path, change: dict[str, Any], part: str) -> None:
    content: list[dict[str, Any]] = [
        {"problem": p, "solution_reference": AUTHORS, "score": [2.5, 1.5, 0.5]} for p in PROBLEMS
    ]
    if change.pop("first", False):
        content = json.loads(json.dumps(PAIRWISE))
        change["chosen_position"] = ["A", "Z"]
    content[1] |= change
    with pytest.raises(ValueError, match=part):
        load_scores(written(content, tmp_path))


@pytest.mark.parametrize(("column", "value"), [("model", None), ("response", None), ("score", float("inf"))])
def test_bad_rows_of_a_tidy_table_are_named(tmp_path: Path, column: str, value: Any) -> None:
    row = {"model": "m", "problem": 0, "score": 1.0, column: value}
    rows = [{"response": response, **row} for response in (0, 1)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=r"bad.parquet: .*row [01]"):
        load_scores(tmp_path / "bad.parquet")


def test_a_response_twice_and_empty_tables_of_rewardmath(tmp_path: Path) -> None:
    write_tidy(tmp_path, {"rating": [[8, 3, 3], [5, 1, 2]]}, numbers=[0, 1, 1])
    with pytest.raises(ValueError, match="response is 1"):
        load_scores(tmp_path / "scores.parquet")
    empty = {name: pa.array([], pa.int64()) for name in ("model", "problem", "response", "score")}
    pq.write_table(pa.table(empty), tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match=r"empty\.parquet"):
        load_all_scores(tmp_path / "empty.parquet")


def test_the_boards_have_sources_and_licences() -> None:
    sizes = {"rewardmath": (9, 483), "reward-bench-2": (3, 1865), "real": (12, None), "pandalm": (2, 999)}
    for name, (models, prompts) in sizes.items():
        board = load_board(name)
        assert len(board) == models
        for model, scores in board.items():
            assert prompts in (None, scores.n_items)
            assert scores.manifest["model"] == model
            assert len(scores.manifest["source_revision"]) == 40
            assert "License" in scores.manifest["licence"]
            assert load_scores(f"real/{model}") is scores
    assert sum(file.stat().st_size for file in DEMO.glob("*.parquet")) < 350_000
    assert "Copyright (c) 2024 Sunghwan Kim" in (DEMO / "rewardmath.LICENSE").read_text(encoding="utf-8")
    assert "themis-judge-reliability" in (DEMO / "apache.LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("model", "column"),
    [
        ("Skywork/Skywork-Reward-V2-Llama-3.1-8B", 0.134758),
        ("Skywork/Skywork-Reward-V2-Qwen3-8B", 0.190500),
        ("LxzGordon/URM-LLaMa-3.1-8B", 0.266636),
    ],
)
def test_the_papers_column_of_real_models(model: str, column: float) -> None:
    scores = load_scores(f"real/{model}")
    assert 1 - scores.probabilities[scores.offsets[:-1]].mean() == pytest.approx(column, abs=1e-6)
    assert len(scores) == 8977
    assert scores.decided().n_items == 1865


def test_the_votes_of_pandalm() -> None:
    scores = load_board("pandalm")["gpt-3.5-turbo"]
    assert scores.n_votes.tolist() == [3] * 999
    assert scores.votes is not None
    assert scores.ties is not None
    most = np.maximum(scores.votes.reshape(-1, 2).max(axis=1), scores.ties[::2])
    assert (most == 3).sum() == 879
    assert (scores.ties[::2] == 3).sum() == 85
    assert scores.manifest["verdicts"] == {"pairs": 999, "unclear": 63}


def test_unknown_names_are_refused_and_files_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"surreal.*rewardmath"):
        load_board("surreal")
    with pytest.raises(ValueError, match="real/nobody"):
        load_scores("real/nobody")
    Path("real").mkdir()
    Scores.from_arrays([[1.0, 0.0]]).to_parquet("real/own.parquet")
    assert load_scores("real/own.parquet").n_items == 1
