"""The embedded demo: `rmcalib eval` and `rmcalib doctor` do their real job at once, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import rmcalib
from tests.cli.conftest import run_process

# Nothing listens there: whoever asks the Hub fails.
NO_HUB = {"HF_ENDPOINT": "http://127.0.0.1:9"}


def test_without_arguments_the_demo_model_is_evaluated_on_the_demo_benchmark(tmp_path: Path) -> None:
    done = run_process("eval", cwd=tmp_path, HF_HOME=str(tmp_path / "empty"), **NO_HUB)
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines()[:-1])) <= 80
    page = tmp_path / "runs/demo/demo/report.html"
    assert str(page) in done.out
    assert "✓ correct" in page.read_text(encoding="utf-8")
    content = json.loads((page.parent / "metrics.json").read_text())
    overall = {row["metric"]: row for row in content["metrics"] if row["category"] == "overall"}
    # Really trained: clearly better than one in four, clearly imperfect.
    assert overall["accuracy"]["low"] > 0.4
    assert overall["accuracy"]["high"] < 0.95
    assert overall["ece_p_value"]["value"] < 0.05
    assert {row["category"] for row in content["metrics"]} >= {"Math", "Ties"}
    by_metric = {row["metric"]: row["value"] for row in content["metrics"] if row["category"] == "Ties"}
    assert by_metric["correct_first"] is not None
    assert by_metric["rewardbench_score"] is not None


def test_the_python_api_does_the_same(tmp_path: Path) -> None:
    bench = rmcalib.load_benchmark("demo", limit=60)
    scores = rmcalib.score(model="demo", benchmark=bench, device="cpu")
    report = rmcalib.evaluate(scores, benchmark=bench, resamples=50)
    assert report.table.loc[report.table.metric == "accuracy", "value"].iloc[0] == report.value("accuracy")
    assert report.to_html(tmp_path / "a.html").stat().st_size > 10_000
    assert json.loads(report.to_json(tmp_path / "a.json").read_text())["model"] == "demo"
    scores.to_parquet(tmp_path / "s.parquet")
    again = rmcalib.evaluate(rmcalib.load_scores(tmp_path / "s.parquet"), benchmark=bench, resamples=50)
    assert again.metrics == report.metrics


def test_doctor_finds_this_machine_fit(tmp_path: Path) -> None:
    done = run_process("doctor", "--json", cwd=tmp_path, **NO_HUB)
    content = json.loads(done.out)
    assert done.code == (0 if content["healthy"] else 1)
    assert content["hub_reachable"] is False
    assert content["versions"]["rmcalib"] == rmcalib.__version__
    checks = {(check["device"], check["dtype"]): check["status"] for check in content["checks"]}
    assert checks["cpu", "float32"] == "right"
