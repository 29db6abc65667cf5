"""A tiny model, small files, and two ways to run the command line: here, and as a process."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmcalib.cli import main
from tests.hub import tiny

ROOT = Path(__file__).parents[2]
FILES = ["metrics.csv", "metrics.json", "reliability.png", "report.html", "run.json", "scores.parquet"]


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


Invoke = Callable[..., Outcome]


@pytest.fixture(scope="session")
def bench_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("benchmarks") / "small.jsonl", tiny.benchmark_rows(40))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_scores(path: Path, *, n: int = 120, scale: float = 2.5, noise: int = 0) -> float:
    """Write a CSV of a judge whose rewards should be divided by `scale`; return its accuracy."""
    rng = np.random.default_rng(0)
    utilities = rng.normal(size=(n, 4)) * 2
    best = (utilities + rng.gumbel(size=utilities.shape)).argmax(axis=1)
    rewards = scale * (
        utilities + 0.5 * np.random.default_rng(noise).normal(size=utilities.shape) * bool(noise)
    )
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["prompt_id", "response_id", "score", "is_best", "kind"])
        for i, own in enumerate(rewards):
            rows.writerows(
                [i, f"r{j}", float(r), int(j == best[i]), "odd" if i % 2 else "even"]
                for j, r in enumerate(own)
            )
    return float((rewards.argmax(axis=1) == best).mean())


def folder_of(output: Path) -> Path:
    """The one run folder of an output."""
    (found,) = output.glob("*/*/run.json")
    return found.parent


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Invoke:
    """Run the command line in this process, in an empty folder."""
    import torch

    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def run(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["rmcalib", *map(str, args)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        reported = capfd.readouterr()
        return Outcome(int(ended.value.code or 0), reported.out, reported.err)

    return run


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "RMCALIB"))}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", **more}
