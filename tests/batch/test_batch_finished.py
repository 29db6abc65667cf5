"""Every command and engine recognises a finished run without loading the model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from rmcalib._util.files import write_json
from rmcalib.batch import BatchRequest, PlanEntry, Scoring, Status
from rmcalib.batch import run_batch as run_request
from rmcalib.batch._batch import Job, open_batch, scoring_ticket
from rmcalib.batch._status import read_events
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.cli._shared.batch_run import evaluator_for
from rmcalib.judges import LoadOptions, Recipe, identify
from rmcalib.metrics import Settings
from rmcalib.report import evaluate, write_evaluation
from rmcalib.runs import finished_scores, run_folder, score
from rmcalib.scores import Scores
from tests.batch.stand_in_ray import score_in_process

N = 40
OPTIONS: dict[str, Any] = {"device": "cpu", "max_length": 300}
ENTRY = PlanEntry(LoadOptions().recipe_for("demo"), "llama")


def job(*, fresh: bool = False, **other: Any) -> Job:
    return Job(load_benchmark("demo", limit=N), LoadOptions(**{**OPTIONS, **other}), fresh=fresh)


def score_demo(output: Path, **other: Any) -> Scores:
    return score("demo", load_benchmark("demo", limit=N), output=output, **{**OPTIONS, **other})


def run_batch(output: Path, entry: PlanEntry = ENTRY, **judging: Any) -> tuple[Status, set[str]]:
    """Run a batch of the demo model with the local engine; also return the kinds of its events."""
    n_before = len(read_events(output)) if (output / "events.jsonl").exists() else 0
    request = BatchRequest(
        [entry.recipe], how=Scoring("demo", limit=N, options=LoadOptions(**OPTIONS)), output=output
    )
    status = run_request(request, evaluator=evaluator_for(Settings(**judging)) if judging else None)
    assert status.models["demo"].state == "done", status.models["demo"].why
    return status, {event["event"] for event in read_events(output)[n_before:]}


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise ValueError("the weights were asked for")

    monkeypatch.setattr("rmcalib.judges._classifier.load_model", load)


@pytest.mark.usefixtures("no_weights")
def test_score_after_a_batch(tmp_path: Path) -> None:
    _, events = run_batch(tmp_path)  # in another process, which can load the model
    assert "scoring" in events
    assert score_demo(tmp_path).n_items == N
    with pytest.raises(ValueError, match="the weights were asked for"):
        score_demo(tmp_path, max_length=200)


def test_batch_after_score(tmp_path: Path) -> None:
    score_demo(tmp_path)
    status, events = run_batch(tmp_path)
    assert events == {"start", "done", "end"}
    assert not status.models["demo"].fresh


def test_score_after_a_cluster_and_vice_versa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = job()
    with open_batch(tmp_path, [ENTRY]) as batch:
        ticket = scoring_ticket(batch, ours, ENTRY)
        assert not ticket.scored
        score_in_process(batch, ours, ticket, monkeypatch)
        assert scoring_ticket(batch, ours, ENTRY).scored
        assert not scoring_ticket(batch, job(fresh=True), ENTRY).scored
        assert not scoring_ticket(batch, job(dtype="bfloat16"), ENTRY).scored
        other = dataclasses.replace(ENTRY, recipe=Recipe("demo", sign=-1))
        assert not scoring_ticket(batch, ours, other).scored
    monkeypatch.setattr("rmcalib.judges._classifier.load_model", None)
    assert score_demo(tmp_path).n_items == N


def test_metrics_made_from_other_inputs_are_computed_again(tmp_path: Path) -> None:
    scores, bench = score_demo(tmp_path), load_benchmark("demo", limit=N)
    folder = run_folder(tmp_path, "demo", "demo")

    def evaluated_again(entry: PlanEntry = ENTRY, resamples: int = 20) -> bool:
        return "evaluating" in run_batch(tmp_path, entry, resamples=resamples, seed=0)[1]

    def write(scores: Scores, texts: Benchmark | None = bench, **settings: Any) -> None:
        known = {"model": "demo", "recipe": ENTRY.recipe, "resamples": 20}
        write_evaluation(evaluate(scores, benchmark=texts, **{**known, **settings}), folder)

    assert evaluated_again()
    assert not evaluated_again()
    write(scores, resamples=30)  # as eval does
    assert not evaluated_again(resamples=30)
    assert evaluated_again()
    for settings in ({"bins": 5}, {"level": 0.5}, {"texts": None}):
        write(scores, **settings)
        assert evaluated_again(), settings
    write(dataclasses.replace(scores, reward=-scores.reward))
    assert evaluated_again()


def test_the_scale_of_a_recipe_changes_the_metrics(tmp_path: Path) -> None:
    score_demo(tmp_path)
    run_batch(tmp_path, resamples=20, seed=0)
    folder = run_folder(tmp_path, "demo", "demo")
    assert (folder / "reliability.png").exists()
    known = dataclasses.replace(ENTRY.recipe, bradley_terry="no", loss="quantile regression")
    entry = dataclasses.replace(ENTRY, recipe=known)
    assert "evaluating" in run_batch(tmp_path, entry, resamples=20, seed=0)[1]
    rows = json.loads((folder / "metrics.json").read_text())["metrics"]
    assert {row["value"] for row in rows if row["metric"] == "ece"} == {None}
    assert not (folder / "reliability.png").exists()


def test_damaged_or_foreign_files_are_not_finished(tmp_path: Path) -> None:
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
