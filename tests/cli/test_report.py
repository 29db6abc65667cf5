"""``rmcalib report`` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.boards import write_runs

ROOT = Path(__file__).parents[2]
PAPER = ROOT.parent / "shared/data/rewardbench2/paper_reward_models.csv"


def rmcalib(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rmcalib", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_the_papers_table_from_the_command_line(tmp_path: Path) -> None:
    if not PAPER.is_file():
        pytest.skip("the paper's table of 48 models is not at hand")
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
    assert content["check"][0]["official"] == 50
    assert Path(content["page"]) == Path("report/report.html")
    assert (tmp_path / "report/report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report"], "name a folder with runs"),
        (["report", "nowhere"], "nowhere: no such folder"),
        (["report", "empty"], "empty: no runs in it"),
        (["report", "--table", "nowhere.csv"], "nowhere.csv: No such file"),
        (["report", "runs", "--table", "t.csv"], "--table: goes without folders"),
        (["report", "--table", "t.csv"], "t.csv: no column ece or ece_score"),
        (["report", "--table", "t.csv", "--metric", "errors"], "t.csv: no column errors"),
        (["report", "runs", "--metric", "margin"], "metric: unknown 'margin'"),
        (["report", "runs", "--method", "tau"], "--method: unknown 'tau'"),
        (["report", "runs", "--category", "Math"], "--category: goes with --table"),
        (["report", "runs", "--leaderboard", "t.txt"], "t.txt"),
        (["report", "broken"], "broken/org__rm/b/scores.parquet"),
    ],
)
def test_bad_usage_is_one_clear_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", 1, n=10)
    (tmp_path / "empty").mkdir()
    (tmp_path / "t.csv").write_text("model,score,error\na,1,0.5\n")
    (tmp_path / "broken/org__rm/b").mkdir(parents=True)
    (tmp_path / "broken/org__rm/b/scores.parquet").write_text("not Parquet")
    result = rmcalib(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "report").exists()
