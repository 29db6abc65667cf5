"""A benchmark of ten prompts, the inputs of a run, and helpers for scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib.benchmarks import Benchmark, Item
from rmcalib.judges import ScoredItem
from rmcalib.scores import Scores

COLUMNS = ("item_id", "category", "response", "is_correct", "reward", "n_tokens", "truncated")


def row(item: str, response: int, correct: bool, reward: Any = 0.0, **more: Any) -> dict[str, Any]:
    values = {
        "item_id": item,
        "category": "Math",
        "response": response,
        "is_correct": correct,
        "reward": reward,
    }
    return values | more


def same(one: Scores, other: Scores, columns: tuple[str, ...] = COLUMNS) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)


ITEMS = tuple(Item(str(i), "Math" if i % 2 else "Focus", "?", ("yes", "no", ""), 1) for i in range(10))


BENCH = Benchmark("bench", "abc", ITEMS)


INPUTS = {"model": "org/rm", "model_revision": "1" * 40, "recipe": {"template": None, "sign": 1.0}}


def scored_item(name: str, rewards: tuple[float, ...]) -> ScoredItem:
    return ScoredItem(name, rewards, (5, 6, 7), (False, False, True))


def scored(*numbers: int) -> list[ScoredItem]:
    return [scored_item(str(i), (i + 0.5, i - 0.25, -float(i))) for i in numbers]
