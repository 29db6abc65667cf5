"""Two reward models, or two checkpoints, on the same prompts: what differs, by more than chance?

A paired bootstrap: prompts are resampled, and both models are measured on the same resample, so that what
makes prompts hard for both falls out of the difference. Calibration errors, which noise pushes up and not by
as much for every model, are compared by `rmcalib.calibration.recentred_difference`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, check_integer
from rmcalib.calibration import (
    ErrorOptions,
    Statistic,
    Worlds,
    bin_edges,
    bin_index,
    binned_error,
    binned_worlds,
    check_level,
    fit_top_1_temperature,
    recentred_difference,
    smooth_ece,
)
from rmcalib.metrics._forecasts import (
    Forecasts,
    centred,
    first_correct_probability,
    forecast,
    log_softmax,
    pairwise_forecasts,
    select_prompts,
    set_forecasts,
    top_1_prompts,
)
from rmcalib.metrics._leaderboard import grouped_sums, prompt_weights, unpack_bins
from rmcalib.metrics._measures import (
    FEWEST_FOR_TEMPERATURE,
    Settings,
    accuracy_of,
    cross_fitted_logs,
    margins,
    picked_rows,
)
from rmcalib.metrics._resampling import SMOOTH_RESAMPLES, smooth_worlds, spearman_sums, temperature_sums
from rmcalib.metrics._rewardbench import category_scores
from rmcalib.metrics._rewardbench_intervals import lone_categories, rewardbench_draws
from rmcalib.metrics._table import METRICS, NEED_PROBABILITIES, category_names
from rmcalib.scores import Scores

__all__ = ["BETTER", "compare_scores"]

Row = dict[str, Any]
Resampled = Callable[[FloatArray], FloatArray]  # resampling weights (R, n) -> values (R,)

BETTER: dict[str, int] = {
    "accuracy": 1,
    "rewardbench_score": 1,
    "correct_first_probability": 1,
    **dict.fromkeys(
        (
            "ece",
            "confidence_ece",
            "debiased_ece",
            "equal_mass_ece",
            "smooth_ece",
            "pairwise_ece",
            "brier",
            "nll",
            "ece_at_temperature",
            "brier_at_temperature",
            "nll_at_temperature",
            "reference_top_1",
            "correct_first_ece",
        ),
        -1,
    ),
}
"""Which way is better: +1 larger, -1 smaller; metrics that are not here are neither."""


@dataclass(frozen=True)
class _Metric:
    """A metric's value on n prompts, and how to get it on resamples of them; None: it has no interval.

    An error that noise pushes up has ``worlds`` instead: what would be seen if the true one were another.
    """

    value: float
    n: int
    resampled: Resampled | None = None
    worlds: Callable[[FloatArray], Worlds] | None = None
    most: int = 10**9  # fewer resamples, where each is slow


def compare_scores(
    a: Scores,
    b: Scores,
    *,
    no_calibration: tuple[str | None, str | None] = (None, None),
    settings: Settings | None = None,
) -> list[Row]:
    """Return rows of category, metric, a, b, difference (b − a), low, high, p_value, n, note: one a metric.

    Both must have been scored on the same prompts; those that only one has are left out. Intervals are
    percentiles of the paired differences; p_value is twice the smaller share of them beyond zero. Those of
    calibration errors are :func:`~rmcalib.calibration.recentred_difference`'s. Left out are what does not
    depend on the model (the baselines of length) and what is no metric (nulls and p-values).
    ``no_calibration`` says why probabilities of ``a`` or ``b`` mean nothing: what needs them is empty then.

    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [2.0, 0.0, 0.0, 1.0]}
    >>> scores = Scores.from_columns(columns)
    >>> {row["difference"] for row in compare_scores(scores, scores) if row["metric"] == "ece"}
    {0.0}
    """
    settings = settings or Settings()
    check_level(settings.level)
    check_integer(settings.resamples, "resamples", 1)
    a, b = _on_common_prompts(a, b)
    pair, own = (forecast(a), forecast(b)), (_rewardbench(a, settings), _rewardbench(b, settings))
    rows = []
    for shown, name in category_names(pair[0]).items():
        members = np.ones(len(pair[0]), bool) if name is None else pair[0].category == name
        found = [_metrics(one, members, settings) for one in pair]
        for side, scores in zip(found, own, strict=True):
            if name in scores:
                side["rewardbench_score"] = scores[name]
        for metric in METRICS:
            if metric not in found[0] or metric not in found[1]:
                continue
            if metric in NEED_PROBABILITIES and any(no_calibration):
                row = _without(found[0][metric], found[1][metric], no_calibration)
            else:
                row = _difference(found[0][metric], found[1][metric], settings)
            rows.append({"category": shown, "metric": metric, **row})
    return rows


def _without(a: _Metric, b: _Metric, why: tuple[str | None, str | None]) -> Row:
    """The row of a metric that one or both of the models can have no value of."""
    sides = {"a": (a, why[0]), "b": (b, why[1])}
    return {
        **{name: metric.value if reason is None else None for name, (metric, reason) in sides.items()},
        **dict.fromkeys(("difference", "low", "high", "p_value")),
        "n": a.n,
        "note": "; ".join(f"{name.upper()}: {reason}" for name, (_, reason) in sides.items() if reason),
    }


def _difference(a: _Metric, b: _Metric, settings: Settings) -> Row:
    none: Row = dict.fromkeys(("low", "high", "p_value"))
    row = {"a": a.value, "b": b.value, "difference": b.value - a.value, **none, "n": a.n, "note": ""}
    if a.n == 1:  # all resamples of one prompt are the same
        return row
    weights = prompt_weights(a.n, min(settings.resamples, a.most), settings.seed)
    if a.worlds is not None and b.worlds is not None:
        found = recentred_difference(
            a.value, b.value, a.worlds(weights), b.worlds(weights), level=settings.level
        )
        return row | {"low": found.low, "high": found.high, "p_value": found.p_value}
    if a.resampled is None or b.resampled is None:
        return row
    draws = b.resampled(weights) - a.resampled(weights)
    low, high = np.quantile(draws, [(1 - settings.level) / 2, (1 + settings.level) / 2])
    beyond = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    p_value = min(1.0, 2 * (beyond + 1) / (len(draws) + 1))
    return row | {"low": float(low), "high": float(high), "p_value": p_value}


def _metrics(everything: Forecasts, members: BoolArray, settings: Settings) -> dict[str, _Metric]:
    """All metrics of the prompts that are ``members``."""
    one_answer = top_1_prompts(everything)
    found = {"reference_top_1": _mean(1 - first_correct_probability(select_prompts(everything, members)))}
    if (members & one_answer).any():
        part = select_prompts(everything, members & one_answer)
        found |= _top_1(part, settings, whole=bool(members.all()))
        found |= _at_temperature(part, settings) if len(part) >= FEWEST_FOR_TEMPERATURE else {}
        found |= _with_length(part, settings)
    if (members & ~one_answer).any():
        part = select_prompts(everything, members & ~one_answer)
        p, y, prompt = set_forecasts(part)
        found["correct_first_probability"] = _mean(p[: len(part)])
        found["correct_first_ece"] = _binned(p, y, prompt, ErrorOptions(bins=settings.bins))
    return found


def _rewardbench(scores: Scores, settings: Settings) -> dict[str | None, _Metric]:
    """RewardBench's own score of each category, and of all under None, where they can be had."""
    values, category = category_scores(scores), scores.category[scores.offsets[:-1]]
    draws = rewardbench_draws(scores, values, resamples=settings.resamples, seed=settings.seed)

    lone = lone_categories(scores)

    def metric(value: float, n: int, drawn: FloatArray, *, known: bool) -> _Metric:
        return _Metric(value, n, (lambda weights: drawn[: len(weights)]) if known else None)

    found: dict[str | None, _Metric] = {
        name: metric(values[name], int((category == name).sum()), drawn, known=name not in lone)
        for name, drawn in draws.items()
    }
    if len(draws) == len(values):
        mean = float(np.mean(list(values.values())))
        found[None] = metric(mean, scores.n_items, np.mean(list(draws.values()), axis=0), known=not lone)
    return found


