"""Every benchmark is read as its authors publish it; a bad file gives an error of one line that names it."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.benchmarks import Benchmark, benchmarks, load_benchmark
from tests.benchmarks.shapes import SHAPES, best_of_n, judgment, pair, said, talk, write

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def load(
    folder: Path, name: str, rows: list[dict[str, Any]] | None = None, suffix: str = ".jsonl"
) -> Benchmark:
    path = write(folder / f"mine{suffix}", SHAPES[name] if rows is None else rows)
    return load_benchmark(str(path), format=name)


def changed(name: str, row: int = 0, **changes: Any) -> list[dict[str, Any]]:
    rows = copy.deepcopy(SHAPES[name])
    rows[row] |= changes
    return rows


EXPECTED = json.loads(Path(__file__).with_name("expected.json").read_text())
"""The items of `SHAPES` and how many kinds of rows are left out; read it through after `write_expected`."""


def as_json(bench: Benchmark) -> dict[str, Any]:
    """Return the items of a benchmark as they are in expected.json."""
    items: list[Any] = json.loads(json.dumps([asdict(item) for item in bench.items]))
    return {"items": items, "left_out": len(bench.notes)}


def write_expected(folder: Path) -> None:
    found = [f'"{name}": {json.dumps(as_json(load(folder, name)))}' for name in SHAPES]
    Path(__file__).with_name("expected.json").write_text("{\n" + ",\n".join(found) + "\n}\n")


def test_every_benchmark_is_tested() -> None:
    assert set(EXPECTED) == set(SHAPES) == set(benchmarks()) - {"demo"}


@pytest.mark.parametrize("name", SHAPES)
def test_items(name: str, tmp_path: Path) -> None:
    bench = load(tmp_path, name)
    assert as_json(bench) == EXPECTED[name]
    assert (bench.name, bench.format) == ("mine", name)
    assert load(tmp_path, name, suffix=".json").items == bench.items
    if name not in ("trl", "rmcalib"):  # their rows have different columns, which a table does not allow
        assert load(tmp_path, name, suffix=".parquet").items == bench.items


def test_csv_files_hold_lists_as_json(tmp_path: Path) -> None:
    assert load(tmp_path, "arena-55k", suffix=".csv").items == load(tmp_path, "arena-55k").items
    rows = [
        {key: json.dumps(value) if isinstance(value, list) else value for key, value in row.items()}
        for row in SHAPES["helpsteer3"]
    ]
    assert load(tmp_path, "helpsteer3", rows, ".csv").items == load(tmp_path, "helpsteer3").items


def test_rmb_is_read_from_its_folders(tmp_path: Path) -> None:
    root = tmp_path / "RMB_dataset"
    for uid, path in (
        ("b1", "BoN_set/Helpfulness/Chat/hi.json"),
        ("b2", "BoN_set/Harmlessness/S1.json"),
        ("p1", "Pairwise_set/Helpfulness/Chat/hi.json"),
    ):
        (root / path).parent.mkdir(parents=True)
        write(root / path, [best_of_n(uid, path) if uid[0] == "b" else pair(uid, path)])
    (root / "README.md").write_text("not read")
    bench = load_benchmark(str(root), format="rmb")
    assert (bench.name, [item.id for item in bench.items]) == ("RMB_dataset", ["b2", "b1"])
    assert [item.id for item in load_benchmark(str(root), format="rmb-pairwise").items] == ["p1"]
    inner = load_benchmark(str(root / "BoN_set"), format="rmb")
    assert inner.items == bench.items
    assert inner.revision != bench.revision  # the paths differ, and may contain the category
    with pytest.raises(ValueError, match=r"hi\.json, row 0: .*bon_"):
        load_benchmark(str(root / "Pairwise_set"), format="rmb")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("arena-55k", {"response_a": '["\\ud83d"]'}),
        ("arena-140k", {"conversation_a": talk("Other?", "La.")}),
        ("multipref", {"normal_worker_annotations": [], "expert_worker_annotations": []}),
        ("ppe-correctness", {"scores": [True] * 4}),
        ("ultrafeedback", {"completions": [{"response": "Mars.", "overall_score": 1}]}),
        ("trl", {"chosen": "4", "rejected": "4"}),
    ],
)
def test_rows_that_say_nothing_are_left_out_and_counted(
    name: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    bench = load(tmp_path, name, [changed(name, 0, **changes)[0], *SHAPES[name]])
    assert len(bench) == len(EXPECTED[name]["items"])
    assert any("left out" in note for note in bench.notes)


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("judgebench", {"label": "A=B"}, "label"),
        ("helpsteer3", {"individual_preference": [{"score": 4}]}, "individual_preference.0.score"),
        ("helpsteer3", {"context": talk("Hi", "Hello")}, "context"),
        ("ppe-correctness", {"scores": [True]}, "scores"),
        ("ppe-correctness", {"sampled_conflict_pairs": [[0, 9]]}, "sampled_conflict_pairs"),
        ("mt-bench-human", {"turn": 3}, "turn 3"),
        ("arena-55k", {"winner_tie": "1"}, "winner_tie"),
        ("arena-55k", {"prompt": '["One?", "Two?"]'}, "response_a"),
        ("rewardmath", {"solution_reference": "human_to_GPT-4"}, "human_to_GPT-4"),
        ("trl", {"prompt": None, "chosen": "abc", "rejected": "xyz"}, "chosen"),
        ("trl", {"chosen": [said("user", "a")], "rejected": [said("assistant", "b")]}, "chosen"),
        ("rmcalib", {"votes": [1], "responses": ["a", "b"]}, "votes"),
        ("rmcalib", {"votes": [0, 0], "responses": ["a", "b"]}, "votes"),
        ("rmcalib", {"chosen": []}, "chosen"),
        ("rmcalib", {"chosen": [1]}, "chosen.0"),
        ("rmcalib", {"prompt": [{"role": "user"}]}, "prompt.*content"),
        ("rmcalib", {"prompt": [said("wizard", "x")]}, "wizard"),
        ("rmcalib", {"prompt": talk("Hi", "Hello")}, "prompt"),
        ("rmcalib", {"id": True}, "id is"),
        ("rmcalib", {"id": " "}, "id is"),
        ("rmcalib", {"id": "x" * 50_000}, "id is"),
        ("rmcalib", {"subset": ["Math"]}, "subset is"),
        ("rmcalib", {"chosen": ["\ud800"]}, "surrogate"),
    ],
)
def test_a_wrong_value_is_named(name: str, changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"mine\.jsonl, line 1: .*{named}") as found:
        load(tmp_path, name, changed(name, 0, **changes))
    one_line(found.value, tmp_path)


def one_line(error: ValueError, folder: Path) -> None:
    assert str(error).startswith(str(folder))
    assert "\n" not in str(error)
    assert len(str(error)) < 3 * len(str(folder)) + 1500


@pytest.mark.parametrize("name", SHAPES)
def test_truncated_files_and_other_formats_are_named(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", SHAPES[name])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"mine\.jsonl, line \d+: not JSON"):
        load_benchmark(str(path), format=name)
    other = "judgebench" if name != "judgebench" else "multipref"
    with pytest.raises(ValueError, match=rf"line {len(SHAPES[name]) + 1}: no value for"):
        load(tmp_path, name, [*SHAPES[name], SHAPES[other][0]])


@pytest.mark.parametrize("name", SHAPES)
@given(data=st.data())
@settings(max_examples=25)
def test_wrong_types_give_an_error_of_one_line(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Values anywhere in a row are replaced by others of any type."""
    folder = tmp_path_factory.mktemp("types")
    rows: Any = copy.deepcopy(SHAPES[name])
    place = data.draw(st.sampled_from(rows))
    key = data.draw(st.sampled_from(sorted(place)))
    while isinstance(place[key], (list, dict)) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(JSON)
    try:
        load(folder, name, rows)
    except ValueError as error:
        one_line(error, folder)


def test_mt_bench_collects_votes_in_both_orders_of_the_models(tmp_path: Path) -> None:
    rows = [judgment("model_a", "x"), judgment("model_b", "y", a="beta", b="alpha")]
    (item,) = load(tmp_path, "mt-bench-human", rows).items
    assert (item.responses[0], item.votes) == ("A poem.", (2, 0))
