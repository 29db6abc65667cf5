"""Calibration errors of the probabilities of responses, of the first choice, and of pairs."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import (
    ErrorOptions,
    Inference,
    bin_edges,
    bin_index,
    bin_sums,
    binned_error,
    binned_inference,
    pairwise_inference,
    smooth_ece,
    smooth_inference,
)
from rmcalib.metrics._catalogue._metric import Measure, Metric
from rmcalib.metrics._catalogue._nulls import null_metrics
from rmcalib.metrics._events import accuracy_of, confidence_of, first_shares, outcomes, pairwise_forecasts
from rmcalib.metrics._forecasts import Forecasts, once
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["CALIBRATION", "SMOOTH_RESAMPLES", "one_per_prompt"]

SMOOTH_RESAMPLES = 200
"""The number of simulated data sets for the interval of the smooth ECE, which takes longer."""


def pooled_ece(**options: Any) -> Measure:
    """Return the binned error of all responses pooled, with options of `ErrorOptions`."""

    def statistic(forecasts: Forecasts, settings: Settings) -> Statistic:
        error = ErrorOptions(bins=settings.bins, **options)
        value = _error_of(forecasts.probability, outcomes(forecasts), error)
        return Statistic.inferred(value, partial(pooled, forecasts, error, settings), len(forecasts))

    return statistic


@once
def pooled(forecasts: Forecasts, error: ErrorOptions, settings: Settings) -> Inference:
    """Return the inference of the binned error of all responses pooled."""
    p, y = forecasts.probability, outcomes(forecasts)
    return one_per_prompt(p, y, forecasts.prompt, error, settings)


def confidence_ece(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Binned error of the most probable response alone."""
    found = _confidence_inference(forecasts, settings)
    return Statistic.inferred(found.value, lambda: found, len(forecasts))


def smooth(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Smooth ECE of all responses pooled."""
    p, y, prompt = forecasts.probability, outcomes(forecasts), forecasts.prompt
    draws = min(SMOOTH_RESAMPLES, settings.resamples)

    def inference() -> Inference:
        return smooth_inference(p, y, prompt, one_per_group=True, resamples=draws, rng=settings.seed)

    return Statistic.inferred(smooth_ece(p, y), lru_cache(inference), len(forecasts))


def pairwise_ece(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Binned error of the pairs of a correct and a wrong response."""
    if forecasts.scores.beats is not None:  # not Plackett-Luce: the dependence between pairs is unknown
        p, y, _ = pairwise_forecasts(forecasts)
        return Statistic.constant(_error_of(p, y, ErrorOptions(bins=settings.bins)), len(forecasts))
    found = _pairwise(forecasts, settings)
    return Statistic.inferred(found.value, lambda: found, len(forecasts))


def ece_bound(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Return the largest possible ECE with m responses: 2/m."""
    return Statistic.constant(2 * len(forecasts) / len(forecasts.reward), len(forecasts))


def ece_fullest_bin(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Return the fraction of probabilities that lie in the fullest bin of the ECE."""
    edges = bin_edges(forecasts.probability, ErrorOptions(bins=settings.bins))
    count = np.bincount(bin_index(forecasts.probability, edges))
    return Statistic.constant(float(count.max() / count.sum()), len(forecasts))


def one_per_prompt(
    p: FloatArray, y: FloatArray, prompt: IntArray, error: ErrorOptions, settings: Settings
) -> Inference:
    """Return the inference of a binned error whose outcomes have exactly one 1 per prompt."""
    return binned_inference(
        p, y, prompt, error, one_per_group=True, resamples=settings.resamples, rng=settings.seed
    )


def _error_of(p: FloatArray, y: FloatArray, error: ErrorOptions) -> float:
    edges = bin_edges(p, error)
    return float(binned_error(bin_sums(bin_index(p, edges), p, y, len(edges) - 1), error))


def _ece(forecasts: Forecasts, settings: Settings) -> Inference:
    return pooled(forecasts, ErrorOptions(bins=settings.bins), settings)


@once
def _confidence_inference(forecasts: Forecasts, settings: Settings) -> Inference:
    share = np.maximum.reduceat(first_shares(forecasts), forecasts.starts)
    # Rounding must not make the probability that one of t tied responses is correct larger than 1.
    return binned_inference(
        np.minimum(confidence_of(forecasts), share),
        accuracy_of(forecasts),
        np.arange(len(forecasts)),
        ErrorOptions(bins=settings.bins),
        one_per_group=False,
        share=share,
        resamples=settings.resamples,
        rng=settings.seed,
    )


@once
def _pairwise(forecasts: Forecasts, settings: Settings) -> Inference:
    return pairwise_inference(
        forecasts.log_probability,
        forecasts.is_correct,
        forecasts.prompt,
        bins=settings.bins,
        resamples=settings.resamples,
        rng=settings.seed,
    )


_ECE = Metric(
    "ece",
    "top-1 ECE: expected calibration error of the probabilities of all responses, in equal-width bins",
    pooled_ece(),
    better="low",
    unit="probability",
    label="ECE",
    group="calibration",
    ranked="everywhere",
    depends_on_m=True,
)
_CONFIDENCE = Metric(
    "confidence_ece",
    "ECE of the most probable response alone",
    confidence_ece,
    better="low",
    unit="probability",
    label="confidence ECE",
    group="calibration",
    ranked="nowhere",
)
_PAIRWISE = Metric(
    "pairwise_ece",
    "sub-2 ECE: pairs of a correct and a wrong response, in both orders",
    pairwise_ece,
    better="low",
    unit="probability",
    needs=frozenset({"pairs"}),
    label="pairwise ECE",
    group="calibration",
    ranked="nowhere",
)
CALIBRATION = (
    _ECE,
    *null_metrics(_ECE, _ece, "ECE"),
    Metric(
        "ece_bound",
        "largest possible ECE with this number of responses m: 2/m",
        ece_bound,
        unit="probability",
        label="largest possible ECE",
        group="calibration",
        compared="nowhere",
        ranked="nowhere",
        depends_on_m=True,
    ),
    Metric(
        "ece_fullest_bin",
        "fraction of probabilities in the fullest bin of the ECE; near 1, the ECE hides errors",
        ece_fullest_bin,
        unit="fraction of responses",
        label="fraction in the fullest bin",
        group="calibration",
        compared="nowhere",
        ranked="nowhere",
        depends_on_m=True,
    ),
    _CONFIDENCE,
    *null_metrics(_CONFIDENCE, _confidence_inference, "confidence ECE"),
    Metric(
        "debiased_ece",
        "square root of the binned squared error minus its sampling variance",
        pooled_ece(norm=2, debias=True),
        better="low",
        unit="probability",
        label="debiased ECE",
        group="calibration",
        ranked="nowhere",
        depends_on_m=True,
    ),
    Metric(
        "equal_mass_ece",
        "ECE with equally many probabilities in each bin",
        pooled_ece(spacing="mass"),
        better="low",
        unit="probability",
        label="equal-mass ECE",
        group="calibration",
        ranked="nowhere",
        depends_on_m=True,
    ),
    Metric(
        "smooth_ece",
        "smooth ECE, which needs no bins",
        smooth,
        better="low",
        unit="probability",
        label="smooth ECE",
        group="calibration",
        compared="overall",
        ranked="nowhere",
        depends_on_m=True,
    ),
    _PAIRWISE,
    *null_metrics(_PAIRWISE, _pairwise, "pairwise ECE"),
)
