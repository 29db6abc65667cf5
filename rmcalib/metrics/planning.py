"""How many prompts a gap needs, and the smallest gap that so many prompts can show."""

from __future__ import annotations

import math


def prompts_needed(gap: float, *, spread: float = 0.45, level: float = 0.95, power: float = 0.8) -> int:
    """Return how many prompts show a gap of this size: n = (z₁₋α/₂ + z_power)² σ²/δ².

    Parameters
    ----------
    gap : float
        The gap δ between what a model says and how often it is right, as a fraction: 0.03 for 3 points.
    spread : float
        The standard deviation σ of (says − right) over prompts; 0.45 is usual for four responses. `evaluate`
        reports it for a model.
    level : float
        Confidence level of the interval that must exclude 0.
    power : float
        How often it shall do so.

    Returns
    -------
    int

    Examples
    --------
    >>> prompts_needed(0.03), prompts_needed(0.1)
    (1766, 159)
    """
    if not (math.isfinite(gap) and gap != 0):
        raise ValueError(f"gap: {gap} is not a size; give a fraction such as 0.03 for 3 points")
    if not (math.isfinite(spread) and spread > 0):
        raise ValueError(f"spread: {spread} is not a positive number")
    return math.ceil((_quantiles(level, power) * spread / gap) ** 2)


def smallest_gap(n: int, *, spread: float, level: float = 0.95, power: float = 0.8) -> float:
    """Return the smallest gap that n prompts show with this power."""
    return _quantiles(level, power) * spread / math.sqrt(n)


def _quantiles(level: float, power: float) -> float:
    from scipy.special import ndtri

    for name, value in (("level", level), ("power", power)):
        if not 0 < value < 1:
            raise ValueError(f"{name}: {value} is out of range, expected a number between 0 and 1")
    return float(ndtri((1 + level) / 2) + ndtri(power))
