"""Scores and their files; run folders that survive anything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.files import write_file
from rmcalib.rewards.benchmarks import Benchmark, Item
from rmcalib.rewards.jobs import keep_scores
from rmcalib.rewards.run_lock import locked
from rmcalib.rewards.runs import Run, RunError, run_folder
from rmcalib.rewards.store import COLUMNS, Scores, load_scores

ROOT = Path(__file__).parents[2]


def row(item: str, response: int, correct: bool, reward: Any = 0.0, **more: Any) -> dict[str, Any]:
    values = {
        "item_id": item,
        "category": "Math",
        "response": response,
        "is_correct": correct,
        "reward": reward,
    }
    return values | more


GOOD = [row("b", 0, True, 1.5), row("b", 1, False, -2.0), row("a", 0, True, 0.25), row("a", 1, False, 7.0)]


def same(one: Scores, other: Scores, columns: tuple[str, ...] = COLUMNS) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)


# Scores


def test_prompts_keep_their_order_and_responses_are_sorted() -> None:
    scores = Scores.from_rows([GOOD[1], GOOD[3], GOOD[0], GOOD[2]])
    assert scores.item_id.tolist() == ["b", "b", "a", "a"]
    assert scores.reward.tolist() == [1.5, -2.0, 0.25, 7.0]
    assert scores.offsets.tolist() == [0, 2, 4]
    assert scores.n_tokens.tolist() == [-1] * 4  # unknown


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("a", 0, True), row("a", 1, True)], "item 'a': no wrong response"),
        ([row("a", 0, False), row("a", 1, False)], "item 'a': no correct response"),
        ([row("a", 0, True), row("a", 0, False)], r"item 'a', response 0 is there twice"),
        ([row("a", 0, True), row("a", 2, False)], r"response 2 comes too early"),
        ([row("a", 0, True, float("nan")), row("a", 1, False)], r"item 'a', response 0: the reward is nan"),
        ([row("a", 0, True), row("a", 1, False, float("inf"))], r"response 1: the reward is inf"),
        ([row("a", 0, True), row("a", 1, False, category="Focus")], "another category"),
        ([row("a", 0, True), row("a", 1, False, reward="x")], "wrong type"),
        ([{"item_id": "a"}], "row 0: nothing for category, response, is_correct, reward"),
        ([], "no scores in it"),
    ],
)
def test_scores_that_mean_nothing_are_refused(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scores.from_rows(rows)


@st.composite
def many_scores(draw: st.DrawFn) -> Scores:
    rows = []
    finite = st.floats(allow_nan=False, allow_infinity=False)
    names = draw(
        st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1), max_size=5)
    )
    for name in dict.fromkeys(["first", *names]):
        n, wrong = draw(st.integers(2, 6)), draw(st.integers(1, 5))
        n_correct = max(1, n - wrong)
        for i in range(n):
            more = {"n_tokens": draw(st.integers(0, 9999)), "truncated": draw(st.booleans())}
            rows.append(row(name, i, i < n_correct, draw(finite), **more))
    return Scores.from_rows(rows, {"model": "org/rm", "note": "é"})


@given(scores=many_scores())
@settings(max_examples=25, deadline=None)
def test_every_format_gives_back_what_it_got(
    scores: Scores, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("formats")
    scores.to_parquet(folder / "s.parquet")
    scores.to_jsonl(folder / "s.jsonl")
    scores.to_rewardbench_json(folder / "s.json")
    parquet = load_scores(folder / "s.parquet")
    assert same(parquet, scores)
    assert parquet.manifest == scores.manifest
    assert same(load_scores(folder / "s.jsonl"), scores)
    theirs = load_scores(folder / "s.json")
    assert same(theirs, scores, COLUMNS[:5])  # RewardBench's files know no tokens
    assert theirs.manifest["model"] == "org/rm"


@pytest.mark.parametrize("scores", [[[1.0, 2.0, 3.0]], [[[1.0], [2.0], [3.0]]], [[1, [2.0], 3.0]]])
def test_rewardbench_scores_flat_and_nested(scores: Any, tmp_path: Path) -> None:
    path = tmp_path / "rm.json"
    path.write_text(
        json.dumps({"id": ["7"], "subset": ["Ties"], "scores": scores, "num_correct": [2], "text": [[]]})
    )
    loaded = load_scores(path)
    assert loaded.reward.tolist() == [1.0, 2.0, 3.0]
    assert loaded.is_correct.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", "{", r"x\.json: not JSON"),
        ("x.json", "[1]", "not RewardBench scores"),
        ("x.json", '{"id": ["1"], "subset": [], "scores": [[1]], "num_correct": [1]}', "lists of one length"),
        ("x.json", '{"id": [1], "subset": ["M"], "scores": [null], "num_correct": [1]}', "generative judge"),
        (
            "x.json",
            '{"id": [1], "subset": ["M"], "scores": [[1, null]], "num_correct": [1]}',
            "score 1 is null",
        ),
        (
            "x.json",
            '{"id": [1], "subset": ["M"], "scores": [[1, [2, 3]]], "num_correct": [1]}',
            "not a number",
        ),
        ("x.json", '{"id": [1], "subset": ["M"], "scores": [[1, NaN]], "num_correct": [1]}', "reward is nan"),
        *(
            (
                "x.json",
                f'{{"id": [1], "subset": ["M"], "scores": [[1, 2]], "num_correct": [{value}]}}',
                rf"x\.json, id 1: num_correct is {value}, not a whole number from 1 up",
            )
            for value in ("null", '"one"', "true", "0", "1.5")
        ),
        ("x.jsonl", '{"item_id": "a"}\n', r"x\.jsonl, line 1: an object needs"),
        ("x.jsonl", "\n\n{oops}\n", r"x\.jsonl, line 3: not JSON"),
        ("x.jsonl", "\n", "no scores in it"),
        ("x.parquet", "PAR1", r"x\.parquet"),
        ("x.csv", "", r"a file of scores ends in \.parquet, \.jsonl, \.json"),
        ("gone/x.json", None, "No such file"),
        ("gone/x.parquet", None, r"x\.parquet"),
    ],
)
def test_files_that_are_no_scores(name: str, content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        load_scores(tmp_path / name)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    path.write_text("old")

    def write(file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match=r"scores\.parquet: cannot be written: No space left on device"):
        write_file(path, write)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["scores.parquet"]


# Run folders

ITEMS = tuple(Item(str(i), "Math" if i % 2 else "Focus", "?", ("yes", "no", ""), 1) for i in range(10))
BENCH = Benchmark("bench", "abc", ITEMS)
INPUTS = {"model": "org/rm", "model_revision": "1" * 40, "recipe": {"template": None, "sign": 1.0}}


@dataclass(frozen=True)
class Scored:
    id: str
    rewards: tuple[float, ...]
    n_tokens: tuple[int, ...] = (5, 6, 7)
    truncated: tuple[bool, ...] = (False, False, True)


def scored(*numbers: int) -> list[Scored]:
    return [Scored(str(i), (i + 0.5, i - 0.25, -float(i))) for i in numbers]


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
        run.add(scored(3, 7))  # one of them is there already
        run.add(scored(8, 9))
        often = run.finish()
    assert same(once, often)
    with Run(tmp_path / "often", BENCH, INPUTS) as run:
        assert run.remaining == []
        assert same(run.finish(), once)


def test_a_run_that_goes_on_with_other_packages_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, version in enumerate(("1", "2", "2", "3")):
        monkeypatch.setattr(
            "rmcalib.rewards.runs.package_versions", lambda version=version: {"torch": version}
        )
        with Run(tmp_path, BENCH, INPUTS) as run:
            if version == "1":
                continue  # killed before it had scored anything
            run.add(scored(number))
            manifest = json.loads((tmp_path / "run.json").read_text())
            assert manifest["versions"] == {"torch": version}
    assert manifest["versions_before"] == [{"torch": "2"}]
    monkeypatch.setattr("rmcalib.rewards.runs.package_versions", lambda: {"torch": "2"})
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
    told = (
        r"dtype: nothing there, bfloat16 now; recipe\.template: None there, raw now\): choose another --out"
    )
    with pytest.raises(RunError, match=told), Run(tmp_path, BENCH, other):
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
    with pytest.raises(RunError, match="without a readable manifest"), Run(tmp_path, BENCH, INPUTS):
        pass
    assert (tmp_path / "scores.parquet").read_text() == "somebody's work"


def test_a_damaged_part_is_scored_again(tmp_path: Path) -> None:
    with Run(tmp_path, BENCH, INPUTS) as run:
        run.add(scored(0, 1))
        run.add(scored(2))
    part = tmp_path / "parts" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:50])
    (tmp_path / "parts" / ".part-00002.parquet.99.tmp").write_text("half")
    run = Run(tmp_path, BENCH, INPUTS)
    with pytest.warns(UserWarning, match="its prompts are scored again"):
        run.__enter__()
    assert run.done == {"2"}
    run.add(scored(0))
    assert sorted(p.name for p in run.parts.iterdir()) == ["part-00001.parquet", "part-00002.parquet"]
    run.__exit__()


def test_ranks_write_parts_of_their_own(tmp_path: Path) -> None:
    with Run(tmp_path, BENCH, INPUTS, rank=0) as first, Run(tmp_path, BENCH, INPUTS, rank=1) as second:
        first.add(scored(0, 2))
        second.add(scored(1, 3))
        second.add(scored(5))
        first.add(scored(4, 6, 7, 8, 9))
        assert len(first.finish()) == 30


def test_a_second_run_on_the_same_folder_stops(tmp_path: Path) -> None:
    with Run(tmp_path, BENCH, INPUTS):
        code = "from tests.rewards.test_store import *\nRun(Path(sys.argv[1]), BENCH, INPUTS).__enter__()"
        second = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert f"is in use by process {os.getpid()} on" in second.stderr
    with Run(tmp_path, BENCH, INPUTS):
        pass  # given back


KILLED = """
import time
from tests.rewards.test_store import *
with Run(Path(sys.argv[1]), BENCH, INPUTS) as run:
    for item in run.remaining[:3]:
        run.add(scored(int(item.id)))
        print(item.id, flush=True)
    time.sleep(600)
