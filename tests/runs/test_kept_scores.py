"""Scores from elsewhere in run folders: they are never confused with runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmcalib.runs import Run, RunError, keep_scores, locked
from rmcalib.scores import Scores, load_scores
from tests.runs.small_runs import BENCH, INPUTS, ITEMS, row, same, scored


def foreign(shift: float = 100.0, **manifest: Any) -> Scores:
    """Return scores of the same prompts that were not made by a run."""
    rows = [row(item.id, i, i == 0, shift + i, category=item.category) for item in ITEMS for i in range(3)]
    return Scores.from_rows(rows, manifest)


def finished(folder: Path) -> Scores:
    with Run(folder, BENCH, INPUTS) as run:
        run.add(scored(*range(10)))
        return run.finish()


def test_a_finished_run_with_scores_of_another_is_damaged(tmp_path: Path) -> None:
    finished(tmp_path)
    foreign().to_parquet(tmp_path / "scores.parquet")
    with pytest.raises(RunError, match="damaged"), Run(tmp_path, BENCH, INPUTS):
        pass


@pytest.mark.parametrize("moment", ["run.json", "scores.parquet", "run.json again"])
def test_replacing_a_run_can_be_interrupted_at_any_step(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = finished(tmp_path)
    left = ["lock.json", "run.json", "scores.parquet", "run.json again"]

    def replace(self: Path, target: Path, replace: Any = Path.replace) -> Any:
        step = left.pop(0)
        assert step.startswith(target.name)
        if step == moment:
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            keep_scores(tmp_path, foreign(), fresh=True)
    if moment == "run.json":  # still our run, which is completed again
        assert same(finished(tmp_path), ours)
        return
    with pytest.raises(RunError, match="holds another run"), Run(tmp_path, BENCH, INPUTS):
        pass
    keep_scores(tmp_path, foreign())  # resumed
    kept = load_scores(tmp_path / "scores.parquet")
    assert same(kept, foreign())
    assert kept.manifest == json.loads((tmp_path / "run.json").read_text())
    assert kept.manifest["status"] == "finished"


def test_scores_with_the_hash_of_a_run_are_distinguished_by_content(tmp_path: Path) -> None:
    ours = finished(tmp_path)
    reported = (tmp_path / "run.json").read_text()
    claimed = foreign(**ours.manifest)
    with pytest.raises(RunError, match="holds another run"):
        keep_scores(tmp_path, claimed)
    keep_scores(tmp_path, load_scores(tmp_path / "scores.parquet"), fresh=True)  # its own: nothing changes
    assert (tmp_path / "run.json").read_text() == reported
    keep_scores(tmp_path, claimed, fresh=True)
    with (
        pytest.raises(RunError, match=r"another run \(with results that were made elsewhere\)"),
        Run(tmp_path, BENCH, INPUTS),
    ):
        pass


@pytest.mark.parametrize("column", ["is_correct", "category", "reward"])
def test_scores_that_differ_in_any_column_are_another_run(column: str, tmp_path: Path) -> None:
    rows = [row("a", 0, True, 1.0), row("a", 1, True, 0.5), row("a", 2, False)]
    keep_scores(tmp_path, Scores.from_rows(rows))
    keep_scores(tmp_path, Scores.from_rows(rows))
    change = {"is_correct": False, "category": "Focus", "reward": 0.25}[column]
    changed = [
        one | {column: change} if column == "category" or i == 1 else one for i, one in enumerate(rows)
    ]
    with pytest.raises(RunError, match="holds another run"):
        keep_scores(tmp_path, Scores.from_rows(changed))


def test_scores_are_not_written_to_a_folder_in_use(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(RunError, match="is in use by process"):
        keep_scores(tmp_path, foreign(), fresh=True)
    (tmp_path / "scores.parquet").write_text("somebody's work")
    with pytest.raises(RunError, match="holds another run"):
        keep_scores(tmp_path, foreign())
    assert (tmp_path / "scores.parquet").read_text() == "somebody's work"
