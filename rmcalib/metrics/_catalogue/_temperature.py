"""The temperature of largest likelihood, and what it improves on prompts that were not used for the fit."""

from __future__ import annotations

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import ErrorOptions, TemperatureFit, cross_fit, fit_top_1_temperature
from rmcalib.metrics._catalogue._calibration import outcomes
from rmcalib.metrics._catalogue._metric import Measure, Metric
from rmcalib.metrics._forecasts import Forecasts, centred, log_softmax, once, select_prompts
from rmcalib.metrics._resampling import temperature_sums
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["FEWEST_FOR_TEMPERATURE", "TEMPERATURE", "best_temperature", "cross_fitted_logs"]

FEWEST_FOR_TEMPERATURE = 20
_LIMITS = {
    "hot": "no temperature helps: a uniform forecast does as well",
    "cold": "every forecast is right: the rewards could be scaled up without end",
}


def temperature(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Return the temperature fitted on all prompts; its interval takes one Newton step per resample."""
    fitted = best_temperature(forecasts)
    if fitted.at_limit is not None:
        return Statistic.missing(len(forecasts), _LIMITS[fitted.at_limit])
    at_best = log_softmax(forecasts.reward, forecasts.offsets, temperature=fitted.temperature)
    sums, step = temperature_sums(forecasts, at_best, fitted.temperature)
    return Statistic.of_sums(sums, step, value=fitted.temperature)


def ece_at_temperature(forecasts: Forecasts, settings: Settings) -> Statistic:
    """ECE after dividing by a temperature fitted on other prompts."""
    p = np.exp(cross_fitted_logs(forecasts, settings.seed))
    return Statistic.binned(p, outcomes(forecasts), forecasts.prompt, ErrorOptions(bins=settings.bins))


def brier_at_temperature(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Brier score after dividing by a temperature fitted on other prompts."""
    p = np.exp(cross_fitted_logs(forecasts, settings.seed))
    return Statistic.mean(np.add.reduceat((p - outcomes(forecasts)) ** 2, forecasts.starts))


def nll_at_temperature(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Negative log-likelihood after dividing by a temperature fitted on other prompts."""
    return Statistic.mean(-cross_fitted_logs(forecasts, settings.seed)[forecasts.is_correct])


@once
def best_temperature(forecasts: Forecasts) -> TemperatureFit:
    """Return the temperature of largest likelihood on all prompts."""
    return fit_top_1_temperature(forecasts.reward, forecasts.is_correct, forecasts.prompt)


@once
def cross_fitted_logs(forecasts: Forecasts, seed: int) -> FloatArray:
    """Return log P(i first) (N,) at temperatures fitted on other prompts: five folds."""
    n, limits = len(forecasts), _temperature_limits(forecasts)

    def fit(index: IntArray) -> float:
        kept = np.zeros(n, dtype=bool)
        kept[index] = True
        found = best_temperature(select_prompts(forecasts, kept))
        return float(np.clip(found.temperature, *limits))

    temperatures = cross_fit(n, fit, lambda found, test: np.full(len(test), found), folds=5, rng=seed)
    return log_softmax(forecasts.reward, forecasts.offsets, temperature=temperatures)


def _temperature_limits(forecasts: Forecasts) -> tuple[float, float]:
    """A hundredth and a hundred times the rewards' spread: beyond them a forecast is one-hot or uniform."""
    spread = float(np.std(centred(forecasts.reward, forecasts))) or 1.0
    return spread / 100, spread * 100


def _with_enough_prompts(statistic: Measure) -> Measure:
    def checked(forecasts: Forecasts, settings: Settings) -> Statistic:
        if len(forecasts) < FEWEST_FOR_TEMPERATURE:
            return Statistic.missing(len(forecasts), f"needs at least {FEWEST_FOR_TEMPERATURE} prompts")
        return statistic(forecasts, settings)

    return checked


TEMPERATURE = (
    Metric(
        "temperature",
        "best temperature T: dividing the rewards by it maximises the likelihood",
        _with_enough_prompts(temperature),
        label="best temperature",
        heading="T",
        digits=2,
        group="temperature",
    ),
    Metric(
        "ece_at_temperature",
        "ECE after dividing by T, cross-fitted",
        _with_enough_prompts(ece_at_temperature),
        better="low",
        unit="probability",
        label="ECE after temperature",
        heading="ECE at T",
        group="temperature",
        depends_on_m=True,
    ),
    Metric(
        "brier_at_temperature",
        "Brier score after dividing by T, cross-fitted",
        _with_enough_prompts(brier_at_temperature),
        better="low",
        label="Brier score after temperature",
        group="temperature",
        ranked="nowhere",
        depends_on_m=True,
    ),
    Metric(
        "nll_at_temperature",
        "negative log-likelihood after dividing by T, cross-fitted",
        _with_enough_prompts(nll_at_temperature),
        better="low",
        unit="nats",
        label="negative log-likelihood after temperature",
        group="temperature",
        ranked="nowhere",
        depends_on_m=True,
    ),
)
