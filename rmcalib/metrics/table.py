"""All metrics of a model's scores, overall and by category, as one tidy table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from rmcalib.calibration.estimates import NO_INTERVAL, Estimate
from rmcalib.metrics.catalogue import Metric
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.official import official_of
from rmcalib.metrics.views import Part

OVERALL = "overall"
"""The name of all prompts together in the column ``category``."""
Row = dict[str, Any]


def parts_of(whole: Part) -> Iterator[Part]:
    """Yield all prompts first, then each category."""
    yield whole
    for name in dict.fromkeys(whole.category.tolist()):
        yield whole.take(whole.category == name, shown_name(name))


def shown_name(category: str) -> str:
    """Return the name of a category in tables, which "overall" is not."""
    return f"{category} (category)" if category == OVERALL else category


def metric_rows(
    whole: Part, metrics: Sequence[Metric], settings: Settings, no_calibration: str | None = None
) -> list[Row]:
    """Return rows of category, metric, value, low, high, n, note: one per category and metric that it has."""
    rows = []
    for part in parts_of(whole):
        for _, group in groupby(metrics, key=lambda one: one.group):
            own = replace(part, _made={}, _known={})  # so that the views of a group are dropped after it
            found = [tidy_row(one, own, settings, no_calibration) for one in group]
            rows += [row for row in found if row is not None]
    return rows


def tidy_row(one: Metric, part: Part, settings: Settings, no_calibration: str | None = None) -> Row | None:
    """Return the row of a metric of a part; None if the part has no such metric."""
    found = estimate_of(one, part, settings, no_calibration)
    if found is None:
        return None
    limits = found.interval(settings.level)
    if limits is not None and not np.isfinite(limits.high):
        limits = None  # the note has the lower limit
    note = found.note
    if limits is None and found.value is not None and found.limits is not None and found.n == 1:
        note = note or NO_INTERVAL
    return {
        "category": part.name,
        "metric": one.name,
        "value": found.value,
        "low": None if limits is None else limits.low,
        "high": None if limits is None else limits.high,
        "n": found.n,
        "note": note,
    }


def estimate_of(
    one: Metric, part: Part, settings: Settings, no_calibration: str | None = None
) -> Estimate | None:
    """Compute a metric of a part; None if it has no such metric."""
    own = part.prompts(one.prompts)
    if one.name == "official_score" and (own is None or official_of(own) is None):
        return None
    if own is None:
        if one.prompts in ("several", "votes", "labelled"):
            return None
        tied = not part.one_answer.any()
        why = f"{part.name} has no single right answer" if tied else "no prompt with one correct response"
        return Estimate.missing(0, why)
    if one.group == "pointwise" and not _is_pointwise(own):
        return None
    reason = why_missing(one, part, no_calibration)
    return Estimate.missing(len(own), reason) if reason is not None else one.measure(own, settings)


def why_missing(one: Metric, part: Part, no_calibration: str | None) -> str | None:
    """Return why a metric has no meaning for these scores; None if it has one."""
    if one.needs == "probabilities" or (one.needs == "pairs" and part.scores.beats is None):
        return no_calibration
    return None


def find_value(
    rows: Iterable[Mapping[str, Any]], metric: str, category: str = OVERALL
) -> Mapping[str, Any] | None:
    """Return the row of a metric in a category."""
    return next((row for row in rows if row["metric"] == metric and row["category"] == category), None)


def _is_pointwise(part: Part) -> bool:
    """Return whether responses are labelled one by one: not every prompt has exactly one correct response."""
    if part.scores.votes is not None:  # people choose one
        return False
    correct = np.add.reduceat(part.is_correct, part.starts, dtype=np.int64)
    return bool((correct[part.one_answer] != 1).any()) or bool(np.isnan(part.label).any())
