"""Language models that judge, on the command line: costs before, a report after, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmcalib.scores import Scores
from tests.cli.conftest import FILES, Invoke, folder_of, visible
from tests.judges.chat_servers import Chat, by_quality
from tests.judges.serving import serving

KEY = "sk-very-secret-456"
SMALL = ("--benchmark", "demo", "--limit", "12")


def test_from_a_chat_server_to_a_report(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMCALIB_API_KEY", KEY)
    with serving(Chat(weights=lambda messages: by_quality(messages, bias=4.0))) as server:
        base = ("eval", "--model", "org/lm", "--endpoint", server.url, "--judge", "letter", *SMALL)
        counted = invoke(*base, "--dry-run", "--json")
        assert server.requests == []
        assert not (tmp_path / "runs").exists()
        done = invoke(*base, "--resamples", "20", "--json")
        assert done.code == 0, done.err
        again = invoke(*base, "--resamples", "20", "--verbose")
        assert "all responses were scored before" in again.err
        other = invoke(*base, "--judge-seed", "1")
        assert other.code == 2
        assert "judge_seed: 0 there, 1 now" in other.err
        # Without the short question that a judge begins with.
        asked = sum(len((request.body or {}).get("messages", ())) == 2 for request in server.requests)
    assert json.loads(counted.out)["org/lm"]["requests"] == asked
    folder = folder_of(tmp_path / "runs")
    assert visible(folder) == FILES
    manifest = json.loads((folder / "run.json").read_text())
    assert (manifest["scale"], manifest["judge_prompt"]) == ("log-probabilities", "letter 1")
    assert manifest["judge_answers"]["answers"] == asked
    places = manifest["judge_answers"]["places"]["mean_probability"]
    assert places[0] == max(places)
    assert "Position bias: the mean probability by place is A 0." in (folder / "report.html").read_text()
    assert {"place", "firsts", "mass"} <= {*Scores.from_parquet(folder / "scores.parquet").details}
    for text in (counted.out, done.out, done.err, again.out, again.err, other.err):
        assert KEY not in text
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_yes_no_has_its_own_calibration_in_the_report(tmp_path: Path, invoke: Invoke) -> None:
    with serving(Chat()) as server:
        base = ("eval", "--model", "org/lm", "--endpoint", server.url, "--judge", "yes-no", *SMALL)
        done = invoke(*base, "--resamples", "20", "--json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["evaluations"]
    assert [row["name"] for row in found["answers"]] == ["yes_gap", "yes_ece", "yes_brier"]
    page = (folder_of(tmp_path / "runs") / "report.html").read_text()
    assert "The judge&#39;s own answers" in page or "The judge's own answers" in page
    assert "yes_ece" in page


def test_costs_are_printed(invoke: Invoke) -> None:
    done = invoke("score", "--model", "org/lm", "--judge", "votes", "--votes", "3", *SMALL, "--dry-run")
    assert done.code == 0, done.err
    assert "org/lm on demo: 12 prompts, 36 requests, about " in done.out
    assert "at most 73,728 to write" in done.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--votes", "3"), "--votes: has no effect without --judge"),
        (("--dry-run",), "--dry-run: counts the requests of a language model that judges, so give --judge"),
        (
            ("--judge", "essay"),
            "judging: unknown 'essay' (have: letter, yes-no, rating, votes, rewardbench2)",
        ),
        (("--judge", "letter", "--judge-prompt", "gone.yaml"), "gone.yaml: No such file"),
        (("--judge", "letter", "--reference", "org/base"), "options of different kinds of judges"),
        (
            ("--judge", "letter", "--endpoint", "http://127.0.0.1:9"),
            "v1/models: connection refused",
        ),
    ],
)
def test_bad_options(invoke: Invoke, options: tuple[str, ...], message: str) -> None:
    failed = invoke("score", "--model", "org/lm", *options, *SMALL)
    assert failed.code == 2
    assert message in failed.err
    assert failed.err.count("\n") == 1


def test_a_batch_takes_judges(tmp_path: Path, invoke: Invoke) -> None:
    with serving(Chat()) as server:
        models = tmp_path / "models.yaml"
        models.write_text(f"- {{model: org/lm, judge: letter, endpoint: '{server.url}', placements: 1}}\n")
        done = invoke("batch", "--models", models, *SMALL, "--device", "cpu", "--no-metrics", "--json")
        assert done.code == 0, done.err
        models.write_text("- {model: org/lm, judge: essay}\n")
        failed = invoke("batch", "--models", models, *SMALL, "--no-metrics")
    (entry,) = json.loads(done.out)["models"]
    assert entry["state"] == "done"
    assert failed.code == 2
    assert "entry 1 (org/lm): judging: unknown 'essay'" in failed.err
