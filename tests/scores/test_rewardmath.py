"""RewardMATH's files: rewards, ratings, step scores and verdicts, in its own shape and in the tidy one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmcalib.scores import load_all_scores, load_scores
from tests.scores.rewardmath import AUTHORS, PAIRWISE, PROBLEMS, SCORES, write_own, write_tidy


def test_its_own_shape(tmp_path: Path) -> None:
    write_own(tmp_path)
    rewards = load_scores(tmp_path / "classifier.json")
    assert rewards.reward.tolist() == [value for own in SCORES["classifier"] for value in own]
    assert rewards.is_correct.tolist() == [True, False, False] * len(PROBLEMS)
    assert rewards.manifest["benchmark"] == "rewardmath"
    assert "scale" not in rewards.manifest
    assert load_scores(tmp_path / "rating.json").manifest["scale"] == "ratings"
    assert load_scores(tmp_path / "prm.json", steps="min").manifest["steps"] == "min"


def test_verdicts_are_pairs_of_the_correct_response(tmp_path: Path) -> None:
    write_own(tmp_path)
    scores = load_scores(tmp_path / "pairwise.json")
    matrix = scores.pair_probabilities
    assert matrix is not None
    assert matrix.reshape(-1, 3, 3)[:, 0, 1:].tolist() == [[1.0, 0.0], [0.5, 1.0]]
    assert scores.manifest["verdicts"] == {
        "pairs": 4,
        "unclear": 1,
        "right_at_A": 0.75,
        "right_at_B": 0.5,
    }
    assert "1 of 4 verdicts name neither response" in " ".join(scores.manifest["notes"])
    # The correct response is best only where it wins all comparisons.
    assert scores.reward.reshape(-1, 3).argmax(axis=1).tolist() == [2, 0]


def test_both_shapes_agree(tmp_path: Path) -> None:
    write_own(tmp_path)
    write_tidy(tmp_path)
    tidy = load_all_scores(tmp_path / "scores.parquet") | load_all_scores(tmp_path / "pairwise.parquet")
    assert list(tidy) == ["classifier", "rating", "prm", "pairwise (pairs)"]
    for name, scores in tidy.items():
        own = load_scores(tmp_path / f"{name.split()[0]}.json")
        assert own.reward.tolist() == scores.reward.tolist()
        assert own.manifest.get("scale") == scores.manifest.get("scale")
        assert own.item_id.tolist() == scores.item_id.tolist()


def test_a_file_of_many_models(tmp_path: Path) -> None:
    write_tidy(tmp_path)
    with pytest.raises(ValueError, match=r"scores of 3 models .classifier, rating, prm., and one is needed"):
        load_scores(tmp_path / "scores.parquet")
    with pytest.raises(ValueError, match=r"no scores of 'ratings' .did you mean 'rating'?"):
        load_scores(tmp_path / "scores.parquet", model="ratings")
    assert load_scores(tmp_path / "scores.parquet", model="rating").n_items == len(PROBLEMS)


def test_ratings_that_are_missing_are_counted(tmp_path: Path) -> None:
    content = [{"problem": p, "solution_reference": AUTHORS, "score": [8, float("nan"), 3]} for p in PROBLEMS]
    (tmp_path / "nan.json").write_text(json.dumps(content))
    scores = load_scores(tmp_path / "nan.json")
    assert scores.reward.tolist() == [8, 3, 3] * 2
    assert scores.manifest["missing"] == {"responses": 2, "prompts": 2, "treated": "lowest"}
    with pytest.raises(ValueError, match=r"reward is nan"):
        load_scores(tmp_path / "nan.json", missing="refuse")
    write_tidy(tmp_path, {"rating": [[8, None, 3], [5, 1, 2]]})
    assert load_scores(tmp_path / "scores.parquet").manifest["missing"]["responses"] == 1
    assert load_scores(tmp_path / "scores.parquet", missing="drop").item_id.tolist() == ["1"] * 3


def test_repeated_problems_count_once(tmp_path: Path) -> None:
    content = [{"problem": p, "solution_reference": AUTHORS, "score": [8, 4, 3]} for p in PROBLEMS]
    (tmp_path / "twice.json").write_text(json.dumps([*content, content[0]]))
    scores = load_scores(tmp_path / "twice.json")
    assert scores.n_items == 2
    assert scores.manifest["notes"] == ["In the file twice: 1 problem; the second one is left out."]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": [1.0]}, "entry 1: expected lists solution_reference and score of one length"),
        ({"solution_reference": ["x", "y", "z"]}, "entry 1: expected one solution by human_to_GPT-4"),
        ({"score": [1.0, "x", 0.0]}, "reward is 'x', not a finite number"),
    ],
)
def test_bad_entries_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    content = [{"problem": p, "solution_reference": AUTHORS, "score": [2.5, 1.5, 0.5]} for p in PROBLEMS]
    content[1] |= change
    (tmp_path / "bad.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        load_scores(tmp_path / "bad.json")


def test_bad_positions_and_gaps_are_named(tmp_path: Path) -> None:
    content = json.loads(json.dumps(PAIRWISE))
    content[0]["chosen_position"][0] = "C"
    (tmp_path / "bad.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="chosen_position is 'C', not A or B"):
        load_scores(tmp_path / "bad.json")
    write_tidy(tmp_path, {"rating": [[8, 3, 3], [5, 1, 2]]}, numbers=[0, 1, 1])
    with pytest.raises(ValueError, match="row 2: response 1 of problem 0 is there twice"):
        load_scores(tmp_path / "scores.parquet")
    write_tidy(tmp_path, {"rating": [[8, 3, 3], [5, 1, 2]]}, numbers=[0, 1, 3])
    with pytest.raises(ValueError, match="problem 0: response has gaps"):
        load_scores(tmp_path / "scores.parquet")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("model", None, "row 0: model is None, not a text or a whole number"),
        ("problem", [1], r"row 0: problem is \[1\], not a text"),
        ("response", None, "row 0: response is None, not a whole number"),
        ("response", 0.5, "row 0: response is 0.5, not a whole number"),
        ("response", float("nan"), "row 0: response is nan, not a whole number"),
        ("score", float("inf"), "not a finite number"),
    ],
)
def test_bad_rows_of_a_tidy_table_are_named(tmp_path: Path, column: str, value: Any, message: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = {"model": "m", "problem": 0, "score": 1.0, column: value}
    rows = [{"response": response, **row} for response in (0, 1)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=message):
        load_scores(tmp_path / "bad.parquet")


def test_a_tidy_table_without_rows_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    empty = {name: pa.array([], pa.int64()) for name in ("model", "problem", "response", "score")}
    pq.write_table(pa.table(empty), tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match=r"empty\.parquet: a table without rows"):
        load_all_scores(tmp_path / "empty.parquet")


def test_scores_that_are_too_large_are_refused(tmp_path: Path) -> None:
    content = [{"problem": "p", "solution_reference": AUTHORS, "score": [10**400, 1, 2]}]
    (tmp_path / "large.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"large\.json, row 0: reward is too large"):
        load_scores(tmp_path / "large.json")


def test_a_bad_position_is_named(tmp_path: Path) -> None:
    row = {"problem": "p", "solution_reference": AUTHORS[1:], "score": ["A", "B"]}
    (tmp_path / "v.json").write_text(json.dumps([{**row, "chosen_position": ["A", "Z"]}]))
    with pytest.raises(ValueError, match=r"v\.json, entry 0: chosen_position is 'Z', not A or B"):
        load_scores(tmp_path / "v.json")
