"""``rmcalib report`` as a user runs it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rmcalib import load_scores as rmcalib_scores
from tests.cli.conftest import Invoke
from tests.hub.server import LoopbackHub
from tests.processes import run_python
from tests.report.boards import synthetic, write_run, write_runs
from tests.runs.batch_hub import environment

ROOT = Path(__file__).parents[2]
PAPER = Path(__file__).parents[1] / "golden/paper_models.csv"


def rmcalib(
    *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return run_python(["-m", "rmcalib", *arguments], cwd=cwd, env=env)


def test_the_papers_table_from_the_command_line(tmp_path: Path) -> None:
    result = rmcalib("report", "--table", PAPER, "--output", "out", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for value in ("0.7713", "0.6448", "0.5955", "0.5417", "0.7260", "0.7531"):
        assert value in result.stdout
        assert value in (tmp_path / "out/summary.md").read_text(encoding="utf-8")
        assert value in (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert (tmp_path / "out/figures/correlation.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "out/figures/correlation.pdf").read_bytes()[:4] == b"%PDF"


def test_runs_from_the_command_line(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", 4)
    (tmp_path / "official.csv").write_text("model,score\norg/model-1,50\n")
    options = [
        "--resamples",
        "30",
        "--leaderboard",
        "official.csv",
        "--method",
        "kendall",
        "--method",
        "pearson",
    ]
    result = rmcalib("report", "runs", "--json", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    content = json.loads(result.stdout)
    assert [row["rank"] for row in content["models"]] == [1, 2, 3, 4]
    assert {row["method"] for row in content["correlations"]} == {"kendall", "pearson"}
    assert content["check"][0]["official"] == 0.5
    assert Path(content["page"]) == Path("report/report.html")
    assert (tmp_path / "report/report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "runs", "real", "--leaderboard", "official.csv"], "runs of several benchmarks"),
        (["report", "nowhere"], "nowhere: no such folder"),
        (["report", "empty"], "empty: no runs in it"),
        (["report", "--table", "nowhere.csv"], "nowhere.csv: No such file"),
        (["report", "runs", "--table", "t.csv"], "--table cannot be combined with folders"),
        (["report", "--table", "t.csv"], "t.csv: no column ece or ece_score"),
        (["report", "--table", "t.csv", "--metric", "errors"], "t.csv: no column errors"),
        (["report", "runs", "--metric", "margin"], "metric: unknown 'margin'"),
        (["report", "runs", "--method", "tau"], "--method: unknown 'tau'"),
        (["report", "runs", "--category", "Math"], "--category needs --table"),
        (["report", "runs", "--leaderboard", "t.txt"], "t.txt"),
        (["report", "broken"], "broken/org__rm/b/scores.parquet"),
    ],
)
def test_bad_usage_is_one_clear_line(
    arguments: list[str], message: str, tmp_path: Path, invoke: Invoke
) -> None:
    write_runs(tmp_path / "runs", 1, n=10)
    (tmp_path / "empty").mkdir()
    (tmp_path / "t.csv").write_text("model,score,error\na,1,0.5\n")
    (tmp_path / "official.csv").write_text("model,score\na,1\n")
    (tmp_path / "broken/org__rm/b").mkdir(parents=True)
    (tmp_path / "broken/org__rm/b/scores.parquet").write_text("not Parquet")
    result = invoke(*arguments)
    assert result.code == 2
    assert message in " ".join(result.err.split())
    assert len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "report").exists()


CATEGORIES = ("Factuality", "Precise IF", "Math", "Safety", "Focus", "Ties")


def test_official_figures_from_the_hub(tmp_path: Path) -> None:
    """Fetched by model at one commit that is reported; kept, so that they are there without a network."""
    figures = {name: 0.5 + i / 100 for i, name in enumerate(CATEGORIES)}
    about = {"model": "org/model-0", "model_type": "Seq. Classifier", "chat_template": "x"}
    files = {
        "eval-set/org/model-0.json": {**about, **figures},
        "eval-set/org/model-1.json": {**about, "Math": 60.0},
        "eval-set-scores/org/model-0.json": {},
    }
    for i in range(3):
        write_run(tmp_path / "runs", f"org/model-{i}", synthetic(i), benchmark="allenai/reward-bench-2")
    write_run(tmp_path / "runs", str(tmp_path / "local"), synthetic(4), benchmark="allenai/reward-bench-2")
    options = ("report", "runs", "--resamples", "20", "--json", "--leaderboard", "hub")
    with LoopbackHub() as hub:
        content = {path: json.dumps(file).encode() for path, file in files.items()}
        commit = hub.add("datasets", "allenai/reward-bench-2-results", content)
        env = environment(hub.url, tmp_path / "home")
        result = rmcalib(*options, cwd=tmp_path, env=env)
        assert result.returncode == 0, result.stderr
        assert len([r for r in hub.requests if "GET" in r and "model-0.json" in r]) == 1
        assert not [r for r in hub.requests if "eval-set-scores" in r]
    reported = json.loads(result.stdout)
    check = {(row["model"], row["category"]): row for row in reported["check"]}
    assert check["org/model-0", "Math"]["official"] == pytest.approx(0.52)
    assert check["org/model-1", "Math"]["official"] == pytest.approx(0.6)
    assert {model for model, _ in check} == {"org/model-0", "org/model-1"}
    ours = check["org/model-0", "Focus"]
    assert ours["difference"] == pytest.approx(ours["ours"] - 0.54)
    assert any(commit in note and "of 2 of 4 models" in note for note in reported["notes"])
    assert any("no scores of org/model-2" in note for note in reported["notes"])
    # Now from the cache, with no Hub there any more; a model that was never asked for is not available then.
    offline = rmcalib(*options, cwd=tmp_path, env=env | {"HF_HUB_OFFLINE": "1"})
    assert offline.returncode == 0, offline.stderr
    assert json.loads(offline.stdout)["check"] == reported["check"]
    write_run(tmp_path / "runs", "org/model-9", synthetic(9), benchmark="allenai/reward-bench-2")
    offline = rmcalib(*options, cwd=tmp_path, env=env | {"HF_HUB_OFFLINE": "1"})
    assert offline.returncode == 2
    assert "allenai/reward-bench-2-results: not in the local cache" in offline.stderr
    assert len(offline.stderr.splitlines()) == 1


def test_official_figures_from_the_hub_are_of_one_benchmark(tmp_path: Path, invoke: Invoke) -> None:
    write_runs(tmp_path / "runs", 2, n=9)
    result = invoke("report", "runs", "--leaderboard", "hub")
    assert result.code == 2
    assert "is about allenai/reward-bench-2, and the runs are of org/bench" in result.err


def test_without_arguments_the_page_shows_the_built_in_models(tmp_path: Path, invoke: Invoke) -> None:
    both = invoke("report", "--resamples", "20", "--json", "--output", "both")
    assert both.code == 0, both.err
    assert json.loads(both.out)["benchmarks"] == ["rewardmath", "reward-bench-2"]
    assert len(json.loads(both.out)["models"]) == 12
    result = invoke("report", "--benchmark", "rewardmath", "--resamples", "20", "--json")
    assert result.code == 0, result.err
    content = json.loads(result.out)
    assert content["benchmark"] == "rewardmath"
    found = {row["model"]: row for row in content["models"]}
    assert len(found) == 9
    sure = found["openbmb/Eurus-RM-7b"]
    assert sure["mean_confidence"] == pytest.approx(0.993, abs=5e-4)
    assert sure["accuracy"] == pytest.approx(0.170, abs=5e-4)
    assert any("MIT License, Copyright (c) 2024 Sunghwan Kim" in note for note in content["notes"])
    # One category is the same as all prompts: nothing is shown twice.
    assert {row["target"] for row in content["correlations"]} == {"leaderboard"}
    assert not (tmp_path / "report/figures/heatmap.png").exists()
    page = (tmp_path / "report/report.html").read_text(encoding="utf-8")
    assert "Skywork/Skywork-Reward-Llama-3.1-8B" in page
    assert "Sunghwan Kim" in page


def test_own_runs_stand_beside_the_built_in_models(tmp_path: Path, invoke: Invoke) -> None:
    mine = rmcalib_scores("real/internlm/internlm2-7b-reward").at_temperature(1.3)
    write_run(tmp_path / "runs", "me/mine", mine, benchmark="mine", benchmark_format="rewardmath")
    options = ("--benchmark", "rewardmath", "--resamples", "20", "--json")
    result = invoke("report", "real", "runs", *options)
    assert result.code == 0, result.err
    content = json.loads(result.out)
    assert content["models"][0]["model"] == "me/mine"
    assert len(content["models"]) == 10
    assert not any("same prompts" in note for note in content["notes"])


def test_built_in_scores_can_be_compared(invoke: Invoke) -> None:
    names = ("real/internlm/internlm2-7b-reward", "real/openbmb/Eurus-RM-7b")
    compared = invoke("compare", *names, "--resamples", "20", "--json")
    assert json.loads(compared.out)["b"] == "openbmb/Eurus-RM-7b"
    wrong = invoke("compare", "real/nobody", "real/openbmb/Eurus-RM-7b")
    assert wrong.code == 2
    assert "real/nobody: no such scores are built in (have: real/" in wrong.err


def test_runs_of_several_benchmarks_are_shown_side_by_side(tmp_path: Path, invoke: Invoke) -> None:
    for benchmark, scale in (("one", 0.3), ("two", 4.0)):
        write_run(tmp_path / "runs", "org/rm", synthetic(0, scale=scale), benchmark=benchmark)
    result = invoke("report", "runs", "--resamples", "20")
    assert result.code == 0, result.err
    assert "No single temperature is right for all benchmarks" in " ".join(result.out.split())
    assert str(Path("report/report.html")) in result.out
    content = json.loads(invoke("report", "runs", "--resamples", "20", "--json").out)
    assert {row["benchmark"] for row in content["temperatures"]} == {"one", "two"}
    assert (tmp_path / "report/one/report.html").is_file()
    one = json.loads(invoke("report", "runs", "--benchmark", "one", "--resamples", "20", "--json").out)
    assert one["benchmark"] == "one"
