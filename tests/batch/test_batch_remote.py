"""Results in a store that is no folder of this machine: batches killed and resumed, reports from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from rmcalib._util.remote import mirrored
from rmcalib._util.remote.lock import NAME

from rmcalib.batch._status import read_events
from tests.batch.batch_hub import (
    BENCH,
    GOOD,
    ROOT,
    all_scores,
    assert_same_scores,
    batch,
    command,
    environment,
    models_file,
    states,
    told,
)
from tests.hooks import PATIENCE, held, wait_for
from tests.hub.server import LoopbackHub
from tests.remote.stores import QUICK, DiskStore, install_disk_store

MODELS = GOOD[:3]
URL = "disk://bucket/runs"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_disk_store(tmp_path_factory.mktemp("packages"))


def with_store(env: dict[str, str], packages: Path, store: Path, scratch: Path) -> dict[str, str]:
    store.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    paths = os.pathsep.join((str(packages), str(ROOT)))
    return env | {"PYTHONPATH": paths, "DISK_STORE": str(store), "TMPDIR": str(scratch)}


def test_killed_in_the_middle_and_resumed_elsewhere(
    model_hub: LoopbackHub, packages: Path, tmp_path: Path
) -> None:
    models = models_file(tmp_path / "m.yaml", MODELS)
    plain = environment(model_hub.url, tmp_path / "home")
    common = ("--models", models, "--json", "--no-metrics")
    assert batch(plain, *common, "--output", tmp_path / "local").returncode == 0
    store, options = tmp_path / "store", (*common, "--output", URL)
    runs = store / "bucket/runs"
    env = with_store(plain, packages, store, tmp_path / "here")
    last = MODELS[-1].replace("/", "__")  # is not finished when the first ones are there
    process = subprocess.Popen(
        command(*options),
        env=held(env, f"run.folder.parent.name == {last!r}"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(  # what the batch is at goes up after what is finished
        lambda: _finished(runs) and (runs / "events.jsonl").exists(), lambda: process.poll() is None
    )
    process.kill()
    process.wait()
    assert {name.replace("__", "/") for name in all_scores(runs)} < set(MODELS)
    marked = _finished(runs)
    n_events = len(read_events(runs))
    assert (runs / NAME).exists()  # nobody could give it back

    # Another machine has nothing of the first one's scratch folder.
    there = with_store(plain, packages, store, tmp_path / "there")
    done = batch(there, *options)
    assert done.returncode == 0, done.stderr
    assert states(told(done)) == dict.fromkeys(MODELS, "done")
    assert told(done)["models"][0]["folder"].startswith(f"{URL}/org__rm-10m/")
    assert_same_scores(all_scores(runs), all_scores(tmp_path / "local"))
    again = {event["model"] for event in read_events(runs)[n_events:] if event["event"] == "scoring"}
    assert again <= set(MODELS) - marked
    assert json.loads((runs / "batch.json").read_text())["models"] == told(done)["models"]
    assert not list(runs.glob("*/*/parts/*"))  # what the run has removed is gone there too
    assert not [path.name for path in runs.rglob(".*")]  # no lock, and nothing half-written
    assert list((tmp_path / "there").glob("rmcalib-*")) == []


def _finished(runs: Path) -> set[str]:
    """The models whose manifests say that they are finished, and whose scores are there.

    The manifest of a run that is new there comes first, and may be alone when the writer is killed.
    """
    files = [path for path in runs.glob("*/*/run.json") if (path.parent / "scores.parquet").is_file()]
    manifests = [json.loads(path.read_text()) for path in files]
    return {manifest["model"] for manifest in manifests if manifest["status"] == "finished"}


def test_one_batch_at_a_time_and_refusals_in_one_line(
    model_hub: LoopbackHub, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = environment(model_hub.url, tmp_path / "home")
    env = with_store(plain, packages, tmp_path / "store", tmp_path / "scratch")
    options = ("--models", models_file(tmp_path / "m.yaml", MODELS[:1]), "--output", URL, "--no-metrics")
    monkeypatch.setenv("DISK_STORE", str(tmp_path / "store"))
    fsspec.register_implementation("disk", DiskStore, clobber=True)
    with mirrored(URL, pace=QUICK):
        done = batch(env, *options)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert f"{URL} is in use by process {os.getpid()} on " in done.stderr
    (tmp_path / "store/refuses").touch()
    done = batch(env, *options)
    assert (done.returncode, done.stderr) == (
        2,
        f"rmcalib: error: {URL}: cannot be written: the store is closed\n",
    )
    done = batch(env, *options[:2], "--output", "nowhere://x")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "no such kind of storage" in done.stderr


WAITS = """
import sys, time
from rmcalib.cli._shared.places import _interrupt
from rmcalib._util.remote import mirrored
from tests.remote.stores import HASTY
with mirrored("disk://bucket/runs", on_failure=_interrupt, pace=HASTY) as folder:
    open(sys.argv[1], "w").close()  # first: what is up there by then would never fail
    (folder / "batch.json").write_text("{}")
    sys.stdin.read()  # as a batch waits for its worker
"""


def test_a_store_lost_for_good_ends_a_command_that_waits(packages: Path, tmp_path: Path) -> None:
    env = with_store(dict(os.environ), packages, tmp_path / "store", tmp_path / "scratch")
    (tmp_path / "store/bucket/runs").mkdir(parents=True)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WAITS, str(tmp_path / "store/refuses")],
        env=env,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.wait(timeout=PATIENCE) == 1
    last = process.stderr.read().splitlines()[-1]
    process.communicate()
    assert "RemoteError: disk://bucket/runs: cannot be written: the store is closed" in last
    kept = Path(last.rpartition(" is in ")[2])
    assert (kept / "batch.json").read_text() == "{}"


def run(env: dict[str, str], *arguments: object) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "rmcalib", *map(str, arguments), "--json", "--resamples", "20"],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_eval_report_and_compare_there(packages: Path, tmp_path: Path) -> None:
    env = with_store(dict(os.environ), packages, tmp_path / "store", tmp_path / "scratch")
    first = run(env, "eval", "--limit", 24, "--output", "disk://a/runs")
    folder = first["evaluations"][0]["folder"]
    assert folder.startswith("disk://a/runs/demo/")
    there = tmp_path / "store" / folder.removeprefix("disk://")
    assert {"scores.parquet", "run.json", "metrics.json", "report.html"} <= {p.name for p in there.iterdir()}
    report = run(env, "report", "disk://a/runs", "--output", "disk://a/report")
    assert report["page"] == "disk://a/report/report.html"
    assert (tmp_path / "store/a/report/figures/reliability.png").read_bytes()[:4] == b"\x89PNG"
    # What the next report does not have is removed there too.
    (tmp_path / "store/a/report/check.csv").write_text("of an earlier one")
    run(env, "report", folder, "--output", "disk://a/report")
    assert not (tmp_path / "store/a/report/check.csv").exists()
    same = run(env, "compare", folder, f"{folder}/scores.parquet")
    assert same["a"] == f"demo ({folder})"
    assert {row["difference"] for row in same["differences"]} == {0.0}
    assert BENCH not in folder
    assert list((tmp_path / "scratch").glob("rmcalib-*")) == []  # torch may leave a folder of its own
