"""Runs of several steps of one training: the curve on the leaderboard page."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from rmcalib.metrics import TRAINING_METRICS, Settings
from rmcalib.report import leaderboard_from_runs, write_leaderboard
from rmcalib.report.leaderboard._training import training_figure
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
    kept = {row["step"]: row["kept_information"] for row in board.training}
    assert [row["step"] for row in board.training if row["best"]] == [max(kept, key=lambda step: kept[step])]
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


def test_the_curve_shows_the_values_of_its_rows() -> None:
    rows = [{"step": step, "model": "m", **dict.fromkeys(TRAINING_METRICS, 0.5)} for step in (3, 20, 100)]
    said = {"accuracy": 0.7, "accuracy_low": 0.6, "accuracy_high": 0.8, "temperature": None}
    infinite = {**rows[2], "temperature": float("inf")}
    figure = training_figure([rows[0], {**rows[1], **said}, infinite])
    assert figure is not None
    lines: list[Any] = list(figure.axes[0].lines)
    right, says = lines[:2]
    assert right.get_xdata().tolist() == [3, 20, 100]
    assert right.get_ydata().tolist() == [0.5, 0.7, 0.5]
    assert says.get_ydata().tolist() == [0.5, 0.5, 0.5]
    # Colour is not the only signal.
    assert right.get_marker() != says.get_marker()
    assert right.is_dashed() is not says.is_dashed()
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["right", "says"]
    temperature: Any = figure.axes[2].lines[0]
    assert temperature.get_xdata().tolist() == [3]  # neither steps without one nor infinite ones
