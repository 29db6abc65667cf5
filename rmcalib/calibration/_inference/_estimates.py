"""A calibration error with its interval and null test, and the difference of two estimates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.calibration._intervals import Interval, check_level, skew_interval, student_quantile
from rmcalib.calibration._nulls import NullTest, compare_with_null

__all__ = ["Difference", "Inference", "difference", "mean_difference"]


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
        # The simulations keep the number of forecasts in each bin, which a squared error depends on strongly.
        if below > 0 or self.square is not None:
            low = min(low, below)
        # The test rejects 0, even if nothing more is known.
        low = min(max(low, 1e-3 * self.value), self.value)
        return Interval(self.value, low, high, level, len(self.null))

    def _smooth_limits(self, level: float) -> tuple[float, float]:
        """Limits of the error as if it were a smooth function of means."""
        if self.square is None:
            below, above = skew_interval(self.influence * len(self.influence), level)
            return self.value + below, self.value + above
        middle, margin = self.square[0], student_quantile(level, len(self.influence)) * self.square[1]
        return float(np.sqrt(max(middle - margin, 0.0))), float(np.sqrt(max(middle + margin, 0.0)))


@dataclass(frozen=True)
class Difference:
    """A difference with its confidence interval, and the p-value of there being none."""

    value: float
    low: float
    high: float
    p_value: float


def difference(a: Interval, b: Interval, influence_a: FloatArray, influence_b: FloatArray) -> Difference:
    """Return b − a for two estimates from the same groups, with an interval that combines theirs.

    The distance of the lower limit from the value is √(x² + y² − 2ρxy), where x is the distance of b to its
    lower limit, y that of a to its upper limit, and ρ the correlation of the influences (Zou and Donner
    2008). The upper limit is found in the same way. Intervals of calibration errors are not symmetric, and
    those of calibrated forecasts reach 0, so that their noise does not count as a difference.

    Parameters
    ----------
    a, b: the estimates with their intervals, of the same level.
    influence_a, influence_b: (G,) how much each group contributes to the deviation of either value.

    Returns
    -------
    Difference: the value, its limits, and a p-value that is at most 1 − level where the interval excludes 0.

    Examples
    --------
    >>> timid, bold = Interval(0.01, 0.0, 0.02, 0.95, 0), Interval(0.04, 0.0, 0.05, 0.95, 0)  # only noise
    >>> found = difference(timid, bold, np.array([0.1, -0.1]), np.array([0.1, -0.1]))
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3), found.p_value > 0.05
    (0.03, -0.0, 0.03, True)
    """
    if a.level != b.level:
        raise ValueError(f"b: its level {b.level} is not that of a, {a.level}")
    value = b.value - a.value
    spread = float(np.sqrt((influence_a**2).sum() * (influence_b**2).sum()))
    correlation = float((influence_a * influence_b).sum()) / spread if spread > 0 else 0.0
    below = _combined(b.value - b.low, a.high - a.value, correlation)
    above = _combined(b.high - b.value, a.value - a.low, correlation)
    return Difference(value, value - below, value + above, _p_value(value, below, above, a.level))


def mean_difference(a: FloatArray, b: FloatArray, *, level: float = 0.95) -> Difference:
    """Return mean(b) − mean(a) for numbers (n,) of the same prompts, with the interval of `skew_interval`.

    Parameters
    ----------
    a, b: (n,) one number of either model for each prompt.
    level: confidence level.

    Returns
    -------
    Difference: the value, its limits, and a p-value that is at most 1 − level where the interval excludes 0.

    Examples
    --------
    >>> found = mean_difference(np.zeros(8), np.array([1.0, 2.0] * 4))
    >>> found.value, found.low > 1, found.p_value < 0.01
    (1.5, True, True)
    """
    check_level(level)
    moved = b - a
    value, (low, high) = float(moved.mean()), skew_interval(moved, level)
    return Difference(value, low, high, _p_value(value, value - low, high - value, level))


def _combined(x: float, y: float, correlation: float) -> float:
    if not np.isfinite(x + y):
        return np.inf
    return float(np.sqrt(max(x**2 + y**2 - 2 * correlation * x * y, 0.0)))


def _p_value(value: float, below: float, above: float, level: float) -> float:
    """Two-sided p-value of a normal estimate whose limit towards 0 is this far away."""
    from scipy.special import ndtr, ndtri

    distance = below if value > 0 else above
    if value == 0 or distance == np.inf:
        return 1.0
    z = float(ndtri((1 + level) / 2)) * abs(value) / distance if distance > 0 else np.inf
    return float(2 * ndtr(-z))
