"""Progress of a batch: speeds and times, in batch.json and on the terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from rmcalib.batch import ModelStatus, Status
from rmcalib.cli._shared.batch_table import status_table

LONG = "organisation/a-reward-model-with-a-rather-long-name-8B-v0.2"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("rmcalib.batch._status.time.time", lambda: now[0])
    return now


def batch(output: Path) -> Status:
    planned = {"before": 50.0, "small": 10.0, LONG: 30.0, "unknown": None}
    return Status(output, [ModelStatus(name, planned=seconds) for name, seconds in planned.items()])


def test_speed_and_time_left_depend_on_scoring_only(tmp_path: Path, clock: list[float]) -> None:
    status = batch(tmp_path)
    status.change("before", "done", fresh=False)
    status.change("small", "downloading")
    clock[0] += 100
    status.change("small", "scoring")
    clock[0] += 20  # loading the model
    assert status.seconds_left() is None
    status.progress("small", 0, 200, 0)
    clock[0] += 4
    status.progress("small", 50, 200, 4000)
    reported = json.loads((tmp_path / "batch.json").read_text())
    small = next(entry for entry in reported["models"] if entry["model"] == "small")
    assert (small["tokens_per_second"], small["seconds_left"], small["seconds"]) == (1000.0, 12.0, 24.0)
    # A quarter of 10 took 4 s. Left: 7.5, 30, and 30 (the mean of 50, 10 and 30) for the unknown size.
    assert reported["seconds_left"] == pytest.approx(4 * (7.5 + 30 + 30) / 2.5)
    clock[0] += 12
    status.change("small", "scored")
    status.change("small", "evaluating")
    clock[0] += 4
    status.change("small", "done", fresh=True)
    entry = status.models["small"]
    assert (entry.tokens_per_second, entry.seconds_left, entry.seconds) == (1000.0, None, 40.0)
    assert status.seconds_left() == pytest.approx(20 * 60 / 10)
    status.change(LONG, "failed", why="gated")
    status.change("unknown", "skipped", why="too large")
    assert status.seconds_left() == 0
    status.end()
    assert json.loads((tmp_path / "batch.json").read_text())["seconds_left"] is None


def test_times_advance_without_reports(tmp_path: Path, clock: list[float]) -> None:
    status = batch(tmp_path)
    status.change("small", "downloading")
    clock[0] += 30
    assert status.content()["models"][1]["seconds"] == 30
    assert status.content()["models"][2]["seconds"] == 0


def test_long_names_are_shortened_on_a_narrow_terminal(tmp_path: Path, clock: list[float]) -> None:
    status = batch(tmp_path)
    status.change(LONG, "scoring")
    status.progress(LONG, 0, 7444, 0)
    clock[0] += 100
    status.progress(LONG, 1861, 7444, 2_000_000)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(status_table(status))
    first, head, row, *_ = console.export_text().splitlines()
    assert first == "3 waiting, 1 scoring; about 25 min left"
    assert head.split() == ["model", "size", "state", "progress", "tokens/s", "time", "left"]
    assert row.split()[1:] == ["?", "scoring", "25%", "20,000", "2", "min", "5", "min"]
    assert row.startswith("organisation/a-reward-model")
    assert all(len(line) <= 80 for line in (first, head, row))
