"""A calibration error with its interval and null test, and the difference of two estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.calibration._intervals import Interval, check_level, skew_interval, student_quantile
from rmcalib.calibration._nulls import NullTest, compare_with_null
from rmcalib.calibration._rare import jump_interval

__all__ = ["Difference", "Inference", "difference", "mean_difference"]


@dataclass(frozen=True)
class Inference:
    """A calibration error with what its interval, its null test and differences need.

    Attributes
    ----------
    value : float
        The observed error.
    null : float array (R,)
        Errors under outcomes drawn from the forecast itself.
    draws : float array (S, D)
        Errors drawn under S alternatives of growing size; the first one is the null.
    truths : float array (S,)
        The true errors of the alternatives.
    influence : float array (G,)
        How much each group contributes to the deviation of the value; sums to 0.
    largest : float
        The largest possible error.
    square : tuple[float, float], optional
        An unbiased estimate of the squared error and its standard error, for debiased errors.
    unseen : float
        The largest error of a group that is unlike all observed ones, if the error is 0 by construction
        because all forecasts lie in one bin; else 0.
    rarely : Callable[[float], tuple[float, float]], optional
        Maps a level to the errors that result if as few, and as many, choices are wrong as the exact interval
        of their frequency allows.

    Examples
    --------
    >>> none = np.zeros((1, 4))
    >>> found = Inference(0.1, none[0], none, none[:, 0], np.array([-0.01, 0.01]))
    >>> found.value, found.test().mean
    (0.1, 0.0)
    """

    value: float
    null: FloatArray
    draws: FloatArray
    truths: FloatArray
    influence: FloatArray
    largest: float = 1.0
    square: tuple[float, float] | None = None
    unseen: float = 0.0
    rarely: Callable[[float], tuple[float, float]] | None = None

    def test(self) -> NullTest:
        """Return the test of calibration: how often a calibrated forecast shows so large an error."""
        return compare_with_null(self.value, self.null)

    @property
    def centre(self) -> float:
        """The error without the bias of noise: the one under which half of the draws exceed the value."""
        middle = np.maximum.accumulate(np.median(self.draws, axis=1))
        return float(np.interp(self.value, middle, self.truths))

    def interval(self, level: float = 0.95) -> Interval:
        """Return the interval; it excludes 0 exactly if the test's p-value is at most 1 − level."""
        check_level(level)
        alpha = round(1 - level, 12)
        below, above = self._smooth_limits(level)
        smallest, largest = np.quantile(self.draws, [alpha / 2, 1 - alpha / 2], axis=1)
        # Quantiles grow with the size of the alternative; running maxima remove the noise of the simulation.
        high = float(np.interp(self.value, np.maximum.accumulate(smallest), self.truths))
        # With probability 1 − alpha, at most this fraction of all groups is unlike the observed ones.
        rest = self.unseen * (1 - alpha ** (1 / len(self.influence)))
        fewer, more = (self.value, 0.0) if self.rarely is None else self.rarely(level)
        high = max(min(max(high, above, rest, more), self.largest), self.value)
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
        low = min(max(min(low, fewer), 1e-3 * self.value), self.value)
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
    """A difference with its confidence interval, and the p-value of there being none.

    Attributes
    ----------
    value : float
        The difference.
    low, high : float
        Limits of its interval.
    p_value : float
        The p-value of the hypothesis that there is no difference.

    Examples
    --------
    >>> mean_difference(np.zeros(4), np.ones(4)).value
    1.0
    """

    value: float
    low: float
    high: float
    p_value: float


