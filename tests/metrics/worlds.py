"""Synthetic scores: random rewards, and correct responses drawn from a known distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmcalib.scores import Scores
from rmcalib.scores._files import columns_of
from tests.metrics.slow_metrics import Prompt


def scores_of(prompts: Sequence[Prompt]) -> Scores:
    rows = [
        {
            "item_id": str(number),
            "category": prompt.category,
            "response": i,
            "is_correct": prompt.correct[i],
            "reward": prompt.rewards[i],
            "n_tokens": int(prompt.lengths[i]),
            "truncated": False,
        }
        for number, prompt in enumerate(prompts)
        for i in range(len(prompt.rewards))
    ]
    scores = Scores.from_columns(columns_of(rows), {"model": "org/rm", "benchmark": "made-up"})
    return scores.labelled_as("best")  # some prompts have several right answers


def prompts_of(scores: Scores) -> list[Prompt]:
    return [
        Prompt(
            str(scores.category[start]),
            scores.reward[start:end].tolist(),
            scores.is_correct[start:end].tolist(),
            scores.n_tokens[start:end].astype(float).tolist(),
        )
        for start, end in zip(scores.offsets[:-1], scores.offsets[1:], strict=True)
    ]


def ragged_scores(n: int, *, seed: int = 0) -> Scores:
    """Prompts of two to seven responses in any order, some with several correct ones."""
    rng = np.random.default_rng(seed)
    prompts = []
    for number in range(n):
        size = int(rng.integers(2, 8))
        n_correct = int(rng.integers(1, size)) if number % 3 == 2 else 1
        correct = rng.permutation(np.arange(size) < n_correct)
        prompts.append(
            Prompt(
                ["Math", "Focus", "Safety"][number % 3],
                rng.normal(0, 2, size).tolist(),
                correct.tolist(),
                rng.integers(1, 50, size).astype(float).tolist(),
            )
        )
    return scores_of(prompts)


def calibrated_scores(n: int, *, confidence: float = 1.0, seed: int = 0) -> Scores:
    """Four responses per prompt; the correct one is drawn from softmax(u), rewards are confidence · u."""
    rng = np.random.default_rng(seed)
    prompts = []
    for number in range(n):
        u = rng.normal(0, 1.5, 4)
        p = np.exp(u) / np.exp(u).sum()
        correct = np.arange(4) == rng.choice(4, p=p)
        prompts.append(
            Prompt(
                ["Math", "Focus"][number % 2],
                (confidence * u).tolist(),
                correct.tolist(),
                rng.integers(1, 500, 4).astype(float).tolist(),
            )
        )
    return scores_of(prompts)
