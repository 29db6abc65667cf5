"""What a leaderboard shows of each model: the metrics of an evaluation that are ranked, computed fast.

The numbers are those of :func:`rmcalib.metrics._table.metric_rows` with the same settings; only the null of
the ECE and the intervals of categories come from fewer draws. All models share the resamples of prompts, and
what a leaderboard does not show (smooth ECE, lengths, ...) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, chunks
from rmcalib.calibration import (
    BinSums,
    ErrorOptions,
    binned_error,
    binned_worlds,
    ece_null,
    fit_top_1_temperature,
    recentred_interval,
    reliability,
    resampling_weights,
    share_limits,
)
from rmcalib.metrics._forecasts import (
    Forecasts,
    first_correct_probability,
    forecast,
    select_prompts,
    top_1_prompts,
)
from rmcalib.metrics._measures import (
    FEWEST_FOR_TEMPERATURE,
    Settings,
    accuracy_of,
    cross_fitted_logs,
    picked_rows,
)
from rmcalib.metrics._rewardbench import category_scores
from rmcalib.metrics._table import NO_INTERVAL, OVERALL, category_names
from rmcalib.metrics._tables import bin_rows
from rmcalib.scores import Scores

__all__ = [
    "ModelMeasures",
    "bin_sums",
    "grouped_sums",
    "measure_model",
    "prompt_weights",
    "unpack_bins",
]

# Enough for what stands in small print, where a hundred models have to be quick.
NULL_DRAWS = 200
CATEGORY_RESAMPLES = 300
_REJECTED: FloatArray = np.linspace(0.0, 0.95, 20)
Row = dict[str, Any]


@dataclass(frozen=True)
class ModelMeasures:
    """Tidy rows of one model: ``metrics`` (category, metric, value, low, high, n, note), ``reliability``
    (one row a bin) and ``rejection`` (the accuracy left when the least confident share is dropped)."""

    metrics: list[Row]
    reliability: list[Row]
    rejection: list[Row]


def measure_model(
    scores: Scores, *, model: str, no_calibration: str | None = None, settings: Settings | None = None
) -> ModelMeasures:
    """Measure one model; ``no_calibration`` leaves what needs probabilities empty and says why.

    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [2.0, 0.0, 0.0, 1.0]}
    >>> found = measure_model(Scores.from_columns(columns), model="org/rm")
    >>> [row["value"] for row in found.metrics if row["metric"] == "accuracy"]
    [0.5, 0.5]
    """
    settings = settings or Settings()
    scores = scores.decided()
    everything = forecast(scores)
    one_answer = top_1_prompts(everything)
    rows = _Rows(model, no_calibration)
    own = category_scores(scores)
    for shown, name in category_names(everything).items():
        members = np.ones(len(everything), bool) if name is None else everything.category == name
        score = float(np.mean(list(own.values()))) if name is None else own[name]
        rows.add(shown, "rewardbench_score", score, int(members.sum()), needs_probabilities=False)
        chosen = members & one_answer
        part = select_prompts(everything, chosen) if chosen.any() else None
        if name is None:
            _reference(rows, everything, settings)
            if part is not None:
                _overall(rows, part, settings)
        elif part is not None:
            _category(rows, shown, part, settings)
    top_1 = select_prompts(everything, one_answer) if one_answer.any() else None
    curves = top_1 is not None and no_calibration is None
    return ModelMeasures(
        rows.rows,
        _reliability(top_1, model, settings.bins) if top_1 is not None and curves else [],
        _rejection(top_1, model, settings.seed) if top_1 is not None and curves else [],
    )


@lru_cache(maxsize=16)
def prompt_weights(n: int, resamples: int, seed: int) -> FloatArray:
    """Return how often each of n prompts is in each resample (R, n); the same for every model.

    >>> prompt_weights(3, 2, 0).sum(axis=1)
    array([3., 3.])
    """
    rng = np.random.default_rng(seed)
    parts = [resampling_weights(rows.stop - rows.start, n, rng) for rows in chunks(resamples, n)]
    return np.concatenate(parts)


def bin_sums(p: FloatArray, y: FloatArray, groups: IntArray, bins: int) -> FloatArray:
    """Return what each group adds to the sums of equal-width bins: (G, 3B), counts, probabilities, outcomes.

    >>> bin_sums(np.array([0.2, 0.8]), np.array([0.0, 1.0]), np.array([0, 1]), 2)
    array([[1. , 0. , 0.2, 0. , 0. , 0. ],
           [0. , 1. , 0. , 0.8, 0. , 1. ]])
    """
    edges = np.arange(bins + 1) / bins
    # By arithmetic and one correction, which is what a search among the edges finds, in a tenth of the time.
    index = np.minimum((p * bins).astype(np.int64), bins - 1)
    index += (p >= edges[index + 1]) & (index < bins - 1)
    index -= p < edges[index]
    return grouped_sums(p, y, groups, index, bins)


def grouped_sums(p: FloatArray, y: FloatArray, groups: IntArray, index: IntArray, bins: int) -> FloatArray:
    """Return what each group adds to the bins that ``index`` (N,) names: (G, 3B), as :func:`bin_sums`."""
    cell, size = groups * bins + index, (int(groups.max()) + 1) * bins
    sums = [np.bincount(cell, weights, size).reshape(-1, bins) for weights in (None, p, y)]
    return np.concatenate(sums, axis=1).astype(np.float64)


def unpack_bins(rows: FloatArray) -> BinSums:
    """Turn rows of :func:`bin_sums` (..., 3B) into bin sums.

    >>> unpack_bins(np.array([1.0, 0.5, 0.0])).probability
    array([0.5])
    """
    count, probability, outcome = np.split(rows, 3, axis=-1)
    return BinSums(count, probability, outcome)


class _Rows:
    """Collects tidy rows of one model."""

    def __init__(self, model: str, no_calibration: str | None) -> None:
        self.model, self.reason = model, no_calibration
        self.rows: list[Row] = []

    def add(
        self,
        category: str,
        metric: str,
        value: float | None,
        n: int,
        interval: tuple[float, float] | None = None,
        *,
        note: str = "",
        needs_probabilities: bool = True,
    ) -> None:
        if needs_probabilities and self.reason is not None:
            value, interval, note = None, None, self.reason
        if n == 1 and interval is not None:  # all resamples of one prompt are the same
            interval, note = None, note or NO_INTERVAL
        low, high = interval or (None, None)
        known = value is not None and bool(np.isfinite(value))
        self.rows.append(
            {
                "model": self.model,
                "category": category,
                "metric": metric,
                "value": float(value) if known and value is not None else None,
                "low": low,
                "high": high,
                "n": n,
                "note": note,
            }
        )


def _overall(rows: _Rows, part: Forecasts, settings: Settings) -> None:
    n, p, y = len(part), part.probability, part.is_correct.astype(np.float64)
    accuracy = accuracy_of(part)
    _means(rows, OVERALL, {"accuracy": accuracy}, settings, needs_probabilities=False)
    rows.add(OVERALL, "ece", *_binned(p, y, part.prompt, settings))
    null = ece_null(
        p,
        y,
        groups=part.prompt,
        draw="one_per_group",
        resamples=min(NULL_DRAWS, settings.resamples),
        rng=settings.seed,
        bins=settings.bins,
    )
    rows.add(OVERALL, "ece_null_mean", null.mean, n)
    rows.add(OVERALL, "ece_null_95", null.high, n)
    rows.add(OVERALL, "ece_p_value", null.p_value, n)
    picked, _ = picked_rows(part, settings.seed)
    confidence = p[picked]
    _means(
        rows,
        OVERALL,
        {
            "mean_confidence": confidence,
            "overconfidence": confidence - accuracy,
            "brier": np.add.reduceat((p - y) ** 2, part.starts),
            "nll": -part.log_probability[part.is_correct],
        },
        settings,
    )
    if n < FEWEST_FOR_TEMPERATURE:
        note = f"needs at least {FEWEST_FOR_TEMPERATURE} prompts"
        rows.add(OVERALL, "temperature", None, n, note=note)
        rows.add(OVERALL, "ece_at_temperature", None, n, note=note)
        return
    fitted = fit_top_1_temperature(part.reward, part.is_correct, part.prompt)
    limit = {"hot": "no temperature helps", "cold": "every forecast is right"}.get(fitted.at_limit or "", "")
    rows.add(OVERALL, "temperature", None if limit else fitted.temperature, n, note=limit)
    tempered = np.exp(cross_fitted_logs(part, settings.seed))
    rows.add(OVERALL, "ece_at_temperature", *_binned(tempered, y, part.prompt, settings))


def _category(rows: _Rows, shown: str, part: Forecasts, settings: Settings) -> None:
    _means(rows, shown, {"accuracy": accuracy_of(part)}, settings, needs_probabilities=False)
    y = part.is_correct.astype(np.float64)
    fewer = replace(settings, resamples=min(CATEGORY_RESAMPLES, settings.resamples))
    rows.add(shown, "ece", *_binned(part.probability, y, part.prompt, fewer))


def _reference(rows: _Rows, everything: Forecasts, settings: Settings) -> None:
    """The public code's number: the first correct response of every prompt, Ties included."""
    wrong = 1 - first_correct_probability(everything)
    _means(rows, OVERALL, {"reference_top_1": wrong}, settings)


