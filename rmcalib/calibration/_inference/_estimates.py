"""A calibration error with its interval and null test, and the difference of two estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.calibration._intervals import Interval, check_level, skew_interval, student_quantile
from rmcalib.calibration._nulls import NullTest, compare_with_null

__all__ = ["Difference", "Estimate", "Inference", "difference"]

_HALVINGS = 12  # on the way to the p-value of a difference


@dataclass(frozen=True)
class Inference:
    """A calibration error with what its interval, its null test and differences need.

    Attributes
    ----------
    value: the observed error.
    null: (R,) errors under outcomes drawn from the forecast itself.
    draws: (S, D) errors drawn under S alternatives of growing size; the first one is the null.
    truths: (S,) the true errors of the alternatives.
    influence: (G,) how much each group contributes to the deviation of the value; sums to 0.
    largest: the largest possible error.
    square: an unbiased estimate of the squared error and its standard error, for debiased errors.
    """

    value: float
    null: FloatArray
    draws: FloatArray
    truths: FloatArray
    influence: FloatArray
    largest: float = 1.0
    square: tuple[float, float] | None = None

    def test(self) -> NullTest:
        """Return the test of calibration: how often a calibrated forecast shows so large an error."""
        return compare_with_null(self.value, self.null)

    def interval(self, level: float = 0.95) -> Interval:
        """Return the interval; it excludes 0 exactly if the test's p-value is at most 1 − level."""
        check_level(level)
        alpha = round(1 - level, 12)
        below, above = self._smooth_limits(level)
        smallest, largest = np.quantile(self.draws, [alpha / 2, 1 - alpha / 2], axis=1)
        # Quantiles grow with the size of the alternative; running maxima remove the noise of the simulation.
        high = float(np.interp(self.value, np.maximum.accumulate(smallest), self.truths))
        high = max(min(max(high, above), self.largest), self.value)
        if self.test().p_value > alpha:
            return Interval(self.value, 0.0, high, level, len(self.null))
        # No error is smaller than 0, so calibration itself is tested on one side.
        rank = int(alpha * (len(self.null) + 1) + 1e-9)
        largest[0] = np.partition(self.null, -rank)[-rank]
        low = float(np.interp(self.value, np.maximum.accumulate(largest), self.truths))
        low = min(low, below) if below > 0 else low
        return Interval(self.value, min(max(low, 1e-3 * self.value), self.value), high, level, len(self.null))

    def _smooth_limits(self, level: float) -> tuple[float, float]:
        """Limits of the error as if it were a smooth function of means."""
        if self.square is None:
            below, above = skew_interval(self.influence * len(self.influence), level)
            return self.value + below, self.value + above
        middle, margin = self.square[0], student_quantile(level, len(self.influence)) * self.square[1]
        return float(np.sqrt(max(middle - margin, 0.0))), float(np.sqrt(max(middle + margin, 0.0)))


class Estimate(Protocol):
    """A value with its interval and the influence of each group on it: what `difference` needs."""

    @property
    def value(self) -> float:
        """The estimate."""

    @property
    def influence(self) -> FloatArray:
        """How much each group (G,) contributes to the deviation of the value; sums to 0."""

    def interval(self, level: float = 0.95) -> Interval:
        """Return the confidence interval."""


@dataclass(frozen=True)
class Difference:
    """A difference with its confidence interval, and the p-value of there being none."""

    value: float
    low: float
    high: float
    p_value: float


def difference(a: Estimate, b: Estimate, *, level: float = 0.95) -> Difference:
    """Return b − a for two estimates from the same groups, with an interval that combines theirs.

    The distance of the lower limit from the value is √(x² + y² − 2ρxy), where x is the distance of b to its
    lower limit, y that of a to its upper limit, and ρ the correlation of the influences (Zou and Donner
    2008). The upper limit is found in the same way. Intervals of calibration errors are not symmetric, and
    those of calibrated forecasts reach 0, so that their noise does not count as a difference.

    Parameters
    ----------
    a, b: estimates with a value, an interval, and the influence of each group.
    level: confidence level.

    Returns
    -------
    Difference: the value, its limits, and a p-value: the largest 1 − level at which the interval holds 0.

    Examples
    --------
    >>> noise = np.abs(np.random.default_rng(0).normal(size=(2, 400)))
    >>> sizes = np.linspace(0, 8, 17)
    >>> influence = np.array([-1e-3, 1e-3])
    >>> timid, bold = (
    ...     Inference(scale, scale * draws, sizes[:, None] + scale * draws, sizes, influence, largest=9.0)
    ...     for scale, draws in zip((0.1, 1.0), noise)
    ... )
    >>> found = difference(timid, bold)  # both errors are noise
    >>> found.low < 0 < found.high, found.p_value > 0.05
    (True, True)
    """
    check_level(level)
    value = b.value - a.value
    if value == 0 and np.array_equal(a.influence, b.influence):
        return Difference(0.0, 0.0, 0.0, 1.0)  # the same forecast twice
    spread = float(np.sqrt((a.influence**2).sum() * (b.influence**2).sum()))
    correlation = float((a.influence * b.influence).sum()) / spread if spread > 0 else 0.0

    def limits(level: float) -> tuple[float, float]:
        one, other = a.interval(level), b.interval(level)
        below = _combined(b.value - other.low, one.high - a.value, correlation)
        above = _combined(other.high - b.value, a.value - one.low, correlation)
        return value - below, value + above

    low, high = limits(level)
    without, holding = 0.0, 1.0  # levels of intervals without 0, and with it
    for _ in range(_HALVINGS):
        middle = (without + holding) / 2
        below, above = limits(middle)
        without, holding = (without, middle) if below <= 0 <= above else (middle, holding)
    return Difference(value, low, high, 1 - without)


def _combined(x: float, y: float, correlation: float) -> float:
    return float(np.sqrt(max(x**2 + y**2 - 2 * correlation * x * y, 0.0)))
