"""Reports on several benchmarks: tables, words, files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from rmcalib.metrics import Settings
from rmcalib.report import Joint, Leaderboard, leaderboard_from_runs, report_from_runs, write_joint
from tests.report.boards import synthetic, write_run

FEW = Settings(resamples=20)


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> Joint:
    """Two models on two benchmarks; `org/b` needs different temperatures on them."""
    runs = tmp_path_factory.mktemp("runs")
    for model, scales in (("org/a", (2.0, 2.0)), ("org/b", (0.2, 6.0))):
        for i, (benchmark, scale) in enumerate(zip(("org/one", "two<b>"), scales, strict=True)):
            write_run(runs, model, synthetic(i, n=150, scale=scale), benchmark=benchmark)
    write_run(runs, "org/c", synthetic(7, n=60), benchmark="org/one")
    found = report_from_runs([runs], settings=FEW)
    assert isinstance(found, Joint)
    return found


def test_the_table_has_every_model_and_benchmark(joint: Joint) -> None:
    assert joint.benchmarks == ["org/one", "two<b>"]
    assert [row["model"] for row in joint.models] == ["org/a", "org/b", "org/c"]
    for benchmark, board in joint.boards.items():
        own = {row["model"]: row["values"]["lost_information"]["value"] for row in board.models}
        for model, value in own.items():
            row = joint.value(model, benchmark, "lost_information")
            assert row is not None
            assert row["value"] == value
    assert joint.value("org/c", "two<b>", "overconfidence") is None


def test_parts_of_a_benchmark_and_the_whole_are_one_benchmark(tmp_path: Path) -> None:
    whole = synthetic(1, n=90)
    halves = [whole.take(np.arange(90) % 2 == i) for i in (0, 1)]
    write_run(tmp_path, "org/a", whole, benchmark="demo")
    for model in ("org/a", "org/b"):
        for i, half in enumerate(halves):
            write_run(tmp_path, model, half, benchmark=f"demo-{i + 1}of2")
    board = report_from_runs([tmp_path], settings=FEW)
    assert isinstance(board, Leaderboard)
    assert board.benchmark == "demo"
    kept = {row["model"]: row["values"]["kept_information"] for row in board.models}
    assert set(kept) == {"org/a", "org/b"}
    assert kept["org/b"]["n"] == 90  # both halves
    assert kept["org/b"]["value"] == pytest.approx(kept["org/a"]["value"])
    assert sum("demo-1of2" in note for note in board.notes) == 2
    half = leaderboard_from_runs([tmp_path], benchmark="demo-1of2", settings=FEW)
    assert {row["values"]["accuracy"]["n"] for row in half.models} == {45}


def test_words_say_whether_one_temperature_is_right_for_all(joint: Joint) -> None:
    words = {row["model"]: row["words"] for row in joint.models}
    assert "may be right for all benchmarks" in words["org/a"]
    assert "No single temperature is right for all benchmarks (p" in words["org/b"]
    assert "worse: the lost information is" in words["org/b"]
    assert "A temperature was fitted on one benchmark only" in words["org/c"]
    assert joint.summary.endswith(
        "1 of 2 models needs different temperatures on different benchmarks, more than chance explains."
    )


def test_the_files_equal_the_tables(joint: Joint, tmp_path: Path) -> None:
    page = write_joint(joint, tmp_path / "out").read_text(encoding="utf-8")
    assert "two&lt;b&gt;" in page
    assert "two<b>" not in page
    assert 'href="org__one/report.html"' in page
    assert "▲ worse" in page
    assert (tmp_path / "out/org__one/report.html").is_file()
    with (tmp_path / "out/transfer.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(joint.effects)
    content = json.loads((tmp_path / "out/report.json").read_text())
    assert len(content["temperatures"]) == len(joint.temperatures) == 5
    assert "## Best temperatures" in (tmp_path / "out/summary.md").read_text(encoding="utf-8")
    assert (tmp_path / "out/figures/temperatures.png").read_bytes()[:4] == b"\x89PNG"


def test_runs_of_one_benchmark_give_its_leaderboard(tmp_path: Path) -> None:
    write_run(tmp_path, "org/a", synthetic(0))
    assert isinstance(report_from_runs([tmp_path], settings=FEW), Leaderboard)