def difference(
    a: Interval,
    b: Interval,
    influence_a: FloatArray,
    influence_b: FloatArray,
    *,
    centres: tuple[float, float] | None = None,
) -> Difference:
    """Return b − a for two estimates from the same groups, with an interval that combines theirs.

    The distance of the lower limit from the difference is √(x² + y² − 2ρxy), where x is the distance of b to
    its lower limit, y that of a to its upper limit, and ρ the correlation of the influences (Zou and Donner
    2008). The upper limit is found in the same way.

    Noise pushes calibration errors up, and those of calibrated forecasts most. For them ``centres`` has the
    errors without that bias, and distances are taken from there. Where the interval of one error holds 0,
    its influence says little about its noise, and a positive ρ counts as 0; where both do, the limits are
    the largest and the smallest difference that the two intervals allow. The interval is widened, if
    necessary, to hold the value.

    Parameters
    ----------
    a, b : Interval
        The estimates with their intervals, of the same level.
    influence_a, influence_b : float array (G,)
        How much each group contributes to the deviation of either value.
    centres : tuple[float, float], optional
        The errors of a and b without the bias of noise; None for estimates without such a bias.

    Returns
    -------
    Difference
        The value, its limits, and a p-value that is at most 1 − level where the interval excludes 0.

    Examples
    --------
    >>> timid, bold = Interval(0.01, 0.0, 0.02, 0.95, 0), Interval(0.04, 0.0, 0.05, 0.95, 0)  # only noise
    >>> found = difference(timid, bold, np.array([0.1, -0.1]), np.array([0.1, -0.1]), centres=(0.0, 0.0))
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3), found.p_value > 0.05
    (0.03, -0.02, 0.05, True)
    """
    if a.level != b.level:
        raise ValueError(f"b: its level {b.level} is not that of a, {a.level}")
    spread = float(np.sqrt((influence_a**2).sum() * (influence_b**2).sum()))
    correlation = float((influence_a * influence_b).sum()) / spread if spread > 0 else 0.0
    centre_a, centre_b = a.value, b.value
    if centres is not None:
        centre_a, centre_b = (min(max(c, i.low), i.high) for c, i in zip(centres, (a, b), strict=True))
        hold_0 = (a.low <= 0) + (b.low <= 0)
        correlation = (correlation, min(correlation, 0.0), -1.0)[hold_0]
    middle, value = centre_b - centre_a, b.value - a.value
    below = _combined(centre_b - b.low, a.high - centre_a, correlation)
    above = _combined(b.high - centre_b, centre_a - a.low, correlation)
    low, high = min(middle - below, value), max(middle + above, value)
    p_value = 1.0 if value * middle <= 0 else _p_value(middle, below, above, a.level)
    if low <= 0 <= high:  # a limit at exactly 0 does not exclude it
        p_value = max(p_value, float(np.nextafter(1 - a.level, 1)))
    return Difference(value, low, high, p_value)


def mean_difference(
    a: FloatArray,
    b: FloatArray,
    *,
    level: float = 0.95,
    base: FloatArray | None = None,
    others: Sequence[FloatArray] = (),
) -> Difference:
    """Return mean(b) − mean(a) for numbers (n,) of the same prompts, with the interval of `jump_interval`.

    Parameters
    ----------
    a, b : float array (n,)
        One number of either model for each prompt.
    level : float
        Confidence level.
    base, others : float array (n,), Sequence[FloatArray]
        What each b − a would be if both choices were right, and what it would be otherwise, where few
        prompts, or none, may show it. By default b − a itself: nothing jumps.

    Returns
    -------
    Difference
        The value, its limits, and a p-value that is at most 1 − level where the interval excludes 0.

    Examples
    --------
    >>> found = mean_difference(np.zeros(8), np.array([1.0, 2.0] * 4))
    >>> found.value, found.low > 1, found.p_value < 0.01
    (1.5, True, True)
    >>> none, one = np.zeros(100), np.ones(100)
    >>> found = mean_difference(none, none, base=none, others=[one, -one])
    >>> round(found.low, 3), round(found.high, 3)
    (-0.036, 0.036)
    """
    check_level(level)
    moved = b - a
    value = float(moved.mean())
    low, high = jump_interval(moved, moved if base is None else base, others, level)
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