def _top_1(part: Forecasts, settings: Settings, *, whole: bool) -> dict[str, _Metric]:
    p, y, prompt, bins = part.probability, part.is_correct.astype(np.float64), part.prompt, settings.bins
    picked, right = picked_rows(part, settings.seed)
    accuracy, confidence, plain = accuracy_of(part), p[picked], ErrorOptions(bins=bins)
    found = {
        "ece": _binned(p, y, prompt, plain),
        "accuracy": _mean(accuracy),
        "mean_confidence": _mean(confidence),
        "overconfidence": _mean(confidence - accuracy),
        "confidence_ece": _binned(confidence, right, np.arange(len(part)), plain),
        "debiased_ece": _binned(p, y, prompt, ErrorOptions(bins=bins, norm=2, debias=True)),
        "equal_mass_ece": _binned(p, y, prompt, ErrorOptions(bins=bins, spacing="mass")),
        "pairwise_ece": _binned(*pairwise_forecasts(part), plain),
        "brier": _mean(np.add.reduceat((p - y) ** 2, part.starts)),
        "nll": _mean(-part.log_probability[part.is_correct]),
        "margin_mean": _mean(margins(part)),
        "margin_median": _median(margins(part)),
    }
    if whole:
        found["smooth_ece"] = _smooth(part, p, y)
    return found


