"""The registry of benchmarks: built-in entries, and those of installed packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmcalib.benchmarks import benchmarks, entry_for, known_entry, load_benchmark

OURS = (
    *("reward-bench-1", "reward-bench-2", "rm-bench", "rmb", "rmb-pairwise", "judgebench", "rewardmath"),
    *("ppe-human", "ppe-correctness", "helpsteer3", "multipref", "mt-bench-human", "arena-55k", "arena-140k"),
    *("ultrafeedback", "trl", "rmcalib", "demo"),
)
PLUGIN = """
from rmcalib.benchmarks import BenchmarkEntry, HubSource, Item, OfficialScore, each

def read(row):
    return Item(row.name("key"), "quiz", row.text("question"), (row.text("right"), row.text("wrong")), 1)

def score(items):
    return [OfficialScore("always_one", "all", 1.0, len(items.ids))]

COLUMNS = ("key", "question", "right", "wrong")
QUIZ = BenchmarkEntry("quiz", "A quiz", "pairs", COLUMNS, each(read), official=score)
CLASH = BenchmarkEntry("trl", "Not TRL", "pairs", ("a",), each(read))
NOTHING = 7
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a distribution on the path; the tests write its entry points."""
    site = tmp_path / "site"
    info = site / "quizbench-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quizbench\nVersion: 1.0\n")
    (site / "quizbench.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "quizbench", raising=False)
    return info / "entry_points.txt"


def test_names() -> None:
    assert set(benchmarks()) == set(OURS)
    for entry in benchmarks().values():
        assert entry.title
        assert entry.columns
        assert entry.labels in ("one", "several", "pairs", "votes")
        assert (entry.official is None) == (entry.official_about == "")
        assert entry.homepage.startswith("https://") or entry.licence in ("yours", "as rmcalib")


def test_entries_are_found_by_name_alias_and_hub_id() -> None:
    assert entry_for("rewardbench2") is entry_for("allenai/reward-bench-2") is known_entry("reward-bench-2")
    assert entry_for("lmarena-ai/PPE-MATH-Best-of-K") is known_entry("ppe-correctness")
    assert entry_for(load_benchmark("demo", limit=5)) is known_entry("demo")
    assert entry_for("org/unknown") is None
    assert known_entry("ppe-correctness").hub_id is None
    assert known_entry("reward-bench-2").hub_id == "allenai/reward-bench-2"
    with pytest.raises(ValueError, match=r"format: unknown 'judge-bench' \(did you mean judgebench\?"):
        known_entry("judge-bench")


def test_no_single_answer_belongs_to_the_benchmark(tmp_path: Path) -> None:
    assert {name for name, entry in benchmarks().items() if entry.no_single_answer} == {
        "reward-bench-2",
        "demo",
    }
    row = '{"id": "1", "prompt": "p", "chosen": "a", "rejected": "b", "subset": "Ties"}'
    (tmp_path / "x.jsonl").write_text(row)
    entry = entry_for(load_benchmark(str(tmp_path / "x.jsonl")))
    assert entry is not None
    assert (entry.name, entry.no_single_answer) == ("rmcalib", frozenset())


def test_rows_of_reward_bench_2_are_recognised(tmp_path: Path) -> None:
    from tests.benchmarks.shapes import SHAPES, write

    assert (
        load_benchmark(str(write(tmp_path / "x.jsonl", SHAPES["reward-bench-2"]))).format == "reward-bench-2"
    )


def test_a_benchmark_that_is_not_on_the_hub() -> None:
    with pytest.raises(
        ValueError, match=r"rmb: not on the Hub; download it \(https.*path with --format rmb$"
    ):
        load_benchmark("rmb")


def test_a_package_adds_a_benchmark(plugin: Path, tmp_path: Path) -> None:
    plugin.write_text("[rmcalib.benchmarks]\nquiz = quizbench:QUIZ\n")
    assert benchmarks()["quiz"].title == "A quiz"
    (tmp_path / "q.jsonl").write_text('{"key": 1, "question": "?", "right": "yes", "wrong": "no"}')
    bench = load_benchmark(str(tmp_path / "q.jsonl"), format="quiz")
    assert (bench.items[0].responses, bench.format) == (("yes", "no"), "quiz")


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("quizbench:NOTHING", "is not a BenchmarkEntry"),
        ("quizbench:MISSING", "has no attribute 'MISSING'"),
        ("nowhere:QUIZ", "No module named 'nowhere'"),
        ("quizbench:CLASH", "adds 'trl', which already exists"),
    ],
)
def test_a_bad_entry_point_is_named(point: str, message: str, plugin: Path) -> None:
    plugin.write_text(f"[rmcalib.benchmarks]\nmine = {point}\n")
    with pytest.raises(ValueError, match=rf"entry point rmcalib\.benchmarks: mine.*{message}"):
        benchmarks()
    assert known_entry("reward-bench-2").prompts == 1865  # built-in entries still work


def test_every_benchmark_has_three_lines_of_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part.partition("\n")[2] for part in page.split("\n### ")[1:]}
    for name in set(OURS) - {"demo"}:
        (section,) = [text for title, text in sections.items() if f"`{name}`" in title]
        assert section.partition("\n## ")[0].count("\n- ") == 3
