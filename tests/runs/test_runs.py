"""Run folders: resuming, locks, crashes and damaged files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rmcalib
from rmcalib.runs import Run, RunError, run_folder
from rmcalib.scores import load_scores
from tests.processes import run_python
from tests.runs.small_runs import BENCH, INPUTS, same, scored, scored_item

ROOT = Path(__file__).parents[2]
PRELUDE = """
import sys, time
from pathlib import Path
from rmcalib.runs._run import Run
from tests.runs.small_runs import BENCH, INPUTS, scored
"""


def test_a_run_from_start_to_end(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "org/rm", "bench")
    with Run(folder, BENCH, INPUTS, about={"device": "cpu"}) as run:
        assert json.loads((folder / "run.json").read_text())["status"] == "scoring"
        run.add(scored(0, 1, 2))
        run.add(scored(3, 4))
        assert sorted(p.name for p in run.parts.iterdir()) == ["part-00000.parquet", "part-00001.parquet"]
        with pytest.raises(RunError, match=r"5 prompts are not scored yet \(the first: '5'\)"):
            run.finish()
        run.add(scored(9, 8, 7, 6, 5))
        scores = run.finish(seconds=1.5)
    assert scores.item_id.tolist() == [str(i) for i in range(10) for _ in range(3)]
    assert sorted(p.name for p in folder.iterdir() if p.name != ".lock") == ["run.json", "scores.parquet"]
    manifest = json.loads((folder / "run.json").read_text())
    assert manifest == load_scores(folder / "scores.parquet").manifest
    assert manifest["status"] == "finished"
    assert manifest["counts"] == {"items": 10, "responses": 30, "truncated": 10, "empty": 10, "tokens": 180}
    assert (manifest["device"], manifest["seconds"], manifest["model"]) == ("cpu", 1.5, "org/rm")
    assert manifest["versions"]["torch"]


def test_a_run_resumes_and_ends_the_same(tmp_path: Path) -> None:
    with Run(tmp_path / "once", BENCH, INPUTS) as run:
        run.add(scored(*range(10)))
        once = run.finish()
    for numbers in ((4, 5), (0, 1), (2, 3, 6)):
        with Run(tmp_path / "often", BENCH, INPUTS) as run:
            run.add(scored(*numbers))
    with Run(tmp_path / "often", BENCH, INPUTS) as run:
        assert [item.id for item in run.remaining] == ["7", "8", "9"]
        run.add(scored(3, 7))  # the first is already scored
        run.add(scored(8, 9))
        often = run.finish()
    assert same(once, often)
    with Run(tmp_path / "often", BENCH, INPUTS) as run:
        assert run.remaining == []
        assert same(run.finish(), once)


def test_a_run_resumed_with_other_packages_records_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, version in enumerate(("1", "2", "2", "3")):
        monkeypatch.setattr("rmcalib.runs._run.package_versions", lambda version=version: {"torch": version})
        with Run(tmp_path, BENCH, INPUTS) as run:
            if version == "1":
                continue  # killed before it had scored anything
            run.add(scored(number))
            manifest = json.loads((tmp_path / "run.json").read_text())
            assert manifest["versions"] == {"torch": version}
    assert manifest["versions_before"] == [{"torch": "2"}]
    monkeypatch.setattr("rmcalib.runs._run.package_versions", lambda: {"torch": "2"})
    with Run(tmp_path, BENCH, INPUTS) as run:
        run.add(scored(*range(10)))
        ended = run.finish().manifest
    assert (ended["versions"], ended["versions_before"]) == ({"torch": "2"}, [{"torch": "3"}])
    with Run(tmp_path / "once", BENCH, INPUTS) as run:
        run.add(scored(*range(10)))
        assert "versions_before" not in run.finish().manifest


def test_other_inputs_are_refused_with_the_difference(tmp_path: Path) -> None:
    with Run(tmp_path, BENCH, INPUTS) as run:
        run.add(scored(0))
    other = INPUTS | {"recipe": {"template": "raw", "sign": 1.0}, "dtype": "bfloat16"}
    reported = (
        r"dtype: nothing there, bfloat16 now; recipe\.template: None there, raw now\): choose another --out"
    )
    with pytest.raises(RunError, match=reported), Run(tmp_path, BENCH, other):
        pass
    with Run(tmp_path, BENCH, INPUTS) as run:
        assert run.done == {"0"}  # nothing was lost
    with Run(tmp_path, BENCH, other, fresh=True) as run:
        assert run.done == set()
        assert not run.parts.exists()


@pytest.mark.parametrize("content", [None, "{broken", "[]"])
def test_scores_of_unknown_origin_are_not_touched(content: str | None, tmp_path: Path) -> None:
    (tmp_path / "scores.parquet").write_text("somebody's work")
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunError, match="missing or damaged"), Run(tmp_path, BENCH, INPUTS):
        pass
    assert (tmp_path / "scores.parquet").read_text() == "somebody's work"


def test_a_damaged_part_is_an_error(tmp_path: Path) -> None:
    with Run(tmp_path, BENCH, INPUTS) as run:
        run.add(scored(0, 1))
    part = tmp_path / "parts" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:50])
    with pytest.raises(RunError, match="damaged"), Run(tmp_path, BENCH, INPUTS):
        pass


def test_ranks_write_parts_of_their_own(tmp_path: Path) -> None:
    with Run(tmp_path, BENCH, INPUTS, rank=0) as first, Run(tmp_path, BENCH, INPUTS, rank=1) as second:
        first.add(scored(0, 2))
        second.add(scored(1, 3))
        second.add(scored(5))
        first.add(scored(4, 6, 7, 8, 9))
        assert len(first.finish()) == 30


def test_a_second_run_on_the_same_folder_stops(tmp_path: Path) -> None:
    with Run(tmp_path, BENCH, INPUTS):
        code = f"{PRELUDE}Run(Path(sys.argv[1]), BENCH, INPUTS).__enter__()"
        second = run_python(["-c", code, tmp_path], cwd=ROOT)
        assert f"is in use by process {os.getpid()} on" in second.stderr
    with Run(tmp_path, BENCH, INPUTS):
        pass  # the lock was released


KILLED = f"""{PRELUDE}
with Run(Path(sys.argv[1]), BENCH, INPUTS) as run:
    for item in run.remaining[:3]:
        run.add(scored(int(item.id)))
        print(item.id, flush=True)
    time.sleep(600)
