"""Run folders in object storage, where there are no locks: results are still correct."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rmcalib._util.storage import as_path, find_files
from rmcalib.runs import Run, RunError, RunFolder, keep_scores, read_run
from rmcalib.runs._lock import read_manifest
from rmcalib.scores import Scores, load_scores
from tests.runs.small_runs import BENCH, INPUTS, same, scored

OTHER = INPUTS | {"dtype": "bfloat16"}
_numbers = itertools.count()


@pytest.fixture
def folder() -> Path:
    return as_path(f"memory://runs-{next(_numbers)}/org__rm/bench")


def finish(folder: Path, inputs: Any = INPUTS, **options: Any) -> Scores:
    with Run(folder, BENCH, inputs, **options) as run:
        left = [int(item.id) for item in run.remaining]
        for start in range(0, len(left), 4):
            run.add(scored(*left[start : start + 4]))
        return run.finish()


def names(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in find_files(folder, "*")]


def test_a_run_resumes_and_leaves_the_same_files_as_a_local_one(folder: Path, tmp_path: Path) -> None:
    with Run(folder, BENCH, INPUTS) as run:
        run.add(scored(0, 1))
        assert len(names(folder / "parts")) == 1
    with Run(folder, BENCH, INPUTS) as run:
        assert run.done == {"0", "1"}
        run.add(scored(*range(2, 10)))
        there = run.finish()
    assert same(there, finish(tmp_path))
    assert names(folder) == ["run.json", "scores.parquet"]
    assert (read_manifest(folder / "run.json") or {})["status"] == "finished"
    with pytest.raises(
        RunError, match=r"memory://.* holds another run \(dtype: nothing there, bfloat16 now\)"
    ):
        finish(folder, OTHER)
    assert Scores.from_parquet(folder / "scores.parquet").manifest["hash"] == there.manifest["hash"]


def test_two_writers_give_the_same_result_as_one(folder: Path) -> None:
    with Run(folder, BENCH, INPUTS) as first, Run(folder, BENCH, INPUTS) as second:
        first.add(scored(*range(5)))
        second.add(scored(*range(3, 10)))
        assert len(names(folder / "parts")) == 2
        whole = second.finish()
        assert names(folder) == ["run.json", "scores.parquet"]
        first.add(scored(*range(5, 10)))
        assert same(first.finish(), whole)
    assert same(load_scores(folder / "scores.parquet"), whole)
    assert names(folder) == ["run.json", "scores.parquet"]
    assert len(whole) == 3 * len(BENCH)


def test_a_part_that_another_writer_has_just_joined_is_not_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Run(folder, BENCH, INPUTS) as run:
        run.add(scored(*range(5)))
        listed = run.files.part_files()
        whole = finish(folder)
        monkeypatch.setattr(RunFolder, "part_files", lambda _: listed)
        assert same(run.finish(), whole)


def test_ranks_share_a_remote_folder(folder: Path) -> None:
    with Run(folder, BENCH, INPUTS) as first, Run(folder, BENCH, INPUTS, rank=1) as second:
        first.add(scored(*range(4)))
        second.add(scored(*range(4, 10)))
        assert len(first.finish()) == 3 * len(BENCH)


def crash_after(patch: pytest.MonkeyPatch, n_changes: int) -> None:
    """Let the store fail after a number of changes, as if the process had been killed."""
    kind = fsspec.get_filesystem_class("memory")
    left = [n_changes]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any, **kwargs: Any) -> Any:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return call(*args, **kwargs)

        return change

    for name in ("pipe_file", "rm"):
        patch.setattr(kind, name, counted(getattr(kind, name)))


def test_a_crash_after_any_change_leaves_a_consistent_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished run has its own scores, and resuming ends with the same scores."""
    expected = finish(tmp_path)
    crashed = 0
    for n_changes in range(25):
        folder = as_path(f"memory://crash-{n_changes}")
        with monkeypatch.context() as patch:
            crash_after(patch, n_changes)
            try:
                finish(folder)
                finish(folder, OTHER, fresh=True)
            except KeyboardInterrupt:
                crashed += 1
        manifest = read_manifest(folder / "run.json") or {}
        if manifest.get("status") == "finished":
            kept = read_run(folder)
            assert kept is None or kept.manifest["hash"] == manifest["hash"]
        again = manifest.get("inputs", INPUTS)
        assert same(finish(folder, again), expected)
        assert (read_manifest(folder / "run.json") or {})["inputs"] == again
    assert 15 < crashed < 25  # crashes during both runs, and then none


def test_scores_from_elsewhere_can_be_kept(folder: Path, tmp_path: Path) -> None:
    scores = finish(tmp_path)
    keep_scores(folder, scores)
    keep_scores(folder, scores)
    assert names(folder) == ["run.json", "scores.parquet"]
    with pytest.raises(RunError, match="with results that were made elsewhere"):
        finish(folder)
