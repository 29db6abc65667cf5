"""Unusual and invalid rows of a benchmark: a text instead of a list, invalid names, encodings."""

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
def test_responses_must_be_texts(column: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, "id": "2", column: value}))
    with pytest.raises(ValueError) as found:
        load_benchmark(str(path))
    assert str(found.value) == f"{path}, line 2 (id '2'): '{column}' must be a list of texts (or one text)"


@pytest.mark.parametrize("column", ["id", "subset"])
@pytest.mark.parametrize("value", [["Math"], {"a": 1}, float("nan")])
def test_invalid_names_are_refused(column: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text(json.dumps({**ROW, column: value}))
    with pytest.raises(ValueError, match=rf"line 1: '{column}' is .*: it must be a text or a finite number"):
        load_benchmark(str(path))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"id": ' + "9" * 5000 + "}"])
def test_unparsable_json_is_reported_with_its_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(json.dumps(ROW) + "\n" + text)
    with pytest.raises(ValueError, match=r"b\.jsonl, line 2: not JSON"):
        load_benchmark(str(tmp_path / "b.jsonl"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": true, %s, "subset": "x"}', "'id' is True: it must be a text or a finite number"),
        ('{"id": Infinity, %s, "subset": "x"}', "'id' is inf: it must be a text or a finite number"),
        ('{"id": "", %s, "subset": "x"}', "'id' is empty"),
        ('{"id": " ", %s, "subset": "x"}', "'id' is empty"),
        ('{"id": 1, %s, "subset": ""}', "'subset' is empty"),
        ('{"id": 1, "id": 2, %s, "subset": "x"}', "the key 'id' appears twice"),
        ('{"id": 1, %s, "subset": "x", "more": {"a": 1, "a": 1}}', "the key 'a' appears twice"),
        (r'{"id": 1, %s, "subset": "x\ud800"}', "a lone surrogate"),
        (r'{"id": 1, %s, "subset": "x", "chosen": "\udfff"}', "the key 'chosen' appears twice"),
    ],
)
def test_invalid_values_are_refused_with_their_line(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    fields = '"prompt": "p", "chosen": "a", "rejected": "b"'
    path.write_text(json.dumps(ROW) + "\n" + line.replace("%s", fields))
    with pytest.raises(ValueError, match=rf"b\.jsonl, line 2: .*{message}"):
        load_benchmark(str(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": [{"role": "wizard", "content": "x"}]}, "unknown chat role 'wizard' (have: system, "),
        ({"chosen": ["a\ud800"]}, "a lone surrogate"),
        ({"prompt": "\udc00"}, "a lone surrogate"),
    ],
)
def test_invalid_texts_and_roles_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text(json.dumps([ROW, {**ROW, "id": "2", **change}]))
    with pytest.raises(ValueError, match=r"b\.json") as found:
        load_benchmark(str(path))
    assert message in str(found.value)


def test_surrogate_pairs_are_one_character(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(json.dumps({**ROW, "chosen": "\U0001f642"}))
    assert "ud83d" in (tmp_path / "b.jsonl").read_text()
    assert load_benchmark(str(tmp_path / "b.jsonl")).items[0].responses[0] == "\U0001f642"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["b.jsonl", "b.json", "b.csv"])
def test_other_encodings_are_reported_for_the_whole_file(name: str, encoding: str, tmp_path: Path) -> None:
    text = json.dumps(ROW) if name == "b.jsonl" else json.dumps([ROW])
    (tmp_path / name).write_bytes(f"{text}\n{text}".encode(encoding))
    with pytest.raises(
        ValueError, match=rf"{name}: not UTF-8 text \(it looks like UTF-16\): save it as UTF-8$"
    ):
        load_benchmark(str(tmp_path / name))


def test_a_line_that_is_not_utf_8_is_named_and_a_byte_order_mark_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(ROW).encode())
    assert len(load_benchmark(str(path))) == 1
    path.write_bytes(json.dumps(ROW).encode() + b"\n" + '{"id": "é"}'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"b\.jsonl, line 2: not UTF-8 text \(byte 8\)"):
        load_benchmark(str(path))


@pytest.mark.parametrize("name", ["http://x.org/b.jsonl", "https://x.org/data", "s3://bucket/b.parquet"])
def test_urls_are_refused_and_shown_unchanged(name: str) -> None:
    with pytest.raises(ValueError) as found:
        load_benchmark(name)
    assert str(found.value) == f"{name}: a URL; download the file and give its path"


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="is neither a file or folder here nor a Hub id"):
        load_benchmark("x" * 400)
