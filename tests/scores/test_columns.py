"""Bad values in files of scores: errors name file, place, field and remedy; nothing is converted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from rmcalib.scores import Scores, load_scores

ROWS: list[dict[str, Any]] = [
    {"item_id": "a", "category": "x", "response": 0, "is_correct": True, "reward": 2.5},
    {"item_id": "a", "category": "x", "response": 1, "is_correct": False, "reward": -1},
    {"item_id": "b", "category": "x", "response": 0, "is_correct": True, "reward": 0.5},
    {"item_id": "b", "category": "x", "response": 1, "is_correct": False, "reward": 0.25},
]
BAD = [
    ("reward", "abc", "reward is 'abc', not a finite number (score it again, or leave its prompt out)"),
    ("reward", "1.5", "reward is '1.5', not a finite number"),
    ("reward", None, "no value for reward"),
    ("reward", float("nan"), "reward is nan, not a finite number"),
    ("reward", float("inf"), "reward is inf, not a finite number"),
    ("reward", 10**400, "not a finite number"),
    ("reward", True, "reward is True, not a finite number"),
    ("reward", [1.0, 2.0], "reward is [1.0, 2.0], not a finite number"),
    ("response", 1.5, "response is 1.5, not a whole number (number a prompt's responses 0, 1, 2, ...)"),
    ("response", "1", "response is '1', not a whole number"),
    ("response", 10**30, "not a whole number"),
    ("is_correct", "false", "is_correct is 'false', not true or false"),
    ("is_correct", 2, "is_correct is 2, not true or false"),
    ("item_id", {"a": 1}, "item_id is {'a': 1}, not a text"),
    ("item_id", "a\0", "item_id is 'a\\x00', not a text"),
    ("category", None, "no value for category"),
]


@pytest.mark.parametrize(("field", "value", "reported"), BAD)
def test_a_bad_value_of_jsonl_is_reported_with_its_line(
    field: str, value: Any, reported: str, tmp_path: Path
) -> None:
    rows = [*ROWS[:2], {**ROWS[2], field: value}, ROWS[3]]
    path = tmp_path / "s.jsonl"
    path.write_text("\n\n".join(map(json.dumps, rows)))  # blank lines count
    with pytest.raises(ValueError) as found:
        load_scores(path)
    assert str(found.value).startswith(f"{path}, line 5")
    assert reported in str(found.value)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < len(str(path)) + 200


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000])
def test_unparsable_json_is_reported_with_its_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(json.dumps(ROWS[0]) + "\n" + text)
    with pytest.raises(ValueError, match=r"s\.jsonl, line 2: "):
        load_scores(tmp_path / "s.jsonl")


@pytest.mark.parametrize(
    ("field", "values", "reported"),
    [
        ("reward", ["1", "x", "2", "3"], "row 0 (item 'a', response 0): reward is '1', not a finite number"),
        ("reward", [1.0, None, 0.5, 2.0], "row 1 (item 'a', response 1): reward is nan, not a finite number"),
        (
            "reward",
            [1.0, 0.0, float("nan"), 2.0],
            "row 2 (item 'b', response 0): reward is nan, not a finite number",
        ),
        ("response", [0, 1, 0, None], "row 3 (item 'b'): response is nan, not a whole number"),
        (
            "is_correct",
            [True, None, True, False],
            "row 1 (item 'a', response 1): is_correct is empty, not true or false",
        ),
        (
            "is_correct",
            ["True", "False", "True", "False"],
            "row 0 (item 'a', response 0): is_correct is 'True', not true or false",
        ),
        ("item_id", ["a", "a", None, "b"], "row 2: item_id is empty, not a text"),
        (
            "n_tokens",
            [3, None, 4, 5],
            "row 1 (item 'a', response 1): n_tokens is nan, not a whole number (leave",
        ),
    ],
)
def test_a_bad_value_of_parquet_is_reported_with_its_row(
    field: str, values: list[Any], reported: str, tmp_path: Path
) -> None:
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]} | {field: values}
    path = tmp_path / "s.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    with pytest.raises(ValueError) as found:
        load_scores(path)
    assert str(found.value).startswith(f"{path}, {reported}")


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (
            {"scores": [[1.0, float("nan")]]},
            "entry 0 (item '7', response 1): reward is nan, not a finite number",
        ),
        ({"scores": [[10**400, 1.0]]}, "entry 0 (item '7', response 0): reward is 1000"),
        ({"scores": [["abc", 1.0]]}, "id '7': score 0 is \"abc\", not a number"),
        ({"scores": [[[1.0, 2.0], 1.0]]}, "id '7': score 0 is [1.0, 2.0], not a number"),
        ({"subset": [None]}, "subset 0: null is not a text"),
        ({"id": [[1]]}, "id 0: [1] is not a text"),
    ],
)
def test_a_bad_value_of_rewardbench_is_reported_with_its_prompt(
    change: dict[str, Any], reported: str, tmp_path: Path
) -> None:
    content = {"id": ["7"], "subset": ["Math"], "scores": [[1.0, 0.0]], "num_correct": [1], **change}
    path = tmp_path / "s.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError) as found:
        load_scores(path)
    assert str(found.value).startswith(f"{path}, {reported}")
    assert len(str(found.value)) < len(str(path)) + 200


def test_equivalent_types_are_accepted() -> None:
    columns = {
        "item_id": [7, 7],
        "category": ["x", "x"],
        "response": [0.0, np.int32(1)],
        "is_correct": [1, np.bool_(False)],
        "reward": np.array([1, 0], dtype=np.float16),
    }
    scores = Scores.from_columns(columns)
    assert scores.item_id.tolist() == ["7", "7"]
    assert (scores.response.tolist(), scores.is_correct.tolist()) == ([0, 1], [True, False])
    assert scores.reward.dtype == np.float64


def test_columns_of_different_lengths_are_reported() -> None:
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    with pytest.raises(ValueError, match=r"different lengths \(.*category 3"):
        Scores.from_columns({**columns, "category": ["x"] * 3})


def test_json_lines_in_a_json_file_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"item_id": "a"}\n{"item_id": "b"}\n')
    with pytest.raises(ValueError, match=r"s\.json: not JSON: Extra data.*should end in \.jsonl"):
        load_scores(tmp_path / "s.json")
