"""Intervals of RewardBench 2's own scores, by resampling prompts within each category."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.benchmarks import ties_scores
from rmcalib.calibration import Interval, resampling_weights, share_limits
from rmcalib.metrics._rewardbench import TIES, category_scores, item_accuracy, ties_sums
from rmcalib.scores import Scores

__all__ = ["lone_categories", "rewardbench_draws", "rewardbench_intervals"]


def rewardbench_intervals(
    scores: Scores, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str | None, Interval | None]:
    """Return each category's score with a percentile interval, and under None that of the plain mean of all.

    In Ties the prompts of one number N (`ref:N` and `tied:N`) are resampled together. A category whose score
    cannot be had is None, and so is the mean then. Of a single prompt all resamples are equal: limits are NaN
    in `lone_categories`, and then in the mean, too; so they are where all resamples of Ties are equal. An
    accuracy of 0 or 1 has exact limits (`share_limits`), whose distance counts in the mean.

    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [2.0, 0.0, 0.0, 1.0]}
    >>> found = rewardbench_intervals(Scores.from_columns(columns))
    >>> found["x"].value, found[None].low, found[None].high
    (0.5, 0.0, 1.0)
    """
    values = category_scores(scores)
    draws = rewardbench_draws(scores, values, resamples=resamples, seed=seed)
    lone = lone_categories(scores) | {name for name in (TIES,) if name in draws and not np.ptp(draws[name])}
    tails = [(1 - level) / 2, (1 + level) / 2]
    found: dict[str | None, Interval | None] = dict.fromkeys(values)
    category = scores.category[scores.offsets[:-1]]
    hidden = np.zeros(2)  # how far the limits of accuracies of 0 and 1 are away, which resamples do not show
    for name, drawn in draws.items():
        low, high = np.quantile(drawn, tails).tolist() if name not in lone else (np.nan, np.nan)
        if name != TIES and name not in lone:  # the score is an accuracy
            limits = share_limits(low, high, int((category == name).sum()), level)
            hidden += ((limits[0] - low) / len(values)) ** 2, ((limits[1] - high) / len(values)) ** 2
            low, high = limits
        found[name] = Interval(values[name], low, high, level, resamples)
    if len(draws) < len(values):
        return found | {None: None}
    means = np.mean(list(draws.values()), axis=0)
    value, (low, high) = float(np.mean(list(values.values()))), np.quantile(means, tails).tolist()
    if lone:
        low, high = np.nan, np.nan
    # Categories err independently, so that distances add up as squares do.
    below, above = np.hypot([value - low, high - value], np.sqrt(hidden)).tolist()
    return found | {None: Interval(value, value - below, value + above, level, resamples)}


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
