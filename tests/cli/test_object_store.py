"""Commands with results in a real object store: moto's S3 server on 127.0.0.1."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmcalib.scores import Scores, load_scores
from tests.cli.conftest import Invoke, command, environment, write_rows
from tests.hooks import held, wait_for
from tests.hub import tiny
from tests.object_store import BUCKET, names, s3_server
from tests.runs.small_runs import same

RUNS = f"s3://{BUCKET}/runs"


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3_server() as variables:
        yield variables


@pytest.fixture
def s3(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty bucket, and the file system through which the test looks at it."""
    import s3fs

    for name, value in server.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    fs = s3fs.S3FileSystem()
    fs.mkdir(BUCKET)
    yield fs
    fs.rm(BUCKET, recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


def test_eval_report_and_compare(s3: Any, invoke: Invoke) -> None:
    quick = ("--resamples", "20", "--json")
    first = invoke("eval", "--limit", "24", "--device", "cpu", "--output", RUNS, *quick)
    assert (first.code, first.err) == (0, "")
    folder = json.loads(first.out)["evaluations"][0]["folder"]
    assert folder == f"{RUNS}/demo/demo"
    files = ["metrics.csv", "metrics.json", "reliability.png", "report.html", "run.json", "scores.parquet"]
    assert names(s3, f"{BUCKET}/runs/demo/demo") == files
    again = invoke("eval", "--limit", "24", "--device", "cpu", "--output", RUNS, "--resamples", "20")
    assert "all responses were scored before" in again.err
    assert f"{folder}/report.html" in again.out

    # What an earlier report has left, and this one does not have, is removed there too.
    s3.pipe_file(f"{BUCKET}/report/check.csv", b"of an earlier one")
    report = invoke("report", RUNS, "--output", f"s3://{BUCKET}/report", *quick)
    assert json.loads(report.out)["page"] == f"s3://{BUCKET}/report/report.html"
    assert s3.cat_file(f"{BUCKET}/report/figures/reliability.png")[:4] == b"\x89PNG"
    assert "check.csv" not in names(s3, f"{BUCKET}/report")

    table = f"s3://{BUCKET}/differences.csv"
    same_twice = invoke("compare", folder, f"{folder}/scores.parquet", "--output", table, *quick)
    content = json.loads(same_twice.out)
    assert content["a"] == f"demo ({folder})"
    assert {row["difference"] for row in content["differences"]} == {0.0}
    assert len(s3.cat_file(f"{BUCKET}/differences.csv").splitlines()) == 1 + len(content["differences"])


def test_killed_in_the_middle_and_resumed_elsewhere(
    s3: Any, server: dict[str, str], tiny_model: Path, tmp_path: Path, invoke: Invoke
) -> None:
    bench = write_rows(tmp_path / "long.jsonl", tiny.benchmark_rows(160))
    base = ("score", "--model", tiny_model, "--benchmark", bench, "--token-budget", "200")
    assert invoke(*base, "--output", tmp_path / "whole", "--quiet").code == 0
    process = subprocess.Popen(
        command(*base, "--output", RUNS),
        cwd=tmp_path,
        env=held(environment(HF_HUB_OFFLINE="1", **server), "parts == 2"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: len(_parts(s3)) == 2, lambda: process.poll() is None)
    process.kill()
    process.wait()
    resumed = invoke(*base, "--output", RUNS)
    assert resumed.code == 0, resumed.err
    assert "responses were scored before; continuing" in resumed.err
    (there,) = (name for name in names(s3, f"{BUCKET}/runs") if name.endswith("scores.parquet"))
    whole = Scores.from_parquet(next((tmp_path / "whole").glob("*/*/scores.parquet")))
    assert same(load_scores(f"{RUNS}/{there}"), whole)
    assert _parts(s3) == []
    assert not [name for name in names(s3, f"{BUCKET}/runs") if "lock" in name or ".tmp" in name]


def _parts(s3: Any) -> list[str]:
    return [name for name in names(s3, f"{BUCKET}/runs") if "/scored-" in name]


def test_batch(s3: Any, tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "m.yaml").write_text("- model: demo\n- model: ./nowhere\n")
    what = ("batch", "--models", "m.yaml", "--benchmark", "demo", "--limit", "24", "--device", "cpu")
    options = (*what, "--ignore-memory", "--output", RUNS, "--resamples", "20", "--json")
    done = invoke(*options)
    assert done.code == 1, done.err
    content = json.loads(done.out)
    assert content["counts"] == {"done": 1, "failed": 1}
    assert content["models"] == json.loads(s3.cat_file(f"{BUCKET}/runs/batch.json"))["models"]
    found = names(s3, f"{BUCKET}/runs")
    assert {
        "batch.json",
        "batch.log",
        "events.jsonl",
        "demo/demo/scores.parquet",
        "demo/demo/metrics.json",
    } <= {*found}
    before = s3.cat_file(f"{BUCKET}/runs/events.jsonl")
    assert json.loads(invoke(*options).out)["counts"] == {"done": 1, "failed": 1}
    added = s3.cat_file(f"{BUCKET}/runs/events.jsonl").removeprefix(before)
    events = [json.loads(line)["event"] for line in added.splitlines()]
    assert (events[0], sorted(events[1:3]), events[3:]) == ("start", ["done", "failed"], ["end"])


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("s3://no-such-bucket/runs", "s3://no-such-bucket/runs/demo/demo/run.json: cannot be written"),
        ("nowhere://x", "nowhere://x: unknown kind of storage 'nowhere'"),
    ],
)
@pytest.mark.usefixtures("s3")
def test_refusals_are_one_line(output: str, message: str, invoke: Invoke) -> None:
    done = invoke("score", "--limit", "8", "--device", "cpu", "--output", output)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err
