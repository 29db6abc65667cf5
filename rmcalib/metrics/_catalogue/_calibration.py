"""Confidence, accuracy and calibration of the first choice; calibration of sets of correct responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import ErrorOptions, NullTest, Worlds, ece_null, smooth_ece
from rmcalib.calibration import reference_top_1 as reference
from rmcalib.metrics._catalogue._metric import Measure, Metric
from rmcalib.metrics._catalogue._pairwise_null import pairwise_null
from rmcalib.metrics._forecasts import (
    Forecasts,
    accuracy_of,
    first_correct_probability,
    once,
    pairwise_forecasts,
    picked_rows,
    set_forecasts,
)
from rmcalib.metrics._resampling import SMOOTH_RESAMPLES, smooth_alternatives
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["CALIBRATION", "HEADLINE", "REFERENCE", "SCORES", "SEVERAL", "outcomes"]


def outcomes(forecasts: Forecasts) -> FloatArray:
    """Return 1 for correct responses and 0 for the others: (N,)."""
    return forecasts.is_correct.astype(np.float64)


def mean_confidence(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Mean probability of the most probable response."""
    return Statistic.mean(_confidence(forecasts, settings))


def accuracy(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Fraction of prompts whose correct response has the largest reward."""
    return Statistic.proportion(accuracy_of(forecasts))


def overconfidence(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Mean confidence minus accuracy."""
    return Statistic.mean(_confidence(forecasts, settings) - accuracy_of(forecasts))


def pooled_ece(**options: Any) -> Measure:
    """Return the binned error of all responses pooled, with options of `ErrorOptions`."""

    def statistic(forecasts: Forecasts, settings: Settings) -> Statistic:
        error = ErrorOptions(bins=settings.bins, **options)
        return Statistic.binned(forecasts.probability, outcomes(forecasts), forecasts.prompt, error)

    return statistic


def confidence_ece(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Binned error of the most probable response alone."""
    _, right = picked_rows(forecasts, settings.seed)
    options = ErrorOptions(bins=settings.bins)
    return Statistic.binned(_confidence(forecasts, settings), right, np.arange(len(forecasts)), options)


def smooth(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Smooth ECE of all responses pooled."""
    p, y, prompt = forecasts.probability, outcomes(forecasts), forecasts.prompt

    def alternatives(weights: FloatArray) -> Worlds:
        return smooth_alternatives(p, y, prompt, weights)

    return Statistic(smooth_ece(p, y), len(forecasts), alternatives=alternatives, most=SMOOTH_RESAMPLES)


def pairwise_ece(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Binned error of the pairs of a correct and a wrong response."""
    return Statistic.binned(*pairwise_forecasts(forecasts), ErrorOptions(bins=settings.bins))


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


def correct_first_probability(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Mean P(a correct response is first)."""
    return Statistic.mean(set_forecasts(forecasts)[0][: len(forecasts)])


def correct_first_ece(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Binned error of P(a correct response is first) and P(a wrong one is)."""
    return Statistic.binned(*set_forecasts(forecasts), ErrorOptions(bins=settings.bins))


@once
def _confidence(forecasts: Forecasts, settings: Settings) -> FloatArray:
    picked, _ = picked_rows(forecasts, settings.seed)
    return forecasts.probability[picked]


@once
def _ece_null(forecasts: Forecasts, settings: Settings) -> NullTest:
    return _one_per_prompt(forecasts.probability, outcomes(forecasts), forecasts.prompt, settings)


@once
def _correct_first_null(forecasts: Forecasts, settings: Settings) -> NullTest:
    return _one_per_prompt(*set_forecasts(forecasts), settings)


@once
def _pairwise_null(forecasts: Forecasts, settings: Settings) -> NullTest:
    return pairwise_null(forecasts, bins=settings.bins, resamples=settings.resamples, seed=settings.seed)


def _one_per_prompt(p: FloatArray, y: FloatArray, prompt: IntArray, settings: Settings) -> NullTest:
    return ece_null(
        p,
        y,
        groups=prompt,
        draw="one_per_group",
        resamples=settings.resamples,
        rng=settings.seed,
        bins=settings.bins,
    )


def _null_metrics(error: Metric, null: Any, what: str, heading: str = "") -> tuple[Metric, ...]:
    """The three numbers of a null test, as metrics beside the error that it is about."""

    def entry(suffix: str, field: str, meaning: str, **more: Any) -> Metric:
        def statistic(forecasts: Forecasts, settings: Settings) -> Statistic:
            return Statistic.constant(getattr(null(forecasts, settings), field), len(forecasts))

        return Metric(
            f"{error.name}_{suffix}",
            meaning,
            statistic,
            prompts=error.prompts,
            group=error.group,
            compared="nowhere",
            ranked=error.ranked if error.ranked == "nowhere" else "overall",
            depends_on_m=error.depends_on_m,
            **{"unit": error.unit, "heading": "", **more},
        )

    return (
        entry("null_mean", "mean", f"mean {what} of a calibrated forecast with as much data"),
        entry("null_95", "high", f"95% point of the {what} of a calibrated forecast"),
        entry(
            "p_value",
            "p_value",
            f"chance that a calibrated forecast shows {what} at least as large",
            unit="probability",
            heading=heading,
            label=f"p-value of {error.label}",
        ),
    )


HEADLINE = (
    Metric(
        "mean_confidence",
        "mean probability of the most probable response",
        mean_confidence,
        unit="probability",
        label="mean confidence",
        heading="",
        group="headline",
        depends_on_m=True,
    ),
    Metric(
        "accuracy",
        "how often the correct response has the largest reward (1/t if t share it)",
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
        "mean confidence minus accuracy: positive is over-confident",
        overconfidence,
        unit="probability",
        label="over-confidence",
        heading="over-conf.",
        group="headline",
    ),
)

_ECE = Metric(
    "ece",
    "top-1 ECE: all responses pooled, equal-width bins",
    pooled_ece(),
    better="low",
    unit="probability",
    label="ECE",
    group="calibration",
    ranked="everywhere",
    depends_on_m=True,
)
_PAIRWISE = Metric(
    "pairwise_ece",
    "sub-2 ECE over correct-versus-wrong pairs, both orientations",
    pairwise_ece,
    better="low",
    unit="probability",
    label="pairwise ECE",
    group="calibration",
    ranked="nowhere",
)
CALIBRATION = (
    _ECE,
    *_null_metrics(_ECE, _ece_null, "ECE", heading="p"),
    Metric(
        "confidence_ece",
        "ECE of the most probable response alone",
        confidence_ece,
        better="low",
        unit="probability",
        label="confidence ECE",
        group="calibration",
        ranked="nowhere",
    ),
    Metric(
        "debiased_ece",
        "root of the binned squared error minus its sampling variance",
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
        "ECE with bins of equal numbers",
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
        "smooth ECE: no bins",
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
    *_null_metrics(_PAIRWISE, _pairwise_null, "pairwise ECE"),
)

SCORES = (
    Metric(
        "brier",
        "Brier score: squared error summed over a prompt's responses",
        brier,
        better="low",
        label="Brier score",
        heading="Brier",
        group="scores",
        depends_on_m=True,
    ),
    Metric(
        "nll",
        "negative log-likelihood of the correct response",
        nll,
        better="low",
        unit="nats",
        label="negative log-likelihood",
        heading="NLL",
        group="scores",
        depends_on_m=True,
    ),
)

REFERENCE = (
    Metric(
        "reference_top_1",
        "what the paper's public code calls ECE: 1 − mean P(first chosen); an error rate, not calibration",
        reference_top_1,
        better="low",
        unit="probability",
        prompts="all",
        label="1 − mean P(chosen) (reference)",
        heading="",
        group="reference",
        depends_on_m=True,
    ),
)

_CORRECT_FIRST = Metric(
    "correct_first_ece",
    "ECE of P(a correct response is first) and P(a wrong one is)",
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
        "mean P(a correct response is first), in Ties or where several are correct",
        correct_first_probability,
        better="high",
        unit="probability",
        prompts="several",
        label="P(a correct one is first)",
        group="several",
        ranked="nowhere",
        depends_on_m=True,
    ),
    _CORRECT_FIRST,
    *_null_metrics(_CORRECT_FIRST, _correct_first_null, "that ECE"),
)
