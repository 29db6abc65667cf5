"""Which responses have the largest rewards: the building blocks of official scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, FloatArray
from rmcalib.benchmarks._entry import OfficialScore, ScoredItems

__all__ = [
    "accuracy",
    "best_beats_all",
    "decided",
    "has_largest_reward",
    "mean_by_category",
    "reciprocal_rank",
    "shared_first_place",
]


def accuracy(items: ScoredItems) -> list[OfficialScore]:
    """Return the fraction of prompts where the correct responses beat all others, in all and by category."""
    return mean_by_category("accuracy", best_beats_all(items), items)


def has_largest_reward(items: ScoredItems) -> BoolArray:
    """Return which responses have the largest reward of their prompt: (N,)."""
    largest = np.maximum.reduceat(items.reward, items.starts)
    return np.asarray(items.reward == np.repeat(largest, items.sizes))


def best_beats_all(items: ScoredItems) -> BoolArray:
    """Return whether every correct response of a prompt has a larger reward than every wrong one: (n,)."""
    worst = np.minimum.reduceat(np.where(items.is_correct, items.reward, np.inf), items.starts)
    rival = np.maximum.reduceat(np.where(items.is_correct, -np.inf, items.reward), items.starts)
    return np.asarray(worst > rival)


def shared_first_place(items: ScoredItems) -> FloatArray:
    """Return the accuracy of each prompt, where responses with equal rewards share first place.

    It is 1/t if the first correct response is one of the t responses with the largest reward, else 0.

    Parameters
    ----------
    items : ScoredItems
        Scores of n prompts, each with a correct response.

    Returns
    -------
    float (n,)

    Examples
    --------
    >>> from rmcalib.benchmarks import scored_items
    >>> from rmcalib.scores import Scores
    >>> shared_first_place(scored_items(Scores.from_arrays([[2.0, 1.0], [1.0, 1.0], [0.0, 1.0]])))
    array([1. , 0.5, 0. ])
    """
    first = has_largest_reward(items)
    sharing = np.add.reduceat(first, items.starts, dtype=np.int64)
    correct = np.flatnonzero(items.is_correct)
    chosen = correct[np.searchsorted(correct, items.starts)]
    place: FloatArray = np.where(first[chosen], 1.0 / sharing, 0.0)
    return place


def reciprocal_rank(items: ScoredItems) -> FloatArray:
    """Return one over the rank of the best correct response (n,); wrong ones with its reward come first."""
    best = np.maximum.reduceat(np.where(items.is_correct, items.reward, -np.inf), items.starts)
    above = ~items.is_correct & (items.reward >= np.repeat(best, items.sizes))
    rank: FloatArray = 1.0 / (1 + np.add.reduceat(above, items.starts, dtype=np.int64))
    return rank


def decided(items: ScoredItems) -> BoolArray:
    """Return which prompts have a correct response: (n,). If votes are tied, there is none."""
    return np.asarray(np.logical_or.reduceat(items.is_correct, items.starts))


def mean_by_category(
    metric: str,
    values: npt.NDArray[np.float64 | np.bool_],
    items: ScoredItems,
    *,
    kept: BoolArray | None = None,
    average_categories: bool = False,
) -> list[OfficialScore]:
    """Return the mean of `values` (n,) over all prompts, and by category in order of appearance.

    `kept` (n,) selects the prompts that count. With `average_categories`, the headline is the mean of the
    values of the categories.
    """
    kept = np.ones(len(values), dtype=bool) if kept is None else kept
    rows = []
    for name in dict.fromkeys(items.category[kept].tolist()):
        own = values[kept & (items.category == name)]
        rows.append(OfficialScore(metric, name, float(own.mean()), len(own)))
    if not rows:
        return [OfficialScore(metric, "all", float("nan"), 0)]
    overall = np.mean([row.value for row in rows]) if average_categories else values[kept].mean()
    return [OfficialScore(metric, "all", float(overall), int(kept.sum())), *rows]
