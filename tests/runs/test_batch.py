"""Batches on this machine: judges without models, tiny models on a loopback Hub, published scores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import rmcalib
from rmcalib._util.files import write_json
from rmcalib.runs import Batch, run_batch, run_folder
from rmcalib.runs._batch import Status
from rmcalib.runs._run import Run
from rmcalib.scores import Scores
from tests.hooks import PATIENCE, held, wait_for
from tests.hub import tiny
from tests.hub.server import TOKEN, LoopbackHub
from tests.processes import start_python
from tests.runs.batch_hub import (
    BENCH,
    CORRUPT,
    GATED,
    GOOD,
    NAN,
    add_models,
    all_scores,
    batch,
    command,
    environment,
    models_file,
    states,
    status_of,
)
from tests.runs.small_runs import INPUTS, LONG, Plugin, install, listed, same, scored


def events(output: Path, start: int = 0) -> list[dict[str, Any]]:
    file = output / "events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()[start:]] if file.exists() else []


def models_of(output: Path, event: str, start: int = 0) -> set[str]:
    return {one["model"] for one in events(output, start) if one["event"] == event}


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path / "site", "another", "slow", "broken", "dying", "last")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "runs"


def run(output: Path, *models: Any, version: str = "1", fresh: bool = False) -> Status:
    """Run a batch of judges without models; the metrics are made from a version."""

    def evaluate(_: object, scores: Scores, __: object) -> tuple[str, Callable[[Path], object]]:
        content = {"prompts": scores.n_items, "made_from": version}
        return version, lambda folder: write_json(folder / "metrics.json", content)

    return run_batch(Batch(models, LONG, output, fresh=fresh), evaluate=evaluate)


def test_failing_and_dying_judges_do_not_stop_the_others(output: Path) -> None:
    with Run(run_folder(output, "another", "bench"), LONG, INPUTS) as other:
        other.add(scored(0))
    models = [
        listed("another"),
        listed("broken", fault="too bad"),
        listed("dying", fault="kill"),
        listed("last"),
        listed(),
    ]
    status = run(output, *models)
    expected = dict.fromkeys(("another", "broken", "dying"), "failed") | dict.fromkeys(
        ("last", "slow"), "done"
    )
    assert {name: one.state for name, one in status.models.items()} == expected
    assert "another run" in status.models["another"].why
    assert status.models["broken"].why == "too bad"
    assert "SIGKILL" in status.models["dying"].why
    assert json.loads((output / "batch.json").read_text())["models"] == status.content()["models"]
    assert "too bad" in (output / "batch.log").read_text()
    whole = rmcalib.score(Plugin(called="last"), LONG)
    assert same(rmcalib.load_scores(output / "last" / "bench" / "scores.parquet"), whole)
    # Judges that do not fail share one process, which is not this one.
    manifests = [json.loads((output / name / "bench" / "run.json").read_text()) for name in ("last", "slow")]
    assert manifests[0]["pid"] == manifests[1]["pid"] != os.getpid()
    # The same command resumes: what was scored before the fault is kept, what is done is not done again.
    seen = len(events(output))
    status = run(output, listed("broken"), *models[3:])
    assert status.counts() == {"done": 3}
    assert status.models["broken"].responses == 3 * 68  # the first block was scored before
    assert models_of(output, "scoring", seen) == {"broken"}
    assert (status.models["broken"].fresh, status.models["last"].fresh) == (True, False)


@pytest.mark.parametrize("name", ["events.jsonl", "batch.log"])
def test_links_do_not_lead_out_of_the_folder(output: Path, name: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    output.mkdir()
    (output / name).symlink_to(outside)
    with pytest.raises((OSError, UserWarning), match=name):
        run(output, "slow")
    assert outside.read_text() == "kept"


def test_only_what_has_changed_is_done_again(output: Path) -> None:
    def done(**options: Any) -> tuple[bool, bool]:
        """Return whether the model was scored, and whether anything was done."""
        seen = len(events(output))
        status = run(output, listed(), **options)
        assert status.counts() == {"done": 1}
        return bool(models_of(output, "scoring", seen)), status.models["slow"].fresh

    rmcalib.score(Plugin(), LONG, output=output)
    assert done() == (False, True)  # scored by another command
    assert done() == (False, False)
    assert done(version="2") == (False, True)
    assert done(version="2", fresh=True) == (True, True)
    file = output / "slow" / "bench" / "scores.parquet"
    file.write_bytes(file.read_bytes()[:-30])
    status = run(output, listed())
    assert (status.counts(), "damaged" in status.models["slow"].why) == ({"failed": 1}, True)


def test_models_on_the_hub_killed_in_the_middle_and_resumed(tmp_path: Path) -> None:
    output, models = tmp_path / "runs", models_file(tmp_path / "m.yaml")
    options = ("--models", models, "--output", output, "--json", "--no-metrics", "--free-disk")
    second = GOOD[1].replace("/", "__")
    with LoopbackHub() as hub:
        add_models(hub, tmp_path)
        env = environment(hub.url, tmp_path / "home")
        process = start_python(command(*options), env=held(env, f"run.folder.parent.name == {second!r}"))
        wait_for(lambda: list(output.glob(f"{second}/*/scored-*.jsonl")), process.is_alive)
        process.kill()
        process.join()
        assert json.loads((output / "batch.json").read_text())["status"] == "running"
        assert (models_of(output, "done"), models_of(output, "failed")) == ({GOOD[0]}, {GATED})
        assert any("gated" in event.get("why", "") for event in events(output))
        seen = len(events(output))
        # The next run does what is left, and tries again what has failed: with a token, the gated model can be read.
        done = batch(env | {"HF_TOKEN": TOKEN}, *options)
    entries = {entry["model"]: entry for entry in status_of(done)["models"]}
    assert done.returncode == 1
    assert list(entries) == sorted(entries, key=lambda name: int(name.split("-")[1][:-1]))
    assert {name for name, entry in entries.items() if entry["state"] == "done"} == {*GOOD, GATED}
    assert models_of(output, "scoring", seen) >= {GOOD[1], GATED}
    assert GOOD[0] not in models_of(output, "scoring", seen)
    assert "SafetensorError" in entries[CORRUPT]["why"]
    assert "nan" in entries[NAN]["why"]
    bench = rmcalib.load_benchmark(str(tmp_path / "bench"), format="reward-bench-2")
    for name in GOOD:
        alone = rmcalib.score(str(tmp_path / name), bench, device="cpu", token_budget=1024)
        (file,) = output.glob(f"{name.replace('/', '__')}/*/scores.parquet")
        np.testing.assert_allclose(rmcalib.load_scores(file).reward, alone.reward, rtol=1e-5)
    kept = {file.parts[-4] for file in (tmp_path / "home").glob("hub/*/snapshots/*/model.safetensors")}
    assert kept == {f"models--{name.replace('/', '--')}" for name in (CORRUPT, NAN)}  # failed ones stay


def test_a_batch_in_use_is_refused_in_one_line(output: Path) -> None:
    from filelock import FileLock

    output.mkdir()
    with FileLock(output / ".batch.lock"), pytest.raises(ValueError, match="in use"):
        run(output, listed())
    assert list(output.iterdir()) == [output / ".batch.lock"]


INTERRUPTED = """
import sys
from rmcalib.runs import Batch, run_batch
from tests.runs.small_runs import LONG, listed
if __name__ == "__main__":
    run_batch(Batch([listed(delay=float(sys.argv[2]))], LONG, sys.argv[1]))
