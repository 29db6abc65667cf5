"""Every number of a report, for one set of prompts: a category, or all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import (
    EceOptions,
    Interval,
    NullTest,
    cross_fit,
    ece_interval,
    ece_null,
    fit_top_1_temperature,
    share_limits,
)
from rmcalib.metrics._forecasts import (
    Forecasts,
    centred,
    log_softmax,
    pairwise_forecasts,
    select_prompts,
    set_forecasts,
)
from rmcalib.metrics._pairwise_null import pairwise_null
from rmcalib.metrics._resampling import (
    correlation_interval,
    mean_intervals,
    smooth_ece_interval,
    temperature_interval,
)

__all__ = [
    "Measure",
    "Settings",
    "accuracy_of",
    "cross_fitted_logs",
    "length_measures",
    "picked_rows",
    "reward_measures",
    "set_measures",
    "temperature_measures",
    "top_1_measures",
]

FEWEST_FOR_TEMPERATURE = 20
_HOT = "no temperature helps: a uniform forecast does as well"
_COLD = "every forecast is right: the rewards could be scaled up without end"
_ACCURACIES = frozenset({"accuracy", "shortest_baseline", "longest_baseline"})


@dataclass(frozen=True)
class Settings:
    """How metrics are computed: equal-width bins, resamples, level of the intervals, seed."""

    bins: int = 10
    resamples: int = 1000
    level: float = 0.95
    seed: int = 0


@dataclass(frozen=True)
class Measure:
    """A value with its interval and the number of prompts; None where there is none, and why."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    note: str = ""


Measures = dict[str, Measure]


def top_1_measures(forecasts: Forecasts, settings: Settings) -> Measures:
    """Measure the calibration of P(i first) where every prompt has exactly one correct response.

    Pools all responses: probability p_i, outcome 1 if it is the correct one. See ``METRICS`` for the names.
    """
    n, prompt = len(forecasts), forecasts.prompt
    p, y = forecasts.probability, forecasts.is_correct.astype(np.float64)
    picked, right = picked_rows(forecasts, settings.seed)
    accuracy, confidence = accuracy_of(forecasts), p[picked]
    brier = np.add.reduceat((p - y) ** 2, forecasts.starts)
    log_loss = -forecasts.log_probability[forecasts.is_correct]
    means = _means(
        {
            "mean_confidence": confidence,
            "overconfidence": confidence - accuracy,
            "brier": brier,
            "nll": log_loss,
        },
        settings,
    )
    return {
        "ece": _binned(p, y, prompt, settings),
        **_null("ece", _top_1_null(p, y, prompt, settings), n),
        **means,
        "confidence_ece": _binned(confidence, right, np.arange(n), settings),
        "debiased_ece": _binned(p, y, prompt, settings, norm=2, debias=True),
        "equal_mass_ece": _binned(p, y, prompt, settings, spacing="mass"),
        "smooth_ece": _measure(
            smooth_ece_interval(p, y, prompt, level=settings.level, seed=settings.seed), n
        ),
        "pairwise_ece": _binned(*pairwise_forecasts(forecasts), settings),
        **_null(
            "pairwise_ece",
            pairwise_null(forecasts, bins=settings.bins, resamples=settings.resamples, seed=settings.seed),
            n,
        ),
    }


