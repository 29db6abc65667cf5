"""Run folders: resuming, locks, crashes at any moment, scores from elsewhere, object storage."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import rmcalib
from rmcalib._util.processes import Team
from rmcalib._util.storage import as_path, find_files
from rmcalib.runs import RunError, read_run, run_folder
from rmcalib.runs._folder import finished_scores, keep_scores, locked
from rmcalib.runs._run import Run, _score_together
from rmcalib.scores import Scores, load_scores
from rmcalib.scores._files import columns_of
from tests.runs.small_runs import BENCH, INPUTS, LONG, Plugin, items, row, same, scored

OTHER = INPUTS | {"dtype": "bfloat16"}
_numbers = itertools.count()


@pytest.fixture(params=["local", "remote"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    place = tmp_path if request.param == "local" else as_path(f"memory://runs-{next(_numbers)}")
    return run_folder(place, "org/rm", "bench")


def finish(folder: Path, inputs: Any = INPUTS, *, at_once: int = 32, **options: Any) -> Scores:
    with Run(folder, LONG, inputs, **options) as run:
        left = [int(item.id) for item in run.remaining]
        for start in range(0, len(left), at_once):
            run.add(scored(*left[start : start + at_once]))
        return run.finish()


def names(folder: Path) -> list[str]:
    return [path.name for path in find_files(folder, "*") if path.name != ".lock"]


def test_a_run_from_start_to_end(folder: Path) -> None:
    with Run(folder, BENCH, INPUTS, about={"device": "cpu"}) as run:
        run.add(scored(0, 1, 2))
        run.add(scored(3, 4))
        with pytest.raises(RunError, match=r"5 prompts .*'5'"):
            run.finish()
        run.add(scored(9, 8, 7, 6, 5))
        scores = run.finish(seconds=1.5)
    assert scores.item_id.tolist() == [str(i) for i in range(10) for _ in range(3)]
    assert names(folder) == ["run.json", "scores.parquet"]
    manifest = load_scores(folder / "scores.parquet").manifest
    assert manifest == scores.manifest
    assert manifest["counts"] == {"items": 10, "responses": 30, "truncated": 10, "empty": 10, "tokens": 180}
    assert (manifest["device"], manifest["seconds"], manifest["model"]) == ("cpu", 1.5, "org/rm")


def test_a_run_resumes_and_ends_the_same(folder: Path, tmp_path: Path) -> None:
    once = finish(tmp_path / "once")
    for numbers in (range(32, 64), range(70, 75), range(32)):
        with Run(folder, LONG, INPUTS) as run:
            run.add(scored(*numbers))
    with Run(folder, LONG, INPUTS) as run:
        assert [int(item.id) for item in run.remaining] == [*range(64, 70), *range(75, 100)]
    assert same(finish(folder), once)
    again = finish(folder)  # nothing is left to do, and nothing changes
    assert again.manifest == read_run(folder).manifest  # type: ignore[union-attr]


def test_a_half_written_chunk_is_ignored(tmp_path: Path) -> None:
    with Run(tmp_path, LONG, INPUTS) as run:
        run.add(scored(*range(32)))
    journal = tmp_path / "scored-0.jsonl"
    whole = journal.read_bytes()
    for cut in (1, 40, len(whole.splitlines(keepends=True)[-1])):
        journal.write_bytes(whole[:-cut])
        with Run(tmp_path, LONG, INPUTS) as run:
            assert len(run.remaining) == 100  # the whole chunk is scored again
            run.add(scored(*range(32)))
        with Run(tmp_path, LONG, INPUTS) as run:
            assert len(run.remaining) == 68


def test_other_inputs_are_refused_with_the_difference(folder: Path) -> None:
    with Run(folder, LONG, INPUTS) as run:
        run.add(scored(*range(32)))
    other = INPUTS | {"recipe": {"template": "raw", "sign": 1.0}, "dtype": "bfloat16"}
    with pytest.raises(RunError, match=r"dtype: nothing .* bfloat16 .*recipe\.template: None .* raw"):
        finish(folder, other)
    with Run(folder, LONG, INPUTS) as run:
        assert len(run.remaining) == 68  # nothing was lost
    with Run(folder, LONG, other, fresh=True) as run:
        assert len(run.remaining) == 100


@pytest.mark.parametrize("content", [None, "{broken", "[]"])
def test_files_of_unknown_origin_are_not_touched(content: str | None, tmp_path: Path) -> None:
    (tmp_path / "scores.parquet").write_text("somebody's work")
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunError, match="missing or damaged"):
        finish(tmp_path)
    with pytest.raises(RunError, match="missing or damaged"):
        keep_scores(tmp_path, Scores.from_arrays([[1.0, 0.0]]))
    assert (tmp_path / "scores.parquet").read_text() == "somebody's work"


def test_a_folder_in_use_is_refused_and_released_at_the_end(tmp_path: Path) -> None:
    with locked(tmp_path):
        for use in (finish, lambda folder: keep_scores(folder, Scores.from_arrays([[1.0, 0.0]]))):
            with pytest.raises(RunError, match="in use"):
                use(tmp_path)
    finish(tmp_path)
    assert names(tmp_path) == ["run.json", "scores.parquet"]


@pytest.mark.parametrize("name", [".lock", "scored-0.jsonl"])
@pytest.mark.parametrize("content", [b'{"half": ', None])
def test_links_do_not_lead_out_of_the_folder(name: str, content: bytes | None, tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "run"
    with Run(folder, LONG, INPUTS) as run:
        run.add(scored(0))
    (folder / name).unlink()
    (folder / name).symlink_to(outside)
    if content is not None:
        outside.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(name)):
        finish(folder)
    assert (outside.read_bytes() if outside.exists() else None) == content


def work(folder: Path) -> None:
    rmcalib.score(Plugin(delay=0.01), LONG, output=folder)


def test_killed_at_random_moments_and_resumed_the_result_is_the_same(tmp_path: Path) -> None:
    began = time.monotonic()
    whole = rmcalib.score(Plugin(delay=0.01), LONG, output=tmp_path / "whole")
    took = time.monotonic() - began
    rng = np.random.default_rng(0)
    context = multiprocessing.get_context("fork")
    kills = 0
    for number in range(10):
        for delay in rng.uniform(0, took, 3):
            process = context.Process(target=work, args=(tmp_path / str(number),))
            process.start()
            process.join(delay)
            process.kill()
            process.join()
            kills += process.exitcode != 0
        ended = rmcalib.score(Plugin(), LONG, output=tmp_path / str(number))
        assert same(ended, whole)
        (found,) = (tmp_path / str(number)).glob("*/*")
        assert names(found) == ["run.json", "scores.parquet"]
    assert kills >= 3


def crash_after(patch: pytest.MonkeyPatch, n_changes: int) -> None:
    """Raise after some changes of the object storage."""
    kind, left = fsspec.get_filesystem_class("memory"), [n_changes]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any, **kwargs: Any) -> Any:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return call(*args, **kwargs)

        return change

    for name in ("pipe_file", "rm_file"):
        patch.setattr(kind, name, counted(getattr(kind, name)))


def test_a_crash_after_any_change_leaves_a_folder_that_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = finish(tmp_path)
    crashed = 0
    for n_changes in range(30):
        folder = as_path(f"memory://crash-{n_changes}")
        with monkeypatch.context() as patch:
            crash_after(patch, n_changes)
            try:
                finish(folder)
                finish(folder, OTHER, fresh=True)
            except KeyboardInterrupt:
                crashed += 1
        try:
            manifest = json.loads((folder / "run.json").read_text())
        except FileNotFoundError:
            manifest = {"inputs": INPUTS}
        assert same(finish(folder, manifest["inputs"]), expected)
    assert 15 < crashed < 30  # crashes during both runs, and then none


def test_two_processes_without_a_lock_do_the_work_twice_and_right(tmp_path: Path) -> None:
    folder = as_path(f"memory://runs-{next(_numbers)}")
    with Run(folder, LONG, INPUTS) as first, Run(folder, LONG, INPUTS) as second:
        first.add(scored(*range(64)))
        second.add(scored(*range(32)))
        first.add(scored(*range(64, 100)))
        ended = first.finish()
        second.add(scored(*range(32, 100)))
        assert same(second.finish(), ended)
    assert same(read_run(folder), finish(tmp_path))  # type: ignore[arg-type]


def foreign(shift: float = 100.0, **manifest: Any) -> Scores:
    """Return scores of the same prompts that were not made by a run."""
    rows = [
        row(item.id, i, i == 0, shift + i, category=item.category) for item in items(100) for i in range(3)
    ]
    return Scores.from_columns(columns_of(rows), manifest)


def test_scores_from_elsewhere_are_never_confused_with_a_run(folder: Path) -> None:
    ours = finish(folder)
    keep_scores(folder, load_scores(folder / "scores.parquet"), fresh=True)  # its own: nothing changes
    assert read_run(folder).manifest == ours.manifest  # type: ignore[union-attr]
    claimed = foreign(**ours.manifest)
    for scores in (foreign(), claimed):
        with pytest.raises(RunError, match="another run"):
            keep_scores(folder, scores)
    keep_scores(folder, claimed, asked="question", fresh=True)
    kept = finished_scores(folder, "question")
    assert kept is not None
    assert kept.content_hash() == claimed.content_hash()
    keep_scores(folder, claimed)
    with pytest.raises(RunError, match="another run"):
        keep_scores(folder, foreign(101.0))
    with pytest.raises(RunError, match="another run"):
        finish(folder)
    with pytest.raises(RunError, match="another"):
        keep_scores(folder, foreign(102.0, model="another"))


def test_a_changed_file_replaces_its_own_earlier_scores(folder: Path) -> None:
    keep_scores(folder, foreign(), source=Path("mine.csv"))
    with pytest.raises(RunError, match="another run"):
        keep_scores(folder, foreign(101.0), source=Path("elsewhere/mine.csv"))
    keep_scores(folder, foreign(101.0), source=Path("mine.csv"))
    kept = read_run(folder)
    assert kept is not None
    assert kept.content_hash() == foreign(101.0).content_hash()


def test_two_models_of_a_file_do_not_share_a_folder(folder: Path) -> None:
    keep_scores(folder, foreign(model="a/b"), source=Path("mine.csv"))
    with pytest.raises(RunError, match="a__b"):
        keep_scores(folder, foreign(101.0, model="a__b"), source=Path("mine.csv"))


def test_a_finished_run_is_found_by_its_request_only(tmp_path: Path) -> None:
    asked = rmcalib.score(Plugin(), LONG, output=tmp_path).manifest["asked"]
    folder = run_folder(tmp_path, "slow", "bench")
    assert finished_scores(folder, asked) is not None
    assert finished_scores(folder, "something else") is None
    assert finished_scores(tmp_path / "nowhere", asked) is None
    manifest = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(manifest | {"status": "running"}))
    assert finished_scores(folder, asked) is None


@pytest.mark.parametrize("name", ["..", "../../x", "/etc/passwd", "a/../..", "con", ""])
def test_run_folders_are_inside_the_output(name: str, tmp_path: Path) -> None:
    try:
        found = run_folder(tmp_path, name, name)
    except ValueError:
        return
    assert found.resolve().is_relative_to(tmp_path.resolve())
    assert len(found.relative_to(tmp_path).parts) == 2


def test_the_demo_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    assert run_folder("demo", "demo", "demo").as_posix() == "demo/demo/demo"


def test_a_process_that_opens_the_run_late_still_scores_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares are of the prompts that are left, so that all must read the journals before any of them grows."""
    barrier, values = threading.Barrier(2, timeout=30), [None, None]

    class Threads(Team):
        def gather(self, value: Any) -> list[Any]:
            values[self.rank] = value
            barrier.wait()
            found = list(values)
            barrier.wait()
            return found

    def late(run: Run, *, enter: Any = Run.__enter__) -> Run:
        time.sleep(0.5 * run._rank)
        found: Run = enter(run)
        return found

    monkeypatch.setattr(Run, "__enter__", late)
    bench = rmcalib.load_benchmark("demo", limit=70)
    judge = rmcalib.load_judge(lambda _, responses: [len(text) for text in responses], name="longest")

    def work(rank: int) -> Scores | None:
        try:
            return _score_together(judge, bench, tmp_path, Threads(rank, 2), False, None)
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(2) as pool:
        main, other = pool.map(work, range(2))
    assert main is not None
    assert other is None
    assert main.n_items == 70
