"""Intervals of RewardBench 2's own scores, by resampling prompts within each category."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rmcalib.arrays import FloatArray
from rmcalib.calibration import Interval
from rmcalib.calibration.intervals import resampling_weights, share_limits
from rmcalib.rewards.rewardbench import TIES, category_scores, item_accuracy, ties_scores, ties_sums
from rmcalib.rewards.store import Scores

__all__ = ["lone_categories", "rewardbench_draws", "rewardbench_intervals"]


def rewardbench_intervals(
    scores: Scores, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str | None, Interval | None]:
    """Return each category's score with a percentile interval, and under None that of the plain mean of all.

    In Ties the prompts of one number N (`ref:N` and `tied:N`) are resampled together. A category whose score
    cannot be had is None, and so is the mean then. Of a single prompt all resamples are equal: limits are NaN
    in `lone_categories`, and then in the mean, too.

    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [2.0, 0.0, 0.0, 1.0]}
    >>> found = rewardbench_intervals(Scores.from_columns(columns))
    >>> found["x"].value, found[None].low, found[None].high
    (0.5, 0.0, 1.0)
    """
    values = category_scores(scores)
    draws = rewardbench_draws(scores, values, resamples=resamples, seed=seed)
    lone = lone_categories(scores)

    def interval(value: float, drawn: FloatArray, *, known: bool, n: int | None = None) -> Interval:
        tails = [(1 - level) / 2, (1 + level) / 2]
        low, high = np.quantile(drawn, tails).tolist() if known else (np.nan, np.nan)
        low, high = (low, high) if n is None else share_limits(low, high, n, level)
        return Interval(value, low, high, level, len(drawn))

    found: dict[str | None, Interval | None] = {}
    category = scores.category[scores.offsets[:-1]]
    for name, value in values.items():
        n = None if name == TIES else int((category == name).sum())  # elsewhere the score is an accuracy
        known = name not in lone
        found[name] = interval(value, draws[name], known=known, n=n) if name in draws else None
    whole = len(draws) == len(values)
    mean = float(np.mean(list(values.values())))
    found[None] = interval(mean, np.mean(list(draws.values()), axis=0), known=not lone) if whole else None
    return found


def lone_categories(scores: Scores) -> frozenset[str]:
    """Name the categories that have a single prompt, or in Ties a single pair: they have no interval.

    >>> columns = {"item_id": ["a", "a"], "category": ["x"] * 2, "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [2.0, 0.0]}
    >>> sorted(lone_categories(Scores.from_columns(columns)))
    ['x']
    """
    names, counts = np.unique(scores.category[scores.offsets[:-1]], return_counts=True)
    units = dict(zip(names.tolist(), counts.tolist(), strict=True))
    if TIES in units:
        units[TIES] = int(ties_sums(scores)[:, -1].sum())  # numbers N that have both kinds
    return frozenset(name for name, count in units.items() if count < 2)


def rewardbench_draws(
    scores: Scores, values: Mapping[str, float], *, resamples: int = 1000, seed: int = 0
) -> dict[str, FloatArray]:
    """Return the resampled scores (R,) of each category whose score in ``values`` is finite.

    With the same prompts and seed the resamples are the same, so that two models can be compared in pairs.
    """
    rng = np.random.default_rng(seed)
    accuracy, category = item_accuracy(scores), scores.category[scores.offsets[:-1]]
    draws: dict[str, FloatArray] = {}
    for name, value in values.items():
        if not np.isfinite(value):
            continue
        if name == TIES:
            sums = ties_sums(scores)
            draws[name] = ties_scores(resampling_weights(resamples, len(sums), rng) @ sums)
        else:
            mine = accuracy[category == name]
            draws[name] = resampling_weights(resamples, len(mine), rng) @ mine / len(mine)
    return draws
