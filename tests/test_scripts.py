"""Every script runs through, at its smallest size."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from tests.scores.rewardmath import write_own

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
RESULTS = ROOT / "results"
# Imported by other scripts.
MODULES = {
    "demo_world",
    "measuring",
    "pages",
    "paper_figures",
    "paper_relations",
    "paper_reward_models",
    "reproduce_report",
    "verdicts",
    "worlds",
}
# What a script is called with, and a word of what it prints. {} is the folder that it may write to.
CASES: dict[str, tuple[str, str]] = {
    "bench_evaluation": ("--prompts 200 --resamples 20 --keep {}", "memory"),
    "bench_notions": ("--quick", "the table at once"),
    "bench_prolr": ("--learner mallows --processes 1 --resamples 5", "times as fast"),
    "bench_report": ("--models 2 --resamples 20", "the baseline"),
    "bench_watch": ("--files 3 --steps 2 --every 0.3", "a further step"),
    "bench_serve": ("--requests 20 --clients 1", "ratio"),
    "hack_a_reward": ("--seeds 1 --steps 2 --only healthy", "not stopped"),
    "bench_scoring": ("--prompts 1 --batches 1 --layers 1 --lengths even", "of the bound"),
    "count_lines": (str(SCRIPTS), "modules"),
    "downstream_grpo": ("--seeds 1 --steps 1 --first-steps 2 --only raw --output {}", "seed 0"),
    "downstream_report": ("--output {}", "downstream.md"),
    "downstream_scores": ("--splits 1 --output {}", "rewardmath"),
    "downstream_worlds": ("--worlds 1 --output {}", "best of 16"),
    "embed_real": ("--rewardmath classifier.json --output {}", "rewardmath.parquet"),
    "fuzz": (
        "--files 4 --options 1 --models 0 --kills 0 --requests 2 --rollouts 2 --seed 2",
        "\n0 surprises",
    ),
    "measure_alarms": ("--runs 1 --to {}/alarms.md", "fresh prompts"),
    "measure_best_of_n": ("--runs 2 --only one --output {}", "200 prompts"),
    "measure_clusters": ("--runs 1 --output {}", "5 × 60"),
    "measure_decisions": ("--runs 2 --output {}", "fixed sequence"),
    "measure_differences": ("--runs 2 --only pairs --output {}", "350 prompts"),
    "measure_labels": ("--runs 1 --only scale --output {}", "400 prompts"),
    "measure_notions": ("--runs 2 --cases 1 --processes 1 --output {}", "Calibrated forecasts"),
    "measure_scale": ("--boards 2 --output {}", ""),
    "measure_statistics": ("--runs 2 --only pairs --output {}", "350 prompts"),
    "measure_votes": ("--runs 1 --only 150 --output {}", "150 prompts"),
    "plan_leaderboard": ("", "GPU-hours"),
    "report_reward_models": ("--resamples 2 --output {}", "README.md"),
    "reproduce_paper": ("--report --results {}", "not made: exact of wine"),
    "train_demo_model": ("--steps 2 --questions 60 --batch 2 --output {}", "mean confidence"),
    "train_with_rmcalib": ("--steps 2 --eval-steps 1 --batch 2 --limit 20 --output {}", ""),
    "write_metrics_page": ("--check", ""),
    "write_metrics_schema": ("--to {}/metrics.schema.json", "metrics.schema.json"),
    "write_models_page": ("--check", ""),
    "write_speed_page": ("--to {}/speed.md", "evaluation: done"),
    "write_rollouts": ("wheels --to {}", "files in"),
}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Let scripts be imported as they are when they run, in an empty folder; undo what they set."""
    import torch

    threads, before = torch.get_num_threads(), set(sys.modules)
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "written"
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    for name in {path.stem for path in SCRIPTS.glob("*.py")} & (set(sys.modules) - before):
        del sys.modules[name]


def test_every_script_has_a_case() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == set(CASES) | MODULES


