"""Accuracy and confidence of the first choice: the most probable response of each prompt."""

from __future__ import annotations

from dataclasses import replace

from rmcalib._util.arrays import FloatArray
from rmcalib.metrics._catalogue._metric import Metric
from rmcalib.metrics._events import accuracy_of, confidence_of, if_right_and_if_wrong, scale_free_rewards
from rmcalib.metrics._forecasts import Forecasts
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["FIRST_CHOICE", "gap_of"]


def mean_confidence(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Mean probability of the most probable response."""
    return Statistic.mean(confidence_of(forecasts), within=(0.0, 1.0))


def accuracy(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Fraction of prompts whose correct response has the largest reward."""
    right, wrong = if_right_and_if_wrong(forecasts)
    found = Statistic.proportion(accuracy_of(forecasts))
    return replace(
        found,
        if_right=accuracy_of(right),
        if_wrong=accuracy_of(wrong),
        rewards=scale_free_rewards(forecasts),
    )


def overconfidence(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Mean confidence minus accuracy."""
    right, wrong = if_right_and_if_wrong(forecasts)
    found = Statistic.mean(gap_of(forecasts), gap_of(right), gap_of(wrong), within=(-1.0, 1.0))
    return replace(found, rewards=scale_free_rewards(forecasts))


def gap_of(forecasts: Forecasts) -> FloatArray:
    """Return the confidence of each prompt's first choice minus whether it is right: (n,)."""
    return confidence_of(forecasts) - accuracy_of(forecasts)


FIRST_CHOICE = (
    Metric(
        "mean_confidence",
        "mean probability of the most probable response",
        mean_confidence,
        unit="probability",
        label="mean confidence",
        group="headline",
        depends_on_m=True,
    ),
    Metric(
        "accuracy",
        "how often the correct response has the largest reward (a tie of t responses counts 1/t)",
        accuracy,
        better="high",
        unit="fraction of prompts",
        needs=frozenset(),
        group="headline",
        ranked="everywhere",
        depends_on_m=True,
    ),
    Metric(
        "overconfidence",
        "mean confidence minus accuracy; positive is over-confident",
        overconfidence,
        better="zero",
        unit="probability",
        label="gap",
        group="headline",
    ),
)
