"""Every script runs through, at its smallest size."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
MODULES = {
    "demo_world",
    "reproduce_report",
    "reward_model_figures",
    "reward_model_numbers",
}  # imported by other scripts
# What a script is called with, and a word of what it prints.
CASES: dict[str, tuple[list[str], str]] = {
    "bench_notions": (["--quick"], "the table at once"),
    "bench_packing": (["--prompts", "4"], "before/way"),
    "bench_prolr": (["--learner", "mallows", "--processes", "1", "--resamples", "5"], "times as fast"),
    "bench_report": (["--models", "2", "--resamples", "20"], "the baseline"),
    "bench_scoring": (
        ["--prompts", "1", "--batches", "1", "--layers", "1", "--lengths", "even", "--peak-seconds", "0.05"],
        "we are faster by",
    ),
    "embed_board": (["judge.json", "--output", "board.npz"], "1 models"),
    "measure_differences": (["--runs", "2", "--only", "pairs: 0.5 and 1"], "350 prompts"),
    "measure_notions": (["--runs", "2", "--cases", "1", "--processes", "1"], "Calibrated forecasts"),
    "measure_statistics": (["--runs", "2", "--only", "pairs, calibrated"], "350 prompts"),
    "plan_leaderboard": ([], "GPU-hours"),
    "report_reward_models": (["--resamples", "2", "--rewardmath", "judge.json"], "README.md"),
    "reproduce_paper": (["--datasets", "iris", "--experiments", "control", "--processes", "1"], "iris"),
    "train_demo_model": (["--steps", "2", "--questions", "60", "--batch", "2"], "mean confidence"),
    "write_metrics_page": (["--check"], ""),
}
WRITE = {  # the option for the folder that a script writes to
    "measure_differences": "--output",
    "measure_notions": "--output",
    "measure_statistics": "--output",
    "report_reward_models": "--output",
    "reproduce_paper": "--results",
    "train_demo_model": "--output",
}


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Let scripts be imported as they are when they run, in an empty folder; undo what they set."""
    import torch

    threads = torch.get_num_threads()
    before = set(sys.modules)
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    for name in {path.stem for path in SCRIPTS.glob("*.py")} & (set(sys.modules) - before):
        del sys.modules[name]


def made_smaller(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer prompts for the value of unlimited data."""
    for module in (script, sys.modules.get("measure_statistics")):
        if module is not None and hasattr(module, "TRUTH_PROMPTS"):
            monkeypatch.setattr(module, "TRUTH_PROMPTS", 4_000)


def test_every_script_has_a_case() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == set(CASES) | MODULES


@pytest.mark.parametrize("name", CASES)
def test_it_runs_through(
    name: str, scripts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, word = CASES[name]
    folder = scripts / "written"
    if name in WRITE:
        arguments = [*arguments, WRITE[name], str(folder)]
    if name == "reproduce_paper":
        keep_iris(folder)
    if "judge.json" in arguments:
        write_judge(scripts / "judge.json", steps=name == "report_reward_models")
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    script = importlib.import_module(name)
    made_smaller(script, monkeypatch)
    script.main()
    assert word in capsys.readouterr().out
    assert name not in WRITE or any(folder.iterdir())


def keep_iris(folder: Path) -> None:
    """Put the results of iris where those of the experiments that are not run are read from."""
    folder.mkdir()
    for path in (ROOT / "results").glob("*.csv"):
        head, *rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
        folder.joinpath(path.name).write_text(
            head + "".join(row for row in rows if row.startswith("iris,")), encoding="utf-8"
        )
    shutil.copy(ROOT / "results" / "README.md", folder)


def write_judge(path: Path, *, steps: bool) -> None:
    """Write scores of 30 problems in RewardMATH's own shape: of a reward model, or of steps."""
    authors = ["human_to_GPT-4", *(f"author {i}" for i in range(9))]
    scores = [[[0.5, (i * j % 7) / 8] if steps else i * j % 7 + 0.5 for j in range(10)] for i in range(30)]
    rows = [
        {"problem": f"problem {i}", "solution_reference": authors, "score": own}
        for i, own in enumerate(scores)
    ]
    path.write_text(json.dumps(rows), encoding="utf-8")
