"""Parts of a score: discrimination, the cost of a wrong scale (miscalibration), and uncertainty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import (
    FloatArray,
    IntArray,
    as_floats,
    as_groups,
    check_choice,
    first_and_next,
    segment_log_softmax,
)
from rmcalib.calibration._ece import as_forecast
from rmcalib.calibration._intervals import Interval, check_level, skew_interval, student_quantile
from rmcalib.calibration._maps import fit_isotonic
from rmcalib.calibration._rare import frequency_distances
from rmcalib.calibration._temperature import find_temperature
from rmcalib.calibration._top_1 import (
    LOG_RANGE,
    fit_top_1_temperature,
    losses,
    slopes,
    sorted_by_group,
    temperature_limits,
    top_1_slope,
)

__all__ = ["Decomposition", "ScaleLoss", "corp", "pair_scale_loss", "scale_loss"]


@dataclass(frozen=True)
class Decomposition:
    """The parts of a mean score: score = miscalibration − discrimination + uncertainty.

    Attributes
    ----------
    score : float
        Mean score of the forecasts.
    miscalibration : float
        How much recalibration would improve the score; 0 if none is needed.
    discrimination : float
        How much better the recalibrated forecasts are than always forecasting the base rate.
    uncertainty : float
        Score of always forecasting the base rate.
    forecast, frequency : float arrays (K,)
        The reliability curve: the distinct forecasts in increasing order, and their recalibrated values.
    count : int array (K,)
        How often each forecast was made.

    Examples
    --------
    >>> parts = corp([0.1, 0.4, 0.4, 0.9], [0, 1, 0, 1])
    >>> round(parts.miscalibration - parts.discrimination + parts.uncertainty - parts.score, 12)
    0.0
    """

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    forecast: FloatArray
    frequency: FloatArray
    count: IntArray


def corp(
    probabilities: ArrayLike, outcomes: ArrayLike, *, score: Literal["brier", "log"] = "brier"
) -> Decomposition:
    """Split a mean score into miscalibration, discrimination and uncertainty, without bins.

    CORP (Dimitriadis, Gneiting and Jordan 2021): forecasts are recalibrated by isotonic regression, the
    increasing function of the forecast with the best score. With S the mean score of a forecast,
    miscalibration = S(forecast) − S(recalibrated), discrimination = S(base rate) − S(recalibrated), and
    uncertainty = S(base rate).

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise. A share y, such as 1/2 for a tie, has y times the score of 1
        plus 1 − y times that of 0.
    score : {"brier", "log"}
        "brier" for (p − y)², "log" for the negative log-likelihood in nats.

    Returns
    -------
    Decomposition
        The parts, and the isotonic reliability curve.

    Examples
    --------
    >>> parts = corp([0.1, 0.4, 0.4, 0.9], [0, 1, 0, 1])
    >>> round(parts.miscalibration, 4), round(parts.discrimination, 4), parts.uncertainty
    (0.01, 0.125, 0.25)
    >>> parts.frequency
    array([0. , 0.5, 1. ])
    """
    check_choice(score, "score", ("brier", "log"))
    p, y = as_forecast(probabilities, outcomes, shares=True)
    knots, index = np.unique(p, return_inverse=True)
    frequency = fit_isotonic(p, y).values
    own, best, base = (_mean_score(q, y, score) for q in (p, frequency[index], np.full(len(y), y.mean())))
    return Decomposition(own, own - best, base - best, base, knots, frequency, np.bincount(index))


@dataclass(frozen=True)
class ScaleLoss:
    """Information lost by a wrong scale of the rewards, and information usable at the best scale.

    `scale_loss` defines both.

    Attributes
    ----------
    lost : Interval
        Lost information, (NLL(1) − NLL(T̂)) / u, with its interval.
    usable : Interval
        Usable information, 1 − NLL(T̂) / u, with its interval.
    temperature : Interval
        The temperature T̂ of largest likelihood, with its interval; 0 or infinity at the limits.
    lost_centre : float
        Lost information without the bias of noise, for `difference`.
    delta : float
        NLL(1) − NLL(T̂) in nats per prompt.
    at_limit : str or None
        "cold" (T̂ → 0: every forecast is right), "hot" (T̂ → ∞: a uniform forecast is as good), or None.
    lost_influence, usable_influence, temperature_influence : float array (G,)
        How much each prompt contributes to the deviation of a value, for `difference`; sums to 0.

    Examples
    --------
    >>> rewards, correct, prompt = [6.0, 0.0] * 4, [1, 0, 1, 0, 1, 0, 0, 1], [0, 0, 1, 1, 2, 2, 3, 3]
    >>> found = scale_loss(rewards, correct, prompt)
    >>> found.lost.value > 1, found.at_limit  # rewards differ far too much: worse than a uniform guess
    (True, None)
    """

    lost: Interval
    usable: Interval
    temperature: Interval
    lost_centre: float
    delta: float
    at_limit: str | None
    lost_influence: FloatArray
    usable_influence: FloatArray
    temperature_influence: FloatArray


def scale_loss(
    rewards: ArrayLike, is_correct: ArrayLike, groups: ArrayLike, *, level: float = 0.95
) -> ScaleLoss:
    """Return how much information the forecasts softmax(rewards) lose by their scale, and how much is usable.

    With NLL(T) the mean of −log P(correct) when rewards are divided by T, T̂ its minimum, and u the mean log
    number of responses (the NLL of a uniform guess)::

        lost information   = (NLL(1) − NLL(T̂)) / u
        usable information = 1 − NLL(T̂) / u

    Lost information is 0 for rewards on the right scale and has no upper bound.

    Its interval is the union of two. The first is based on the root √(2 delta), whose error is nearly normal
    even where delta is close to 0. The second has the losses that would result if softmax(rewards/T) were the
    truth, for every T in the interval of the temperature. It matters for accurate models, which have too few
    wrong answers to estimate the spread. The interval of lost information therefore contains 0 if the
    interval of the temperature contains 1.

    Parameters
    ----------
    rewards : array of shape (N,)
        Rewards of all responses of all prompts, on the scale of log-utilities.
    is_correct : array of shape (N,)
        1 for the one correct response of each prompt, 0 otherwise.
    groups : array of shape (N,)
        Labels of the prompts.
    level : float
        Confidence level of the intervals.

    Returns
    -------
    ScaleLoss
        Lost and usable information and the best temperature, with intervals.

    Examples
    --------
    >>> found = scale_loss([6.0, 0.0] * 4, [1, 0, 1, 0, 1, 0, 0, 1], [0, 0, 1, 1, 2, 2, 3, 3])
    >>> round(found.lost.value, 3), round(found.usable.value, 3), round(found.temperature.value, 3)
    (1.356, 0.189, 5.461)
    """
    check_level(level)
    r, correct, sizes = sorted_by_group(rewards, is_correct, groups)
    fit = fit_top_1_temperature(r, correct, np.repeat(np.arange(len(sizes)), sizes))
    temperature = fit.optimum
    limits = temperature_limits(r, correct, sizes, fit, level)
    now, best = (losses(r, correct, sizes, t) for t in (1.0, temperature))
    uniform = np.log(sizes)
    scale = float(uniform.mean()) or 1.0  # 0 if every prompt has only one response
    first, second = first_and_next(r, sizes)
    rarely = _with_more_errors(
        lambda t: float(losses(r, correct, sizes, t).mean()),
        lambda beta: top_1_slope(r, correct, sizes, beta),
        frequency_distances(r[first] - r[correct], r[first] - r[second], level)[0],
        len(sizes),
    )
    may_be_useless = np.isinf(limits[1])
    limits = limits[0], max(limits[1], rarely.temperature)
    delta = max(float((now - best).mean()), 0.0)
    # The mean log number of responses varies between samples of prompts, too.
    gain = now - best - delta * uniform / scale
    on_scale = limits[0] <= 1 <= limits[1]
    near = _error_at_zero(*slopes(r, correct, sizes, 1.0)) if on_scale else 0.0
    one = _root_interval(gain, delta, near, level)
    other = [_scale_divergence(r, sizes, t) for t in limits]
    low, high = min(one[0], *other, rarely.delta), max(one[1], *other, rarely.delta)
    usable = 1 - float(best.mean()) / scale
    worth = (uniform * (1 - usable) - best) / scale
    below, above = skew_interval(worth - worth.mean(), level)
    if may_be_useless:  # usable information is the gain over a uniform guess, and near 0 its root is normal
        mean = np.add.reduceat(r, np.cumsum(sizes) - sizes) / sizes
        spread = np.add.reduceat((r - np.repeat(mean, sizes)) ** 2, np.cumsum(sizes) - sizes) / sizes
        near_0 = _error_at_zero(mean - r[correct], spread)
        above = max(above, _root_interval(worth * scale, usable * scale, near_0, level)[1] / scale - usable)
    n, slope = len(sizes), np.zeros(len(sizes))
    if fit.at_limit is None:
        slope, curvature = slopes(r, correct, sizes, temperature)
        slope = temperature * (slope - slope.mean()) / max(float(curvature.mean()), 1e-300)
    return ScaleLoss(
        lost=Interval(delta / scale, 0.0 if on_scale else low / scale, high / scale, level, 0),
        usable=Interval(
            usable, max(min(usable + below, 1 - rarely.best / scale), 0.0), min(usable + above, 1.0), level, 0
        ),
        temperature=Interval(temperature, *limits, level, 0),
        # For rewards on the right scale, delta is near² χ²/2 with one degree of freedom, of median 0.455.
        lost_centre=max(delta - 0.455 * near**2 / 2, 0.0) / scale,
        delta=delta,
        at_limit=fit.at_limit,
        lost_influence=(gain - gain.mean()) / (scale * n),
        usable_influence=(worth - worth.mean()) / n,
        temperature_influence=slope / n,
    )


def pair_scale_loss(
    log_odds: ArrayLike, groups: ArrayLike, *, level: float = 0.95
) -> tuple[Interval, FloatArray]:
    """Return the lost information of forecasts of pairs, such as a correct and a wrong response.

    With NLL(T) the mean over groups of the mean of log(1 + exp(−d/T)) over their pairs, and T̂ its minimum,
    it is (NLL(1) − NLL(T̂)) / log 2. The pairs of a group may depend on each other; groups are independent.
    The interval is based on the root √(2 delta), as in `scale_loss`, with standard errors over groups. It
    contains 0 if the interval of the temperature contains 1.

    Parameters
    ----------
    log_odds : array of shape (P,)
        Log-odds d, under the forecast, of what happened: that the winner of the pair wins.
    groups : array of shape (P,)
        Labels of the groups, such as prompts.
    level : float
        Confidence level of the interval.

    Returns
    -------
    lost : Interval
        The lost information with its interval.
    influence : float array (G,)
        How much each group contributes to its deviation, for `difference`; sums to 0.

    Examples
    --------
    >>> found, _ = pair_scale_loss([6.0, 6.0, 6.0, -6.0], [0, 1, 2, 3])
    >>> round(found.value, 3)  # the same as `scale_loss` of four prompts with two responses
    1.356
    """
    from scipy.special import expit

    check_level(level)
    d = as_floats(log_odds, "log_odds", ndim=1)
    index = as_groups(groups, len(d))
    weight = 1 / np.bincount(index)[index]
    n = int(index.max()) + 1

    def per_group(values: FloatArray) -> FloatArray:
        return np.bincount(index, values * weight, n).astype(np.float64)

    def loss(temperature: float) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            margin = np.where(d == 0, 0.0, d / temperature)
        return per_group(np.logaddexp(0.0, -margin))

    def mean_slope(beta: float) -> float:
        return float(per_group(-d * expit(-beta * d)).mean())

    fit = find_temperature(mean_slope, n, LOG_RANGE)
    now, best = loss(1.0), loss(fit.optimum)
    delta = max(float((now - best).mean()), 0.0)

    def slopes_at(temperature: float) -> tuple[FloatArray, FloatArray]:
        """Return slope and curvature of each group's loss with respect to log(1/T)."""
        x = d / temperature
        q = expit(-x)
        return per_group(-x * q), per_group(x * x * q * (1 - q))

    width = float(student_quantile(level, n)) ** 2 / 2
    if fit.at_limit is None and n > 1:
        slope, curvature = slopes_at(fit.temperature)
        if curvature.mean() > 0:  # as in `temperature_limits`; at least the factor of independent pairs
            width *= max(float(slope.var(ddof=1) / curvature.mean()), float(weight.mean()))
    closest = np.full(n, np.inf)
    np.minimum.at(closest, index, np.abs(d) * weight)
    margin = frequency_distances(per_group(np.maximum(-d, 0.0)), closest, level)[0]
    rarely = _with_more_errors(lambda t: float(loss(t).mean()), mean_slope, margin, n)
    # 1 may lie between the best temperature and the one with more wrong choices.
    on_scale = delta * n <= width or fit.optimum <= 1 <= rarely.temperature
    near = _error_at_zero(*slopes_at(1.0)) if on_scale else 0.0
    low, high = _root_interval(now - best - delta, delta, near, level)
    low, high = min(low, rarely.delta), max(high, rarely.delta)
    unit = float(np.log(2))
    gain = (now - best - (now - best).mean()) / (unit * n)
    return Interval(delta / unit, 0.0 if on_scale else low / unit, high / unit, level, 0), gain


