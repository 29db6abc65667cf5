"""`rmcalib eval`: from a model, a file of scores or a server to a folder with a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import FILES, Invoke, Outcome, folder_of, visible, write_rows, write_scores
from tests.hub import tiny
from tests.judges.reward_servers import Vllm
from tests.judges.serving import Reply, Request, serving

QUICK = ("--resamples", "20")
KEY = "sk-very-secret-123"


def values(done: Outcome) -> dict[tuple[str, str], float]:
    """The metrics of an evaluation that was printed as JSON."""
    assert done.code in (0, 1), done.err
    rows = json.loads(done.out)["evaluations"][0]["metrics"]
    return {(row["category"], row["metric"]): row["value"] for row in rows}


def test_a_model_is_scored_and_evaluated_and_not_scored_again(
    plain: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    base = ("eval", "--model", plain, "--benchmark", bench_file, "-J", "device=cpu", *QUICK)
    done = invoke(*base)
    assert (done.code, done.err) == (0, "")
    folder = folder_of(tmp_path / "runs")
    assert visible(folder) == FILES
    assert str(folder / "report.html") in done.out
    assert "rmcalib calibrate" not in done.out  # a random model has nothing to calibrate
    scored = (folder / "scores.parquet").stat().st_mtime_ns
    again = invoke(*base, "--json")
    assert again.err.count("\n") == 1  # that it was scored before
    assert (folder / "scores.parquet").stat().st_mtime_ns == scored
    written = json.loads((folder / "metrics.json").read_text())["metrics"]
    assert {(row["category"], row["metric"]): row["value"] for row in written} == values(again)
    page = (folder / "report.html").read_bytes()
    assert invoke("eval", "--scores", folder / "scores.parquet", *QUICK).code == 0
    assert (folder / "report.html").read_bytes() == page  # it has the texts, which the scores do not have
    assert (folder / "without-texts/report.html").is_file()
    other = invoke(*base, "--limit", 8)
    assert other.code == 2
    assert "--fresh" in other.err
    assert invoke(*base, "--limit", 8, "--fresh", "--quiet").code == 0
    assert json.loads((folder / "run.json").read_text())["n_items"] == 8


def test_several_models_and_benchmarks(plain: Path, bench_file: Path, tmp_path: Path, invoke: Invoke) -> None:
    other = write_rows(tmp_path / "other.jsonl", tiny.benchmark_rows(12))
    wanted = ("--model", f"{plain},./nowhere", "-b", bench_file, "-b", other)
    done = invoke("eval", *wanted, "--limit", 10, *QUICK)
    assert done.code == 1
    assert "./nowhere" in done.err
    assert len(list((tmp_path / "runs").glob("*/*/report.html"))) == 2
    assert "rmcalib report runs" in done.out


def test_scores_from_a_csv_with_usual_names_and_with_columns(tmp_path: Path, invoke: Invoke) -> None:
    accuracy = write_scores(tmp_path / "mine.csv")
    plain = invoke("eval", "--scores", "mine.csv", *QUICK, "--json")
    assert values(plain)["overall", "accuracy"] == pytest.approx(accuracy)
    assert visible(folder_of(tmp_path / "runs")) == FILES
    text = (
        (tmp_path / "mine.csv").read_text().replace("prompt_id,response_id,score,is_best,kind", "a,b,c,d,e")
    )
    (tmp_path / "odd.csv").write_text(text)
    columns = ("--columns", "prompt=a,response=b,reward=c,label=d,category=e")
    named = invoke("eval", "--scores", "odd.csv", *columns, "--model", "org/mine", *QUICK, "--json")
    assert values(named)["overall", "accuracy"] == pytest.approx(accuracy)
    assert ("even", "accuracy") in values(named)
    assert (tmp_path / "runs/org__mine").is_dir()


def test_a_part_of_scores_has_its_own_folder(invoke: Invoke) -> None:
    assert invoke("eval", "-J", "device=cpu", "--limit", 24, *QUICK, "--quiet").code == 0
    again = ("eval", "--scores", "runs/demo/demo", "--benchmark", "demo", *QUICK, "--json")
    whole, half = (
        json.loads(invoke(*again, *part).out)["evaluations"][0] for part in ((), ("--part", "1/2"))
    )
    assert Path(whole["folder"]).name == whole["benchmark"] == "demo"
    assert Path(half["folder"]).name == half["benchmark"] == "demo-1of2"
    assert half["facts"]["prompts"] < whole["facts"]["prompts"] == 24


def test_conditions_markdown_and_a_calibrator(tmp_path: Path, invoke: Invoke) -> None:
    write_scores(tmp_path / "mine.csv")
    base = ("eval", "--scores", "mine.csv", *QUICK)
    done = invoke(*base, "--fail-if", "overconfidence.low>0.05", "--markdown", "-")
    assert done.code == 1
    assert "overconfidence.low>0.05" in done.err
    assert "overconfidence.low" in done.out
    before = values(invoke(*base, "--json"))
    assert invoke("calibrate", "mine.csv", "--to", "c.json", "--quiet").code == 0
    after = values(
        invoke(*base, "--calibrator", "c.json", "--fail-if", "overconfidence.low>0.05", "--json", "-q")
    )
    assert after["overall", "accuracy"] == before["overall", "accuracy"]
    assert abs(after["overall", "overconfidence"]) < 0.05 < before["overall", "overconfidence"]
    assert (folder_of(tmp_path / "runs") / "calibrated/report.html").is_file()


def test_a_configuration_file_and_the_command_line_over_it(tmp_path: Path, invoke: Invoke) -> None:
    write_scores(tmp_path / "mine.csv")
    (tmp_path / "c.yaml").write_text(
        "scores: mine.csv\nresamples: 20\njson: true\nmodel: [one]\nfail_if: [ece>1]\n"
    )
    done = invoke("eval", "--config", "c.yaml", "--model", "two")
    assert done.code == 0, done.err
    assert json.loads(done.out)["evaluations"][0]["model"] == "two"
    (tmp_path / "c.yaml").write_text("judge: {device: abacus}\nlimit: 2\n")
    assert "abacus" in invoke("eval", "--config", "c.yaml").err


def test_a_server_and_its_key(tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", KEY)
    monkeypatch.setattr("time.sleep", lambda _: None)
    base = ("eval", "--model", "org/rm", "-b", "demo", "--limit", 12, *QUICK, "-J", "api_key_env=MINE")
    with serving(Vllm()) as server:
        done = invoke(*base, "--endpoint", server.url)
        assert (done.code, done.err) == (0, "")
        assert {request.headers["Authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    manifest = json.loads((folder_of(tmp_path / "runs") / "run.json").read_text())
    assert (manifest["model"], manifest["endpoint"]) == ("org/rm", server.url)

    def refuses(request: Request) -> Reply:
        said = {"error": {"message": f"\x1b[31mbad {request.headers['Authorization']}"}}
        return Vllm()(request) if request.method == "GET" else Reply(said, 401)

    with serving(refuses) as server:
        failed = invoke(*base, "--endpoint", server.url, "--fresh")
    assert (failed.code, failed.err.count("\n")) == (2, 1)
    assert KEY not in done.out + failed.out + failed.err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_the_cost_of_a_language_model_is_counted_without_asking_it(invoke: Invoke) -> None:
    asked = ("eval", "--model", "org/lm", "--endpoint", "http://127.0.0.1:9", "-b", "demo", "--limit", 6)
    done = invoke(*asked, "-J", "judging=letter", "--dry-run", "--json")
    (cost,) = json.loads(done.out).values()
    assert (done.code, cost["prompts"]) == (0, 6)
    assert invoke(*asked, "--dry-run").code == 2


@pytest.mark.parametrize("command", [("eval", "--scores"), ("card",)])
def test_a_name_with_a_password_is_shown_and_stored_without_it(
    command: tuple[str, ...], tmp_path: Path, invoke: Invoke
) -> None:
    write_scores(tmp_path / "mine.csv")
    done = invoke(*command, "mine.csv", *QUICK, "--model", "s3://key:a/hunter2@bucket/x", "-o", "out")
    assert done.code == 0, done.err
    assert "hunter2" not in done.out + done.err
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if "hunter2" in str(path) or b"hunter2" in path.read_bytes()]
