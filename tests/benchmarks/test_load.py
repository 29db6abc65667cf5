"""Loading: file types, ids, parts, limits, the registry, descriptions in YAML and plug-ins."""

from __future__ import annotations

import hashlib
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib._util.hub import HubError
from rmcalib.benchmarks import benchmarks, load_benchmark
from rmcalib.benchmarks._entries import entry_for, known_entry
from tests.benchmarks.shapes import SHAPES, write

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


def good(**changes: Any) -> dict[str, Any]:
    return {
        "id": "1",
        "prompt": "2+2?",
        "chosen": ["4"],
        "rejected": ["5", "22"],
        "subset": "Math",
        **changes,
    }


def test_texts_ids_and_the_revision(tmp_path: Path) -> None:
    odd = ["\0", "🙂\u2028\u0085", "x" * 200_000, "<script>", "\r\n", ""]
    rows = [good(id=7, prompt=CHAT, chosen=odd), good(subset="Focus", chosen="[4]"), good(rejected=" \n")]
    path = write(tmp_path / "mine.jsonl", rows)
    bench = load_benchmark(str(path))
    assert (bench.name, bench.format, bench.n_empty) == ("mine", "rmcalib", 3)
    assert bench.revision == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (bench.items[0].prompt, bench.items[0].responses) == (tuple(CHAT), (*odd, "5", "22"))
    assert bench.items[1].responses[0] == "[4]"  # a text, not a list
    assert [item.id for item in bench.items] == ["7", "Focus/1", "Math/1"]  # used in two categories
    assert bench.categories == ("Math", "Focus")


def test_rows_without_an_id_have_their_number(tmp_path: Path) -> None:
    rows = [{key: value for key, value in good().items() if key != "id"}] * 2
    bench = load_benchmark(str(write(tmp_path / "mine.jsonl", rows)))
    assert [item.id for item in bench.items] == ["0", "1"]


def test_a_repeated_id_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"mine\.jsonl, line 3: id '1' .*line 1"):
        load_benchmark(str(write(tmp_path / "mine.jsonl", [good(), good(id="2"), good()])))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.jsonl", b"\n\n{oops\n"),
        ("x.jsonl", b"\xff\xfe\n"),
        ("x.jsonl", b""),
        ("x.jsonl", json.dumps(good()).encode() + b'\n{"id": "\xe9"}'),
        ("x.jsonl", b'{"id": 1, "id": 2}'),
        ("x.json", b"{}"),
        ("x.json", b"[1]"),
        ("x.json", json.dumps([good()]).encode("utf-16")),
        ("x.parquet", b"PAR1 but not really"),
        ("x.csv", b'id,prompt\n1,"cut off'),
        ("x.csv", b"id,id\n1,2\n"),
        ("x.txt", b"id,prompt"),
    ],
)
def test_a_bad_file_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{tmp_path}/{name}") as found:
        load_benchmark(str(tmp_path / name))
    assert "\n" not in str(found.value)


def test_invalid_names_and_arguments(tmp_path: Path) -> None:
    for name in ("gone.jsonl", "s3://bucket/b.parquet", "https://x.org/data"):
        with pytest.raises(ValueError, match=f"^{name}"):
            load_benchmark(name)
    for name in ("../../x", "", "a/b/c", "x" * 400):
        with pytest.raises(HubError, match="Hub id"):
            load_benchmark(name)
    with pytest.raises(ValueError, match="format="):
        load_benchmark(str(tmp_path))  # a folder
    with pytest.raises(ValueError, match=r'rmb: .*format="rmb"'):
        load_benchmark("rmb")  # not on the Hub
    for wrong in ({"revision": "main"}, {"limit": 0}, {"part": "3/2"}, {"part": "half"}, {"format": "trll"}):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))}"):
            load_benchmark("demo", **wrong)