@dataclass(frozen=True)
class _Rarely:
    """The best temperature, its loss, and the loss of T = 1 beyond it, if more choices were wrong."""

    temperature: float
    best: float
    delta: float


def _with_more_errors(
    loss: Callable[[float], float], slope: Callable[[float], float], margin: float, n: int
) -> _Rarely:
    """Fit the temperature to losses with more wrong choices than were seen.

    The loss of a wrong choice exceeds that of a right one by the margin of their rewards over T. ``loss``
    maps T to the mean loss, ``slope`` maps 1/T to its derivative, and ``margin`` is the mean that is added.
    """
    fit = find_temperature(lambda beta: slope(beta) + margin, n, LOG_RANGE)
    if fit.at_limit == "cold":
        return _Rarely(0.0, loss(0.0), max(loss(1.0) - loss(0.0), 0.0))
    best = loss(fit.temperature) + margin / fit.temperature
    return _Rarely(fit.optimum, best, max(loss(1.0) + margin - best, 0.0))


def _root_interval(gain: FloatArray, delta: float, near: float, level: float) -> tuple[float, float]:
    """Return the limits of delta from s = √(2 delta), with standard error sd(gain) / (s √n) or ``near``."""
    n, root = len(gain), float(np.sqrt(2 * delta))
    away = float(gain.std(ddof=1) / np.sqrt(n)) / root if n > 1 and root > 1e-9 else 0.0
    margin = student_quantile(level, n) * max(near, away)
    return max(0.0, root - margin) ** 2 / 2, (root + margin) ** 2 / 2


