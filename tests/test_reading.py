"""Hostile and damaged files: JSON, YAML, CSV and Parquet are read within bounds, or refused in one line."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib._util.files import read_csv_table, read_object, write_json
from rmcalib._util.storage import read_file
from rmcalib._util.texts import parse_json, parse_yaml, typed
from rmcalib.benchmarks import load_benchmark
from rmcalib.benchmarks._entries import known_entry
from rmcalib.judges import Recipe, registry
from rmcalib.judges._questions import read_prompt
from rmcalib.repair import Calibrator
from rmcalib.runs._plan import read_models
from rmcalib.scores import load_scores

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)


def merges(n: int) -> str:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}], k{i}: 1}}" for i in range(1, n)]
    return "\n".join(lines)


HOSTILE_YAML = {
    "aliases": "\n".join(["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60))]),
    "merges": merges(40),
    "itself": "&a [*a]",
    "nested": "[" * 5000,
    "nested a little less": "[" * 300 + "]" * 300,
    "repeated": "x: 1\n" * 2,
    "base 60": "x: " + "1:" * 100_000 + "1",
    "large": "x: " + "1" * 2_000_000,
    "date": "x: 2024-99-99",
    "object": "!!python/object/apply:os.system [touch hacked]",
    "bytes": "x: \x07",
}


@pytest.mark.parametrize("name", HOSTILE_YAML)
def test_hostile_yaml_is_refused_quickly(name: str) -> None:
    start = time.process_time()
    with pytest.raises(ValueError, match=r"^c\.yaml") as found:
        parse_yaml(HOSTILE_YAML[name].encode(), "c.yaml")
    assert time.process_time() - start < 2
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 300


HOSTILE_JSON = {
    "nested": "[" * 100_000,
    "nested a little less": "[" * 300 + "]" * 300,
    "nested objects": '{"a":' * 200 + "1" + "}" * 200,
    "repeated at the end": "{" + ",".join(f'"k{i}":1' for i in [*range(200_000), 0]) + "}",
    "a long key twice": '{"' + "x" * 100_000 + '": 1, "' + "x" * 100_000 + '": 1}',
    "digits": "9" * 5000,
    "surrogate": '{"a\\ud800": 1}',
    "two values": "{} {}",
    "cut": '{"a": "b',
}


@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_hostile_json_is_refused_quickly(name: str) -> None:
    start = time.process_time()
    with pytest.raises(ValueError, match=r"^x\.json") as found:
        parse_json(HOSTILE_JSON[name].encode(), "x.json")
    assert time.process_time() - start < 2
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 300


def problem(call: Callable[[], object]) -> str:
    """Return the message of the ValueError that a call raises; empty if it raises none."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


@given(JSON)
def test_ordinary_values_are_read_unchanged(value: Any) -> None:
    text = json.dumps(value).encode()
    assert parse_json(text, "x") == value


@given(st.binary(max_size=60))
def test_bytes_give_a_value_or_one_line(content: bytes) -> None:
    for parse in (parse_json, parse_yaml):
        found = problem(partial(parse, content, "x"))
        assert found.startswith("x") or not found
        assert "\n" not in found


def test_many_csv_columns_and_a_repeated_one(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    names = [f"c{i}" for i in range(100_000)]
    path.write_text(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
    start = time.process_time()
    assert len(read_csv_table(path).header) == 100_000
    path.write_text(",".join([*names, "c7"]) + "\n")
    with pytest.raises(ValueError, match=r"x\.csv, line 1: .*'c7'"):
        read_csv_table(path)
    assert time.process_time() - start < 5


def test_parquet_bombs_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many zeros in a few kilobytes, and many rows in fewer."""
    monkeypatch.setattr("rmcalib._util.files._BYTES", 2**25)
    group = pa.table({"x": pa.array([b"\0" * 2**24])})
    with pq.ParquetWriter(
        tmp_path / "x.parquet", group.schema, compression="zstd", use_dictionary=False
    ) as writer:
        for _ in range(4):
            writer.write_table(group)
    pq.write_table(pa.table({"x": pa.nulls(10_000_000, pa.int32())}), tmp_path / "y.parquet")
    allocated = pa.total_allocated_bytes()
    for name in ("x.parquet", "y.parquet"):
        assert (tmp_path / name).stat().st_size < 300_000
        with pytest.raises(ValueError, match=rf"^{tmp_path / name}: .*memory"):
            load_benchmark(str(tmp_path / name))
        assert pa.total_allocated_bytes() - allocated < 2**24


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_a_long_id_does_not_fill_the_memory(suffix: str, tmp_path: Path) -> None:
    rows = [
        {"item_id": f"{i // 2}", "category": "c", "response": i % 2, "is_correct": i % 2 == 0, "reward": 1.0}
        for i in range(4000)
    ]
    rows[-1]["item_id"] = "x" * 50_000
    path = tmp_path / f"s{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tracemalloc.start()
    found = load_scores(path)  # a prompt's text is replaced by its digest
    assert max(map(len, found.item_id.tolist())) < 1000
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.csv", "x.parquet", "x.yaml"])
def test_fifos_are_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=name):
        (known_entry if name == "x.yaml" else load_benchmark)(str(tmp_path / name))
    with pytest.raises(ValueError, match=name):
        read_file(tmp_path / name)


@pytest.mark.parametrize(
    "read", [Calibrator.load, read_models, read_prompt, read_csv_table, lambda path: registry([path])]
)
def test_devices_are_not_read(read: Callable[[str], object]) -> None:
    """/dev/zero never ends."""
    with pytest.raises(ValueError, match="/dev/zero"):
        read("/dev/zero")


def test_huge_files_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x.jsonl").open("wb") as file:
        file.truncate(2**40)  # sparse
    with pytest.raises(ValueError, match=r"x\.jsonl: .* bytes"):
        read_file(tmp_path / "x.jsonl")


@dataclass(frozen=True)
class Settings:
    name: str
    sizes: tuple[int, ...] = ()
    scale: float | None = None


@given(JSON)
def test_typed_values_are_right_or_refused_in_one_line(value: Any) -> None:
    found = problem(lambda: typed(Settings, value, "s.json"))
    assert found.startswith("s.json: ") or isinstance(typed(Settings, value, "s.json"), Settings)
    assert "\n" not in found
    assert len(found) < 1000


MODEL_FIELDS = [
    *(field.name for field in dataclasses.fields(Recipe)),
    *("kind", "endpoint", "served_name", "concurrency", "timeout", "judge", "votes", "reference", "beta"),
]


@given(entry=st.dictionaries(st.sampled_from(MODEL_FIELDS), JSON, max_size=4), named=st.booleans())
@settings(max_examples=15)
@pytest.mark.parametrize("read", [read_models, lambda path: registry([path])])
def test_lists_of_models_are_right_or_refused_in_one_line(
    read: Callable[[Path], Any], entry: dict[str, Any], named: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "models.yaml"
    path.write_text(yaml.safe_dump({"models": [{"model": "org/rm"} | entry if named else entry]}))
    found = problem(lambda: read(path))
    assert found.startswith(str(path)) or not found
    assert "\n" not in found
    assert len(found) < 1000


def test_a_file_that_is_no_object_counts_as_none(tmp_path: Path) -> None:
    path = write_json(tmp_path / "a.json", {"a": 1})
    assert read_object(path) == {"a": 1}
    for content in ("[1]", "{", "[" * 100_000, '{"a": 1, "a": 2}'):
        path.write_text(content)
        assert read_object(path) == {}
    assert read_object(tmp_path / "b.json") == {}