"""


def test_kill_at_any_moment_and_run_again(tmp_path: Path) -> None:
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


def test_rewards_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with Run(tmp_path, BENCH, INPUTS) as run:
        with pytest.raises(ValueError, match="item '0': 2 rewards for 3 responses"):
            run.add([Scored("0", (1.0, 2.0))])
        with pytest.raises(ValueError, match="item '1', response 2: the reward is nan"):
            run.add([Scored("1", (1.0, 2.0, float("nan")))])
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


def test_a_local_model_is_named_by_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run7" / "step-10").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run7")
    here, there = run_folder("out", "step-10", "demo"), run_folder("out", f"{tmp_path}/run7/step-10/", "demo")
    assert here == there == Path("out/run7__step-10/demo")


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"), Run(tmp_path / "file" / "x", BENCH, INPUTS):
        pass


# Scores from elsewhere, beside runs


def foreign(shift: float = 100.0, **manifest: Any) -> Scores:
    """Scores of the same prompts that no run of ours has made."""
    rows = [row(item.id, i, i == 0, shift + i, category=item.category) for item in ITEMS for i in range(3)]
    return Scores.from_rows(rows, manifest)


def finished(folder: Path) -> Scores:
    with Run(folder, BENCH, INPUTS) as run:
        run.add(scored(*range(10)))
        return run.finish()


def test_a_run_takes_no_scores_and_no_parts_of_another(tmp_path: Path) -> None:
    ours = finished(tmp_path)
    foreign().to_parquet(tmp_path / "scores.parquet")
    run = Run(tmp_path, BENCH, INPUTS)
    with pytest.warns(UserWarning, match=r"scores\.parquet: not of this run"):
        run.__enter__()
    assert run.done == set()
    run.add(scored(0, 1))
    run.__exit__()
    (tmp_path / "scores.parquet").unlink()
    foreign(hash="another").to_parquet(tmp_path / "parts" / "part-00005.parquet")
    run = Run(tmp_path, BENCH, INPUTS)
    with pytest.warns(UserWarning, match=r"part-00005\.parquet: not of this run"):
        run.__enter__()
    assert run.done == {"0", "1"}
    run.add(scored(*range(2, 10)))
    with pytest.warns(UserWarning, match="not of this run"):
        assert same(run.finish(), ours)
    run.__exit__()


@pytest.mark.parametrize("moment", ["run.json", "scores.parquet", "run.json again"])
def test_replacing_a_run_can_be_killed_at_any_moment(
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
    if moment == "run.json":  # still our run, which is made again
        assert same(finished(tmp_path), ours)
        return
    with pytest.raises(RunError, match="holds another run"), Run(tmp_path, BENCH, INPUTS):
        pass
    keep_scores(tmp_path, foreign())  # taken up again
    kept = load_scores(tmp_path / "scores.parquet")
    assert same(kept, foreign())
    assert kept.manifest == json.loads((tmp_path / "run.json").read_text())
    assert kept.manifest["status"] == "finished"


def test_scores_that_claim_a_runs_hash_are_told_from_it(tmp_path: Path) -> None:
    ours = finished(tmp_path)
    told = (tmp_path / "run.json").read_text()
    claimed = foreign(**ours.manifest)
    with pytest.raises(RunError, match="holds another run"):
        keep_scores(tmp_path, claimed)
    keep_scores(tmp_path, load_scores(tmp_path / "scores.parquet"), fresh=True)  # its own: nothing changes
    assert (tmp_path / "run.json").read_text() == told
    keep_scores(tmp_path, claimed, fresh=True)
    with (
        pytest.raises(RunError, match=r"another run \(scores that were made elsewhere\)"),
        Run(tmp_path, BENCH, INPUTS),
    ):
        pass


@pytest.mark.parametrize("column", ["is_correct", "category", "reward"])
def test_scores_that_differ_in_any_column_are_others(column: str, tmp_path: Path) -> None:
    rows = [row("a", 0, True, 1.0), row("a", 1, True, 0.5), row("a", 2, False)]
    keep_scores(tmp_path, Scores.from_rows(rows))
    keep_scores(tmp_path, Scores.from_rows(rows))
    change = {"is_correct": False, "category": "Focus", "reward": 0.25}[column]
    changed = [
        one | {column: change} if column == "category" or i == 1 else one for i, one in enumerate(rows)
    ]
    with pytest.raises(RunError, match="holds another run"):
        keep_scores(tmp_path, Scores.from_rows(changed))


def test_scores_are_not_kept_where_a_run_is_going_on(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(RunError, match="is in use by process"):
        keep_scores(tmp_path, foreign(), fresh=True)
    (tmp_path / "scores.parquet").write_text("somebody's work")
    with pytest.raises(RunError, match="holds another run"):
        keep_scores(tmp_path, foreign())
    assert (tmp_path / "scores.parquet").read_text() == "somebody's work"
