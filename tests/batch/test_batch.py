"""Batches of tiny models on a loopback Hub: three models are broken; batches are killed and resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmcalib.batch._batch import free_checkpoint
from rmcalib.batch._status import read_events
from rmcalib.batch._worker import Task, Worker, WorkerError
from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import load_judge
from tests.batch.batch_hub import (
    BENCH,
    BROKEN,
    CORRUPT,
    GATED,
    GOOD,
    NAN,
    all_scores,
    assert_same_scores,
    batch,
    command,
    environment,
    models_file,
    states,
    status_of,
)
from tests.hooks import held, wait_for
from tests.hub import tiny
from tests.hub.server import TOKEN, LoopbackHub


@pytest.fixture(scope="module")
def whole(
    model_hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], Path]:
    """Run a whole batch; return its output folder, what it printed, and the folder of the Hub's cache."""
    output, home = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("home")
    # Scoring waits until the download of the next model has started, which may be slow.
    begun = f'"downloading", "model": "{GOOD[-1]}"'
    waits = f"'{GOOD[-2].replace('/', '__')}' in str(run.folder) and {begun!r} not in "
    waits += f"Path({str(output / 'events.jsonl')!r}).read_text()"
    env = held(environment(model_hub.url, home), waits)
    done = batch(env, "--models", models_file(home / "m.yaml"), "--output", output, "--json")
    assert done.returncode == 1, done.stderr
    return output, status_of(done), home


def test_three_broken_models_do_not_stop_the_others(whole: tuple[Path, dict[str, Any], Path]) -> None:
    output, content, _ = whole
    assert states(content) == {**dict.fromkeys(GOOD, "done"), **dict.fromkeys(BROKEN, "failed")}
    why = {entry["model"]: entry["why"] for entry in content["models"]}
    assert "gated" in why[GATED]
    assert "damaged" in why[CORRUPT]
    assert "reward is nan" in why[NAN]
    assert json.loads((output / "batch.json").read_text())["models"] == content["models"]
    for name in GOOD:
        folder = output / name.replace("/", "__") / BENCH.replace("/", "__")
        assert {"scores.parquet", "run.json", "metrics.json", "metrics.csv", "report.html"} <= {
            path.name for path in folder.iterdir()
        }
        assert json.loads((folder / "metrics.json").read_text())["model"] == name


def test_small_models_first_and_the_next_is_downloaded_meanwhile(
    whole: tuple[Path, dict[str, Any], Path],
) -> None:
    events = read_events(whole[0])
    scored = [event["model"] for event in events if event["event"] == "scoring"]
    assert scored == sorted(set(GOOD + BROKEN) - {GATED}, key=lambda name: int(name.split("-")[1][:-1]))
    position = {(event["event"], event.get("model")): number for number, event in enumerate(events)}
    assert position["downloading", GOOD[-1]] < position["done", GOOD[-2]]


def test_a_second_run_does_only_the_remaining_work(
    model_hub: LoopbackHub, whole: tuple[Path, dict[str, Any], Path], tmp_path: Path
) -> None:
    first, _, home = whole
    output = shutil.copytree(first, tmp_path / "runs")  # other tests use the first run
    before = {path: path.stat().st_mtime_ns for path in output.glob("*/*/*")}
    n_events = len(read_events(output))
    env = environment(model_hub.url, home, HF_TOKEN=TOKEN)  # with a token, the gated model can be read
    done = batch(env, "--models", models_file(home / "m.yaml"), "--output", output, "--json")
    assert done.returncode == 1, done.stderr
    assert states(status_of(done))[GATED] == "done"
    assert status_of(done)["counts"] == {"done": 7, "failed": 2}
    events = read_events(output)[n_events:]
    assert {event["model"] for event in events if event["event"] == "scoring"} == set(BROKEN)
    assert {event["model"] for event in events if event["event"] == "evaluating"} == {GATED}
    for path, changed in before.items():
        if path.parts[-3].replace("__", "/") in GOOD and path.name != ".lock":
            assert path.stat().st_mtime_ns == changed, path


