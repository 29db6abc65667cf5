"""Brier score and log loss of the forecasts, and the error rate that the paper's public code calls ECE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.calibration import reference_top_1 as reference
from rmcalib.metrics._catalogue._metric import Metric
from rmcalib.metrics._events import first_correct_probability, if_right_and_if_wrong, outcomes
from rmcalib.metrics._forecasts import Forecasts
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["REFERENCE", "SCORES", "brier_of", "mean_loss", "nll_of"]


def brier(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Squared error summed over a prompt's responses."""
    return mean_loss(forecasts, brier_of, most=2.0)


def nll(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Negative log-likelihood of the correct response."""
    return mean_loss(forecasts, nll_of)


def reference_top_1(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """1 − mean P(first correct response), over all prompts: the number of the paper's public code."""
    found = mean_loss(forecasts, lambda one: 1 - first_correct_probability(one), most=1.0)
    return replace(found, value=reference(first_correct_probability(forecasts)))


def mean_loss(
    forecasts: Forecasts, loss: Callable[[Forecasts], FloatArray], *, most: float = np.inf
) -> Statistic:
    """Return the mean of a loss of each prompt (n,) that lies between 0 and ``most``."""
    right, wrong = if_right_and_if_wrong(forecasts)
    return Statistic.mean(loss(forecasts), loss(right), loss(wrong), within=(0.0, most))


def brier_of(forecasts: Forecasts) -> FloatArray:
    """Return the squared error of each prompt, summed over its responses: (n,)."""
    return np.add.reduceat((forecasts.probability - outcomes(forecasts)) ** 2, forecasts.starts)


def nll_of(forecasts: Forecasts) -> FloatArray:
    """Return −log P(the correct response) of each prompt: (n,)."""
    return -forecasts.log_probability[forecasts.is_correct]


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
