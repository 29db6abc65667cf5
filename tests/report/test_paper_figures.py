"""The paper's two figures of reward models: which rows they show, what is drawn, and where the files are."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.patches import Rectangle
from scipy.stats import kendalltau

from rmcalib.leaderboards import correlations_figure, report_from_runs, report_from_table, top_10_figure
from rmcalib.leaderboards.figures import calibration_error, correlated_rows, top_10_rows
from rmcalib.metrics import Settings
from tests.report.boards import board_of, synthetic, write_run, write_runs

PAPER = Path(__file__).parents[2] / "results/published_reward_models.csv"
FAST = Settings(resamples=20)
FILES = [f"figures/{name}.{kind}" for name in ("top_10", "correlations") for kind in ("png", "pdf")]


def bars(axes: object) -> list[float]:
    """Return the lengths of the bars, from top to bottom."""
    patches = [patch for patch in axes.patches if isinstance(patch, Rectangle)]  # type: ignore[attr-defined]
    return [patch.get_width() for patch in sorted(patches, key=lambda patch: patch.get_y())]


def test_the_papers_table_gives_the_papers_figures() -> None:
    board = report_from_table(PAPER, settings=FAST).board
    assert board is not None
    table = pd.read_csv(PAPER).sort_values("ece_score")
    best = top_10_rows(board)
    smallest = table["ece_score"].head(10).tolist()
    assert [row["value"] for row in best] == smallest
    assert [row["model"] for row in best] == [name.rpartition("/")[2] for name in table["model"].head(10)]
    assert [row["model"] for row in best if "*" in row["marks"]] == ["URM-LLaMa-3.1-8B"]
    (axes,) = top_10_figure(best, error="ece_score", n_models=48).axes
    assert bars(axes) == pytest.approx(smallest)
    correlated = correlated_rows(board)
    expected = {"leaderboard": kendalltau(-table["ece_score"], table["leaderboard_score"]).statistic}
    for column, name in {"focus": "Focus", "safety": "Safety", "factuality": "Factuality"}.items():
        expected[name] = kendalltau(-table["ece_score"], table[column]).statistic
    assert {row["target"]: row["value"] for row in correlated[:4]} == pytest.approx(expected)
    assert [row["target"] for row in correlated][4:] == ["Precise IF", "Math"]
    assert {row["source"] for row in correlated} == {"same prompts"}
    (axes,) = correlations_figure(correlated, error="ece_score").axes
    assert bars(axes) == pytest.approx([row["value"] for row in correlated])


def test_a_users_runs_give_both_figures_from_both_sources(tmp_path: Path) -> None:
    report = report_from_runs([write_runs(tmp_path / "runs", 11)], settings=FAST)
    board = report.board
    assert board is not None
    assert calibration_error(board) == "ece"
    best = top_10_rows(board)
    values = sorted(
        (row["value"], row["model"].rpartition("/")[2])
        for row in board.metrics
        if row["metric"] == "ece" and row["category"] == "overall"
    )
    assert [(row["value"], row["model"]) for row in best] == values[:10]
    assert all(row["low"] <= row["value"] <= row["high"] and row["null_mean"] > 0 for row in best)
    correlated = correlated_rows(board)
    shown = {source: [row["target"] for row in correlated if row["source"] == source] for source in SOURCES}
    assert shown["split halves"][0] == "accuracy"
    assert shown["same prompts"][0] == "leaderboard"
    assert all(set(targets[1:]) == {"Factuality", "Math", "Focus"} for targets in shown.values())
    assert len(correlations_figure(correlated).axes) == 2
    out = report.write(tmp_path / "report").parent
    assert [(out / name).read_bytes()[:4] for name in FILES] == [b"\x89PNG", b"%PDF"] * 2
    page = (out / "report.html").read_text()
    assert 'id="top_10-' in page
    assert 'id="correlations-' in page
    for name, source in {"correlations": "same prompts", "split_correlations": "split halves"}.items():
        with (out / f"{name}.csv").open(newline="") as file:
            assert {row["source"] for row in csv.DictReader(file)} == {source}
    before = (out / "figures/correlations.pdf").read_bytes()
    report.write(out)
    assert (out / "figures/correlations.pdf").read_bytes() == before


SOURCES = ("split halves", "same prompts")


def test_nine_models_have_neither_figure_and_stale_ones_are_removed(tmp_path: Path) -> None:
    report = report_from_runs([write_runs(tmp_path / "runs", 9)], settings=FAST)
    out = report.write(tmp_path / "report").parent
    for name in FILES:
        (out / name).write_text("old")
    report.write(out)
    assert not any((out / name).exists() for name in FILES)


def test_steps_of_one_training_have_neither_figure(tmp_path: Path) -> None:
    for step in range(1, 11):
        write_run(tmp_path / f"step-{step}", "mine", synthetic(step, skill=step / 5), step=step)
    board = board_of([tmp_path], settings=FAST)
    assert board.training
    assert top_10_rows(board) == correlated_rows(board) == []


@pytest.mark.parametrize(
    ("metric", "error"),
    [("lost_information", "lost_information"), ("accuracy", "ece"), ("overconfidence", "overconfidence")],
)
def test_the_error_is_what_models_are_sorted_by_if_that_is_one(
    metric: str, error: str, tmp_path: Path
) -> None:
    board = board_of([write_runs(tmp_path, 10)], metric=metric, settings=FAST)
    assert calibration_error(board) == error
    sizes = [abs(row["value"]) for row in top_10_rows(board) if not row["marks"]]
    assert sizes == sorted(sizes)
    assert {row["metric"] for row in correlated_rows(board)} == {error}


def test_models_of_few_families_have_no_interval_from_split_halves(tmp_path: Path) -> None:
    board = board_of([write_runs(tmp_path, 10)], settings=FAST)  # all of one organisation
    split, same = correlations_figure(correlated_rows(board)).axes
    assert (len(split.collections), len(same.collections)) == (0, 4)


def test_many_categories_are_cut_as_on_the_page(tmp_path: Path) -> None:
    many = tuple(f"c{i}" for i in range(15))
    board = board_of([write_runs(tmp_path, 10, categories=many)], settings=FAST)
    targets = [row["target"] for row in correlated_rows(board) if row["source"] == "same prompts"]
    assert targets[0] == "leaderboard"
    assert set(targets[1:]) <= set(many[:12])


def test_names_of_any_kind_are_drawn_once_each(tmp_path: Path) -> None:
    names = ["a/rm", "b/rm", "$x_1$", "<script>", "x" * 300, *(f"m{i}" for i in range(7))]
    lines = [f"{name},{0.5 + i / 100},{0.1 + i / 100},0.5" for i, name in enumerate(names)]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["model,leaderboard_score,my$_{error,Math", *lines]) + "\n")
    out = tmp_path / "out"
    report = report_from_table(table, metric="my$_{error", settings=FAST)
    report.write(out)
    assert all((out / name).stat().st_size > 1000 for name in FILES)
    assert "<script>:" not in (out / "report.html").read_text()
    board = report.boards[table.name]
    (axes,) = top_10_figure(top_10_rows(board), n_models=12).axes
    assert len(bars(axes)) == 10
    assert [row["target"] for row in correlated_rows(board)] == ["leaderboard"]  # Math is equal for all
