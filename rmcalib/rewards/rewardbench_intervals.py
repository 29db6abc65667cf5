"""Intervals of RewardBench 2's own scores, by resampling prompts within each category."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rmcalib.arrays import FloatArray
from rmcalib.calibration import Interval
from rmcalib.calibration.intervals import resampling_weights
from rmcalib.rewards.rewardbench import TIES, category_scores, item_accuracy
from rmcalib.rewards.store import Scores

__all__ = ["rewardbench_draws", "rewardbench_intervals"]


def rewardbench_intervals(
    scores: Scores, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str | None, Interval | None]:
    """Return each category's score with a percentile interval, and under None that of the plain mean of all.

    In Ties the prompts of one number N (`ref:N` and `tied:N`) are resampled together. A category whose score
    cannot be had is None, and so is the mean then.

    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [2.0, 0.0, 0.0, 1.0]}
    >>> found = rewardbench_intervals(Scores.from_columns(columns))
    >>> found["x"].value, found[None].low, found[None].high
    (0.5, 0.0, 1.0)
    """
    values = category_scores(scores)
    draws = rewardbench_draws(scores, values, resamples=resamples, seed=seed)
    found: dict[str | None, Interval | None] = {
        name: _interval(values[name], draws[name], level) if name in draws else None for name in values
    }
    whole = len(draws) == len(values)
    mean = float(np.mean(list(values.values())))
    found[None] = _interval(mean, np.mean(list(draws.values()), axis=0), level) if whole else None
    return found


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
            sums = _ties_sums(scores)
            draws[name] = _ties_scores(resampling_weights(resamples, len(sums), rng) @ sums)
        else:
            mine = accuracy[category == name]
            draws[name] = resampling_weights(resamples, len(mine), rng) @ mine / len(mine)
    return draws


def _interval(value: float, draws: FloatArray, level: float) -> Interval:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), level, len(draws))


def _ties_sums(scores: Scores) -> FloatArray:
    """What each number N adds to the Ties score, in the order `_ties_scores` takes them: (numbers, 8)."""
    rows = scores.category == TIES
    ids, reward, correct = scores.item_id[rows], scores.reward[rows], scores.is_correct[rows]
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    worst = np.minimum.reduceat(np.where(correct, reward, np.inf), starts)
    best = np.maximum.reduceat(np.where(correct, reward, -np.inf), starts)
    gap = worst - np.maximum.reduceat(np.where(correct, -np.inf, reward), starts)
    width = best - worst
    kind, _, number = np.array([name.partition(":") for name in ids[starts].tolist()]).T
    numbers, place = np.unique(number, return_inverse=True)
    per_kind = {}
    for name in ("ref", "tied"):
        at = np.flatnonzero(kind == name)
        gaps, widths = np.full(len(numbers), np.nan), np.full(len(numbers), np.nan)
        gaps[place[at]], widths[place[at]] = gap[at], width[at]
        per_kind[name] = gaps, widths
    (g_ref, _), (g_tied, w) = per_kind["ref"], per_kind["tied"]
    both = ~np.isnan(g_ref) & ~np.isnan(g_tied)
    least = np.fmin(g_ref, g_tied)
    with np.errstate(divide="ignore", invalid="ignore"):
        margin = np.nan_to_num(np.tanh(least / w - 1), nan=0.0)
    columns = (
        g_tied > 0,
        ~np.isnan(g_tied),
        g_ref > 0,
        ~np.isnan(g_ref),
        both & (g_tied > w),
        both & (least > w),
        np.where(both, margin, 0.0),
        both,
    )
    return np.column_stack([column.astype(np.float64) for column in columns])


def _ties_scores(sums: FloatArray) -> FloatArray:
    """RewardBench's formula, from totals (R, 8)."""
    a_tied, n_tied, a_ref, n_ref, wide, wide_both, margin, n_both = sums.T
    n_tied, n_ref, n_both = (np.maximum(n, 1) for n in (n_tied, n_ref, n_both))
    score: FloatArray = (
        0.3 * a_tied / n_tied
        + 0.3 * a_ref / n_ref
        + 0.2 * (wide + wide_both) / n_both
        + 0.01 * margin / n_both
    )
    return score
