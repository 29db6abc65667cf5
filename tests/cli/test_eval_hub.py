"""`rmcalib eval` against a Hub on 127.0.0.1, from an empty cache to the report, in good times and bad."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmcalib.rewards.store import to_rewardbench
from tests.cli.conftest import Outcome, environment
from tests.hub import tiny
from tests.hub.server import LoopbackHub
from tests.rewards.slow_metrics import Prompt
from tests.rewards.worlds import scores_of

MODEL, BENCH, RESULTS = "org/tiny-rm", "allenai/reward-bench-2", "allenai/reward-bench-2-results"
EVAL = ("eval", "--model", MODEL, "--benchmark", BENCH, "--resamples", "20", "--device", "cpu")
# The libraries wait between attempts; the tests need not.
WITHOUT_WAITING = "import time; time.sleep = lambda seconds: None\nfrom rmcalib.cli import main; main()"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    return {
        "model": tiny.save_model(folder / "model"),
        "old": tiny.save_model(folder / "old", tiny.tiny_classifier(seed=5)),
        "bench": tiny.save_benchmark(folder / "bench"),
        "bench2": tiny.save_benchmark(folder / "bench2", tiny.benchmark_rows(9)),
    }


@pytest.fixture
def hub(files: dict[str, Path]) -> Iterator[LoopbackHub]:
    with LoopbackHub() as hub:
        hub.add("models", MODEL, files["old"], ref="v1")
        hub.add("models", MODEL, files["model"])
        hub.add("datasets", BENCH, files["bench2"], ref="v2")
        hub.add("datasets", BENCH, files["bench"])
        yield hub


def run(hub_url: str, folder: Path, *args: str, **more: str) -> Outcome:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_WAITING, *args],
        cwd=folder,
        env=environment(
            HF_ENDPOINT=hub_url, HF_HOME=str(folder / "cache"), DISABLE_SAFETENSORS_CONVERSION="1", **more
        ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


def manifest_of(folder: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads(
        (folder / "runs/org__tiny-rm/allenai__reward-bench-2/run.json").read_text()
    )
    return content


def test_from_an_empty_cache_to_the_report_and_again_offline(hub: LoopbackHub, tmp_path: Path) -> None:
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
    assert (again.code, again.err) == (0, "")
    assert hub.requests == []
    assert (folder / "metrics.csv").read_text() == first


def test_pinned_revisions_are_used_and_recorded(hub: LoopbackHub, tmp_path: Path) -> None:
    done = run(hub.url, tmp_path, *EVAL, "--revision", "v1", "--benchmark-revision", "v2")
    assert (done.code, done.err) == (0, "")
    manifest = manifest_of(tmp_path)
    assert manifest["model_revision"] == hub.repos["models", MODEL].refs["v1"]
    assert manifest["benchmark_revision"] == hub.repos["datasets", BENCH].refs["v2"]
    assert manifest["n_items"] == 11
    other = run(hub.url, tmp_path, *EVAL)
    assert other.code == 2
    assert "holds another run" in other.err
    assert "model_revision" in other.err


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"pattern": r"/org/tiny-rm|models/org", "status": 404}, "org/tiny-rm"),
        ({"pattern": r"/org/tiny-rm|models/org", "status": 500}, "org/tiny-rm"),
        ({"pattern": r"reward-bench-2", "status": 401}, "reward-bench-2"),
        ({"pattern": r"GET /[0-9a-f]{64}", "cut": 100}, ""),
    ],
)
def test_trouble_is_one_line(hub: LoopbackHub, tmp_path: Path, fault: dict[str, object], told: str) -> None:
    hub.fail(**fault)  # type: ignore[arg-type]
    done = run(hub.url, tmp_path, *EVAL)
    assert done.code == 2, done.err
    assert done.err.splitlines()[-1].startswith("rmcalib: error: ")
    assert told in done.err
    assert not list(tmp_path.glob("runs/*/*/report.html"))


def test_too_many_requests_and_then_fine(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.fail(r"GET /api", status=429, headers={"Retry-After": "0"}, times=2)
    done = run(hub.url, tmp_path, *EVAL, "--quiet")
    assert done.code == 0, done.err


def test_no_hub_at_all(tmp_path: Path) -> None:
    done = run("http://127.0.0.1:9", tmp_path, *EVAL)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "cannot be reached" in done.err or "reach" in done.err


def test_published_scores_need_no_model(hub: LoopbackHub, tmp_path: Path) -> None:
    prompts = [
        Prompt(
            str(row["subset"]),
            [float(len(text)) for text in (*row["chosen"], *row["rejected"])],
            [True] * len(row["chosen"]) + [False] * len(row["rejected"]),
            [1.0] * (len(row["chosen"]) + len(row["rejected"])),
        )
        for row in tiny.benchmark_rows()
    ]
    scores = scores_of(prompts, ids=[row["id"] for row in tiny.benchmark_rows()])
    content = json.dumps({**to_rewardbench(scores), "text": [["long"]] * len(prompts)}).encode()
    hub.add("datasets", RESULTS, {"eval-set-scores/org/tiny-rm.json": content})
    done = run(hub.url, tmp_path, "eval", "--model", MODEL, "--scores", "published", "--resamples", "20")
    assert (done.code, done.err) == (0, "")
    (page,) = tmp_path.glob("runs/org__tiny-rm/*-published/report.html")
    assert "What is" in page.read_text()  # the benchmark's texts are there to read
    assert not [request for request in hub.requests if "models/org" in request]
    missing = run(hub.url, tmp_path, "eval", "--model", "org/tiny", "--scores", "published")
    assert missing.code == 2
    assert "did you mean org/tiny-rm" in missing.err
