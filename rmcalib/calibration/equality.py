"""Test whether one temperature fits several sets of prompts.

With few prompts, or rewards so far apart that few prompts say anything about the temperature, the statistic
is not χ²-distributed. So its distribution is simulated: correct responses are drawn from the forecasts at the
common temperature. The log loss of a set at β = 1/T is Σ_g log Σ_j exp(β r_gj) − β Σ_g r_g,correct. Only the
last sum depends on what was drawn, so the first one is computed once, on a grid of β, for all draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_integer, segment_log_softmax
from rmcalib.calibration.simulation import choose
from rmcalib.calibration.temperature import Scale, Softmax

_BEYOND = 20.0  # how far beyond the fitted temperatures to search, on a log scale
_REACH, _COARSE, _FINE = 8.0, 0.1, 0.01  # the grid of log β around the common temperature, and its steps


@dataclass(frozen=True)
class Equality:
    """A test that several sets of prompts have the same best temperature.

    Attributes
    ----------
    temperature : float
        The common temperature that fits best.
    statistic : float
        How much worse it fits than one temperature per set.
    p_value : float
        The fraction of simulated statistics that are at least this large if one temperature is right for all
        sets.
    """

    temperature: float
    statistic: float
    p_value: float


def equal_temperatures(
    sets: Sequence[Softmax], *, resamples: int = 999, rng: np.random.Generator | int = 0
) -> Equality:
    """Test whether top-1 forecasts softmax(rewards/T) need the same T on several sets of prompts.

    The statistic is min_T Σ_s 2 n_s (NLL_s(T) − NLL_s(T̂_s)) / max(1, I_s/J_s), with I_s the variance of the
    slopes of the prompts' log-likelihoods and J_s their mean curvature.
    """
    from scipy.optimize import minimize_scalar

    if len(sets) < 2:
        raise ValueError(f"sets: expected at least two sets of prompts, got {len(sets)}")
    check_integer(resamples, "resamples", 1)
    scales = [Scale(one) for one in sets]
    with np.errstate(divide="ignore"):
        fitted = [float(np.log(scale.fit.optimum)) for scale in scales]
    factors = [2.0 / scale.variance_factor() for scale in scales]
    # Far from the scale of the rewards the losses are flat, so the search stays near it.
    widest = max(float(np.ptp(one.r)) for one in sets)
    known = [*(log_t for log_t in fitted if np.isfinite(log_t)), float(np.log(widest or 1.0))]
    ends = min(known) - _BEYOND, max(known) + _BEYOND
    best = [float(np.clip(log_t, *ends)) for log_t in fitted]
    least = [_loss(one, log_t) for one, log_t in zip(sets, best, strict=True)]

    def worse(log_t: float) -> float:
        each = (
            factor * (_loss(one, log_t) - lowest)
            for one, factor, lowest in zip(sets, factors, least, strict=True)
        )
        return float(sum(each))

    # Each term is convex in 1/T, so the minimum of the sum lies between their minima.
    low, high = min(best), max(best)
    found = minimize_scalar(worse, bounds=(low, high), method="bounded", options={"xatol": 1e-8})
    place = min((float(found.x), low, high), key=worse) if high > low else low
    common = {ends[0]: 0.0, ends[1]: np.inf}.get(place, float(np.exp(place)))
    drawn = _simulated(sets, place, resamples, np.random.default_rng(rng))
    p_value = float((drawn >= drawn[0] * (1 - 1e-9) - 1e-9).mean())
    return Equality(common, max(worse(place), 0.0), p_value)


def _loss(one: Softmax, log_t: float) -> float:
    return float(one.losses(float(np.exp(log_t))).sum())


def _simulated(
    sets: Sequence[Softmax],
    log_t: float,
    resamples: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return the statistic of the outcomes that were observed, then of simulated ones: (1 + R,)."""
    from scipy.interpolate import CubicSpline

    fine = np.arange(-_REACH, _REACH + _FINE / 2, _FINE) - log_t
    total = np.zeros((1 + resamples, len(fine)))
    for one in sets:
        table = _Table.of(one.below, one.sizes, log_t)
        fixed, beta = CubicSpline(table.log_beta, table.sums)(fine), np.exp(fine)
        for i, won in enumerate(_draw(one, log_t, resamples, rng)):
            loss = fixed - beta * won.sum()
            k = int(loss.argmin())
            total[i] += (loss - loss[k]) * (2 / table.factor(fine[k], won))
    return np.asarray(total.min(axis=1))


@dataclass(frozen=True)
class _Table:
    """What a set's log loss needs at any β: sums of log Σ exp(β r), and each prompt's mean and variance."""

    log_beta: FloatArray
    sums: FloatArray
    mean: FloatArray
    curvature: FloatArray

    @classmethod
    def of(cls, below: FloatArray, sizes: IntArray, log_t: float) -> _Table:
        starts = np.cumsum(sizes) - sizes
        log_beta = np.arange(-_REACH - _COARSE, _REACH + 1.5 * _COARSE, _COARSE) - log_t
        sums, mean, curvature = [], [], []
        for beta in np.exp(log_beta):
            weight = np.exp(beta * below)
            norm = np.add.reduceat(weight, starts)
            first = np.add.reduceat(weight * below, starts) / norm
            second = np.add.reduceat(weight * below**2, starts) / norm
            sums.append(np.log(norm).sum())
            mean.append(first)
            curvature.append(beta**2 * np.maximum(second - first**2, 0.0).mean())
        return cls(log_beta, np.array(sums), np.array(mean), np.array(curvature))

    def factor(self, log_beta: float, won: FloatArray) -> float:
        """Return max(1, I/J), as in `Scale`, if the correct responses have the rewards ``won``."""
        place = (log_beta - self.log_beta[0]) / _COARSE
        k = int(place)
        share = place - k
        mean = (1 - share) * self.mean[k] + share * self.mean[k + 1]
        curvature = (1 - share) * self.curvature[k] + share * self.curvature[k + 1]
        if curvature <= 0 or len(won) < 2:
            return 1.0
        slope = np.exp(log_beta) * (mean - won)
        return max(1.0, float(slope.var(ddof=1) / curvature))


def _draw(one: Softmax, log_t: float, resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Yield the rewards of the correct responses (G,), below the largest: observed ones, then drawn ones."""
    yield one.below[one.correct]
    chance = np.exp(segment_log_softmax(one.below / np.exp(log_t), one.sizes))
    for _ in range(resamples):
        yield one.below[choose(rng.random((1, len(one.sizes))), chance, one.sizes)[0]]