def _error_at_zero(slope: FloatArray, curvature: FloatArray) -> float:
    """Return the standard error of √(2 delta) for delta near 0, from slopes and curvatures (n,) at T = 1."""
    known = len(slope) > 1 and curvature.mean() > 0
    return float(slope.std(ddof=1) / np.sqrt(len(slope) * curvature.mean())) if known else 0.0


def _scale_divergence(r: FloatArray, sizes: IntArray, temperature: float) -> float:
    """Return the mean KL divergence of softmax(r) from softmax(r/T): the loss of T = 1 if T were right."""
    starts = np.cumsum(sizes) - sizes
    logits = r - np.repeat(np.maximum.reduceat(r, starts), sizes)
    logs = segment_log_softmax(logits, sizes)
    q = (logits == 0).astype(np.float64) if temperature == 0 else np.exp(logits / temperature)
    q /= np.repeat(np.add.reduceat(q, starts), sizes)
    possible = q > 0
    terms = np.zeros(len(q))
    terms[possible] = q[possible] * (np.log(q[possible]) - logs[possible])
    return max(float(terms.sum()), 0.0) / len(sizes)


def _mean_score(p: FloatArray, y: FloatArray, score: Literal["brier", "log"]) -> float:
    from scipy.special import xlogy

    if score == "brier":
        return float((y * (1 - p) ** 2 + (1 - y) * p**2).mean())
    return float(-(xlogy(y, p) + xlogy(1 - y, 1 - p)).mean()) + 0.0
