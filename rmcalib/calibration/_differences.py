"""The difference of two calibration errors on the same data: which true differences make it likely?

Noise pushes an error up, and the more so the more bins a forecast fills. It does not fall out of the
difference of two forecasts unless both are as sharp: a bold forecast that is calibrated looks worse than a
timid one that is. So resampled differences are no better than resampled errors, and for the same reason.
"""

from collections.abc import Iterator

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.calibration._inference import Difference
from rmcalib.calibration._intervals import Worlds, check_level

__all__ = ["recentred_difference"]

_STEPS = 12  # halvings on the way to the p-value
_LIKELY = 0.99  # a world is out of the question if an error as observed is rarer there


def recentred_difference(
    value_a: float, value_b: float, a: Worlds, b: Worlds, *, level: float = 0.95
) -> Difference:
    """Return the true differences (b less a) under which the observed one is likely.

    ``a`` and ``b`` are errors drawn in imagined worlds (S, R), and the true errors there (S,), as for
    :func:`~rmcalib.calibration.recentred_interval`; column r of both is the same resample. Every pair of a
    world of ``a`` with one of ``b`` has a true difference and R drawn ones. The interval holds the true
    differences of all pairs where the observed one is neither among the smallest nor the largest
    (1 − level)/2 of the draws, of worlds that are not out of the question by themselves; it is stretched, if
    need be, to hold the observed one. ``p_value`` is the largest 1 − level at which it holds 0.

    >>> noise = np.abs(np.random.default_rng(0).normal(size=(2, 1000)))
    >>> shares = np.linspace(0, 8, 17)
    >>> timid, bold = (shares[:, None] + size * row for size, row in zip((0.1, 1.0), noise))
    >>> found = recentred_difference(0.1, 0.8, (timid, shares), (bold, shares))  # both are noise alone
    >>> found.low < 0 < found.high, found.p_value > 0.05
    (True, True)
    """
    check_level(level)
    value = value_b - value_a
    if value == 0 and np.array_equal(a[0], b[0]):
        return Difference(0.0, 0.0, 0.0, 1.0)  # one and the same forecast
    (draws_a, truths_a), (draws_b, truths_b) = _possible(value_a, a), _possible(value_b, b)
    drawn = np.sort(draws_b[None] - draws_a[:, None], axis=2)
    low, high = _limits(value, drawn, truths_a, truths_b, level)
    without, holding = 0.0, 1.0  # levels of intervals without 0, and with it
    for _ in range(_STEPS):
        middle = (without + holding) / 2
        below, above = _limits(value, drawn, truths_a, truths_b, middle)
        without, holding = (without, middle) if below <= 0 <= above else (middle, holding)
    return Difference(value, low, high, max(1 - without, 2 / (drawn.shape[2] + 1)))


def _possible(value: float, worlds: Worlds) -> Worlds:
    """Leave out the worlds where ``value`` would be a great surprise; one more is kept at either end."""
    draws, truths = worlds
    smallest, middle, largest = np.quantile(draws, [(1 - _LIKELY) / 2, 0.5, (1 + _LIKELY) / 2], axis=1)
    inside = np.flatnonzero((smallest <= value) & (value <= largest))
    if not len(inside):
        inside = np.array([np.abs(middle - value).argmin()])
    kept = slice(max(inside[0] - 1, 0), inside[-1] + 2)
    return draws[kept], truths[kept]


def _limits(
    value: float, drawn: FloatArray, truths_a: FloatArray, truths_b: FloatArray, level: float
) -> tuple[float, float]:
    """Return the smallest and largest likely difference; ``drawn`` (S, S, R) is sorted, a's worlds first."""
    smallest, largest = (_rising(_quantile(drawn, share)) for share in ((1 - level) / 2, (1 + level) / 2))
    # Less than any pair of worlds shows, or more, is taken for the least or the most that one does.
    nearest = float(np.clip(value, smallest.min(), largest.max()))
    ends = [value, *_likely(nearest, smallest, largest, truths_a, truths_b)]
    ends += [-end for end in _likely(-nearest, -largest.T, -smallest.T, truths_b, truths_a)]
    return min(ends), max(ends)


def _likely(
    value: float, smallest: FloatArray, largest: FloatArray, truths_a: FloatArray, truths_b: FloatArray
) -> Iterator[float]:
    """Yield the likely differences at the ends, for each world of a (a row)."""
    for below, above, truth in zip(smallest, largest, truths_a, strict=True):
        if below[0] <= value <= above[-1]:
            yield float(np.interp(value, above, truths_b) - truth)
            yield float(np.interp(value, below, truths_b) - truth)


def _rising(quantiles: FloatArray) -> FloatArray:
    """Smooth away what little the draws waver: larger worlds of b show larger differences, of a smaller."""
    return np.minimum.accumulate(np.maximum.accumulate(quantiles, axis=1), axis=0)


def _quantile(ordered: FloatArray, share: float) -> FloatArray:
    place = share * (ordered.shape[-1] - 1)
    lower, upper = int(np.floor(place)), int(np.ceil(place))
    between: FloatArray = ordered[..., lower] + (place - lower) * (ordered[..., upper] - ordered[..., lower])
    return between
