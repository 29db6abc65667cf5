"""Accuracy and confidence of the first choice: the most probable response of each prompt."""

from __future__ import annotations

from dataclasses import replace

from rmcalib._util.arrays import FloatArray
from rmcalib.metrics._catalogue._metric import Metric
from rmcalib.metrics._events import accuracy_of, picked_rows
from rmcalib.metrics._forecasts import Forecasts, once
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["FIRST_CHOICE", "confidence_of"]


def mean_confidence(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Mean probability of the most probable response."""
    return Statistic.mean(confidence_of(forecasts, settings))


def accuracy(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Fraction of prompts whose correct response has the largest reward."""
    found = Statistic.proportion(accuracy_of(forecasts))
    return replace(found, choices=picked_rows(forecasts, settings.seed)[0])


def overconfidence(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Mean confidence minus accuracy."""
    found = Statistic.mean(confidence_of(forecasts, settings) - accuracy_of(forecasts))
    return replace(found, choices=picked_rows(forecasts, settings.seed)[0])


@once
def confidence_of(forecasts: Forecasts, settings: Settings) -> FloatArray:
    """Return the probability of each prompt's first choice: (n,)."""
    picked, _ = picked_rows(forecasts, settings.seed)
    return forecasts.probability[picked]


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
