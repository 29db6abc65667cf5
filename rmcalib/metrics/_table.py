"""The metrics of a reward model's scores, overall and by category, as one tidy table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray
from rmcalib.benchmarks import Benchmark
from rmcalib.calibration import Interval, reference_top_1
from rmcalib.metrics._forecasts import (
    Forecasts,
    first_correct_probability,
    forecast,
    select_prompts,
    top_1_prompts,
)
from rmcalib.metrics._measures import (
    Measure,
    Measures,
    Settings,
    length_measures,
    reward_measures,
    set_measures,
    temperature_measures,
    top_1_measures,
)
from rmcalib.metrics._resampling import mean_intervals
from rmcalib.metrics._rewardbench import TIES
from rmcalib.metrics._rewardbench_intervals import rewardbench_intervals
from rmcalib.scores import Scores

__all__ = [
    "METRICS",
    "NEED_PROBABILITIES",
    "NO_INTERVAL",
    "OVERALL",
    "category_names",
    "disagreements",
    "metric_rows",
    "response_lengths",
]

OVERALL = "overall"
NO_INTERVAL = "no interval: a single prompt does not say how much prompts differ"

METRICS: dict[str, str] = {
    "ece": "top-1 ECE: all responses pooled, equal-width bins",
    "ece_null_mean": "mean ECE of a calibrated forecast with as much data",
    "ece_null_95": "95% point of the ECE of a calibrated forecast",
    "ece_p_value": "chance that a calibrated forecast shows an ECE at least as large",
    "accuracy": "how often the correct response has the largest reward (1/t if t share it)",
    "mean_confidence": "mean probability of the most probable response",
    "overconfidence": "mean confidence less accuracy: positive is over-confident",
    "confidence_ece": "ECE of the most probable response alone",
    "debiased_ece": "root of the binned squared error less its sampling variance",
    "equal_mass_ece": "ECE with bins of equal numbers",
    "smooth_ece": "smooth ECE: no bins",
    "pairwise_ece": "sub-2 ECE over correct-versus-wrong pairs, both orientations",
    "pairwise_ece_null_mean": "mean pairwise ECE of a calibrated forecast with as much data",
    "pairwise_ece_null_95": "95% point of the pairwise ECE of a calibrated forecast",
    "pairwise_ece_p_value": "chance that a calibrated forecast shows a pairwise ECE at least as large",
    "brier": "Brier score: squared error summed over a prompt's responses",
    "nll": "negative log-likelihood of the correct response",
    "temperature": "best temperature T: dividing the rewards by it maximises the likelihood",
    "ece_at_temperature": "ECE after dividing by T, cross-fitted",
    "brier_at_temperature": "Brier score after dividing by T, cross-fitted",
    "nll_at_temperature": "negative log-likelihood after dividing by T, cross-fitted",
    "reference_top_1": (
        "what the paper's public code calls ECE: 1 − mean P(first chosen); an error rate, not calibration"
    ),
    "correct_first_probability": "mean P(a correct response is first), in Ties or where several are correct",
    "correct_first_ece": "ECE of P(a correct response is first) and P(a wrong one is)",
    "correct_first_ece_null_mean": "mean of that ECE for a calibrated forecast",
    "correct_first_ece_null_95": "95% point of that ECE for a calibrated forecast",
    "correct_first_ece_p_value": "chance that a calibrated forecast shows that ECE at least as large",
    "rewardbench_score": "score as RewardBench 2 has it: accuracy, the Ties score; overall their plain mean",
    "margin_mean": "mean of the correct reward less the best wrong one",
    "margin_median": "median of the correct reward less the best wrong one",
    "reward_length_correlation": "Spearman correlation of reward and length within prompts",
    "confidence_length_correlation": "Spearman correlation of confidence and the picked response's length",
    "shortest_baseline": "accuracy of picking the shortest response",
    "longest_baseline": "accuracy of picking the longest response",
}
"""Every metric with what it means."""

_LAST_TOP_1 = "nll_at_temperature"
_TOP_1 = tuple(name for name in tuple(METRICS)[: [*METRICS].index(_LAST_TOP_1) + 1] if name != "accuracy")
_REWARDS = ("accuracy", "margin_mean", "margin_median")
_LENGTHS = tuple(METRICS)[-4:]
_SETS = tuple(name for name in METRICS if name.startswith("correct_first"))
NEED_PROBABILITIES = frozenset({*_TOP_1, *_SETS, "reference_top_1", "confidence_length_correlation"})
"""The metrics that a model has none of whose rewards are no Plackett-Luce utilities."""


def metric_rows(
    scores: Scores,
    *,
    model: str,
    benchmark: str,
    lengths: FloatArray | None = None,
    no_calibration: str | None = None,
    settings: Settings | None = None,
) -> list[dict[str, Any]]:
    """Return rows of model, benchmark, category, metric, value, low, high, n, note: one a category-metric.

    Top-1 calibration is measured on the prompts with exactly one correct response that are not in Ties; on
    the others, if there are any, the calibration of P(a correct response is first). ``no_calibration`` leaves
    all that needs probabilities empty and says why. ``n`` counts prompts: of a single one there is no
    interval, as the note says then.

    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [2.0, 0.0, 0.0, 1.0]}
    >>> rows = metric_rows(Scores.from_columns(columns), model="m", benchmark="b")
    >>> [(row["category"], row["value"]) for row in rows if row["metric"] == "accuracy"]
    [('overall', 0.5), ('x', 0.5)]
    """
    settings = settings or Settings()
    everything = forecast(scores, lengths=lengths)
    one_answer = top_1_prompts(everything)
    own_scores = rewardbench_intervals(
        scores, resamples=settings.resamples, level=settings.level, seed=settings.seed
    )
    rows: list[dict[str, Any]] = []
    for shown, name in category_names(everything).items():
        members = np.ones(len(everything), dtype=bool) if name is None else everything.category == name
        measures = _measures(everything, members, one_answer, settings, no_calibration)
        measures["rewardbench_score"] = _rewardbench(own_scores[name], int(members.sum()))
        for metric in METRICS:
            if metric in measures:
                measure = _honest(measures[metric])
                rows.append(
                    {
                        "model": model,
                        "benchmark": benchmark,
                        "category": shown,
                        "metric": metric,
                        "value": measure.value,
                        "low": measure.low,
                        "high": measure.high,
                        "n": measure.n,
                        "note": measure.note,
                    }
                )
    return rows


def category_names(forecasts: Forecasts) -> dict[str, str | None]:
    """Return the names shown in tables: overall first (None), then each category as the data calls it.

    >>> columns = {"item_id": ["a", "a"], "category": ["overall"] * 2, "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [1.0, 0.0]}
    >>> category_names(forecast(Scores.from_columns(columns)))
    {'overall': None, 'overall (category)': 'overall'}
    """
    found = dict.fromkeys(forecasts.category.tolist())
    names: dict[str, str | None] = {OVERALL: None}
    return names | {f"{name} (category)" if name == OVERALL else name: name for name in found}


def response_lengths(scores: Scores, benchmark: Benchmark | None) -> FloatArray | None:
    """Return the number of characters of each scored response (N,), or None if some text is not at hand."""
    if benchmark is None:
        return None
    texts = {item.id: [float(len(response)) for response in item.responses] for item in benchmark.items}
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets)
    lengths: list[float] = []
    for name, size in zip(scores.item_id[starts].tolist(), sizes.tolist(), strict=True):
        found = texts.get(name)
        if found is None or len(found) != size:
            return None
        lengths += found
    return np.array(lengths)


def disagreements(scores: Scores, benchmark: Benchmark) -> list[str]:
    """Say in what scores differ from the benchmark that they are said to be of; empty if in nothing.

    >>> from rmcalib.benchmarks import Item
    >>> columns = {"item_id": ["a", "a"], "category": ["x"] * 2, "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [1.0, 0.0]}
    >>> benchmark = Benchmark("mine", "1", (Item("b", "x", "?", ("yes", "no"), 1),))
    >>> disagreements(Scores.from_columns(columns), benchmark)
    ['1 of the 1 scored prompts is not in mine.', '1 of the 1 prompts of mine has no scores.']
    """
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets).tolist()
    names, categories = scores.item_id[starts].tolist(), scores.category[starts].tolist()
    items = {item.id: item for item in benchmark.items}
    there = [
        (items[name], size, category)
        for name, size, category in zip(names, sizes, categories, strict=True)
        if name in items
    ]
    strange, missing = len(names) - len(there), len(items) - len(there)
    other_sizes = sum(len(item.responses) != size for item, size, _ in there)
    other_categories = sum(item.category != category for item, _, category in there)
    has = {n: "has" if n == 1 else "have" for n in (missing, other_sizes, other_categories)}
    told = {
        f"of the {len(names)} scored prompts {'is' if strange == 1 else 'are'} not in": strange,
        f"of the {len(there)} others {has[other_sizes]} another number of responses in": other_sizes,
        f"of the {len(there)} others {has[other_categories]} another category in": other_categories,
    }
    notes = [f"{n} {text} {benchmark.name}." for text, n in told.items() if n]
    if missing:
        notes.append(f"{missing} of the {len(items)} prompts of {benchmark.name} {has[missing]} no scores.")
    return notes


def find_value(
    rows: Iterable[Mapping[str, Any]], metric: str, category: str = OVERALL
) -> Mapping[str, Any] | None:
    """Return the row of a metric and category, or None.

    >>> find_value([{"metric": "ece", "category": "overall", "value": 0.1}], "ece")["value"]
    0.1
    """
    return next((row for row in rows if row["metric"] == metric and row["category"] == category), None)


def _measures(
    everything: Forecasts,
    members: BoolArray,
    one_answer: BoolArray,
    settings: Settings,
    no_calibration: str | None,
) -> Measures:
    calibration = no_calibration is None
    measures: Measures = {}
    if (members & one_answer).any():
        top_1 = select_prompts(everything, members & one_answer)
        measures |= reward_measures(top_1, settings)
        measures |= length_measures(top_1, settings, calibration=calibration)
        if calibration:
            measures |= top_1_measures(top_1, settings) | temperature_measures(top_1, settings)
        else:
            measures |= _empty(("confidence_length_correlation", *_TOP_1), len(top_1), no_calibration)
    else:
        only_ties = set(everything.category[members]) == {TIES}
        note = f"{TIES} has no single right answer" if only_ties else "no prompt with one correct response"
        measures |= _empty((*_TOP_1, *_REWARDS, *_LENGTHS), 0, note)
    several = members & ~one_answer
    chosen = select_prompts(everything, members)
    if several.any():
        if calibration:
            measures |= set_measures(select_prompts(everything, several), settings)
        else:
            measures |= _empty(_SETS, int(several.sum()), no_calibration)
    measures["reference_top_1"] = (
        _reference(chosen, settings)
        if calibration
        else Measure(None, None, None, len(chosen), str(no_calibration))
    )
    return measures


def _honest(measure: Measure) -> Measure:
    """Take away the interval of a single prompt, whose resamples are all the same."""
    if measure.n != 1 or measure.low is None:
        return measure
    return replace(measure, low=None, high=None, note=measure.note or NO_INTERVAL)


def _reference(forecasts: Forecasts, settings: Settings) -> Measure:
    """The public code's number: the first correct response of every prompt, Ties included."""
    p = first_correct_probability(forecasts)
    interval = mean_intervals(
        1 - p[:, None], resamples=settings.resamples, level=settings.level, seed=settings.seed
    )[0]
    return Measure(reference_top_1(p), interval.low, interval.high, len(forecasts))


def _rewardbench(interval: Interval | None, n: int) -> Measure:
    if interval is None:
        note = f"{TIES} has no ids ref:N and tied:N, which RewardBench's score needs"
        return Measure(None, None, None, n, note)
    if np.isnan(interval.low):
        alike = "no interval: a category has one prompt only, or all resamples of Ties are alike"
        note = NO_INTERVAL if n == 1 else alike
        return Measure(interval.value, None, None, n, note)
    return Measure(interval.value, interval.low, interval.high, n)


def _empty(names: Iterable[str], n: int, note: str | None) -> Measures:
    return {name: Measure(None, None, None, n, note or "") for name in names}