"""


def test_a_killed_run_can_be_resumed(tmp_path: Path) -> None:
    printed: list[str] = []
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert process.stdout is not None
        printed += [process.stdout.readline().strip() for _ in range(2)]
        process.send_signal(signal.SIGKILL)  # in the middle of the third, or after it
        printed += process.stdout.read().split()
        process.wait()
        process.stdout.close()
    with Run(tmp_path, BENCH, INPUTS) as run:  # a dead process holds no lock
        assert run.done >= set(printed)
        run.add(scored(*(int(item.id) for item in run.remaining)))
        ended = run.finish()
    with Run(tmp_path / "whole", BENCH, INPUTS) as run:
        run.add(scored(*range(10)))
        assert same(run.finish(), ended)
    assert len(printed) == len(set(printed))  # nothing was scored twice


def test_wrong_numbers_of_rewards_and_nan_are_refused(tmp_path: Path) -> None:
    with Run(tmp_path, BENCH, INPUTS) as run:
        with pytest.raises(ValueError, match="item '0': 2 rewards for 3 responses"):
            run.add([scored_item("0", (1.0, 2.0))])
        with pytest.raises(ValueError, match=r"item '1', response 2\): reward is nan"):
            run.add([scored_item("1", (1.0, 2.0, float("nan")))])
        assert run.done == set()


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with Run(tmp_path, BENCH, INPUTS) as run:
        run.add(scored(0))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(ValueError, match=r"part-00001\.parquet: cannot be written: No space left"):
                run.add(scored(1))
        assert [p.name for p in run.parts.iterdir()] == ["part-00000.parquet"]
    with Run(tmp_path, BENCH, INPUTS) as run:
        assert run.done == {"0"}


def test_a_local_model_is_named_after_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run7" / "step-10").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run7")
    here, there = run_folder("out", "step-10", "demo"), run_folder("out", f"{tmp_path}/run7/step-10/", "demo")
    assert here == there == Path("out/run7__step-10/demo")


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"), Run(tmp_path / "file" / "x", BENCH, INPUTS):
        pass


def test_votes_on_some_prompts_only_are_refused_before_scoring(tmp_path: Path) -> None:
    file = tmp_path / "mixed.jsonl"
    file.write_text(
        '{"id": "1", "prompt": "2+2?", "chosen": ["4"], "rejected": ["5"], "subset": "Math"}\n'
        '{"id": "2", "prompt": "Tea?", "responses": ["Yes", "No"], "votes": [3, 1], "subset": "Chat"}\n'
    )

    def never(*_: object) -> list[float]:
        raise AssertionError("the judge was asked")

    with pytest.raises(ValueError, match="mixed: 1 of 2 prompts have people's votes; give all prompts votes"):
        rmcalib.score(never, str(file))
