"""Brier score and log loss of the forecasts, and the error rate that the paper's public code calls ECE."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rmcalib.calibration import reference_top_1 as reference
from rmcalib.metrics._catalogue._metric import Metric
from rmcalib.metrics._events import first_correct_probability, outcomes
from rmcalib.metrics._forecasts import Forecasts
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["REFERENCE", "SCORES"]


def brier(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Squared error summed over a prompt's responses."""
    p = forecasts.probability
    return Statistic.mean(np.add.reduceat((p - outcomes(forecasts)) ** 2, forecasts.starts))


def nll(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Negative log-likelihood of the correct response."""
    return Statistic.mean(-forecasts.log_probability[forecasts.is_correct])


def reference_top_1(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """1 − mean P(first correct response), over all prompts: the number of the paper's public code."""
    p = first_correct_probability(forecasts)
    return replace(Statistic.mean(1 - p), value=reference(p))


SCORES = (
    Metric(
        "brier",
        "Brier score: squared error summed over a prompt's responses",
        brier,
        better="low",
        label="Brier score",
        group="scores",
        depends_on_m=True,
    ),
    Metric(
        "nll",
        "negative log-likelihood of the correct response",
        nll,
        better="low",
        unit="nats",
        label="log loss",
        group="scores",
        depends_on_m=True,
    ),
)

REFERENCE = (
    Metric(
        "reference_top_1",
        "1 − mean P(first correct response), which the paper's public code calls ECE; it is an error rate",
        reference_top_1,
        unit="probability",
        prompts="all",
        label="1 − mean P(chosen) (reference)",
        group="reference",
        depends_on_m=True,
    ),
)