def temperature_measures(forecasts: Forecasts, settings: Settings) -> Measures:
    """Fit the temperature of largest likelihood, and measure what it brings on prompts not used for a fit.

    The value of ``temperature`` is fitted on all prompts; the ``_at_temperature`` metrics are cross-fitted:
    each fifth of the prompts is forecast with the temperature fitted on the others.
    """
    n = len(forecasts)
    names = ("temperature", "ece_at_temperature", "brier_at_temperature", "nll_at_temperature")
    if n < FEWEST_FOR_TEMPERATURE:
        note = f"needs at least {FEWEST_FOR_TEMPERATURE} prompts"
        return {name: Measure(None, None, None, n, note) for name in names}
    prompt = forecasts.prompt
    whole = fit_top_1_temperature(forecasts.reward, forecasts.is_correct, prompt)
    if whole.at_limit is not None:
        note = _HOT if whole.at_limit == "hot" else _COLD
        fitted = Measure(None, None, None, n, note)
    else:
        at_best = log_softmax(forecasts.reward, forecasts.offsets, temperature=whole.temperature)
        interval = temperature_interval(
            forecasts,
            at_best,
            whole.temperature,
            resamples=settings.resamples,
            level=settings.level,
            seed=settings.seed,
        )
        fitted = _measure(interval, n)
    logs = cross_fitted_logs(forecasts, settings.seed)
    p, y = np.exp(logs), forecasts.is_correct.astype(np.float64)
    means = _means(
        {
            "brier_at_temperature": np.add.reduceat((p - y) ** 2, forecasts.starts),
            "nll_at_temperature": -logs[forecasts.is_correct],
        },
        settings,
    )
    return {"temperature": fitted, "ece_at_temperature": _binned(p, y, prompt, settings), **means}


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


def set_measures(forecasts: Forecasts, settings: Settings) -> Measures:
    """Measure P(a correct response is first): for prompts with several correct responses, and for Ties."""
    p, y, prompt = set_forecasts(forecasts)
    n = len(forecasts)
    return {
        **_means({"correct_first_probability": p[:n]}, settings),
        "correct_first_ece": _binned(p, y, prompt, settings),
        **_null("correct_first_ece", _top_1_null(p, y, prompt, settings), n),
    }


def reward_measures(forecasts: Forecasts, settings: Settings) -> Measures:
    """Measure what needs no probabilities: accuracy, and the correct response's margin over the others."""
    margin = margins(forecasts)
    return {
        **_means({"accuracy": accuracy_of(forecasts), "margin_mean": margin}, settings),
        "margin_median": Measure(float(np.median(margin)), None, None, len(margin)),
    }


def length_measures(forecasts: Forecasts, settings: Settings, *, calibration: bool = True) -> Measures:
    """Measure how rewards and confidence go with length, and what picking by length alone would score.

    Rewards and lengths are compared within a prompt (each less the prompt's mean), because prompts differ
    in both. The most probable response's length is compared with its probability over prompts.
    """
    n = len(forecasts)
    names = [
        "reward_length_correlation",
        "confidence_length_correlation",
        "shortest_baseline",
        "longest_baseline",
    ]
    if not calibration:
        names.remove("confidence_length_correlation")
    if np.isnan(forecasts.length).any():
        note = "lengths are unknown: the scores have no token counts, and there is no text"
        return {name: Measure(None, None, None, n, note) for name in names}
    options = {"resamples": settings.resamples, "seed": settings.seed}
    reward = correlation_interval(
        centred(forecasts.reward, forecasts),
        centred(forecasts.length, forecasts),
        forecasts.prompt,
        level=settings.level,
        **options,
    )
    result = {"reward_length_correlation": _measure(reward, n, "all rewards or all lengths are equal")}
    if calibration:
        picked, _ = picked_rows(forecasts, settings.seed)
        confidence = correlation_interval(
            forecasts.log_probability[picked],
            forecasts.length[picked],
            np.arange(n),
            level=settings.level,
            **options,
        )
        result["confidence_length_correlation"] = _measure(confidence, n, "nothing varies")
    shortest = share_of_correct(forecasts, -forecasts.length)
    longest = share_of_correct(forecasts, forecasts.length)
    return result | _means({"shortest_baseline": shortest, "longest_baseline": longest}, settings)


def accuracy_of(forecasts: Forecasts) -> FloatArray:
    """Return each prompt's accuracy (n,): the share of correct ones among those of the largest reward."""
    return share_of_correct(forecasts, forecasts.reward)