@given(n=st.integers(1, 60), limit=st.integers(1, 70))
@settings(max_examples=40, deadline=None)
def test_a_limit_spreads_prompts_evenly(n: int, limit: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = write(tmp_path_factory.mktemp("limit") / "x.jsonl", [good(id=i) for i in range(n)])
    kept = [int(item.id) for item in load_benchmark(str(path), limit=limit).items]
    assert len(kept) == min(n, limit)
    assert kept == sorted(set(kept))
    steps = [b - a for a, b in pairwise(kept)]
    assert not steps or max(steps) - min(steps) <= 1


def test_parts_are_disjoint_and_cover_the_benchmark() -> None:
    parts = [load_benchmark("demo", part=f"{k}/3") for k in (1, 2, 3)]
    assert [part.name for part in parts] == ["demo-1of3", "demo-2of3", "demo-3of3"]
    found = sorted(item.id for part in parts for item in part.items)
    assert found == sorted(item.id for item in load_benchmark("demo").items)
    assert all(60 < len(part) < 150 for part in parts)


# The registry


def test_entries_are_complete_and_found_by_name_alias_and_hub_id() -> None:
    for entry in benchmarks().values():
        assert (entry.official is None) == (entry.official_about == "")
        assert entry.homepage.startswith("https://") or entry.licence in ("yours", "as rmcalib")
    assert entry_for("allenai/reward-bench-2") is known_entry("reward-bench-2")
    assert entry_for("lmarena-ai/PPE-MATH-Best-of-K") is known_entry("ppe-correctness")
    assert entry_for(load_benchmark("demo", limit=5)) is known_entry("demo")
    assert entry_for("org/unknown") is None
    assert known_entry("ppe-correctness").hub_id is None
    with pytest.raises(ValueError, match=r"judge-bench.*did you mean 'judgebench'"):
        known_entry("judge-bench")


def test_sections_have_the_categories_of_reward_bench_1() -> None:
    entry = known_entry("reward-bench-1")
    assert [name for weights in entry.sections.values() for name in weights] == list(entry.categories)


def test_rows_of_reward_bench_2_are_recognised(tmp_path: Path) -> None:
    bench = load_benchmark(str(write(tmp_path / "x.jsonl", SHAPES["reward-bench-2"])))
    assert bench.format == "reward-bench-2"
    assert known_entry(bench.format).no_single_answer == {"Ties"}


def test_clusters_of_several_data_sets_are_different(tmp_path: Path) -> None:
    row = SHAPES["ppe-correctness"][0]
    path = write(tmp_path / "x.jsonl", [{**row, "subset": subset} for subset in ("MATH", "GPQA")])
    items = load_benchmark(str(path), format="ppe-correctness").items
    assert [item.cluster for item in items] == ["MATH/q1", "GPQA/q1"]


QUIZ = """
name: quiz
title: A quiz
reader: answers
labels: pairs
columns: {id: key, prompt: question, chosen: right, rejected: wrong, category: [topic, field]}
cluster: book
keep: [author]
official: accuracy
official_about: accuracy
"""
QUESTION = {
    "key": 1,
    "question": "?",
    "right": "yes",
    "wrong": ["no"],
    "field": "law",
    "book": 7,
    "author": "X",
}


def test_a_list_of_responses_and_the_number_of_the_correct_one(tmp_path: Path) -> None:
    columns = "columns: {prompt: question, responses: options, correct: answer}"
    (tmp_path / "quiz.yaml").write_text(
        f"name: quiz\ntitle: A quiz\nreader: options\nlabels: one\n{columns}\n"
    )
    row = {"question": "?", "options": ["a", "b", "c"], "answer": 2}
    path, how = tmp_path / "q.jsonl", str(tmp_path / "quiz.yaml")
    (item,) = load_benchmark(str(write(path, [row])), format=how).items
    assert (item.responses, item.n_correct) == (("c", "a", "b"), 1)
    with pytest.raises(ValueError, match="number 3"):
        load_benchmark(str(write(path, [{**row, "answer": 3}])), format=how)


def test_a_yaml_file_describes_a_benchmark(tmp_path: Path) -> None:
    (tmp_path / "quiz.yaml").write_text(QUIZ)
    data = str(write(tmp_path / "q.jsonl", [QUESTION]))
    bench = load_benchmark(data, format=str(tmp_path / "quiz.yaml"))
    (item,) = bench.items
    assert (item.id, item.category, item.responses, item.cluster) == ("1", "law", ("yes", "no"), "7")
    assert (bench.format, item.columns) == ("quiz", {"author": "X"})
    (tmp_path / "quiz.yaml").write_text(QUIZ + "category: other\n")
    path = str(write(tmp_path / "n.jsonl", [QUESTION, {**QUESTION, "key": 2, "field": None}]))
    items = load_benchmark(path, format=str(tmp_path / "quiz.yaml")).items
    assert [item.category for item in items] == ["law", "other"]
    for wrong, named in (
        (QUIZ.replace("labels: pairs", "labels: twos"), "labels"),
        (QUIZ.replace("title:", "titel:"), "titel"),
        (QUIZ.replace("reader: answers", "reader: answer"), "answer"),
        (QUIZ.replace("official: accuracy", "official: best"), "best"),
        ("- 1", "quiz.yaml"),
    ):
        (tmp_path / "quiz.yaml").write_text(wrong)
        with pytest.raises(ValueError, match=rf"quiz\.yaml: .*{named}|{named}:"):
            load_benchmark(data, format=str(tmp_path / "quiz.yaml"))


PLUGIN = """
from pathlib import Path
from rmcalib.benchmarks import BenchmarkEntry, Item

def read(row):
    if row["right"] == "nothing":
        return 7
    return Item(str(row["key"]), "quiz", row["question"], (row["right"], *row["wrong"]), 1)

FUNCTION = BenchmarkEntry("quiz", "A quiz", "pairs", read, official="accuracy")
FILE = [Path(__file__).with_name("quiz.yaml")]
CLASH = BenchmarkEntry("trl", "Not TRL", "pairs", read)
NOTHING = 7
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a distribution on the path; the tests write its entry points."""
    info = tmp_path / "site" / "quizbench-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quizbench\nVersion: 1.0\n")
    (tmp_path / "site" / "quizbench.py").write_text(PLUGIN)
    (tmp_path / "site" / "quiz.yaml").write_text(QUIZ)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "quizbench", raising=False)
    return info / "entry_points.txt"


