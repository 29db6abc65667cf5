"""Commands with results in a real object store: moto's S3 server on 127.0.0.1."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.object_store import BUCKET, names, s3_server
from tests.runs.small_runs import install

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
    first = invoke("eval", "--limit", "24", "-J", "device=cpu", "--output", RUNS, *quick)
    assert (first.code, first.err) == (0, "")
    folder = json.loads(first.out)["evaluations"][0]["folder"]
    assert folder == f"{RUNS}/demo/demo"
    files = ["metrics.csv", "metrics.json", "reliability.png", "report.html", "run.json", "scores.parquet"]
    assert names(s3, f"{BUCKET}/runs/demo/demo") == files
    again = invoke("eval", "--limit", "24", "-J", "device=cpu", "--output", RUNS, "--resamples", "20")
    assert again.err.count("\n") == 1  # that it was scored before
    assert f"{folder}/report.html" in again.out

    # What an earlier report has left, and this one does not have, is removed there too.
    for name in ("check.csv", "report.html", "summary.md"):
        s3.pipe_file(f"{BUCKET}/report/{name}", b"of an earlier one")
    report = invoke("report", RUNS, "--output", f"s3://{BUCKET}/report", *quick)
    assert json.loads(report.out)["page"] == f"s3://{BUCKET}/report/report.html"
    assert s3.cat_file(f"{BUCKET}/report/figures/says_right.png")[:4] == b"\x89PNG"
    assert "check.csv" not in names(s3, f"{BUCKET}/report")

    same_twice = invoke(
        "compare", folder, f"{folder}/scores.parquet", "--output", f"s3://{BUCKET}/pair", *quick
    )
    content = json.loads(same_twice.out)
    assert content["a"] == f"demo ({folder})"
    assert {row["difference"] for row in content["differences"]} == {0.0}
    assert names(s3, f"{BUCKET}/pair") == ["report.html"]


def test_batch(s3: Any, tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "slow")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "m.yaml").write_text("- model: slow\n- model: ./nowhere\n")
    what = ("batch", "--models", "m.yaml", "--benchmark", "demo", "--limit", "24")
    done = invoke(*what, "--output", RUNS, "--resamples", "20", "--json")
    assert done.code == 1, done.err
    content = json.loads(done.out)
    assert content["counts"] == {"done": 1, "failed": 1}
    assert content["models"] == json.loads(s3.cat_file(f"{BUCKET}/runs/batch.json"))["models"]
    found = names(s3, f"{BUCKET}/runs")
    assert {
        "batch.json",
        "events.jsonl",
        "slow/demo/scores.parquet",
        "slow/demo/metrics.json",
    } <= {*found}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("s3://no-such-bucket/runs", "s3://no-such-bucket/runs"),
        ("nowhere://x", "nowhere://x"),
    ],
)
@pytest.mark.usefixtures("s3")
def test_refusals_are_one_line(output: str, message: str, invoke: Invoke) -> None:
    done = invoke("eval", "--limit", "8", "-J", "device=cpu", "--output", output)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err


def test_a_store_without_keys_is_reported(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    for source in ("s3://bucket/runs", "s3://bucket/a.csv"):
        done = invoke("eval", "--scores", source)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert source in done.err