def _means(
    rows: _Rows,
    category: str,
    columns: Mapping[str, FloatArray],
    settings: Settings,
    *,
    needs_probabilities: bool = True,
) -> None:
    values = np.column_stack(list(columns.values()))
    n = len(values)
    draws = prompt_weights(n, settings.resamples, settings.seed) @ values / n
    low, high = np.quantile(draws, _tails(settings.level), axis=0)
    for i, name in enumerate(columns):
        interval = (float(low[i]), float(high[i]))
        if name == "accuracy":
            interval = share_limits(*interval, n, settings.level)
        value = float(values[:, i].mean())
        rows.add(category, name, value, n, interval, needs_probabilities=needs_probabilities)


def _binned(
    p: FloatArray, y: FloatArray, prompt: IntArray, settings: Settings
) -> tuple[float, int, tuple[float, float]]:
    """ECE, number of prompts, and recentred interval, as :func:`rmcalib.calibration.ece_interval` has it."""
    options = ErrorOptions(bins=settings.bins)
    sums = bin_sums(p, y, prompt, settings.bins)
    weights = prompt_weights(len(sums), settings.resamples, settings.seed)
    total, drawn = unpack_bins(sums.sum(axis=0)), unpack_bins(weights @ sums)
    value = float(binned_error(total, options))
    found = recentred_interval(value, *binned_worlds(total, drawn, options), level=settings.level)
    return value, len(sums), (found.low, found.high)


def _tails(level: float) -> list[float]:
    return [(1 - level) / 2, (1 + level) / 2]


def _reliability(part: Forecasts, model: str, bins: int) -> list[Row]:
    diagram = reliability(part.probability, part.is_correct.astype(np.float64), bins=bins)
    return [{"model": model, **row} for row in bin_rows(diagram)]


def _rejection(part: Forecasts, model: str, seed: int) -> list[Row]:
    """Accuracy on the prompts that are left when the least confident share of them is dropped."""
    picked, _ = picked_rows(part, seed)
    # Equal confidences are told apart by chance: the order of the file may follow difficulty.
    chance = np.random.default_rng(seed).random(len(part))
    order = np.lexsort((chance, -part.log_probability[picked]))
    cumulative = np.cumsum(accuracy_of(part)[order])
    kept = np.maximum(np.ceil((1 - _REJECTED) * len(part)).astype(np.int64), 1)
    return [
        {"model": model, "rejected": float(share), "accuracy": float(cumulative[k - 1] / k), "n": int(k)}
        for share, k in zip(_REJECTED, kept, strict=True)
    ]
