"""Correlations of rewards and confidence with length, and the accuracy of picking responses by length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.metrics._catalogue._metric import Metric, Need
from rmcalib.metrics._events import centred, fraction_correct, margins, of_first_choice
from rmcalib.metrics._forecasts import Forecasts
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["LENGTHS", "MARGINS", "spearman_sums"]

OfTotals = Callable[[FloatArray], FloatArray]  # totals (R, q) -> values (R,)

_LENGTHS: frozenset[Need] = frozenset({"lengths"})


def reward_length_correlation(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Correlate reward and length within prompts: each minus the prompt's mean, because prompts differ."""
    reward, length = centred(forecasts.reward, forecasts), centred(forecasts.length, forecasts)
    sums = spearman_sums(reward, length, forecasts.prompt)
    if sums is None:
        return Statistic.missing(len(forecasts), "all rewards or all lengths are equal")
    return Statistic.of_sums(*sums)


def confidence_length_correlation(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Correlate the most probable response's probability and length over prompts."""
    confidence, length = (
        of_first_choice(forecasts, one) for one in (forecasts.log_probability, forecasts.length)
    )
    sums = spearman_sums(confidence, length, np.arange(len(forecasts)))
    if sums is None:
        return Statistic.missing(len(forecasts), "all confidences or all lengths are equal")
    return Statistic.of_sums(*sums)


def shortest_baseline(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Accuracy of picking the shortest response."""
    return Statistic.proportion(fraction_correct(forecasts, -forecasts.length))


def longest_baseline(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Accuracy of picking the longest response."""
    return Statistic.proportion(fraction_correct(forecasts, forecasts.length))


def spearman_sums(x: FloatArray, y: FloatArray, groups: IntArray) -> tuple[FloatArray, OfTotals] | None:
    """Return the sums of each group for Spearman's correlation (G, 6), and its function of totals (R, 6).

    Every resample uses the ranks of the whole data. None if x or y is constant, or has fewer than three
    values.
    """
    from scipy.stats import rankdata

    a, b = rankdata(x), rankdata(y)
    a, b = a - a.mean(), b - b.mean()
    if len(a) < 3 or not a.any() or not b.any():
        return None
    terms = [np.ones_like(a), a, b, a * a, b * b, a * b]
    sums = np.column_stack([np.bincount(groups, term) for term in terms]).astype(np.float64)

    def correlation(rows: FloatArray) -> FloatArray:
        n, sa, sb, saa, sbb, sab = rows.T
        spread = np.maximum(saa - sa**2 / n, 0) * np.maximum(sbb - sb**2 / n, 0)
        return np.where(spread > 0, sab - sa * sb / n, 0) / np.sqrt(np.where(spread > 0, spread, 1))

    return sums, correlation


def margin_mean(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Mean of the correct reward minus the best wrong one."""
    return Statistic.mean(margins(forecasts))


def margin_median(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Median of the correct reward minus the best wrong one."""
    return Statistic.median(margins(forecasts))


MARGINS = (
    Metric(
        "margin_mean",
        "mean of the correct reward minus the best wrong one",
        margin_mean,
        unit="reward",
        needs=frozenset(),
        label="mean margin",
        group="rewards",
        ranked="nowhere",
    ),
    Metric(
        "margin_median",
        "median of the correct reward minus the best wrong one",
        margin_median,
        unit="reward",
        needs=frozenset(),
        label="median margin",
        group="rewards",
        ranked="nowhere",
    ),
)

LENGTHS = (
    Metric(
        "reward_length_correlation",
        "Spearman correlation of reward and length within prompts",
        reward_length_correlation,
        unit="correlation",
        needs=_LENGTHS,
        label="correlation of reward and length",
        group="length",
        ranked="nowhere",
    ),
    Metric(
        "confidence_length_correlation",
        "Spearman correlation of confidence and the picked response's length",
        confidence_length_correlation,
        unit="correlation",
        needs=frozenset({"probabilities", "lengths"}),
        label="correlation of confidence and length",
        group="length",
        ranked="nowhere",
    ),
    # The baselines do not depend on the model, so there is nothing to compare.
    Metric(
        "shortest_baseline",
        "accuracy of picking the shortest response",
        shortest_baseline,
        unit="fraction of prompts",
        needs=_LENGTHS,
        label="accuracy of the shortest response",
        group="length",
        compared="nowhere",
        ranked="nowhere",
        depends_on_m=True,
    ),
    Metric(
        "longest_baseline",
        "accuracy of picking the longest response",
        longest_baseline,
        unit="fraction of prompts",
        needs=_LENGTHS,
        label="accuracy of the longest response",
        group="length",
        compared="nowhere",
        ranked="nowhere",
        depends_on_m=True,
    ),
)
