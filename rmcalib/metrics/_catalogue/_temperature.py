"""The scale of the rewards: the information that a wrong one loses, and the best temperature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import (
    ErrorOptions,
    Interval,
    ScaleLoss,
    binned_inference,
    cross_fit,
    fit_top_1_temperature,
    scale_loss,
    skew_interval,
)
from rmcalib.metrics._catalogue._metric import Measure, Metric
from rmcalib.metrics._catalogue._scores import brier_of, mean_loss, nll, nll_of
from rmcalib.metrics._events import centred, outcomes
from rmcalib.metrics._forecasts import Forecasts, log_softmax, once, select_prompts
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["INFORMATION", "TEMPERATURE", "cross_fitted_logs", "scale"]

FEWEST = 20
"""The smallest number of prompts for a verdict, and that a temperature is fitted on."""
_LIMITS = {
    "hot": "a uniform guess does as well as these rewards at any temperature",
    "cold": "every forecast is right, so larger rewards are always better",
}


def kept_information(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Information of the probabilities as stated: 1 − NLL(1) / mean log m = usable − lost."""
    loss = nll(forecasts, settings)
    assert loss.value is not None
    assert loss.values is not None
    uniform = np.log(forecasts.sizes)
    scale = float(uniform.mean()) or 1.0  # 0 if every prompt has only one response
    kept = 1 - loss.value / scale
    # A ratio of two means: what each prompt contributes to its deviation.
    worth = ((1 - kept) * uniform - loss.values) / scale
    worth -= worth.mean()

    def limits(level: float) -> Interval:
        below, above = skew_interval(worth, level)
        assert loss.limits is not None
        ends = loss.limits(level)  # these allow for wrong choices that were not seen
        low, high = (kept, kept) if ends is None else (1 - ends[1] / scale, 1 - ends[0] / scale)
        return Interval(kept, min(kept + below, low), min(max(kept + above, high), 1.0), level, 0)

    return Statistic.estimated(kept, limits, lambda: worth / len(worth), len(worth))


