"""The numbers to watch while a reward model is trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.metrics import (
    TRAINING_METRICS,
    Settings,
    chosen_metrics,
    forecast,
    select_prompts,
    top_1_prompts,
)
from rmcalib.scores import Scores

__all__ = ["metric_values", "preference_metrics"]


def preference_metrics(
    chosen: Any,
    rejected: Any,
    *,
    metrics: Iterable[str] = TRAINING_METRICS,
    resamples: int = 200,
    seed: int = 0,
) -> dict[str, float]:
    """Return the calibration of a reward model on pairs of a chosen and a rejected response.

    The probability of the chosen response is sigmoid(chosen − rejected).

    Parameters
    ----------
    chosen, rejected : (n,) or (n, 1) rewards: arrays, lists or tensors on any device.
    metrics : names of the catalogue (docs/metrics.md).
    resamples : simulated data sets for the null of the ECE.
    seed : of the simulation.

    Returns
    -------
    dict
        One number per metric, in the order of the catalogue; NaN where there is none. The temperature, for
        example, needs 20 pairs, and does not exist if all pairs are right.

    Examples
    --------
    >>> found = preference_metrics([3.0, 2.0, 2.5], [0.0, 0.0, 3.0])
    >>> {name: round(value, 3) for name, value in found.items() if "confidence" in name or name == "accuracy"}
    {'mean_confidence': 0.819, 'accuracy': 0.667, 'overconfidence': 0.152}
    """
    pair = [_rewards("chosen", chosen), _rewards("rejected", rejected)]
    if len(pair[0]) != len(pair[1]):
        raise ValueError(f"chosen, rejected: {len(pair[0])} and {len(pair[1])} rewards; expected pairs")
    scores = Scores.from_arrays(np.stack(pair, axis=1))
    return metric_values(scores, metrics=metrics, resamples=resamples, seed=seed)


def metric_values(
    scores: Scores, *, metrics: Iterable[str] = TRAINING_METRICS, resamples: int = 200, seed: int = 0
) -> dict[str, float]:
    """Return metrics of scores without intervals, which is quick enough for every evaluation in training.

    Parameters
    ----------
    scores : rewards of prompts with one correct response; others are left out.
    metrics, resamples, seed : as in `preference_metrics`.

    Returns
    -------
    dict
        One number per metric; NaN where there is none.

    Examples
    --------
    >>> metric_values(Scores.from_arrays([[2.0, 0.0], [0.0, 1.0]]), metrics=["accuracy"])
    {'accuracy': 0.5}
    """
    everything = forecast(scores.decided())
    kept = top_1_prompts(everything)
    if not kept.any():
        raise ValueError("no prompt has exactly one correct response, which these metrics need")
    part, settings = select_prompts(everything, kept), Settings(resamples=resamples, seed=seed)
    found = {one.name: one.statistic(part, settings).value for one in chosen_metrics(metrics)}
    return {name: float("nan") if value is None else float(value) for name, value in found.items()}


def _rewards(name: str, values: Any) -> FloatArray:
    """Return rewards as float64 (n,); tensors of any device and dtype will do."""
    if hasattr(values, "detach"):
        values = values.detach().float().cpu().numpy()
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name}: shape {array.shape}, expected one reward per pair: (n,) or (n, 1)")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: reward {int(np.flatnonzero(~np.isfinite(array))[0])} is not finite")
    return array
