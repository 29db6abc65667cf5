"""Test whether one temperature fits several sets of prompts.

With few prompts, or rewards so far apart that few prompts say anything about the temperature, the statistic
is not χ²-distributed. So its distribution is simulated: correct responses are drawn from the forecasts at the
common temperature. The log loss of a set at β = 1/T is Σ_g log Σ_j exp(β r_gj) − β Σ_g r_g,correct. Only the
last sum depends on what was drawn, so the first one is computed once, on a grid of β, for all draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import FloatArray, check_integer, chunks, segment_log_softmax
from rmcalib.calibration.simulation import choose
from rmcalib.calibration.temperature import Scale, Softmax

_REACH, _COARSE, _FINE = 8.0, 0.1, 0.01  # the grid of log β around the common temperature, and its steps
_FAR = 1000.0  # temperatures so many times from the spread of the rewards make forecasts one-hot or uniform


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
    sets: Sequence[Softmax | Scale], *, resamples: int = 999, rng: np.random.Generator | int = 0
) -> Equality:
    """Test whether top-1 forecasts softmax(rewards/T) need the same T on several sets of prompts.

    The statistic is min_T Σ_s 2 n_s (NLL_s(T) − NLL_s(T̂_s)) / max(1, I_s/J_s), with I_s the variance of the
    slopes of the prompts' log-likelihoods and J_s their mean curvature: it is 1 if the forecasts are true at
    some temperature, as those of simulated sets are. Pass sets with clusters as a `Scale`, so that I_s uses
    them.
    """
    if len(sets) < 2:
        raise ValueError(f"sets: expected at least two sets of prompts, got {len(sets)}")
    check_integer(resamples, "resamples", 1)
    scales = [given if isinstance(given, Scale) else Scale(given) for given in sets]
    models = [scale.model for scale in scales]
    together = Softmax(
        np.concatenate([model.r for model in models]),
        np.concatenate([model.correct for model in models]),
        np.concatenate([model.sizes for model in models]),
    )
    fit, spread = together.fit(), float(together.below.std()) or 1.0
    temperature = float(np.clip(fit.temperature, spread / _FAR, spread * _FAR))
    log_beta = np.arange(-_REACH, _REACH + _FINE / 2, _FINE) - np.log(temperature)
    total, generator = np.zeros((1 + resamples, len(log_beta))), np.random.default_rng(rng)
    for model, scale in zip(models, scales, strict=True):
        observed = model.below[model.correct].sum()
        drawn = _drawn_sums(model, temperature, resamples, generator)
        larger = np.concatenate([[0.0], drawn - observed])  # sums of the rewards of correct responses
        loss = _losses(model, log_beta) - np.outer(larger, np.exp(log_beta))
        excess = 2 * (loss - loss.min(axis=1, keepdims=True))
        excess[0] /= scale.wider_factor(0.95)
        total += excess
    statistics = total.min(axis=1)
    p_value = float((statistics >= statistics[0] * (1 - 1e-9) - 1e-9).mean())
    return Equality(fit.optimum, float(statistics[0]), p_value)


def _losses(model: Softmax, log_beta: FloatArray) -> FloatArray:
    """Return the log loss of a set at each β, from a spline through fewer of them."""
    from scipy.interpolate import CubicSpline

    coarse = np.arange(log_beta[0] - _COARSE, log_beta[-1] + 1.5 * _COARSE, _COARSE)
    losses = [model.losses(float(np.exp(-x))).sum() for x in coarse]
    return np.asarray(CubicSpline(coarse, losses)(log_beta))


def _drawn_sums(model: Softmax, temperature: float, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Draw correct responses; return the sums of their rewards, below the largest of their prompt: (R,)."""
    chance, n = np.exp(segment_log_softmax(model.below / temperature, model.sizes)), len(model.sizes)
    sums = [
        model.below[choose(rng.random((part.stop - part.start, n)), chance, model.sizes)].sum(axis=1)
        for part in chunks(resamples, n)
    ]
    return np.concatenate(sums)
