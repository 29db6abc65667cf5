"""All metrics of a model's scores as one tidy table, and the tables that figures are drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.benchmarks import Benchmark
from rmcalib.calibration.errors import consistency_band, reliability
from rmcalib.calibration.estimates import Estimate
from rmcalib.calibration.events import Events
from rmcalib.calibration.maps import corp
from rmcalib.metrics.catalogue import Metric
from rmcalib.metrics.measures import Settings, official_of
from rmcalib.metrics.views import Part
from rmcalib.scores import Scores

OVERALL = "overall"
"""The name of all prompts together in the column ``category``."""
Row = dict[str, Any]


def parts_of(whole: Part) -> Iterator[Part]:
    """Yield all prompts first, then each category, or the largest ones if there are many."""
    yield whole
    for name in whole.categories:
        yield whole.take(whole.category == name, shown_name(name))


def shown_name(category: str) -> str:
    """Return the name of a category in tables, which "overall" is not."""
    return f"{category} (category)" if category == OVERALL else category


def metric_rows(whole: Part, metrics: Sequence[Metric], settings: Settings) -> list[Row]:
    """Return rows of category, metric, value, low, high, n, note: one per category and metric that it has."""
    rows = []
    for part in parts_of(whole):
        for _, group in groupby(metrics, key=lambda metric: metric.group):
            fresh = replace(part)  # so that the views of a group are dropped after it
            of_group = [tidy_row(metric, fresh, settings) for metric in group]
            rows += [row for row in of_group if row is not None]
    return rows


def tidy_row(metric: Metric, part: Part, settings: Settings) -> Row | None:
    """Return the row of a metric of a part; None if the part has no such metric."""
    estimate = estimate_of(metric, part, settings)
    if estimate is None:
        return None
    limits = estimate.interval(settings.level)
    if limits is not None and not np.isfinite(limits.high):
        limits = None  # the note has the lower limit
    note = estimate.note
    if limits is None and estimate.value is not None and estimate.limits is not None:
        note = note or estimate.why_no_interval
    return {
        "category": part.name,
        "metric": metric.name,
        "value": estimate.value,
        "low": None if limits is None else limits.low,
        "high": None if limits is None else limits.high,
        "n": estimate.n,
        "note": note,
    }


def estimate_of(metric: Metric, part: Part, settings: Settings) -> Estimate | None:
    """Compute a metric of a part; None if it has no such metric."""
    used = part.prompts(metric.prompts)
    if metric.name == "official_score" and (used is None or official_of(used) is None):
        return None
    if used is None:
        if metric.prompts in ("several", "votes", "labelled"):
            return None
        return Estimate.missing(0, _why_no_prompts(part))
    if metric.group == "pointwise" and not (part.whole or part).has_pointwise:
        return None
    reason = why_missing(metric, part)
    if used.weight is not None and not metric.weighted:
        reason = reason or "it has no form for prompts that were drawn with unequal probabilities"
    if reason is not None:
        return Estimate.missing(len(used), reason)
    try:
        estimate = metric.measure(used, settings)
    except Exception as error:
        if not metric.source:
            raise
        raise ValueError(
            f"metric {metric.name} of {metric.source}: {type(error).__name__}: {error}"
        ) from error
    if estimate.value is not None and not np.isfinite(estimate.value):
        return Estimate.missing(estimate.n, estimate.note or "the value is not finite")
    return estimate


def why_missing(metric: Metric, part: Part) -> str | None:
    """Return why a metric has no meaning for these scores; None if it has one."""
    if metric.needs is None:
        return None
    if metric.needs == "probabilities":
        return part.scores.refusal("pointwise" if metric.group == "pointwise" else "top_1")
    return part.scores.refusal(metric.needs)


def _why_no_prompts(part: Part) -> str:
    """Return why no prompt of a part has one best response."""
    if part.scores.labels == "correct":
        return part.scores.refusal("top_1") or ""
    if not part.one_answer.any():
        return f"{part.name} has no single right answer"
    return "no prompt with one correct response"


def find_value(
    rows: Iterable[Mapping[str, Any]], metric: str, category: str = OVERALL
) -> Mapping[str, Any] | None:
    """Return the row of a metric in a category."""
    return next((row for row in rows if row["metric"] == metric and row["category"] == category), None)


def response_lengths(scores: Scores, benchmark: Benchmark | None) -> FloatArray | None:
    """Return the number of characters of each scored response."""
    if benchmark is None:
        return None
    texts = {item.id: [float(len(response)) for response in item.responses] for item in benchmark.items}
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets)
    lengths: list[float] = []
    for name, size in zip(scores.item_id[starts].tolist(), sizes.tolist(), strict=True):
        of_prompt = texts.get(name)
        if of_prompt is None or len(of_prompt) != size:
            return None
        lengths += of_prompt
    return np.array(lengths)


def disagreements(scores: Scores, benchmark: Benchmark) -> list[str]:
    """Return how scores differ from their benchmark, in sentences."""
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets).tolist()
    about = zip(sizes, scores.category[starts].tolist(), strict=True)
    scored = dict(zip(scores.item_id[starts].tolist(), about, strict=True))
    items = {item.id: (len(item.responses), item.category) for item in benchmark.items}
    counts = {
        f"scored prompts that are not in {benchmark.name}": len(scored.keys() - items.keys()),
        f"prompts of {benchmark.name} without scores": len(items.keys() - scored.keys()),
        f"prompts with other responses or another category than in {benchmark.name}": sum(
            scored[name] != items[name] for name in scored.keys() & items.keys()
        ),
    }
    return [f"Number of {what}: {n}." for what, n in counts.items() if n]


# The tables of figures: reliability, isotonic curves, accuracy of the most confident choices.


def reliability_rows(
    whole: Part, settings: Settings, view: Literal["top_1", "pointwise"] = "top_1"
) -> list[Row]:
    """Return the bins of the reliability diagrams, overall and by category, with consistency bands."""
    which = "one" if view == "top_1" else "labelled"
    return [
        {"panel": name, **row}
        for name, part in _panels(whole, which)
        for row in bin_rows(getattr(part, view), settings, band=True)
    ]


def isotonic_rows(whole: Part) -> list[Row]:
    """Return the isotonic (CORP) reliability curves, which need no bins."""
    rows = []
    for name, part in _panels(whole):
        curve = corp(part.top_1.p, part.top_1.y)
        steps = np.flatnonzero(np.diff(curve.frequency))
        corners = np.unique(np.concatenate([[0, len(curve.frequency) - 1], steps, steps + 1]))
        rows += [
            {"panel": name, "probability": float(curve.forecast[i]), "frequency": float(curve.frequency[i])}
            for i in corners
        ]
    return rows


def bin_rows(events: Events, settings: Settings, *, band: bool = False) -> list[Row]:
    """Return one row for each bin that is not empty, perhaps with its consistency band."""
    diagram = reliability(events.p, events.y, bins=settings.bins)
    columns = {"low": diagram.low, "high": diagram.high, "count": diagram.count.astype(np.int64)}
    columns |= {"confidence": diagram.confidence, "frequency": diagram.frequency}
    if band:
        low, high = consistency_band(events, bins=settings.bins, level=settings.level, rng=settings.seed)
        columns |= {"band_low": low, "band_high": high}
    return [
        {name: values[b].item() for name, values in columns.items()} for b in np.flatnonzero(diagram.count)
    ]


def rejection_rows(part: Part, seed: int = 0) -> list[Row]:
    """Return the accuracy on the remaining prompts when a fraction of them, the least confident, is dropped."""
    events = part.first_choice
    # Equal confidences are ordered at random: the order of the file may follow difficulty.
    chance = np.random.default_rng(seed).random(len(part))
    right = np.cumsum(events.y[np.lexsort((chance, -events.log_p))])
    rows = []
    for rejected in np.linspace(0.0, 0.95, 20).tolist():
        kept = max(int(np.ceil((1 - rejected) * len(part))), 1)
        rows.append({"rejected": rejected, "accuracy": float(right[kept - 1] / kept), "n": kept})
    return rows


def temperature_rows(what: str, parts: Mapping[str, Part], level: float) -> list[Row]:
    """Return the best temperature of each part: its name under ``what``, temperature, low, high, n."""
    rows = []
    for name, part in parts.items():
        interval = part.scale.temperature_interval(level)
        limits = {"temperature": interval.value, "low": interval.low, "high": interval.high}
        rows.append({what: name, **limits, "n": len(part)})
    return rows


def _panels(whole: Part, which: str = "one") -> Iterator[tuple[str, Part]]:
    """Yield some prompts, by default those with one correct response: overall, and each of several categories."""
    every = whole.prompts(which)
    if every is None:
        return
    yield OVERALL, every
    for name in every.categories if len(every.categories) > 1 else ():
        yield shown_name(name), every.take(every.category == name, shown_name(name))