def lost_information(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Information lost by the wrong scale of the rewards: (NLL(1) − NLL(T)) / mean log m."""
    return _of_scale(forecasts, settings, "lost")


def usable_information(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Information of the rewards at their best scale: 1 − NLL(T) / mean log m."""
    return _of_scale(forecasts, settings, "usable")


def temperature(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Temperature that maximises the likelihood on all prompts."""
    limit = scale(forecasts, settings.level).at_limit
    if limit is not None:
        return Statistic.missing(len(forecasts), _LIMITS[limit])
    found = _of_scale(forecasts, settings, "temperature")
    end = scale(forecasts, settings.level).temperature
    # With little data every temperature above some value may fit.
    return replace(
        found, limits=_finite(found), no_limits=f"T is at least {end.low:.3g}, without upper limit"
    )


def ece_at_temperature(forecasts: Forecasts, settings: Settings) -> Statistic:
    """ECE after dividing by a temperature fitted on other prompts."""
    found = binned_inference(
        np.exp(cross_fitted_logs(forecasts, settings.seed)),
        outcomes(forecasts),
        forecasts.prompt,
        ErrorOptions(bins=settings.bins),
        one_per_group=True,
        resamples=settings.resamples,
        rng=settings.seed,
    )
    return Statistic.inferred(found.value, lambda: found, len(forecasts))


def brier_at_temperature(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Brier score after dividing by a temperature fitted on other prompts."""
    return mean_loss(_at_temperature(forecasts, settings), brier_of, most=2.0)


def nll_at_temperature(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Negative log-likelihood after dividing by a temperature fitted on other prompts."""
    return mean_loss(_at_temperature(forecasts, settings), nll_of)


def _at_temperature(forecasts: Forecasts, settings: Settings) -> Forecasts:
    logs = cross_fitted_logs(forecasts, settings.seed)
    return replace(forecasts, log_probability=logs, memory={})


@once
def scale(forecasts: Forecasts, level: float) -> ScaleLoss:
    """Return lost and usable information and the best temperature, with intervals and influences."""
    return scale_loss(forecasts.reward, forecasts.is_correct, forecasts.prompt, level=level)


def _of_scale(
    forecasts: Forecasts, settings: Settings, name: Literal["lost", "usable", "temperature"]
) -> Statistic:
    found = scale(forecasts, settings.level)
    value: Interval = getattr(found, name)
    influence: FloatArray = getattr(found, f"{name}_influence")
    return Statistic.estimated(
        value.value,
        lambda level: getattr(scale(forecasts, level), name),
        lambda: influence,
        len(forecasts),
        centre=(lambda: found.lost_centre) if name == "lost" else None,
    )


@once
def cross_fitted_logs(forecasts: Forecasts, seed: int) -> FloatArray:
    """Return log P(i first) (N,) at temperatures fitted on other prompts: five folds."""
    n, limits = len(forecasts), _temperature_limits(forecasts)

    def fit(index: IntArray) -> float:
        kept = np.zeros(n, dtype=bool)
        kept[index] = True
        part = select_prompts(forecasts, kept)
        found = fit_top_1_temperature(part.reward, part.is_correct, part.prompt)
        return float(np.clip(found.temperature, *limits))

    temperatures = cross_fit(n, fit, lambda found, test: np.full(len(test), found), folds=5, rng=seed)
    return log_softmax(forecasts.reward, forecasts.offsets, temperature=temperatures)


def _temperature_limits(forecasts: Forecasts) -> tuple[float, float]:
    """0.01 and 100 times the rewards' standard deviation: beyond, forecasts are one-hot or uniform."""
    spread = float(np.std(centred(forecasts.reward, forecasts))) or 1.0
    return spread / 100, spread * 100


def _finite(statistic: Statistic) -> Callable[[float], tuple[float, float] | None]:
    def limits(level: float) -> tuple[float, float] | None:
        assert statistic.limits is not None
        found = statistic.limits(level)
        return found if found is not None and np.isfinite(found).all() else None

    return limits


def _with_enough_prompts(statistic: Measure) -> Measure:
    def checked(forecasts: Forecasts, settings: Settings) -> Statistic:
        if len(forecasts) < FEWEST:
            return Statistic.missing(len(forecasts), f"needs at least {FEWEST} prompts")
        return statistic(forecasts, settings)

    return checked


INFORMATION = (
    Metric(
        "kept_information",
        "fraction of a uniform guess's uncertainty that the stated probabilities remove: usable minus lost; "
        "negative if they are worse than a uniform guess",
        kept_information,
        better="high",
        unit="fraction",
        label="kept information",
        group="headline",
    ),
    Metric(
        "lost_information",
        "fraction of a uniform guess's uncertainty that is lost because the rewards have the wrong scale",
        lost_information,
        better="low",
        unit="fraction",
        label="lost information",
        group="headline",
    ),
    Metric(
        "usable_information",
        "fraction of a uniform guess's uncertainty that the rewards remove at their best scale",
        usable_information,
        better="high",
        unit="fraction",
        label="usable information",
        group="headline",
    ),
)

TEMPERATURE = (
    Metric(
        "temperature",
        "best temperature T: dividing the rewards by T maximises the likelihood",
        _with_enough_prompts(temperature),
        label="best temperature",
        digits=2,
        group="temperature",
    ),
    Metric(
        "ece_at_temperature",
        "ECE after dividing by T, cross-fitted",
        _with_enough_prompts(ece_at_temperature),
        better="low",
        unit="probability",
        label="ECE at the best temperature",
        group="temperature",
        depends_on_m=True,
    ),
    Metric(
        "brier_at_temperature",
        "Brier score after dividing by T, cross-fitted",
        _with_enough_prompts(brier_at_temperature),
        better="low",
        label="Brier score at the best temperature",
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
        label="log loss at the best temperature",
        group="temperature",
        ranked="nowhere",
        depends_on_m=True,
    ),
)
