"""Benchmarks from files: all formats are read, and bad rows are named."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib._util.hub import HubError
from rmcalib.benchmarks import Benchmark, load_benchmark
from tests.hub import tiny

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


def good(**changes: Any) -> dict[str, Any]:
    row = {"id": "1", "prompt": "2+2?", "chosen": ["4"], "rejected": ["5", "22"], "subset": "Math"}
    return {key: value for key, value in {**row, **changes}.items() if value is not ...}


def written(folder: Path, rows: list[dict[str, Any]], suffix: str = ".jsonl") -> Path:
    path = folder / f"mine{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
@pytest.mark.parametrize("prompt", ["2+2?", CHAT])
def test_all_file_types_give_the_same_benchmark(suffix: str, prompt: Any, tmp_path: Path) -> None:
    rows = [row | {"prompt": prompt} for row in tiny.benchmark_rows()]
    path = written(tmp_path, rows, suffix)
    bench = load_benchmark(str(path))
    assert (bench.name, len(bench), bench.n_responses) == ("mine", 8, 32)
    assert bench.revision == hashlib.sha256(path.read_bytes()).hexdigest()
    assert bench.categories == ("Focus", "Math", "Ties")
    assert bench.items[0].prompt == (prompt if isinstance(prompt, str) else tuple(prompt))
    assert bench.items[0].responses == ("It is 0.", "It is 1.", "It is 2.", "It is 3.")
    assert (bench.items[-1].id, bench.items[-1].n_correct) == ("tied:0", 3)
    json_path = written(tmp_path, rows)
    assert bench.items == load_benchmark(str(json_path)).items


def test_a_single_text_and_a_number_as_id_are_accepted(tmp_path: Path) -> None:
    bench = load_benchmark(str(written(tmp_path, [good(id=7, chosen="4", rejected="5")])))
    assert (bench.items[0].id, bench.items[0].responses, bench.items[0].n_correct) == ("7", ("4", "5"), 1)


def test_empty_responses_are_kept_and_counted(tmp_path: Path) -> None:
    bench = load_benchmark(str(written(tmp_path, [good(chosen=[""], rejected=["5", " \n"])])))
    assert bench.items[0].responses == ("", "5", " \n")
    assert bench.n_empty == 2


def test_ids_used_in_several_categories_get_a_prefix(tmp_path: Path) -> None:
    rows = [good(), good(subset="Focus"), good(id="2"), good(id="ref:1", subset="Ties")]
    bench = load_benchmark(str(written(tmp_path, rows)))
    assert [item.id for item in bench.items] == ["Math/1", "Focus/1", "2", "ref:1"]


def test_unusual_texts_are_kept_unchanged(tmp_path: Path) -> None:
    strange = ["\0", "🙂\u2028\u0085", "x" * 200_000, "\ud83d\ude00", "<script>", "\r\n"]
    bench = load_benchmark(str(written(tmp_path, [good(prompt="\0🙂", chosen=strange)])))
    assert bench.items[0].prompt == "\0🙂"
    assert len(bench.items[0].responses[2]) == 200_000


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (good(chosen=[]), r"line 2 \(id '1'\): no correct response \('chosen' is empty\)"),
        (good(rejected=[]), r"line 2 \(id '1'\): no wrong response \('rejected' is empty\)"),
        (good(id="0"), r"line 2: id '0' appears twice \(first in line 1\)"),
        (
            good(subset=...),
            r"line 2: no value for subset \(a row needs id, prompt, chosen, rejected, subset\)",
        ),
        (good(prompt=None, chosen=None), r"line 2: no value for prompt, chosen"),
        (good(chosen=[1]), r"'chosen' must be a list of texts"),
        (good(rejected={"a": 1}), r"'rejected' must be a list of texts"),
        (good(prompt=3), r"'prompt' must be a text or a list of chat messages"),
        (good(prompt=[]), r"'prompt' must be a text or a list of chat messages"),
        (good(prompt=[{"role": "user"}]), r"a chat message needs the texts 'role' and 'content'"),
        (good(prompt=[*CHAT, {"role": "assistant", "content": "x"}]), r"ends with the assistant's turn"),
        (good(id="a\0"), r"NUL character"),
    ],
)
def test_a_bad_row_is_named(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = written(tmp_path, [good(id="0"), row])
    with pytest.raises(ValueError, match=message):
        load_benchmark(str(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", b'{"id": 1}\n' * 6 + b"{oops\n", r"x\.jsonl, line 1: no value for prompt"),
        ("x.jsonl", b"\n\n\n\n\n\n{oops\n", r"x\.jsonl, line 7: not JSON"),
        ("x.jsonl", b"[1]\n", r"line 1: expected an object"),
        ("x.jsonl", b"\xff\xfe\n", r"x\.jsonl: not UTF-8 text \(it looks like UTF-16\): save it as UTF-8"),
        ("x.jsonl", b"", "contains no prompts"),
        ("x.json", b"{}", "expected a list of objects"),
        ("x.json", b"[1]", "expected a list of objects"),
        ("x.json", b"[]", "contains no prompts"),
        ("x.parquet", b"PAR1 but not really", "not a readable Parquet file"),
        ("x.txt", b"id,prompt", r"a benchmark file ends in \.jsonl, \.json, \.parquet, \.csv"),
    ],
)
def test_a_bad_file_is_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_benchmark(str(tmp_path / name))


def test_invalid_names_and_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        load_benchmark(str(tmp_path / "gone.jsonl"))
    with pytest.raises(ValueError, match=r"is a folder; give --format to say how its files are written"):
        load_benchmark(str(tmp_path))
    for name in ("../../x", "", "a/b/c"):
        with pytest.raises(HubError, match="is neither a file or folder here nor a Hub id"):
            load_benchmark(name)
    path = str(written(tmp_path, [good()]))
    with pytest.raises(ValueError, match=r"revision: .* is a file, and only Hub data sets have revisions"):
        load_benchmark(path, revision="main")
    with pytest.raises(ValueError, match="limit: must be at least 1, got 0"):
        load_benchmark(path, limit=0)


def test_a_parquet_file_without_the_columns(tmp_path: Path) -> None:
    path = written(tmp_path, [{"id": "1", "question": "?"}], ".parquet")
    with pytest.raises(ValueError, match=r"row 0: no value for prompt, chosen, rejected, subset \(a row"):
        load_benchmark(str(path))


@given(n=st.integers(1, 60), limit=st.integers(1, 70))
@settings(max_examples=40, deadline=None)
def test_a_limit_spreads_prompts_evenly(n: int, limit: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = written(tmp_path_factory.mktemp("limit"), [good(id=i) for i in range(n)])
    kept = [int(item.id) for item in load_benchmark(str(path), limit=limit).items]
    assert len(kept) == min(n, limit)
    assert kept == sorted(set(kept))
    steps = [b - a for a, b in pairwise(kept)]
    assert not steps or max(steps) - min(steps) <= 1


def test_equal_benchmarks_compare_equal() -> None:
    assert Benchmark("a", "1", ()) == Benchmark("a", "1", ())


def test_importing_the_package_is_light() -> None:
    heavy = ["torch", "transformers", "datasets", "pyarrow", "pandas", "huggingface_hub", "yaml"]
    code = f"import sys, rmcalib.judges, rmcalib.runs; print([m for m in {heavy} if m in sys.modules])"
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert result.stdout.strip() == "[]"


def test_parts_are_disjoint_and_cover_the_benchmark() -> None:
    whole = load_benchmark("demo")
    parts = [load_benchmark("demo", part=f"{k}/3") for k in (1, 2, 3)]
    assert [part.name for part in parts] == ["demo-1of3", "demo-2of3", "demo-3of3"]
    assert sorted(item.id for part in parts for item in part.items) == sorted(item.id for item in whole.items)
    assert all(60 < len(part) < 150 for part in parts)
    assert len(load_benchmark("demo", part="1/3", limit=10)) == 10
    for wrong in ("0/2", "3/2", "half", "1/0", "1/1000"):
        with pytest.raises(ValueError, match=f"part: '{wrong}' is not a part"):
            load_benchmark("demo", part=wrong)
