"""All metrics of a model's scores, overall and by category, as one tidy table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.benchmarks import Benchmark
from rmcalib.calibration import ece_interval, mean_interval
from rmcalib.calibration.estimates import NO_INTERVAL, Estimate
from rmcalib.metrics.catalogue import Metric
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.official import official_of
from rmcalib.metrics.views import Part
from rmcalib.scores import Scores

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
    if limits is None and found.value is not None and found.limits is not None and found.units == 1:
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


def response_lengths(scores: Scores, benchmark: Benchmark | None) -> FloatArray | None:
    """Return the number of characters of each scored response."""
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
    """Return how scores differ from their benchmark, in sentences."""
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets).tolist()
    items = {item.id: item for item in benchmark.items}
    found = [items.get(name) for name in scores.item_id[starts].tolist()]
    pairs = zip(found, sizes, scores.category[starts].tolist(), strict=True)
    there = [(item, size, category) for item, size, category in pairs if item is not None]
    counts = {
        f"scored prompts that are not in {benchmark.name}": len(found) - len(there),
        f"prompts of {benchmark.name} without scores": len(items) - len(there),
        f"prompts with another number of responses than in {benchmark.name}": sum(
            len(item.responses) != size for item, size, _ in there
        ),
        f"prompts with another category than in {benchmark.name}": sum(
            item.category != category for item, _, category in there
        ),
    }
    return [f"Number of {what}: {n}." for what, n in counts.items() if n]


def answer_rows(scores: Scores, settings: Settings) -> list[Row]:
    """Measure what a language model that judges answers in addition to its rewards: P(yes), and its votes."""
    prompt = np.repeat(np.arange(scores.n_items), np.diff(scores.offsets))
    y, unknown = scores.is_correct.astype(np.float64), np.full(len(scores), np.nan)
    p, votes, n, low, high = (
        scores.details.get(name, unknown) for name in ("p_yes", "votes", "vote_count", "low", "high")
    )
    p, n = np.clip(p, 0, 1), np.where(n >= 2, n, np.nan)
    square = (votes / n - y) ** 2
    first = np.flatnonzero(scores.reward == np.maximum.reduceat(scores.reward, scores.offsets[:-1])[prompt])
    chosen = first[np.unique(prompt[first], return_index=True)[1]]
    width = unknown.copy()
    width[chosen] = (high - low)[chosen]
    brier = "Brier score of the fraction of votes, over responses"
    columns = {
        "yes_gap": (p - y, "mean P(yes) minus the fraction of correct responses"),
        "yes_ece": (p, "calibration error of P(yes), over responses"),
        "yes_brier": ((p - y) ** 2, "Brier score of P(yes), over responses"),
        "votes_brier": (square, brier),
        "votes_fair_brier": (
            square - votes * (n - votes) / (n**2 * (n - 1)),
            f"{brier}, expected for infinitely many votes",
        ),
        "votes_width": (width, "mean width of the 95% interval of the first choice's fraction of votes"),
    }
    rows = []
    for name, (values, meaning) in columns.items():
        known = np.isfinite(values)
        if not known.any():
            continue
        if name == "yes_ece":
            found = ece_interval(
                p[known],
                y[known],
                groups=prompt[known],
                draw="independent",
                clusters=prompt[known],
                bins=settings.bins,
                resamples=settings.resamples,
                level=settings.level,
                rng=settings.seed,
            )
        else:
            found = mean_interval(values[known], clusters=prompt[known], level=settings.level)
        limits = {"value": found.value, "low": found.low, "high": found.high}
        rows.append({"name": name, **limits, "n": int(known.sum()), "meaning": meaning})
    return rows
