"""How often a correct response is first, for prompts with several correct responses.

Which responses are correct is the outcome here, so "a correct one is first" is no event that was fixed in
advance: a calibrated forecast has no calibration error of it, and no null test.
"""

from __future__ import annotations

from rmcalib.metrics._catalogue._metric import Metric
from rmcalib.metrics._events import accuracy_of
from rmcalib.metrics._events import correct_first_probability as probability_of
from rmcalib.metrics._forecasts import Forecasts
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["SEVERAL"]


def correct_first_probability(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Mean P(a correct response is first)."""
    return Statistic.mean(probability_of(forecasts), within=(0.0, 1.0))


def correct_first(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Fraction of prompts where a correct response has the largest reward."""
    return Statistic.proportion(accuracy_of(forecasts))


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
    Metric(
        "correct_first",
        "how often a correct response has the largest reward, where several are correct and in Ties",
        correct_first,
        better="high",
        unit="fraction of prompts",
        prompts="several",
        needs=frozenset(),
        label="a correct one is first",
        group="several",
        ranked="nowhere",
        depends_on_m=True,
    ),
)