@pytest.mark.filterwarnings("default")  # as for everybody who runs them
@pytest.mark.parametrize("name", CASES)
def test_it_runs_through(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if (
        name in ("train_with_rmcalib", "downstream_grpo", "hack_a_reward")
        and importlib.util.find_spec("trl") is None
    ):
        pytest.skip("TRL is not installed (pip install 'rmcalib[trl]')")
    if name == "fuzz" and not may_fuzz():
        pytest.skip("as root, this needs a mount namespace of its own")
    arguments, word = CASES[name]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments.format(folder).split()])
    script = importlib.import_module(name)
    if name in PREPARED:
        PREPARED[name](script, folder, monkeypatch)
    script.main()
    assert word in capsys.readouterr().out
    if "{}" in arguments:
        assert any(folder.iterdir())


@pytest.mark.parametrize("table", ["reference", "exact", "recalibration"])
def test_missing_folds_are_made_as_those_that_are_shipped(
    table: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = importlib.import_module("reproduce_paper")
    iris_only(script, folder, monkeypatch)
    shipped = script.read_rows(folder, table)
    left_out = shipped["learner"].str.startswith("mallows")
    script.write_compressed(folder / f"{table}.csv.gz", shipped[~left_out])
    (step, *_) = (step for step in script.steps() if step.table == table and "iris" in step.datasets)
    step = replace(step, datasets=("iris",))
    assert script.missing(step, "iris", script.read_rows(folder, table)) == ("mallows",)
    script.run([step], folder, folder / "runs", 1)
    made = script.read_rows(folder, table)
    keys = ["learner", "fold", "family", "notion", "k", "protocol", "discrepancy"]
    # Six digits are shipped, and the last one differs between processors.
    pd.testing.assert_frame_equal(
        made.sort_values(keys, ignore_index=True), shipped.sort_values(keys, ignore_index=True), rtol=1e-5
    )
    script.forget([step], folder, folder / "runs")
    assert script.missing(step, "iris", script.read_rows(folder, table)) == step.plan.learners
    assert not any((folder / "runs" / "parts").iterdir())


def may_fuzz() -> bool:
    """Return whether hostile commands can run here without danger to the machine's own files."""
    return os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0


def test_documentation_is_not_counted_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    source = '"""A module."""\n\nLIMIT = 3\n"""What it\nlimits."""\n\n\nclass A:\n    x: int = 0\n    """A field."""\n'
    assert importlib.import_module("count_lines").code_lines(source) == 3


def few_prompts(script: ModuleType, _: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute the values of unlimited data from fewer prompts."""
    if hasattr(script, "MANY"):
        monkeypatch.setattr(script, "MANY", 4_000)
    else:
        monkeypatch.setattr(sys.modules["worlds"], "TRUTH_PROMPTS", 4_000)


def no_limit_of_memory(script: ModuleType, _: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started here begin with the peak memory of the tests."""
    monkeypatch.setattr(script, "GIGABYTES", float("inf"))


def small_boards(script: ModuleType, _: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "MODELS", 4)
    monkeypatch.setattr(script, "PROMPTS", 100)


def small_files(_: ModuleType, folder: Path, __: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    write_own(Path())


def iris_only(_: ModuleType, folder: Path, __: pytest.MonkeyPatch) -> None:
    """Put the rows of iris where the report reads rows from."""
    folder.mkdir()
    for name in ("datasets.csv", "relations.csv"):
        shutil.copy(RESULTS / name, folder)
    for path in RESULTS.glob("*.csv.gz"):
        if path.name not in ("agreement.csv.gz", "published_errors.csv.gz"):
            head, *rows = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)
            kept = [row for row in rows if row.startswith("iris,")]
            (folder / path.name).write_bytes(gzip.compress("".join([head, *kept]).encode()))


def one_short_section(script: ModuleType, _: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "SECTIONS", {"evaluation": ("Evaluating scores", ["count_lines.py"])})


PREPARED: dict[str, Callable[[ModuleType, Path, pytest.MonkeyPatch], None]] = {
    "bench_report": no_limit_of_memory,
    "embed_real": small_files,
    "measure_decisions": few_prompts,
    "measure_differences": few_prompts,
    "measure_scale": small_boards,
    "measure_statistics": few_prompts,
    "measure_votes": few_prompts,
    "reproduce_paper": iris_only,
    "write_speed_page": one_short_section,
}