def share_of_correct(forecasts: Forecasts, key: FloatArray) -> FloatArray:
    """Return the share of correct responses among those that have their prompt's largest ``key``: (n,)."""
    largest = key == np.repeat(np.maximum.reduceat(key, forecasts.starts), forecasts.sizes)
    hits = np.add.reduceat(largest & forecasts.is_correct, forecasts.starts, dtype=np.int64)
    return hits / np.add.reduceat(largest, forecasts.starts, dtype=np.int64)


def picked_rows(forecasts: Forecasts, seed: int = 0) -> tuple[IntArray, FloatArray]:
    """Return the row of each prompt's most probable response, and whether it is correct: (n,), (n,).

    Equal rewards are told apart by chance (seeded): the first one would always be the correct one where
    correct responses come first.
    """
    largest = forecasts.reward == np.repeat(
        np.maximum.reduceat(forecasts.reward, forecasts.starts), forecasts.sizes
    )
    lot = np.where(largest, np.random.default_rng(seed).random(len(largest)), -1.0)
    drawn = lot == np.repeat(np.maximum.reduceat(lot, forecasts.starts), forecasts.sizes)
    rows = np.flatnonzero(drawn)
    rows = rows[np.unique(forecasts.prompt[rows], return_index=True)[1]]
    return rows, forecasts.is_correct[rows].astype(np.float64)


def margins(forecasts: Forecasts) -> FloatArray:
    """Return the worst correct reward less the best wrong one: (n,); positive if all correct ones win."""
    correct = np.where(forecasts.is_correct, forecasts.reward, np.inf)
    wrong = np.where(forecasts.is_correct, -np.inf, forecasts.reward)
    return np.minimum.reduceat(correct, forecasts.starts) - np.maximum.reduceat(wrong, forecasts.starts)


def _temperature_limits(forecasts: Forecasts) -> tuple[float, float]:
    """A hundredth and a hundred times the rewards' spread: beyond them a forecast is one-hot or uniform."""
    spread = float(np.std(centred(forecasts.reward, forecasts))) or 1.0
    return spread / 100, spread * 100


def _binned(p: FloatArray, y: FloatArray, prompt: IntArray, settings: Settings, **options: object) -> Measure:
    chosen: EceOptions = {"bins": settings.bins, **options}  # type: ignore[typeddict-item]
    interval = ece_interval(
        p,
        y,
        groups=prompt,
        resamples=settings.resamples,
        level=settings.level,
        method="recentred",
        rng=settings.seed,
        **chosen,
    )
    return _measure(interval, int(prompt.max()) + 1)


def _top_1_null(p: FloatArray, y: FloatArray, prompt: IntArray, settings: Settings) -> NullTest:
    return ece_null(
        p,
        y,
        groups=prompt,
        draw="one_per_group",
        resamples=settings.resamples,
        rng=settings.seed,
        bins=settings.bins,
    )


def _null(name: str, null: NullTest, n: int) -> Measures:
    values = {"null_mean": null.mean, "null_95": null.high, "p_value": null.p_value}
    return {f"{name}_{what}": Measure(value, None, None, n) for what, value in values.items()}


def _means(columns: dict[str, FloatArray], settings: Settings) -> Measures:
    intervals = mean_intervals(
        np.column_stack(list(columns.values())),
        resamples=settings.resamples,
        level=settings.level,
        seed=settings.seed,
    )
    n = len(next(iter(columns.values())))
    measures = {name: _measure(interval, n) for name, interval in zip(columns, intervals, strict=True)}
    for name in _ACCURACIES & columns.keys():
        one = measures[name]
        assert one.low is not None
        assert one.high is not None
        low, high = share_limits(one.low, one.high, n, settings.level)
        measures[name] = replace(one, low=low, high=high)
    return measures


def _measure(interval: Interval | None, n: int, otherwise: str = "") -> Measure:
    if interval is None:
        return Measure(None, None, None, n, otherwise)
    return Measure(interval.value, interval.low, interval.high, n)
