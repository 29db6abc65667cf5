"""Who wins: the pieces that official scores are made of, on flat arrays of rewards."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, FloatArray
from rmcalib.benchmarks._entry import OfficialScore, ScoredItems

__all__ = ["best_beats_all", "mean_by_category", "reciprocal_rank", "shared_first_place"]


def best_beats_all(items: ScoredItems) -> BoolArray:
    """Return whether every correct response of a prompt has a larger reward than every wrong one: (n,)."""
    worst = np.minimum.reduceat(np.where(items.is_correct, items.reward, np.inf), items.starts)
    rival = np.maximum.reduceat(np.where(items.is_correct, -np.inf, items.reward), items.starts)
    return np.asarray(worst > rival)


def shared_first_place(items: ScoredItems) -> FloatArray:
    """Return 1/t where the first correct response is among the t with the largest reward, else 0: (n,)."""
    largest = np.maximum.reduceat(items.reward, items.starts)
    sharing = np.add.reduceat(items.reward == np.repeat(largest, items.sizes), items.starts, dtype=np.int64)
    correct = np.flatnonzero(items.is_correct)
    chosen = correct[np.searchsorted(correct, items.starts)]
    place: FloatArray = np.where(items.reward[chosen] == largest, 1.0 / sharing, 0.0)
    return place


def reciprocal_rank(items: ScoredItems) -> FloatArray:
    """Return one over the rank of the best correct response (n,); wrong ones with its reward come first."""
    best = np.maximum.reduceat(np.where(items.is_correct, items.reward, -np.inf), items.starts)
    above = ~items.is_correct & (items.reward >= np.repeat(best, items.sizes))
    rank: FloatArray = 1.0 / (1 + np.add.reduceat(above, items.starts, dtype=np.int64))
    return rank


def decided(items: ScoredItems) -> BoolArray:
    """Return which prompts (n,) have a correct response; people's votes may leave it open."""
    return np.asarray(np.logical_or.reduceat(items.is_correct, items.starts))


def mean_by_category(
    metric: str,
    values: npt.NDArray[np.float64 | np.bool_],
    items: ScoredItems,
    *,
    kept: BoolArray | None = None,
    average_categories: bool = False,
) -> list[OfficialScore]:
    """Return the mean of `values` (n,) over all prompts, and by category in the order of appearance.

    `kept` (n,) says which prompts count. With `average_categories` the headline is the plain mean of the
    categories' values.
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
