"""`rmcalib eval` against a Hub on 127.0.0.1, from an empty cache to the report, in good times and bad."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
from tests.hub import tiny
from tests.hub.server import TOKEN, LoopbackHub
from tests.hub.world import BENCH, MODEL, RESULTS, WITHOUT_WAITING, environment, save_files, serve
from tests.processes import run_python

EVAL = ("eval", "--model", MODEL, "--benchmark", BENCH, "--resamples", "20", "-J", "device=cpu")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_files(tmp_path_factory.mktemp("files"))


@pytest.fixture
def hub(files: dict[str, Path]) -> Iterator[LoopbackHub]:
    with serve(files) as hub:
        yield hub


def run(hub_url: str, folder: Path, *args: str, **more: str) -> Outcome:
    code = f"{WITHOUT_WAITING}from rmcalib.cli import main; main()"
    done = run_python(["-c", code, *args], cwd=folder, env=environment(hub_url, folder / "cache", **more))
    assert "Traceback" not in done.stderr, done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


def after_waiting(err: str) -> str:
    """Return what was said besides the lines that announce a wait for the Hub."""
    waits = ("waiting for the Hub at", "does not answer; using commit")
    return "".join(line for line in err.splitlines(keepends=True) if not any(w in line for w in waits))


def manifest_of(folder: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads(
        (folder / "runs/org__tiny-rm/allenai__reward-bench-2/run.json").read_text()
    )
    return content


def test_from_an_empty_cache_to_the_report_then_offline_then_without_a_hub(
    hub: LoopbackHub, tmp_path: Path
) -> None:
    done = run(hub.url, tmp_path, *EVAL)
    assert (done.code, done.err) == (0, "")
    folder = tmp_path / "runs/org__tiny-rm/allenai__reward-bench-2"
    assert (folder / "report.html").is_file()
    manifest = manifest_of(tmp_path)
    assert manifest["model_revision"] == hub.repos["models", MODEL].refs["main"]
    assert manifest["benchmark_revision"] == hub.repos["datasets", BENCH].refs["main"]
    first = (folder / "metrics.csv").read_text()
    hub.heal()
    again = run(hub.url, tmp_path, *EVAL, HF_HUB_OFFLINE="1")
    assert again.code == 0, again.err
    assert again.err == f"rmcalib: {MODEL}: all responses were scored before (--fresh scores them again)\n"
    assert hub.requests == []
    assert (folder / "metrics.csv").read_text() == first
    # The Hub is down: everything is scored again from the cache.
    down = run("http://127.0.0.1:9", tmp_path, *EVAL, "--output", "again")
    assert (down.code, after_waiting(down.err)) == (0, "")
    assert "waiting for the Hub at" in down.err
    assert next((tmp_path / "again").glob("*/*/metrics.csv")).read_text() == first


def large_file(hub: LoopbackHub, kind: str, name: str, ending: str, ref: str = "main") -> str:
    """The request that gets the content of a repository's large file, as a pattern."""
    repo = hub.repos[kind, name]
    (content,) = [c for path, c in repo.commits[repo.refs[ref]].items() if path.endswith(ending)]
    return f"GET /{hashlib.sha256(content).hexdigest()}"


WEIGHTS, DATA = ("models", MODEL, ".safetensors"), ("datasets", BENCH, ".parquet")
MISSING = {"X-Error-Code": "RepoNotFound"}
OF_MODEL = r"/org/tiny-rm|models/org"


@pytest.mark.parametrize(
    ("requests", "fault", "shown"),
    [
        (OF_MODEL, {"status": 404, "headers": MISSING}, MODEL),
        (DATA, {"cut": 100}, BENCH),
    ],
)
def test_lasting_trouble_is_one_line(
    hub: LoopbackHub,
    tmp_path: Path,
    requests: str | tuple[str, str, str],
    fault: dict[str, Any],
    shown: str,
) -> None:
    hub.fail(requests if isinstance(requests, str) else large_file(hub, *requests), **fault)
    done = run(hub.url, tmp_path, *EVAL)
    assert done.code == 2, done.err
    (line,) = after_waiting(done.err).splitlines()
    assert line.startswith("rmcalib: error: ")
    assert shown in line
    assert not (tmp_path / "runs").exists()


