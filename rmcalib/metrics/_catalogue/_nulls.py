"""Null tests as metrics: how large the error of a calibrated model is by chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmcalib.calibration import Inference
from rmcalib.metrics._catalogue._metric import Metric
from rmcalib.metrics._forecasts import Forecasts
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["null_metrics"]


def null_metrics(
    error: Metric, inference: Callable[[Forecasts, Settings], Inference | None], what: str
) -> tuple[Metric, ...]:
    """Return the null mean, its 95th percentile and the p-value of an error, as three metrics."""

    def entry(suffix: str, field: str, meaning: str, **more: Any) -> Metric:
        def statistic(forecasts: Forecasts, settings: Settings) -> Statistic:
            if "pairs" in error.needs and forecasts.scores.beats is not None:
                return Statistic.missing(len(forecasts), "there is no null test for pairwise probabilities")
            found = inference(forecasts, settings)
            if found is None:
                return Statistic.missing(0, f"no prompt to compute the {what} from")
            return Statistic.constant(getattr(found.test(), field), len(forecasts))

        return Metric(
            f"{error.name}_{suffix}",
            meaning,
            statistic,
            prompts=error.prompts,
            needs=error.needs,
            group=error.group,
            compared="nowhere",
            ranked=error.ranked if error.ranked == "nowhere" else "overall",
            depends_on_m=error.depends_on_m,
            **{"unit": error.unit, **more},
        )

    return (
        entry("null_mean", "mean", f"mean {what} of a calibrated model on as many prompts"),
        entry("null_95", "high", f"95th percentile of the {what} of a calibrated model"),
        entry(
            "p_value",
            "p_value",
            f"probability that the {what} of a calibrated model is at least as large",
            unit="probability",
            label=f"p-value of {error.label}",
        ),
    )
