"""Metrics of a reward model that is trained, fast enough for every evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, as_floats
from rmcalib.metrics.catalogue import TRAINING_METRICS, chosen_metrics
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.views import whole_part
from rmcalib.scores import Scores


def preference_metrics(
    chosen: Any, rejected: Any, *, metrics: Iterable[str] = TRAINING_METRICS
) -> dict[str, float]:
    """Return calibration metrics of a reward model on pairs of a chosen and a rejected response.

    The probability of the chosen response is sigmoid(chosen − rejected).

    Parameters
    ----------
    chosen, rejected : array (n,) or (n, 1)
        The rewards: arrays, lists or tensors on any device.
    metrics : Iterable[str]
        Names of metrics from the catalogue (docs/metrics.md).

    Returns
    -------
    dict
        One number per metric, in the order of the catalogue; NaN if a metric has no value. The temperature,
        for example, needs 20 pairs, and does not exist if the chosen response always has the larger reward.

    Examples
    --------
    >>> found = preference_metrics([3.0, 2.0, 2.5], [0.0, 0.0, 3.0])
    >>> {name: round(value, 3) for name, value in found.items() if "confidence" in name or name == "accuracy"}
    {'mean_confidence': 0.819, 'accuracy': 0.667, 'overconfidence': 0.152}
    """
    pair = [_rewards("chosen", chosen), _rewards("rejected", rejected)]
    if len(pair[0]) != len(pair[1]):
        raise ValueError(f"chosen, rejected: {len(pair[0])} and {len(pair[1])} rewards; expected pairs")
    return metric_values(Scores.from_arrays(np.stack(pair, axis=1)), metrics)


def metric_values(scores: Scores, metrics: Iterable[str] = TRAINING_METRICS) -> dict[str, float]:
    """Return metrics of the prompts with one correct response, without intervals; NaN if one has no value."""
    part = whole_part(scores).prompts("one")
    if part is None:
        raise ValueError("no prompt has exactly one correct response, which these metrics need")
    settings = Settings(resamples=200)
    values = {metric.name: metric.measure(part, settings).value for metric in chosen_metrics(metrics)}
    return {name: float("nan") if value is None else float(value) for name, value in values.items()}


def _rewards(name: str, values: Any) -> FloatArray:
    """Return rewards as float64 (n,)."""
    array = as_array(values)
    return as_floats(array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array, name, ndim=1)


def as_array(values: Any) -> FloatArray:
    """Return numbers as float64; tensors may be on any device and have any dtype."""
    if hasattr(values, "detach"):
        values = values.detach().float().cpu().numpy()
    return np.asarray(values, dtype=np.float64)
