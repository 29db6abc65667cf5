"""RewardBench 2's score, with an interval that combines those of categories, and other official scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.benchmarks import OfficialScore
from rmcalib.calibration import proportion_interval, resampling_weights
from rmcalib.metrics._catalogue._metric import Metric
from rmcalib.metrics._forecasts import Forecasts, once
from rmcalib.metrics._rewardbench import (
    category_scores,
    item_accuracy,
    tied_categories,
    ties_scores,
    ties_sums,
)
from rmcalib.metrics._statistic import NO_INTERVAL, Settings, Statistic
from rmcalib.scores import Scores

__all__ = ["BENCHMARK_SCORE", "lone_categories", "official_of"]

_CACHED = 8_000_000  # prompts times resamples: up to here, weights are kept for the next model
_ALIKE = "no interval: a category has only one prompt, or all resamples of Ties are equal"


def rewardbench_score(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Return the score of a category, or the mean of all categories.

    Accuracies have Wilson's interval. In Ties the prompts of one number N (`ref:N` and `tied:N`) are
    resampled together. A category with a single prompt has no interval; then the mean has none either.
    """
    whole = forecasts.whole or forecasts
    n, values, scores = len(forecasts), _values(whole), whole.scores
    every = forecasts.whole is None
    name = str(forecasts.category[0])
    value = float(np.mean(list(values.values()))) if every else values[name]
    if not np.isfinite(value):
        tied = ", ".join(sorted(tied_categories(scores)))
        return Statistic.missing(n, f"{tied} has no ids ref:N and tied:N, which RewardBench's score needs")
    lone = lone_categories(scores)
    if lone if every else name in lone:
        return Statistic(value, n, note=NO_INTERVAL if n == 1 else _ALIKE)

    def draws(resamples: int, seed: int) -> FloatArray:
        found = _draws(whole, resamples, seed)
        return np.asarray(np.mean(list(found.values()), axis=0)) if every else found[name]

    def limits(level: float) -> tuple[float, float] | None:
        names = list(values) if every else [name]
        found = [_limits(whole, one, replace(settings, level=level)) for one in names]
        if any(one is None for one in found):
            return None
        # Categories are independent, so the squares of the distances add up.
        ends = np.array([one for one in found if one is not None])
        middle = np.array([[values[one]] for one in names])
        below, above = np.sqrt(((ends - middle) ** 2).sum(axis=0)) / len(names)
        return value - float(below), value + float(above)

    return Statistic(value, n, own_draws=draws, limits=limits, no_limits=_ALIKE)


def official(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Return the score that the benchmark's authors define, overall or of a category."""
    found = official_of(forecasts)
    if found is None:
        return Statistic.missing(len(forecasts), "the benchmark has no official score")
    return Statistic(found.value, found.n, note=f"{found.metric}, as the benchmark's authors compute it")


def official_of(forecasts: Forecasts) -> OfficialScore | None:
    """Return the official score of all prompts, or of the category of these; None if there is none."""
    known = (forecasts.whole or forecasts).official
    category = "all" if forecasts.whole is None else str(forecasts.category[0])
    wanted = (one for one in known if (one.metric, one.category) == (known[0].metric, category))
    found = next(wanted, None)
    return found if found is not None and np.isfinite(found.value) else None


def lone_categories(scores: Scores) -> frozenset[str]:
    """Return the categories that have a single prompt, or in Ties a single pair: they have no interval.

    >>> columns = {"item_id": ["a", "a"], "category": ["x"] * 2, "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [2.0, 0.0]}
    >>> sorted(lone_categories(Scores.from_columns(columns)))
    ['x']
    """
    names, counts = np.unique(scores.category[scores.offsets[:-1]], return_counts=True)
    units = dict(zip(names.tolist(), counts.tolist(), strict=True))
    for name in tied_categories(scores):
        units[name] = int(ties_sums(scores, name)[:, -1].sum())  # numbers N that have both kinds
    return frozenset(name for name, count in units.items() if count < 2)


@once
def _values(whole: Forecasts) -> dict[str, float]:
    return category_scores(whole.scores)


@once
def _draws(whole: Forecasts, resamples: int, seed: int) -> dict[str, FloatArray]:
    """The resampled scores (R,) of each category whose score is finite."""
    accuracy, tied = item_accuracy(whole.scores), tied_categories(whole.scores)
    parts = {
        name: ties_sums(whole.scores, name) if name in tied else accuracy[whole.category == name]
        for name, value in _values(whole).items()
        if np.isfinite(value)
    }
    sizes = tuple(len(part) for part in parts.values())
    draws: dict[str, FloatArray] = {}
    for (name, part), weights in zip(parts.items(), _weights(sizes, resamples, seed), strict=True):
        draws[name] = ties_scores(weights @ part) if name in tied else weights @ part / len(part)
    return draws


def _weights(sizes: tuple[int, ...], resamples: int, seed: int) -> Iterable[FloatArray]:
    """How often each prompt of each category is in each resample: (R, size) per category."""
    if sum(sizes) * resamples <= _CACHED:
        return _kept_weights(sizes, resamples, seed)
    return _new_weights(sizes, resamples, seed)


@lru_cache(maxsize=2)
def _kept_weights(sizes: tuple[int, ...], resamples: int, seed: int) -> tuple[FloatArray, ...]:
    return tuple(_new_weights(sizes, resamples, seed))


def _new_weights(sizes: tuple[int, ...], resamples: int, seed: int) -> Iterator[FloatArray]:
    rng = np.random.default_rng(seed)
    for size in sizes:
        yield resampling_weights(resamples, size, rng)


def _limits(whole: Forecasts, name: str, settings: Settings) -> tuple[float, float] | None:
    """Limits of a category: Wilson's, or in Ties percentiles; None where all resamples of Ties are equal."""
    if name not in tied_categories(whole.scores):
        found = proportion_interval(item_accuracy(whole.scores)[whole.category == name], level=settings.level)
        return found.low, found.high
    draws = _draws(whole, settings.resamples, settings.seed)[name]
    low, high = np.quantile(draws, [(1 - settings.level) / 2, (1 + settings.level) / 2]).tolist()
    return (low, high) if np.ptp(draws) else None


BENCHMARK_SCORE = (
    Metric(
        "rewardbench_score",
        "RewardBench 2's score: accuracy, or the Ties score; overall the mean over categories",
        rewardbench_score,
        better="high",
        unit="score",
        prompts="all",
        needs=frozenset(),
        label="score",
        group="rewards",
        ranked="everywhere",
        depends_on_m=True,
    ),
    Metric(
        "official_score",
        "score defined by the benchmark's authors, computed in their way; the note has its name",
        official,
        better="high",
        unit="score",
        prompts="all",
        needs=frozenset({"official"}),
        label="official score",
        group="rewards",
        compared="nowhere",
        ranked="nowhere",
        depends_on_m=True,
    ),
)
