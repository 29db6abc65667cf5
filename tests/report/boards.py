"""Synthetic scores, evaluations and run folders for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib.leaderboards import report_from_runs
from rmcalib.leaderboards.measure import Board
from rmcalib.report import Evaluation, evaluate
from rmcalib.runs import run_folder
from rmcalib.runs._folder import keep_scores
from rmcalib.scores import Scores

BENCHMARK = "org/bench"
CATEGORIES = ("Factuality", "Math", "Focus")


def synthetic(
    number: int = 0,
    *,
    n: int = 90,
    skill: float = 1.5,
    scale: float = 1.0,
    ties: bool = False,
    categories: tuple[str, ...] = CATEGORIES,
    manifest: dict[str, Any] | None = None,
) -> Scores:
    """Scores of one made-up model; the prompts are the same for every number."""
    rng = np.random.default_rng(number)
    category = [categories[i % len(categories)] for i in range(n)]
    rows = []
    for i in range(n):
        rewards = scale * (rng.normal(size=4) + np.array([skill, 0, 0, 0]))
        rows += [(f"p{i}", category[i], j, j == 0, rewards[j]) for j in range(4)]
    for i in range(8 if ties else 0):
        for kind, n_correct in (("ref", 1), ("tied", 2)):
            rewards = rng.normal(size=4) + np.array([2.0, 2.0 * (n_correct == 2), 0, 0])
            rows += [(f"{kind}:{i}", "Ties", j, j < n_correct, rewards[j]) for j in range(4)]
    names = ("item_id", "category", "response", "is_correct", "reward")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return Scores.from_columns(columns, manifest)


def write_run(output: Path, model: str, scores: Scores, **manifest: Any) -> Path:
    """Write scores as a run folder of ``model``, as ``rmcalib eval`` does."""
    about = {"model": model, "benchmark": BENCHMARK, **manifest}
    folder = run_folder(output, model, about["benchmark"])
    keep_scores(folder, replace(scores, manifest=about), fresh=True)
    return folder


def write_runs(output: Path, n_models: int = 5, **options: Any) -> Path:
    """Write several models of increasing skill."""
    for i in range(n_models):
        scores = synthetic(i, skill=0.5 + 0.5 * i, scale=1 + (i % 3), **options)
        write_run(output, f"org/model-{i}", scores)
    return output


def evaluation(n: int = 90, **options: Any) -> Evaluation:
    """Evaluate synthetic scores quickly."""
    return evaluate(synthetic(n=n, manifest={"model": "org/rm"}), resamples=50, **options)


def board_of(folders: Iterable[str | Path], **options: Any) -> Board:
    """Return the leaderboard of runs of one benchmark."""
    board = report_from_runs(folders, **options).board
    assert board is not None
    return board
