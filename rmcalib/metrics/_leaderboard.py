"""What a leaderboard shows of each model: the ranked metrics of the catalogue, and two curves.

The numbers are those of an evaluation with the same settings. To be quick with a hundred models, nulls and
the errors of categories come from fewer draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.calibration import reliability
from rmcalib.metrics._catalogue import Metric, catalogue
from rmcalib.metrics._diagrams import bin_rows
from rmcalib.metrics._forecasts import Forecasts, accuracy_of, forecast, picked_rows
from rmcalib.metrics._statistic import Settings, intervals
from rmcalib.metrics._table import OVERALL, Part, parts_of, statistic_of, tidy_row
from rmcalib.scores import Scores

__all__ = ["CATEGORY_RESAMPLES", "NULL_DRAWS", "ModelMeasures", "measure_model", "ranked_metrics"]

NULL_DRAWS = 200
CATEGORY_RESAMPLES = 300
_REJECTED: FloatArray = np.linspace(0.0, 0.95, 20)
Row = dict[str, Any]


@dataclass(frozen=True)
class ModelMeasures:
    """Tidy rows of one model.

    ``metrics``: category, metric, value, low, high, n, note. ``reliability``: one row per bin. ``rejection``:
    the accuracy that is left when the least confident fraction of the prompts is dropped.
    """

    metrics: list[Row]
    reliability: list[Row]
    rejection: list[Row]


def ranked_metrics() -> dict[str, Metric]:
    """Return the metrics that a leaderboard computes, by name."""
    return {name: metric for name, metric in catalogue().items() if metric.ranked != "nowhere"}


def measure_model(
    scores: Scores,
    *,
    model: str,
    no_calibration: str | None = None,
    settings: Settings | None = None,
    metrics: Sequence[Metric] | None = None,
) -> ModelMeasures:
    """Measure one model; ``no_calibration`` leaves what needs probabilities empty, with this note.

    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [2.0, 0.0, 0.0, 1.0]}
    >>> found = measure_model(Scores.from_columns(columns), model="org/rm")
    >>> [row["value"] for row in found.metrics if row["metric"] == "accuracy"]
    [0.5, 0.5]
    """
    settings = settings or Settings()
    wanted = tuple(ranked_metrics().values()) if metrics is None else metrics
    parts = list(parts_of(forecast(scores)))
    rows = [row for part in parts for row in _rows(part, wanted, settings, no_calibration)]
    top_1 = parts[0].forecasts("one")
    curves = top_1 is not None and no_calibration is None
    return ModelMeasures(
        [{"model": model, **row} for row in rows],
        _reliability(top_1, model, settings.bins) if top_1 is not None and curves else [],
        _rejection(top_1, model, settings.seed) if top_1 is not None and curves else [],
    )


def _rows(part: Part, metrics: Sequence[Metric], settings: Settings, no_calibration: str | None) -> list[Row]:
    overall = part.name == OVERALL
    here = [metric for metric in metrics if overall or metric.ranked == "everywhere"]
    nulls = replace(settings, resamples=min(NULL_DRAWS, settings.resamples))
    found = {metric.name: statistic_of(metric, part, nulls, no_calibration) for metric in here}
    known = {name: statistic for name, statistic in found.items() if statistic is not None}
    fewest = settings.resamples if overall else min(CATEGORY_RESAMPLES, settings.resamples)
    limited = [
        replace(one, most=min(one.most, fewest)) if one.alternatives is not None else one
        for one in known.values()
    ]
    limits = intervals(limited, settings)
    return [
        tidy_row(part.name, name, statistic, limit)
        for (name, statistic), limit in zip(known.items(), limits, strict=True)
    ]


def _reliability(part: Forecasts, model: str, bins: int) -> list[Row]:
    diagram = reliability(part.probability, part.is_correct.astype(np.float64), bins=bins)
    return [{"model": model, **row} for row in bin_rows(diagram)]


def _rejection(part: Forecasts, model: str, seed: int) -> list[Row]:
    """Accuracy on the prompts that are left when the least confident fraction of them is dropped."""
    picked, _ = picked_rows(part, seed)
    # Equal confidences are ordered at random: the order of the file may follow difficulty.
    chance = np.random.default_rng(seed).random(len(part))
    order = np.lexsort((chance, -part.log_probability[picked]))
    cumulative = np.cumsum(accuracy_of(part)[order])
    kept = np.maximum(np.ceil((1 - _REJECTED) * len(part)).astype(np.int64), 1)
    return [
        {"model": model, "rejected": float(share), "accuracy": float(cumulative[k - 1] / k), "n": int(k)}
        for share, k in zip(_REJECTED, kept, strict=True)
    ]