"""


def test_interrupted_and_resumed(output: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    env = environment("", tmp_path / "home")
    env["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'site'}"
    process = subprocess.Popen(
        [sys.executable, str(script), str(output), "0.5"], env=env, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: list(output.glob("*/*/scored-0.jsonl")), lambda: process.poll() is None)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert "KeyboardInterrupt" in err.splitlines()[-1]
    wait_for(lambda: not any(child.is_running() for child in children))
    content = json.loads((output / "batch.json").read_text())
    assert (content["status"], content["models"][0]["state"]) == ("interrupted", "scoring")
    status = run(output, listed())
    assert status.counts() == {"done": 1}
    assert status.models["slow"].responses < 300
    assert same(rmcalib.load_scores(output / "slow/bench/scores.parquet"), rmcalib.score(Plugin(), LONG))


def published(name: str, shift: float) -> dict[str, Any]:
    rows = tiny.benchmark_rows(40)
    return {
        "id": [row["id"] for row in rows],
        "model": name,
        "num_correct": [row["num_correct"] for row in rows],
        "scores": [
            [(i * 7 + j * 3 + shift) % 5 for j in range(row["total_completions"])]
            for i, row in enumerate(rows)
        ],
        "subset": [row["subset"] for row in rows],
        "text": [["x"] * 4 for _ in rows],
    }


def test_published_scores_are_taken_once(tmp_path: Path) -> None:
    good = ["org/rm-0", "org/rm-1"]
    files = {f"eval-set-scores/{name}.json": published(name, i) for i, name in enumerate(good)}
    judge, broken = published("org/judge", 0), published("org/broken", 0)
    files["eval-set-scores/org/judge.json"] = judge | {"scores": [None] * len(judge["id"])}
    broken["scores"][3][1] = float("nan")
    files["eval-set-scores/org/broken.json"] = broken
    env = environment("", tmp_path / "home")
    options = ("--scores", "published", "--output", tmp_path / "runs", "--json")
    with LoopbackHub() as hub:
        env["HF_ENDPOINT"] = hub.url
        results = {path: json.dumps(content).encode() for path, content in files.items()}
        hub.add("datasets", "allenai/reward-bench-2-results", results)
        hub.add("datasets", BENCH, tiny.save_benchmark(tmp_path / "bench", tiny.benchmark_rows(40)))
        expected = {**dict.fromkeys(good, "done"), "org/judge": "skipped", "org/broken": "failed"}
        assert states(status_of(batch(env, *options))) == expected
        scores = all_scores(tmp_path / "runs")
        for file in ("metrics.json", "report.html"):
            assert len(scores) == len(list((tmp_path / "runs").glob(f"*/*-published/{file}"))) == 2
        assert scores["org__rm-1"].reward[0] == files["eval-set-scores/org/rm-1.json"]["scores"][0][0]
        # The second run reads only the files that gave no scores.
        seen, n_requests = len(events(tmp_path / "runs")), len(hub.requests)
        models = models_file(tmp_path / "m.yaml", (*expected, "org/unpublished"))
        done = batch(env, *options, "--models", models)
        assert states(status_of(done)) == {**expected, "org/unpublished": "skipped"}
        assert models_of(tmp_path / "runs", "downloading", seen) == {"org/broken", "org/judge"}
        assert not [r for r in hub.requests[n_requests:] if "resolve" in r and "/org/rm-" in r]