def test_pinned_revisions_through_trouble_that_passes_and_gates_that_open(
    hub: LoopbackHub, tmp_path: Path
) -> None:
    for repo in hub.repos.values():
        repo.gated = True
    hub.fail(r"GET /api", status=429, headers={"Retry-After": "0"}, times=2)
    for what, ref in ((WEIGHTS, "v1"), (DATA, "v2")):
        hub.fail(large_file(hub, *what, ref), cut=2000, times=2)
    pinned = (*EVAL[:3], "--benchmark", f"{BENCH}@v2", "-J", "revision=v1", *EVAL[5:])
    done = run(hub.url, tmp_path, *pinned, HF_TOKEN=TOKEN)
    assert (done.code, after_waiting(done.err)) == (0, "")
    assert all(fault.times == 0 for fault in hub.faults)  # all of it happened
    manifest = manifest_of(tmp_path)
    assert (manifest["status"], manifest["n_items"]) == ("finished", 11)
    assert manifest["model_revision"] == hub.repos["models", MODEL].refs["v1"]
    assert manifest["benchmark_revision"] == hub.repos["datasets", BENCH].refs["v2"]
    written = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]


def published_files() -> dict[str, bytes]:
    """Return what RewardBench publishes of a model: its scores, and its numbers on the leaderboard."""
    rows = tiny.benchmark_rows()
    published = {
        "model": MODEL,
        "id": [row["id"] for row in rows],
        "subset": [row["subset"] for row in rows],
        "scores": [[float(len(text)) for text in (*row["chosen"], *row["rejected"])] for row in rows],
        "num_correct": [len(row["chosen"]) for row in rows],
        "text": [["long"]] * len(rows),
    }
    content = json.dumps(published).encode()
    official = json.dumps({"model": MODEL, "Math": 0.25, "Focus": 0.5}).encode()
    return {"eval-set-scores/org/tiny-rm.json": content, "eval-set/org/tiny-rm.json": official}


def test_published_scores_need_no_model(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.add("datasets", RESULTS, published_files())
    done = run(hub.url, tmp_path, "eval", "--model", MODEL, "--scores", "published", "--resamples", "20")
    assert (done.code, done.err) == (0, "")
    (page,) = tmp_path.glob("runs/org__tiny-rm/*-published/report.html")
    assert "What is" in page.read_text()  # the benchmark's texts are there to read
    assert not [request for request in hub.requests if "models/org" in request]
    quick = ("--resamples", "20", "--json")
    checked = run(hub.url, tmp_path, "report", "runs", "--leaderboard", "hub", *quick)
    assert (checked.code, checked.err) == (0, "")
    check = json.loads(checked.out)["check"]
    assert {row["category"]: row["official"] for row in check} == {"Math": 0.25, "Focus": 0.5}


@pytest.mark.parametrize("fault", [{"status": 403}, {"status": 503}], ids=["gated", "down"])
def test_published_scores_need_no_texts(fault: dict[str, Any], hub: LoopbackHub, tmp_path: Path) -> None:
    hub.add("datasets", RESULTS, published_files())
    hub.fail(f"{BENCH}(?!-results)", times=1000, **fault)
    command = ("eval", "--model", MODEL, "--scores", "published", "--resamples", "20", "--json")
    found = []
    for texts in (False, True):
        done = run(hub.url, tmp_path, *command)
        assert done.code == 0, done.err
        assert (BENCH in after_waiting(done.err)) is not texts
        (page,) = tmp_path.glob("runs/org__tiny-rm/*-published/report.html")
        assert ("What is" in page.read_text()) is texts
        rows = json.loads(done.out)["evaluations"][0]["metrics"]
        found.append({(row["category"], row["metric"]): row["value"] for row in rows})
        hub.heal()
    without, complete = found
    known = {key: value for key, value in without.items() if value is not None}
    assert {key: complete[key] for key in known} == known
    assert ("overall", "ece") in known
