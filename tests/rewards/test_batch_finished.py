"""A finished run is known as such by every command and engine, without the model being loaded."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from rmcalib.files import write_json
from rmcalib.rewards.batch import Batch, Job, open_batch, run_local, scoring_ticket
from rmcalib.rewards.batch_status import read_events
from rmcalib.rewards.benchmarks import load_benchmark
from rmcalib.rewards.cluster import _Room, _score
from rmcalib.rewards.jobs import score
from rmcalib.rewards.models import identify
from rmcalib.rewards.plan import PlanEntry
from rmcalib.rewards.registry import Recipe, recipe_for
from rmcalib.rewards.runs import finished_scores, run_folder
from rmcalib.rewards.store import Scores
from tests.rewards.test_cluster_workers import InProcess

N = 40
OPTIONS: dict[str, Any] = {"device": "cpu", "max_length": 300}
ENTRY = PlanEntry(recipe_for("demo"), "llama")


def job(**other: Any) -> Job:
    return Job(load_benchmark("demo", limit=N), "demo", limit=N, **{**OPTIONS, **other})


def score_demo(output: Path, **other: Any) -> Scores:
    return score("demo", load_benchmark("demo", limit=N), output=output, **{**OPTIONS, **other})


def run_batch(output: Path, **judging: Any) -> tuple[Batch, set[str]]:
    """Run a batch of the demo model by the local engine; also return the kinds of events there were."""

    def judge(_: PlanEntry, scores: Scores, folder: Path) -> None:
        write_json(folder / "metrics.json", {**judging, "manifest": scores.manifest})

    n_before = len(read_events(output)) if (output / "events.jsonl").exists() else 0
    with open_batch(output, [ENTRY], judge=judge if judging else None, judging=judging) as batch:
        run_local(batch, job(), [ENTRY])
    assert batch.status.models["demo"].state == "done", batch.status.models["demo"].why
    return batch, {event["event"] for event in read_events(output)[n_before:]}


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise ValueError("the weights were asked for")

    monkeypatch.setattr("rmcalib.rewards.models.load_model", load)


@pytest.mark.usefixtures("no_weights")
def test_score_after_a_batch(tmp_path: Path) -> None:
    _, events = run_batch(tmp_path)  # in a process of its own, which may load the model
    assert "scoring" in events
    assert score_demo(tmp_path).n_items == N
    with pytest.raises(ValueError, match="the weights were asked for"):
        score_demo(tmp_path, max_length=200)


def test_batch_after_score(tmp_path: Path) -> None:
    score_demo(tmp_path)
    batch, events = run_batch(tmp_path)
    assert events == {"start", "done", "end"}
    assert not batch.status.models["demo"].fresh


def test_score_after_a_cluster_and_the_other_way_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray, ours = InProcess({"CPU": 1}), job()
    monkeypatch.setattr("rmcalib.rewards.cluster.import_ray", lambda: ray)
    with open_batch(tmp_path, [ENTRY]) as batch:
        ticket = scoring_ticket(batch, ours, ENTRY)
        assert not ticket.scored
        _score(batch, ours, ticket, 1, _Room(ray), {"CPU": 1.0, "GPU": 0.0}, ours.benchmark)
        assert scoring_ticket(batch, ours, ENTRY).scored
        assert not scoring_ticket(batch, job(fresh=True), ENTRY).scored
        assert not scoring_ticket(batch, job(dtype="bfloat16"), ENTRY).scored
        other = dataclasses.replace(ENTRY, recipe=Recipe("demo", sign=-1))
        assert not scoring_ticket(batch, ours, other).scored
    monkeypatch.setattr("rmcalib.rewards.models.load_model", None)
    assert score_demo(tmp_path).n_items == N


def test_metrics_of_other_settings_are_made_again_whoever_wrote_them(tmp_path: Path) -> None:
    score_demo(tmp_path)
    assert "evaluating" in run_batch(tmp_path, resamples=20, seed=0)[1]
    assert "evaluating" not in run_batch(tmp_path, resamples=20, seed=0)[1]
    (file,) = tmp_path.glob("*/*/metrics.json")
    as_eval_would = json.loads(file.read_text()) | {"resamples": 30}
    write_json(file, as_eval_would)
    assert "evaluating" not in run_batch(tmp_path, resamples=30, seed=0)[1]
    assert "evaluating" in run_batch(tmp_path, resamples=20, seed=0)[1]
    write_json(file, as_eval_would | {"resamples": 20, "manifest": {"hash": "another run's"}})
    assert "evaluating" in run_batch(tmp_path, resamples=20, seed=0)[1]


def test_damaged_or_strange_files_are_not_finished(tmp_path: Path) -> None:
    score_demo(tmp_path)
    folder = run_folder(tmp_path, "demo", "demo")
    manifest = json.loads((folder / "run.json").read_text())
    asked = manifest["asked"]
    assert finished_scores(folder, asked) is not None
    assert finished_scores(folder, "something else") is None
    write_json(folder / "run.json", manifest | {"status": "scoring"})
    assert finished_scores(folder, asked) is None
    write_json(folder / "run.json", manifest | {"hash": "another run's"})
    assert finished_scores(folder, asked) is None
    write_json(folder / "run.json", manifest)
    (folder / "scores.parquet").write_bytes(b"PAR1")
    assert finished_scores(folder, asked) is None


def test_an_adapter_is_finished_as_long_as_its_base_is_the_same(tmp_path: Path) -> None:
    score_demo(tmp_path / "runs")
    folder = run_folder(tmp_path / "runs", "demo", "demo")
    base = tmp_path / "base@home"
    base.mkdir()
    (base / "config.json").write_text("{}")
    manifest = json.loads((folder / "run.json").read_text())
    manifest["inputs"]["model_sources"] = {"base": f"{base}@{identify(str(base))}"}
    write_json(folder / "run.json", manifest)
    assert finished_scores(folder, manifest["asked"]) is not None
    (base / "config.json").write_text('{"changed": 1}')
    assert finished_scores(folder, manifest["asked"]) is None
