"""Metrics of pairs of a correct and a wrong response. Judges that only compare pairs have them, too.

A value is the mean over prompts of the mean over a prompt's pairs. So the pairs of one prompt, which depend
on each other, count as one observation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import Interval, pair_scale_loss
from rmcalib.metrics._catalogue._metric import Measure, Metric, Need
from rmcalib.metrics._events import if_right_and_if_wrong, pair_log_odds
from rmcalib.metrics._forecasts import Forecasts, once
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["PAIRS"]

_NEEDS: frozenset[Need] = frozenset({"pairs"})
_CERTAIN = "a wrong verdict with probability 1 has an infinite loss"


def confidence(log_odds: FloatArray) -> FloatArray:
    """Return the probability of the preferred response of each pair (P,)."""
    from scipy.special import expit

    return np.asarray(expit(np.abs(log_odds)))


def right(log_odds: FloatArray) -> FloatArray:
    """Return 1 where the correct response is preferred, 1/2 where none is, else 0: (P,)."""
    return np.heaviside(log_odds, 0.5)


def gap(log_odds: FloatArray) -> FloatArray:
    """Return `confidence` minus `right`: (P,)."""
    return confidence(log_odds) - right(log_odds)


def brier(log_odds: FloatArray) -> FloatArray:
    """Return the squared error of P(the correct response wins): (P,)."""
    from scipy.special import expit

    return np.asarray(expit(-log_odds) ** 2)


def _mean_of(function: Callable[[FloatArray], FloatArray], within: tuple[float, float] = (0, 1)) -> Measure:
    """Return the statistic of a function of log-odds (P,): its mean over prompts."""

    def means(forecasts: Forecasts) -> FloatArray:
        log_odds, prompt = _known(forecasts)
        return np.bincount(prompt, function(log_odds)) / np.bincount(prompt)

    def statistic(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
        values = means(forecasts)
        if not len(values):
            return Statistic.missing(len(forecasts), "no pair is known")
        right, wrong = (means(one) for one in if_right_and_if_wrong(forecasts))
        if not len(values) == len(right) == len(wrong):  # the pairs of some prompts are unknown
            return Statistic.mean(values, within=within)
        return Statistic.mean(values, right, wrong, within=within)

    return statistic


def lost_information(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Information lost by the wrong scale: (NLL(1) − NLL(T)) / log 2, over pairs."""
    log_odds, prompt = _known(forecasts)
    if not len(prompt):
        return Statistic.missing(len(forecasts), "no pair is known")
    if np.isinf(log_odds).any():
        return Statistic.missing(len(forecasts), _CERTAIN)
    found = partial(_scale, forecasts)
    return Statistic.estimated(
        found(settings.level)[0].value,
        lambda level: found(level)[0],
        lambda: found(settings.level)[1],
        int(prompt.max()) + 1,
    )


@once
def _scale(forecasts: Forecasts, level: float) -> tuple[Interval, FloatArray]:
    log_odds, prompt = _known(forecasts)
    return pair_scale_loss(log_odds, prompt, level=level)


@once
def _known(forecasts: Forecasts) -> tuple[FloatArray, IntArray]:
    """Log-odds of the pairs, and the numbers of their prompts among those with a known pair."""
    log_odds, prompt = pair_log_odds(forecasts)
    return log_odds, np.unique(prompt, return_inverse=True)[1]


PAIRS = (
    Metric(
        "pairwise_confidence",
        "mean probability of the preferred response of a pair",
        _mean_of(confidence),
        unit="probability",
        needs=_NEEDS,
        label="confidence in pairs",
        group="pairs",
    ),
    Metric(
        "pairwise_accuracy",
        "how often the correct response of a pair is preferred (a tie counts 1/2)",
        _mean_of(right),
        better="high",
        unit="fraction of pairs",
        needs=frozenset(),
        label="accuracy in pairs",
        group="pairs",
    ),
    Metric(
        "pairwise_overconfidence",
        "confidence minus accuracy in pairs; positive is over-confident",
        _mean_of(gap, (-1, 1)),
        better="zero",
        unit="probability",
        needs=_NEEDS,
        label="gap in pairs",
        group="pairs",
    ),
    Metric(
        "pairwise_lost_information",
        "fraction of the uncertainty of a coin toss that is lost because the scale is wrong",
        lost_information,
        better="low",
        unit="fraction",
        needs=_NEEDS,
        label="lost information in pairs",
        group="pairs",
    ),
    Metric(
        "pairwise_brier",
        "squared error of the probability that the correct response of a pair wins",
        _mean_of(brier),
        better="low",
        needs=_NEEDS,
        label="Brier score in pairs",
        group="pairs",
        ranked="nowhere",
    ),
)
