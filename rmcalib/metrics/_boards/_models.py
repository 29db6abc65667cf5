"""The numbers of one model on a leaderboard: the ranked metrics of the catalogue, and two curves.

The numbers are those of an evaluation with the same settings, except that intervals and p-values of
calibration errors come from fewer simulated data sets, which is faster for a hundred models.
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
from rmcalib.metrics._events import accuracy_of, confidence_of
from rmcalib.metrics._forecasts import Forecasts
from rmcalib.metrics._statistic import Settings
from rmcalib.metrics._table import OVERALL, parts_of, rows_of
from rmcalib.scores import Scores

__all__ = [
    "BOARD_DRAWS",
    "ModelMeasures",
    "check_sortable",
    "measure_model",
    "ranked_metrics",
    "sortable_metrics",
]

BOARD_DRAWS = 200
"""The number of simulated data sets for calibration errors on a leaderboard."""
_REJECTED: FloatArray = np.linspace(0.0, 0.95, 20)
Row = dict[str, Any]


@dataclass(frozen=True)
class ModelMeasures:
    """Tidy rows of one model.

    ``metrics``: category, metric, value, low, high, n, note. ``reliability``: one row per bin. ``rejection``:
    the accuracy on the remaining prompts when a fraction of the prompts, the least confident, is dropped.
    ``chance``: the accuracy of a random choice, the mean of 1/m; None without prompts that have one answer.
    """

    metrics: list[Row]
    reliability: list[Row]
    rejection: list[Row]
    chance: float | None


def ranked_metrics() -> dict[str, Metric]:
    """Return the metrics that a leaderboard computes, by name."""
    return {name: metric for name, metric in catalogue().items() if metric.ranked != "nowhere"}


def sortable_metrics() -> list[str]:
    """Return the names of the metrics that a leaderboard can be sorted by."""
    return [name for name, metric in ranked_metrics().items() if metric.better is not None]


def check_sortable(metric: str) -> None:
    """Raise a ValueError unless a leaderboard can be sorted by this metric.

    Parameters
    ----------
    metric : str
        Name of a metric.

    Examples
    --------
    >>> check_sortable("ece")
    >>> check_sortable("temperature")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: metric: unknown 'temperature' (have: accuracy, ...)
    """
    if metric not in sortable_metrics():
        raise ValueError(f"metric: unknown {metric!r} (have: {', '.join(sortable_metrics())})")


def measure_model(
    scores: Scores,
    *,
    model: str,
    no_calibration: str | None = None,
    settings: Settings | None = None,
    metrics: Sequence[Metric] | None = None,
) -> ModelMeasures:
    """Measure one model; with ``no_calibration``, metrics that need probabilities are empty, with this note.

    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [2.0, 0.0, 0.0, 1.0]}
    >>> found = measure_model(Scores.from_columns(columns), model="org/rm")
    >>> [row["value"] for row in found.metrics if row["metric"] == "accuracy"]
    [0.5, 0.5]
    """
    settings = settings or Settings()
    wanted = tuple(ranked_metrics().values()) if metrics is None else metrics
    fewer = replace(settings, resamples=min(BOARD_DRAWS, settings.resamples))
    parts = list(parts_of(scores))
    rows = [
        row
        for part in parts
        for row in rows_of(
            part,
            [one for one in wanted if one.ranked == "everywhere" or part.name == OVERALL],
            fewer,
            no_calibration,
        )
    ]
    top_1 = parts[0].forecasts("one")
    curves = top_1 is not None and no_calibration is None
    return ModelMeasures(
        [{"model": model, **row} for row in rows],
        _reliability(top_1, model, settings.bins) if top_1 is not None and curves else [],
        _rejection(top_1, model, settings.seed) if top_1 is not None and curves else [],
        float((1 / top_1.sizes).mean()) if top_1 is not None else None,
    )


def _reliability(part: Forecasts, model: str, bins: int) -> list[Row]:
    diagram = reliability(part.probability, part.is_correct.astype(np.float64), bins=bins)
    return [{"model": model, **row} for row in bin_rows(diagram)]


def _rejection(part: Forecasts, model: str, seed: int) -> list[Row]:
    """Accuracy on the remaining prompts when the least confident ones are dropped."""
    # Equal confidences are ordered at random: the order of the file may follow difficulty.
    chance = np.random.default_rng(seed).random(len(part))
    order = np.lexsort((chance, -confidence_of(part)))
    cumulative = np.cumsum(accuracy_of(part)[order])
    kept = np.maximum(np.ceil((1 - _REJECTED) * len(part)).astype(np.int64), 1)
    return [
        {"model": model, "rejected": float(share), "accuracy": float(cumulative[k - 1] / k), "n": int(k)}
        for share, k in zip(_REJECTED, kept, strict=True)
    ]
