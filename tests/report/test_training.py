"""Runs of several steps of one training: the curve on the leaderboard page."""

from __future__ import annotations

import csv
from pathlib import Path

from rmcalib.metrics import Settings
from rmcalib.report import leaderboard_from_runs, write_leaderboard
from tests.report.boards import synthetic, write_run

FAST = Settings(resamples=20)


def write_steps(folder: Path, steps: tuple[int, ...] = (100, 20, 3)) -> list[Path]:
    for step in steps:
        write_run(folder / f"step-{step}", "mine", synthetic(step, skill=step / 50), step=step)
    return sorted(folder.iterdir())


def test_steps_of_one_training_are_drawn_in_order(tmp_path: Path) -> None:
    board = leaderboard_from_runs(write_steps(tmp_path / "runs"), settings=FAST)
    assert [row["step"] for row in board.training] == [3, 20, 100]
    assert {row["model"] for row in board.models} == {f"mine (step {step})" for step in (3, 20, 100)}
    for row in board.training:
        own = next(one for one in board.models if one["model"] == row["model"])
        assert row["lost_information"] == own["values"]["lost_information"]["value"]
        assert row["lost_information_low"] == own["values"]["lost_information"]["low"]
    assert "steps of one training" in board.notes[-1]
    assert not any("different runs" in note for note in board.notes)
    page = write_leaderboard(board, tmp_path / "report").read_text(encoding="utf-8")
    assert "Training steps" in page
    with (tmp_path / "report/training.csv").open(newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["3", "20", "100"]
    assert (tmp_path / "report/figures/training.pdf").read_bytes()[:4] == b"%PDF"


def test_other_runs_have_no_training_steps(tmp_path: Path) -> None:
    write_steps(tmp_path / "runs", (1, 2))
    write_run(tmp_path / "runs", "other", synthetic(5))
    board = leaderboard_from_runs([tmp_path / "runs"], settings=FAST)
    assert board.training == []
    page = write_leaderboard(board, tmp_path / "report").read_text(encoding="utf-8")
    assert "Training steps" not in page
    assert not (tmp_path / "report/training.csv").exists()
