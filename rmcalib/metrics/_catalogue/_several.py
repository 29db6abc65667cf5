"""Calibration of "a correct response is first", for prompts with several correct responses."""

from __future__ import annotations

from rmcalib.calibration import ErrorOptions, Inference
from rmcalib.metrics._catalogue._calibration import one_per_prompt
from rmcalib.metrics._catalogue._metric import Metric
from rmcalib.metrics._catalogue._nulls import null_metrics
from rmcalib.metrics._events import set_forecasts
from rmcalib.metrics._forecasts import Forecasts, once
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["SEVERAL"]


def correct_first_probability(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Mean P(a correct response is first)."""
    return Statistic.mean(set_forecasts(forecasts)[0][: len(forecasts)])


def correct_first_ece(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Binned error of P(a correct response is first) and P(a wrong one is)."""
    found = _correct_first(forecasts, settings)
    return Statistic.inferred(found.value, lambda: found, len(forecasts))


@once
def _correct_first(forecasts: Forecasts, settings: Settings) -> Inference:
    return one_per_prompt(*set_forecasts(forecasts), ErrorOptions(bins=settings.bins), settings)


_CORRECT_FIRST = Metric(
    "correct_first_ece",
    "ECE of P(a correct response is first) and P(a wrong response is first)",
    correct_first_ece,
    better="low",
    unit="probability",
    prompts="several",
    label="ECE of “a correct one is first”",
    group="several",
    ranked="nowhere",
)
SEVERAL = (
    Metric(
        "correct_first_probability",
        "mean P(a correct response is first), where several are correct and in Ties",
        correct_first_probability,
        unit="probability",
        prompts="several",
        label="P(a correct one is first)",
        group="several",
        ranked="nowhere",
        depends_on_m=True,
    ),
    _CORRECT_FIRST,
    *null_metrics(_CORRECT_FIRST, _correct_first, "correct-first ECE"),
)