@pytest.mark.parametrize("point", ["FUNCTION", "FILE"])
def test_a_package_adds_a_benchmark(point: str, plugin: Path, tmp_path: Path) -> None:
    plugin.write_text(f"[rmcalib.benchmarks]\nquiz = quizbench:{point}\n")
    bench = load_benchmark(str(write(tmp_path / "q.jsonl", [QUESTION])), format="quiz")
    assert (bench.items[0].responses, bench.format) == (("yes", "no"), "quiz")
    changes: list[dict[str, Any]] = [{"right": 5}, {"right": "nothing"}, {"wrong": []}, {"key": "x" * 5000}]
    for wrong in changes:
        if point == "FILE" and "nothing" in wrong.values():
            continue
        path = write(tmp_path / "q.jsonl", [QUESTION, {**QUESTION, **wrong}])
        with pytest.raises(ValueError, match=r"q\.jsonl, line 2: "):
            load_benchmark(str(path), format="quiz")


@pytest.mark.parametrize(
    ("point", "named"),
    [
        ("quizbench:NOTHING", "BenchmarkEntry"),
        ("quizbench:MISSING", "MISSING"),
        ("nowhere:QUIZ", "nowhere"),
        ("quizbench:CLASH", "'trl'"),
    ],
)
def test_a_bad_entry_point_is_named(point: str, named: str, plugin: Path) -> None:
    plugin.write_text(f"[rmcalib.benchmarks]\nmine = {point}\n")
    with pytest.raises(ValueError, match=rf"entry point rmcalib\.benchmarks: mine.*{named}"):
        benchmarks()
    assert known_entry("reward-bench-2").prompts == 1865  # built-in entries still work
