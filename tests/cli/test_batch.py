"""`rmcalib batch` from the command line: plans, and bad input in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rmcalib(*options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rmcalib", "batch", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_dry_run_prints_the_plan_and_does_nothing(tmp_path: Path) -> None:
    options = ("--models", ROOT / "configs/leaderboard.yaml", "--device", "cpu", "--ignore-memory")
    done = rmcalib(*options, "--max-params", "3B", "--dry-run", "--output", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["model", "size", "memory", "device", "time"]
    first = lines[1].split()
    assert first[:6] == [
        "OpenAssistant/reward-model-deberta-v3-large-v2",
        "0.435B",
        "2.09",
        "GB",
        "cpu",
        first[5],
    ]
    assert float(first[5]) > 0
    assert "models to run, about" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_dry_run_as_json() -> None:
    done = rmcalib("--dry-run", "--json", "--device", "cpu", "--family", "gemma", "--exclude", "nicolinho/*")
    plan = json.loads(done.stdout)
    assert {entry["family"] for entry in plan} == {"gemma"}
    assert not [entry for entry in plan if entry["model"].startswith("nicolinho")]
    skipped = {entry["model"]: entry["skipped"] for entry in plan}
    assert len(skipped) >= 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-params", "big"], "--max-params: 'big' is no size (write it like 10B or 600M)"),
        (["--models", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
        (["--include", "nobody/*"], "no model is left by --include"),
        (["--scores", "mine.json"], "--scores mine.json: a batch scores by itself"),
        (["--engine", "slurm"], "'slurm' is not one of"),
        (["--device", "abacus", "--dry-run"], "device: unknown 'abacus'"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str) -> None:
    done = rmcalib(*options)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
