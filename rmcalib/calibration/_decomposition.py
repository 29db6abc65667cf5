"""What a score is made of: what the ranking of the responses is worth, and what a wrong scale costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, as_floats, as_groups, as_outcomes
from rmcalib.calibration._ece import check_one_per_group
from rmcalib.calibration._intervals import check_level
from rmcalib.calibration._temperature import fit_top_1_temperature

__all__ = ["ScaleLoss", "scale_loss"]


@dataclass(frozen=True)
class ScaleLoss:
    """What a wrong scale of the rewards costs, and what the rewards are worth at their best scale.

    Attributes
    ----------
    delta: NLL(1) − NLL(T̂), in nats per prompt.
    lost_information: delta divided by the mean log number of responses.
    low, high: confidence interval of ``lost_information``.
    usable_information: 1 − NLL(T̂) divided by the mean log number of responses.
    usable_low, usable_high: its confidence interval.
    temperature: the temperature T̂ of largest likelihood; 0 or infinity at the limits.
    at_limit: "cold" (T̂ → 0: every forecast is right), "hot" (T̂ → ∞: a uniform forecast is as good), or None.
    n: number of prompts.
    """

    delta: float
    lost_information: float
    low: float
    high: float
    usable_information: float
    usable_low: float
    usable_high: float
    temperature: float
    at_limit: str | None
    n: int


def scale_loss(
    rewards: ArrayLike, is_correct: ArrayLike, groups: ArrayLike, *, level: float = 0.95
) -> ScaleLoss:
    """Return lost and usable information of the forecasts softmax(rewards) within groups.

    With NLL(T) the mean of −log P(correct) when rewards are divided by T, T̂ its minimum, and u the mean log
    number of responses (the NLL of a uniform guess)::

        lost information   = (NLL(1) − NLL(T̂)) / u
        usable information = 1 − NLL(T̂) / u

    Lost information is 0 for rewards on the right scale and has no upper bound. Its interval is that of the
    signed root √(2 delta), whose error is nearly normal even where delta is close to 0.

    Parameters
    ----------
    rewards: (N,) rewards of all responses of all prompts, on the scale of log-utilities.
    is_correct: (N,) 1 for the one correct response of each prompt, 0 otherwise.
    groups: (N,) labels of the prompts.
    level: confidence level of the intervals.

    Returns
    -------
    ScaleLoss: both numbers with intervals, the best temperature, and the number of prompts.

    Examples
    --------
    >>> found = scale_loss([6.0, 0.0] * 4, [1, 0, 1, 0, 1, 0, 0, 1], [0, 0, 1, 1, 2, 2, 3, 3])
    >>> round(found.lost_information, 3), round(found.usable_information, 3), round(found.temperature, 3)
    (1.356, 0.189, 5.461)
    """
    check_level(level)
    r, y = as_floats(rewards, "rewards", ndim=1), as_outcomes(is_correct, "is_correct")
    if len(r) != len(y):
        raise ValueError(f"is_correct: {len(y)} outcomes for {len(r)} rewards")
    index = as_groups(groups, len(r))
    check_one_per_group(y, index)
    order = np.argsort(index, kind="stable")
    r, y, sizes = r[order], y[order] == 1, np.bincount(index)
    fit = fit_top_1_temperature(r, y, np.repeat(np.arange(len(sizes)), sizes))
    now = _losses(r, y, sizes, 1.0)
    uniform = np.log(sizes)
    if fit.at_limit == "hot":
        best, temperature = uniform, np.inf
    elif fit.at_limit == "cold":
        best, temperature = np.zeros(len(sizes)), 0.0
    else:
        best, temperature = _losses(r, y, sizes, fit.temperature), fit.temperature
    scale = float(uniform.mean()) or 1.0  # groups of one response have nothing to lose
    delta = max(float((now - best).mean()), 0.0)
    low, high = _delta_interval(now - best, delta, uniform / scale, _start(r, y, sizes), level)
    usable = 1 - float(best.mean()) / scale
    margin = (
        _t(level, len(sizes)) * _spread(best / scale - (1 - usable) * uniform / scale) / np.sqrt(len(sizes))
    )
    return ScaleLoss(
        delta=delta,
        lost_information=delta / scale,
        low=low / scale,
        high=high / scale,
        usable_information=usable,
        usable_low=max(usable - margin, 0.0),
        usable_high=min(usable + margin, 1.0),
        temperature=float(temperature),
        at_limit=fit.at_limit,
        n=len(sizes),
    )


def _delta_interval(
    gain: FloatArray, delta: float, uniform: FloatArray, start: tuple[float, float], level: float
) -> tuple[float, float]:
    """Limits of delta; ``gain`` (n,) per prompt, ``uniform`` (n,) of mean 1, ``start``: see `_start`."""
    n, z = len(gain), _t(level, len(gain))
    spread, curvature = start
    at_zero = spread / np.sqrt(n * curvature) if curvature > 0 else 0.0
    # The loss is a share of the mean log number of responses, which varies between samples as well.
    error = _spread(gain - delta * uniform)
    root = np.sqrt(2 * delta)
    away = error / (np.sqrt(n) * root) if root > 1e-9 else 0.0
    error = max(at_zero, away) if root < z * at_zero else away
    return float(max(0.0, root - z * error) ** 2 / 2), float((root + z * error) ** 2 / 2)


def _losses(r: FloatArray, y: BoolArray, sizes: IntArray, temperature: float) -> FloatArray:
    """−log P(correct) of each group (n,) at a temperature; rows are sorted by group."""
    starts = np.cumsum(sizes) - sizes
    logits = r / temperature
    logits = logits - np.repeat(np.maximum.reduceat(logits, starts), sizes)
    return np.log(np.add.reduceat(np.exp(logits), starts)) - logits[y]


def _start(r: FloatArray, y: BoolArray, sizes: IntArray) -> tuple[float, float]:
    """Spread of the slope of the log-likelihood by log T at T = 1, and its mean curvature."""
    starts = np.cumsum(sizes) - sizes
    weights = np.exp(r - np.repeat(np.maximum.reduceat(r, starts), sizes))
    p = weights / np.repeat(np.add.reduceat(weights, starts), sizes)
    mean = np.add.reduceat(p * r, starts)
    spread = np.add.reduceat(p * (r - np.repeat(mean, sizes)) ** 2, starts)
    return float(np.std(mean - r[y])), float(spread.mean())


def _spread(values: FloatArray) -> float:
    """Standard deviation, 0 of a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _t(level: float, n: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(max(n - 1, 1), (1 + level) / 2))