def _at_temperature(part: Forecasts, settings: Settings) -> dict[str, _Metric]:
    logs, y = cross_fitted_logs(part, settings.seed), part.is_correct.astype(np.float64)
    p = np.exp(logs)
    found = {
        "ece_at_temperature": _binned(p, y, part.prompt, ErrorOptions(bins=settings.bins)),
        "brier_at_temperature": _mean(np.add.reduceat((p - y) ** 2, part.starts)),
        "nll_at_temperature": _mean(-logs[part.is_correct]),
    }
    fitted = fit_top_1_temperature(part.reward, part.is_correct, part.prompt)
    if fitted.at_limit is None:
        at_best = log_softmax(part.reward, part.offsets, temperature=fitted.temperature)
        steps = _of_sums(*temperature_sums(part, at_best, fitted.temperature))
        found["temperature"] = replace(steps, value=fitted.temperature)
    return found


def _with_length(part: Forecasts, settings: Settings) -> dict[str, _Metric]:
    if np.isnan(part.length).any():
        return {}

    picked, _ = picked_rows(part, settings.seed)
    found = {
        "reward_length_correlation": spearman_sums(
            centred(part.reward, part), centred(part.length, part), part.prompt
        ),
        "confidence_length_correlation": spearman_sums(
            part.log_probability[picked], part.length[picked], np.arange(len(part))
        ),
    }
    return {name: _of_sums(*sums) for name, sums in found.items() if sums is not None}


def _mean(values: FloatArray) -> _Metric:
    return _Metric(float(values.mean()), len(values), lambda weights: weights @ values / len(values))


def _binned(p: FloatArray, y: FloatArray, prompt: IntArray, options: ErrorOptions) -> _Metric:
    edges = bin_edges(p, options)
    sums = grouped_sums(p, y, prompt, bin_index(p, edges), len(edges) - 1)
    total = unpack_bins(sums.sum(axis=0))

    def worlds(weights: FloatArray) -> Worlds:
        return binned_worlds(total, unpack_bins(weights @ sums), options)

    return _Metric(float(binned_error(total, options)), len(sums), worlds=worlds)


def _median(values: FloatArray) -> _Metric:
    order = np.argsort(values)

    def middle(weights: FloatArray) -> FloatArray:
        below = np.cumsum(weights[:, order], axis=1)
        return values[order][(below >= below[:, -1:] / 2).argmax(axis=1)]

    return _Metric(float(np.median(values)), len(values), middle)


def _smooth(part: Forecasts, p: FloatArray, y: FloatArray) -> _Metric:
    def worlds(weights: FloatArray) -> Worlds:
        return smooth_worlds(p, y, part.prompt, weights)

    return _Metric(smooth_ece(p, y), len(part), worlds=worlds, most=SMOOTH_RESAMPLES)


def _of_sums(sums: FloatArray, statistic: Statistic) -> _Metric:
    """A statistic of totals over prompts."""
    value = float(statistic(sums.sum(axis=0, keepdims=True))[0])
    return _Metric(value, len(sums), lambda weights: statistic(weights @ sums))


def _on_common_prompts(a: Scores, b: Scores) -> tuple[Scores, Scores]:
    """The prompts that both have, in the order of ``a``."""
    a, b = a.decided(), b.decided()
    ids_a, ids_b = (s.item_id[s.offsets[:-1]].tolist() for s in (a, b))
    common = set(ids_a) & set(ids_b)
    if not common:
        raise ValueError("the two have no prompt in common: were they scored on the same benchmark?")
    place = {name: i for i, name in enumerate(ids_a)}
    parts = []
    for scores in (a, b):
        at = np.array([place[name] if name in common else -1 for name in scores.item_id.tolist()])
        rows = np.flatnonzero(at >= 0)
        rows = rows[np.argsort(at[rows], kind="stable")]
        columns = {name: array[rows] for name, array in scores.columns().items()}
        parts.append(Scores.from_columns(columns, scores.manifest))
    one, other = parts
    same = len(one) == len(other) and (one.is_correct == other.is_correct).all()
    if not same or (one.item_id != other.item_id).any():
        raise ValueError("the two differ in the responses of a prompt: they are not of the same benchmark")
    return one, other
