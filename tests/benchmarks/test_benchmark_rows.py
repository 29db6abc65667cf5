"""Rows of a benchmark that are written in other ways: a text instead of a list, names that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from rmcalib.benchmarks import Item, load_benchmark

ROW: dict[str, Any] = {
    "id": "1",
    "prompt": "2+2?",
    "chosen": ["four"],
    "rejected": ["five"],
    "subset": "Math",
}


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_a_text_is_one_response(suffix: str, tmp_path: Path) -> None:
    row = {**ROW, "chosen": "four", "rejected": "five"}
    path = tmp_path / f"b{suffix}"
    if suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist([row]), path)
    else:
        path.write_text(json.dumps([row] if suffix == ".json" else row))
    assert load_benchmark(str(path)).items == (Item("1", "Math", "2+2?", ("four", "five"), 1),)


@pytest.mark.parametrize("column", ["chosen", "rejected"])
@pytest.mark.parametrize(
    "value", [7, {"text": "four"}, [None], [["four"]], [{"role": "user", "content": "x"}]]
)
def test_what_is_neither_texts_nor_a_text_is_refused(column: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, "id": "2", column: value}))
    with pytest.raises(ValueError) as found:
        load_benchmark(str(path))
    assert str(found.value) == f"{path}, line 2 (id '2'): '{column}' must be a list of texts (or one text)"


@pytest.mark.parametrize("column", ["id", "subset"])
@pytest.mark.parametrize("value", [["Math"], {"a": 1}, float("nan")])
def test_names_that_are_none_are_refused(column: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text(json.dumps({**ROW, column: value}))
    with pytest.raises(ValueError, match=rf"line 1: '{column}' must be a text or a number"):
        load_benchmark(str(path))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"id": ' + "9" * 5000 + "}"])
def test_json_beyond_what_can_be_parsed_is_told_with_its_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(json.dumps(ROW) + "\n" + text)
    with pytest.raises(ValueError, match=r"b\.jsonl, line 2: not JSON"):
        load_benchmark(str(tmp_path / "b.jsonl"))
