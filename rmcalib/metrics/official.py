"""Scores that benchmarks define: RewardBench 2's, with an interval that combines categories, and others."""

from __future__ import annotations

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.benchmarks import _official as official
from rmcalib.benchmarks._official import OfficialScore
from rmcalib.calibration.estimates import Estimate
from rmcalib.calibration.intervals import Limits, bootstrap_limits, proportion_interval
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.views import Part


def rewardbench_score(part: Part, settings: Settings) -> Estimate:
    """Return RewardBench 2's score of a category, or the mean of all categories."""
    whole = part.whole or part
    scores = (whole.prompts("all") or whole).scores
    values = {row.category: row.value for row in official.category_scores(scores)}
    tied = official.tied_categories(scores)
    names = list(values) if part.name == whole.name else [str(part.category[0])]
    value = float(np.mean([values[name] for name in names]))
    if not np.isfinite(value):
        called = ", ".join(sorted(tied))
        return Estimate.missing(
            len(part), f"{called} has no ids ref:N and tied:N, which RewardBench's score needs"
        )
    category, accuracy = scores.category[scores.offsets[:-1]], official.shared_first_place(scores)

    def limits_of(name: str, level: float) -> Limits | None:
        """Exact limits of accuracy, or in Ties percentiles; None if they cannot be known."""
        if name not in tied:
            own = accuracy[category == name]
            return proportion_interval(own, level) if len(own) > 1 else None
        sums = official.ties_sums(scores, name)
        if int(sums[:, -1].sum()) < 2:
            return None
        low, high = bootstrap_limits(
            sums, official.ties_scores, level=level, resamples=settings.resamples, seed=settings.seed
        )
        return (low, high) if low < high else None

    def limits(level: float) -> Limits | None:
        found = [limits_of(name, level) for name in names]
        if any(one is None for one in found):
            return None
        # Categories are independent, so the squares of the distances add up.
        ends = np.array([one for one in found if one is not None])
        middle = np.array([[values[one]] for one in names])
        below, above = np.sqrt(((ends - middle) ** 2).sum(axis=0)) / len(names)
        return value - float(below), value + float(above)

    def influence() -> FloatArray:
        each = np.zeros(len(accuracy))
        for name in names:
            rows = category == name
            each[rows] = (accuracy[rows] - accuracy[rows].mean()) / rows.sum() / len(names)
        return each[np.isin(scores.item_id[scores.offsets[:-1]], part.scores.item_id[part.starts])]

    has_ties = any(name in tied for name in names)  # their score is no mean
    return Estimate(value, len(part), limits=limits, influence=None if has_ties else influence)


def official_score(part: Part, _: Settings) -> Estimate:
    """Return the score that the benchmark's authors define, overall or of a category."""
    found = official_of(part)
    if found is None:
        return Estimate.missing(len(part), "the benchmark has no official score")
    return Estimate(found.value, found.n, note=f"{found.metric}, as the benchmark's authors compute it")


def official_of(part: Part) -> OfficialScore | None:
    """Return the official score of all prompts, or of the category of these; None if there is none."""
    whole = part.whole or part
    category = "all" if part.name == whole.name else str(part.category[0])
    for one in whole.official:
        if (one.metric, one.category) == (whole.official[0].metric, category) and np.isfinite(one.value):
            return one
    return None
