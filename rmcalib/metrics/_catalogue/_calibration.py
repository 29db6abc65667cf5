"""Confidence, accuracy and calibration of the first choice; calibration of sets of correct responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from rmcalib.calibration import reference_top_1 as reference
from rmcalib.metrics._catalogue._metric import Measure, Metric
from rmcalib.metrics._forecasts import (
    Forecasts,
    accuracy_of,
    first_correct_probability,
    once,
    pairwise_forecasts,
    picked_rows,
    set_forecasts,
)
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = [
    "CALIBRATION",
    "FIRST_CHOICE",
    "REFERENCE",
    "SCORES",
    "SEVERAL",
    "SMOOTH_RESAMPLES",
    "null_metrics",
    "outcomes",
]

SMOOTH_RESAMPLES = 200


def outcomes(forecasts: Forecasts) -> FloatArray:
    """Return 1 for correct responses and 0 for the others: (N,)."""
    return forecasts.is_correct.astype(np.float64)


def mean_confidence(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Mean probability of the most probable response."""
    return Statistic.mean(_confidence(forecasts, settings))


def accuracy(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Fraction of prompts whose correct response has the largest reward."""
    found = Statistic.proportion(accuracy_of(forecasts))
    return replace(found, choices=picked_rows(forecasts, settings.seed)[0])


def overconfidence(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Mean confidence minus accuracy."""
    found = Statistic.mean(_confidence(forecasts, settings) - accuracy_of(forecasts))
    return replace(found, choices=picked_rows(forecasts, settings.seed)[0])


def pooled_ece(**options: Any) -> Measure:
    """Return the binned error of all responses pooled, with options of `ErrorOptions`."""

    def statistic(forecasts: Forecasts, settings: Settings) -> Statistic:
        error = ErrorOptions(bins=settings.bins, **options)
        p, y = forecasts.probability, outcomes(forecasts)
        edges = bin_edges(p, error)
        value = float(binned_error(bin_sums(bin_index(p, edges), p, y, len(edges) - 1), error))
        return Statistic.inferred(value, partial(pooled, forecasts, error, settings), len(forecasts))

    return statistic


@once
def pooled(forecasts: Forecasts, error: ErrorOptions, settings: Settings) -> Inference:
    """Return the inference of the binned error of all responses pooled."""
    p, y = forecasts.probability, outcomes(forecasts)
    return _one_per_prompt(p, y, forecasts.prompt, error, settings)


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
    if forecasts.scores.beats is not None:  # not Plackett-Luce: how its pairs vary together is not known
        p, y, _ = pairwise_forecasts(forecasts)
        error = ErrorOptions(bins=settings.bins)
        edges = bin_edges(p, error)
        value = float(binned_error(bin_sums(bin_index(p, edges), p, y, len(edges) - 1), error))
        return Statistic.constant(value, len(forecasts))
    found = _pairwise(forecasts, settings)
    return Statistic.inferred(found.value, lambda: found, len(forecasts))


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
    found = _correct_first(forecasts, settings)
    return Statistic.inferred(found.value, lambda: found, len(forecasts))


def ece_bound(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Return the largest ECE that this number of responses allows: 2/m."""
    return Statistic.constant(2 * len(forecasts) / len(forecasts.reward), len(forecasts))


def ece_fullest_bin(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Return the fraction of probabilities that lie in the fullest bin of the ECE."""
    edges = bin_edges(forecasts.probability, ErrorOptions(bins=settings.bins))
    count = np.bincount(bin_index(forecasts.probability, edges))
    return Statistic.constant(float(count.max() / count.sum()), len(forecasts))


@once
def _confidence(forecasts: Forecasts, settings: Settings) -> FloatArray:
    picked, _ = picked_rows(forecasts, settings.seed)
    return forecasts.probability[picked]


def _ece(forecasts: Forecasts, settings: Settings) -> Inference:
    return pooled(forecasts, ErrorOptions(bins=settings.bins), settings)


@once
def _confidence_inference(forecasts: Forecasts, settings: Settings) -> Inference:
    _, right = picked_rows(forecasts, settings.seed)
    return binned_inference(
        _confidence(forecasts, settings),
        right,
        np.arange(len(forecasts)),
        ErrorOptions(bins=settings.bins),
        one_per_group=False,
        resamples=settings.resamples,
        rng=settings.seed,
    )


@once
def _correct_first(forecasts: Forecasts, settings: Settings) -> Inference:
    return _one_per_prompt(*set_forecasts(forecasts), ErrorOptions(bins=settings.bins), settings)


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


def _one_per_prompt(
    p: FloatArray, y: FloatArray, prompt: IntArray, error: ErrorOptions, settings: Settings
) -> Inference:
    return binned_inference(
        p, y, prompt, error, one_per_group=True, resamples=settings.resamples, rng=settings.seed
    )


def null_metrics(
    error: Metric, inference: Callable[[Forecasts, Settings], Inference | None], what: str, heading: str = ""
) -> tuple[Metric, ...]:
    """Return the three numbers of a null test, as metrics beside the error that it is about."""

    def entry(suffix: str, field: str, meaning: str, **more: Any) -> Metric:
        def statistic(forecasts: Forecasts, settings: Settings) -> Statistic:
            if "pairs" in error.needs and forecasts.scores.beats is not None:
                return Statistic.missing(len(forecasts), "no null test of pairwise probabilities")
            found = inference(forecasts, settings)
            if found is None:
                return Statistic.missing(0, f"no prompt to compute the {what} of")
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
            **{"unit": error.unit, "heading": "", **more},
        )

    return (
        entry("null_mean", "mean", f"mean {what} of a calibrated forecast with as much data"),
        entry("null_95", "high", f"95% point of the {what} of a calibrated forecast"),
        entry(
            "p_value",
            "p_value",
            f"chance that a calibrated forecast has at least this {what}",
            unit="probability",
            heading=heading,
            label=f"p-value of {error.label}",
        ),
    )


FIRST_CHOICE = (
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
        better="zero",
        unit="probability",
        label="gap",
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
    "sub-2 ECE over correct-versus-wrong pairs, both orientations",
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
    *null_metrics(_ECE, _ece, "ECE", heading="p"),
    Metric(
        "ece_bound",
        "the largest ECE that this number of responses allows: 2/m",
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
        "fraction of probabilities in the fullest bin of the ECE: near 1, the ECE sees next to nothing",
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
    *null_metrics(_PAIRWISE, _pairwise, "pairwise ECE"),
)

SCORES = (
    Metric(
        "brier",
        "Brier score: squared error summed over a prompt's responses",
        brier,
        better="low",
        label="Brier score",
        heading="",
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
    *null_metrics(_CORRECT_FIRST, _correct_first, "correct-first ECE"),
)