def test_killed_in_the_middle_and_resumed(
    model_hub: LoopbackHub, whole: tuple[Path, dict[str, Any], Path], tmp_path: Path
) -> None:
    reference = whole[0]
    output, env = tmp_path / "runs", environment(model_hub.url, tmp_path / "home")
    options = ("--models", models_file(tmp_path / "m.yaml"), "--output", output, "--json", "--no-metrics")
    third = GOOD[2].replace("/", "__")
    process = subprocess.Popen(
        command(*options),
        env=held(env, f"run.folder.parent.name == {third!r}"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(
        lambda: _some_done(output) and list(output.glob(f"{third}/*/parts/part-*.parquet")),
        lambda: process.poll() is None,
    )
    process.kill()
    process.wait()
    assert json.loads((output / "batch.json").read_text())["status"] == "running"
    finished = [event["model"] for event in read_events(output) if event["event"] == "done"]
    n_events = len(read_events(output))
    assert 0 < len(finished) < len(GOOD)
    done = batch(env, *options)
    assert done.returncode == 1, done.stderr
    assert states(status_of(done)) == {**dict.fromkeys(GOOD, "done"), **dict.fromkeys(BROKEN, "failed")}
    again = {event["model"] for event in read_events(output)[n_events:] if event["event"] == "scoring"}
    assert not again & set(finished)
    expected = {name: s for name, s in all_scores(reference).items() if name.replace("__", "/") in GOOD}
    assert_same_scores(all_scores(output), expected)


def _some_done(output: Path) -> bool:
    written = (output / "events.jsonl").exists()
    return written and any(event["event"] == "done" for event in read_events(output))


def test_free_disk_removes_finished_models_and_fresh_scores_again(
    model_hub: LoopbackHub, tmp_path: Path
) -> None:
    env, home, output = environment(model_hub.url, tmp_path / "home"), tmp_path / "home", tmp_path / "runs"
    options = ("--models", models_file(tmp_path / "m.yaml", (GOOD[0], CORRUPT)), "--output", output)
    assert batch(env, *options, "--free-disk", "--quiet", "--no-metrics").returncode == 1
    kept = [folder.name for folder in (home / "hub").glob("models--*")]
    assert kept == [f"models--{CORRUPT.replace('/', '--')}"]
    freed = [event for event in read_events(output) if event["event"] == "freed"]
    assert freed[0]["model"] == GOOD[0]
    assert freed[0]["bytes"] > 10_000
    model_hub.requests.clear()
    assert batch(env, *options, "--free-disk", "--quiet", "--no-metrics").returncode == 1
    assert not [r for r in model_hub.requests if r.startswith("GET /org/rm-10m/")]
    # With --fresh, a finished model is scored again.
    (file,) = output.glob("*/*/scores.parquet")
    before, n_events, changed = all_scores(output), len(read_events(output)), file.stat().st_mtime_ns
    options = ("--models", models_file(tmp_path / "m.yaml", GOOD[:1]), "--output", output)
    done = batch(env, *options, "--no-metrics", "--fresh")
    assert done.returncode == 0, done.stderr
    assert "scoring" in {event["event"] for event in read_events(output)[n_events:]}
    assert file.stat().st_mtime_ns > changed
    assert_same_scores(all_scores(output), before)


def test_a_cache_that_changes_during_a_scan_is_scanned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    found = SimpleNamespace(expected_freed_size=7, execute=lambda: None)

    def scan() -> SimpleNamespace:
        looks.append(1)
        if len(looks) < 3:
            raise FileNotFoundError("refs/main")  # existed when its folder was listed
        return SimpleNamespace(delete_revisions=lambda _: found)

    monkeypatch.setattr("huggingface_hub.scan_cache_dir", scan)
    assert free_checkpoint("0" * 40) == 7
    assert len(looks) == 3


def test_a_batch_in_use_is_refused_in_one_line(
    model_hub: LoopbackHub, whole: tuple[Path, dict[str, Any], Path]
) -> None:
    from filelock import FileLock

    output, _, home = whole
    with FileLock(output / ".batch.lock"):
        done = batch(
            environment(model_hub.url, home), "--models", models_file(home / "m.yaml"), "--output", output
        )
    assert done.returncode == 2
    assert "is in use by process" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_killed_worker_fails_one_model_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.save_model(tmp_path / "model")
    bench = tmp_path / "bench.jsonl"
    bench.write_text("".join(json.dumps(row) + "\n" for row in tiny.benchmark_rows(64)))
    judge = load_judge(str(model), device="cpu")
    task = Task(judge, load_benchmark(str(bench)), str(tmp_path / "runs"))
    with Worker(tmp_path / "batch.log") as worker:
        with monkeypatch.context() as patched:
            for name, value in held(os.environ, "True").items():
                patched.setenv(name, value)
            events = worker.run(task)
            assert next(events)[0] == "progress"
        assert worker.process is not None
        os.kill(worker.process.pid or 0, signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"was killed \(SIGKILL\); .* ran out of memory"):
            list(events)
        assert [kind for kind, _ in worker.run(task)][-1] == "progress"  # scored by a new process
    assert list((tmp_path / "runs").glob("*/*/scores.parquet"))
