"""A change: a second judge agrees less with the reward about the order within prompts."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.integrations.alarms.check import Change, Observed, Value, points


class Agreement(Change):
    """How often a second judge orders two samples of a prompt as the reward does."""

    name = column = "agreement"
    margin, sides = 0.1, (-1,)
    heading, about = (
        "second judge",
        "how often a second judge orders two samples of a prompt as the reward does",
    )
    page_only = False

    def value(self, step: Observed) -> Value | None:
        """Return one value per prompt."""
        agrees = agreement(step.samples.prompt, step.samples.reward, step.samples.second)
        return agrees if len(agrees.prompt) else None

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say by how much."""
        return (
            f"a second judge orders {points(alarm)} fewer of the pairs as the reward does than at the start"
        )


def agreement(prompt: IntArray, reward: FloatArray, second: FloatArray) -> Value:
    """Return how often a second judge orders two samples of a prompt as the reward does, by prompt.

    Pairs that the second judge does not tell apart are left out; equal rewards count 1/2.
    """
    judged = ~np.isnan(second)
    order = np.argsort(prompt[judged], kind="stable")
    p, r, s = (values[judged][order] for values in (prompt, reward, second))
    pairs: list[IntArray] = []
    for apart in range(1, len(p)):
        same = np.flatnonzero(p[apart:] == p[:-apart])
        if not len(same):
            break
        pairs.append(np.column_stack([same, same + apart]))
    left, right = np.concatenate([np.empty((0, 2), dtype=np.int64), *pairs]).T
    wins = np.heaviside((r[left] - r[right]) * np.sign(s[left] - s[right]), 0.5)
    decided = s[left] != s[right]
    names, index = np.unique(p[left][decided], return_inverse=True)
    return Value(names, np.bincount(index, wins[decided]) / np.bincount(index))
