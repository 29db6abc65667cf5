"""People's votes on the command line: eval, compare, report, --fail-if and --ties."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from rmcalib.metrics import Settings, metric_rows
from rmcalib.scores import Scores
from tests.cli.conftest import Invoke, folder_of, write_rows
from tests.report.boards import write_run


def scores(scale: float) -> Scores:
    """Scores whose rewards are ``scale`` times what decides how people vote; a fifth of them tie."""
    rng = np.random.default_rng(0)
    utility = rng.normal(scale=1.2, size=(90, 2))
    first = 1 / (1 + np.exp(utility[:, 1] - utility[:, 0]))
    votes = rng.multinomial(4, np.column_stack([0.8 * first, 0.8 * (1 - first), np.full(90, 0.2)]))
    names = ["Chat", "Code"] * 45
    return Scores.from_arrays(scale * utility, votes=votes[:, :2], ties=votes[:, 2], category=names)


def test_votes_lead_the_report(tmp_path: Path, invoke: Invoke) -> None:
    scores(3.0).to_parquet(tmp_path / "bold.parquet")
    base = ("eval", "--scores", "bold.parquet", "--model", "org/bold", "--resamples", "40")
    done = invoke(*base, "--fail-if", "abs(vote_gap).low>0.05", "--fail-if", "vote_log_loss_excess.low>5")
    assert done.code == 1
    assert "abs(vote_gap).low>0.05 holds" in done.err
    assert "vote_log_loss_excess" not in done.err
    assert "people agree" in done.out
    folder = folder_of(tmp_path / "runs")
    with (folder / "metrics.csv").open(encoding="utf-8") as lines:
        rows = {(row["category"], row["metric"]): row for row in csv.DictReader(lines)}
    content = json.loads((folder / "metrics.json").read_text())
    says, agree = (float(rows["overall", f"vote_{name}"]["value"]) for name in ("confidence", "agreement"))
    assert content["summary"].startswith(
        f"It says {says:.0%}, people agree {agree:.0%} of the time: over-conf"
    )
    assert any("--ties drop" in note for note in content["notes"])
    page = (folder / "report.html").read_text()
    for text in ("Says and people agree", "noise ceiling", "two people disagree", "best possible"):
        assert text in page
    assert ("Code", "vote_brier_ceiling") in rows


def test_ties_have_a_rule(tmp_path: Path, invoke: Invoke) -> None:
    scores(1.0).to_parquet(tmp_path / "s.parquet")
    base = ("eval", "--scores", "s.parquet", "--model", "org/rm", "--resamples", "20", "--json")
    done = invoke(*base, "--ties", "rao-kupper")
    assert done.code == 0, done.err
    (result,) = json.loads(done.out)["evaluations"]
    found = {row["metric"]: row["value"] for row in result["metrics"] if row["category"] == "overall"}
    direct = metric_rows(
        scores(1.0), model="m", benchmark="b", metrics=["vote_brier"], settings=Settings(ties="rao-kupper")
    )
    assert found["vote_brier"] == pytest.approx(direct[0]["value"])
    assert any("Rao and Kupper" in note for note in result["notes"])
    done = invoke(*base, "--ties", "half")
    assert done.code == 2
    assert "'half'" in done.err


def test_models_are_compared_by_votes(tmp_path: Path, invoke: Invoke) -> None:
    for name, scale in (("fair", 1.0), ("bold", 3.0)):
        write_run(tmp_path / "runs" / name, f"org/{name}", scores(scale))
    done = invoke("compare", "runs/fair", "runs/bold", "--resamples", "20")
    assert done.code == 0, done.err
    assert "A says" in done.out
    assert "people agree" in done.out
    options = ("--metric", "vote_log_loss_excess", "--resamples", "20", "--output", "board")
    done = invoke("report", "runs", *options)
    assert done.code == 0, done.err
    assert "Against people's votes" in " ".join(done.out.split())
    with (tmp_path / "board" / "leaderboard.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["model"] for row in rows] == ["org/fair", "org/bold"]
    assert float(rows[1]["vote_gap_low"]) > 0.05


def test_a_benchmark_with_votes_from_end_to_end(tiny_model: Path, tmp_path: Path, invoke: Invoke) -> None:
    rows = [
        {"id": str(i), "prompt": f"Say {i}", "responses": [f"{i}", f"not {i}"], "subset": "Chat"}
        | {"votes": [i % 4, 2], "ties": i % 2}
        for i in range(12)
    ]
    write_rows(tmp_path / "votes.jsonl", rows)
    done = invoke("eval", "--model", tiny_model, "--benchmark", "votes.jsonl", "--resamples", "20", "--json")
    assert done.code == 0, done.err
    (result,) = json.loads(done.out)["evaluations"]
    found = {row["metric"]: row for row in result["metrics"] if row["category"] == "overall"}
    assert found["vote_agreement"]["n"] == 12
    assert found["vote_tie_share"]["value"] == pytest.approx(
        np.mean([(i % 2) / (i % 4 + 2 + i % 2) for i in range(12)])
    )
