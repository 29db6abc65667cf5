"""The light install: every command that needs no model works without the libraries of the extras."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
# A finder that knows none of the libraries of the extras, as if they were not installed.
PROGRAM = """
import sys
from importlib.abc import MetaPathFinder

from rmcalib._util.extras import _EXTRA_OF

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {*_EXTRA_OF, "requests"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
from rmcalib.cli import main

for line in sys.argv[1].splitlines():
    sys.argv = ["rmcalib", *line.split()]
    try:
        main()
    except SystemExit as end:
        print(f"{end.code or 0} {line}")
"""


def codes(folder: Path, *lines: str) -> tuple[dict[str, int], str]:
    """Run commands in one process without the extras; return their exit codes, and standard error."""
    command = [sys.executable, "-c", PROGRAM, "\n".join(lines)]
    environment = {
        "PYTHONPATH": str(ROOT),
        "PATH": "/usr/bin",
        "HOME": str(folder),
        "MPLCONFIGDIR": str(folder),
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    ends = [line.partition(" ") for line in done.stdout.splitlines() if line[:1].isdigit()]
    return {line: int(code) for code, _, line in ends if line in lines}, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    best = rng.integers(3, size=120)
    reward = 2 * rng.normal(size=(120, 3)) + 2 * (np.arange(3) == best[:, None])
    ids = {"prompt": np.repeat(np.arange(120), 3), "response": np.tile(np.arange(3), 120)}
    label = (np.arange(3) == best[:, None]).astype(int).ravel()
    for name, noise in (("a", 0.0), ("b", 1.0)):
        moved = reward + noise * rng.normal(size=reward.shape)
        pd.DataFrame({**ids, "score": moved.ravel(), "is_best": label}).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    return tmp_path


def test_what_needs_no_model_runs_without_the_extras(folder: Path) -> None:
    lines = (
        "--help",
        "eval --scores a.csv -o runs --quiet --resamples 20",
        "calibrate a.csv --to c.json --quiet",
        "decide a.csv --quiet",
        "apply a.csv --calibrator c.json --to p.csv --quiet",
        "compare a.csv b.csv -o compared --quiet --resamples 20",
        "combine a.csv b.csv --quiet",
        "report a.csv b.csv --output reported --quiet --resamples 20",
        "card runs --quiet",
        "list metrics --quiet",
        "list models --quiet",
    )
    found, errors = codes(folder, *lines)
    assert found == dict.fromkeys(lines, 0), errors


@pytest.mark.parametrize(
    ("line", "extra"),
    [("eval", "models"), ("doctor", "models"), ("prolr --dataset iris", "tabular")],
)
def test_what_needs_one_says_what_to_install(tmp_path: Path, line: str, extra: str) -> None:
    found, errors = codes(tmp_path, line)
    assert found == {line: 2}
    assert f"rmcalib[{extra}]" in errors
    assert len(errors.strip().splitlines()) == 1


def test_scores_of_a_file_load_no_judge() -> None:
    code = (
        "import sys, rmcalib\n"
        "rmcalib.evaluate(rmcalib.Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]] * 20), resamples=20)\n"
        "print([name for name in sys.modules if name.startswith('rmcalib.judges')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_evaluation_imports_no_judge_and_no_3d_axes(tmp_path: Path) -> None:
    rows = [f"{i},{i % 7},{k},{int(k == 0)}" for i in range(30) for k in range(2)]
    (tmp_path / "scores.csv").write_text("\n".join(["prompt,reward,response,label", *rows]) + "\n")
    command = [sys.executable, "-X", "importtime", "-m", "rmcalib", "eval", "--scores", "scores.csv"]
    done = subprocess.run(
        [*command, "--resamples", "20"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "matplotlib.figure" in imported
    unwanted = ("rmcalib.judges", "rmcalib.runs._run", "mpl_toolkits.mplot3d.", "pandas", "torch")
    assert not {name for name in imported if name.startswith(unwanted)}
    assert "Axes3D" not in done.stderr
