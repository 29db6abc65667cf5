"""Scores that benchmarks define: RewardBench 2's, with an interval that combines categories, and others."""

from __future__ import annotations

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.benchmarks._official import OfficialScore, ties_scores
from rmcalib.calibration.estimates import NO_INTERVAL, Estimate
from rmcalib.calibration.intervals import bootstrap_limits, proportion_interval
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.rewardbench import category_scores, item_accuracy, tied_categories, ties_sums
from rmcalib.metrics.views import Part

_ALIKE = "no interval: a category has only one prompt, or all resamples of Ties are equal"


def rewardbench_score(part: Part, settings: Settings) -> Estimate:
    """Return the score of a category, or the mean of all categories."""
    whole = part.whole or part
    decided = whole.prompts("all") or whole
    scores = decided.scores
    values, tied = category_scores(scores), tied_categories(scores)
    names = list(values) if part.name == whole.name else [str(part.category[0])]
    value = float(np.mean([values[name] for name in names]))
    if not np.isfinite(value):
        called = ", ".join(sorted(tied))
        return Estimate.missing(
            len(part), f"{called} has no ids ref:N and tied:N, which RewardBench's score needs"
        )
    category = scores.category[scores.offsets[:-1]]
    accuracy = item_accuracy(scores)

    def limits_of(name: str, level: float) -> tuple[float, float] | None:
        """Exact limits of accuracy, or in Ties percentiles; None if they cannot be known."""
        if name not in tied:
            own = accuracy[category == name]
            return proportion_interval(own, level) if len(own) > 1 else None
        sums = ties_sums(scores, name)
        if int(sums[:, -1].sum()) < 2:
            return None
        low, high = bootstrap_limits(
            sums, ties_scores, level=level, resamples=settings.resamples, seed=settings.seed
        )
        return (low, high) if low < high else None

    def limits(level: float) -> tuple[float, float] | None:
        found = [limits_of(name, level) for name in names]
        if any(one is None for one in found):
            return None
        # Categories are independent, so the squares of the distances add up.
        ends = np.array([one for one in found if one is not None])
        middle = np.array([[values[one]] for one in names])
        below, above = np.sqrt(((ends - middle) ** 2).sum(axis=0)) / len(names)
        return value - float(below), value + float(above)

    def influence() -> FloatArray:
        """Return what each prompt contributes; prompts of Ties, whose score is no mean, contribute nothing."""
        ids = part.scores.item_id[part.starts]
        mine = np.isin(scores.item_id[scores.offsets[:-1]], ids)
        each = np.zeros(len(accuracy))
        for name in names:
            if name not in tied:
                rows = category == name
                each[rows] = (accuracy[rows] - accuracy[rows].mean()) / rows.sum() / len(names)
        return each[mine]

    note = NO_INTERVAL if len(part) == 1 else _ALIKE
    has_ties = any(name in tied for name in names)
    return Estimate(
        value,
        len(part),
        note="" if limits(settings.level) is not None else note,
        limits=limits,
        influence=None if has_ties else influence,
    )


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
    wanted = (
        one for one in whole.official if (one.metric, one.category) == (whole.official[0].metric, category)
    )
    found = next(wanted, None)
    return found if found is not None and np.isfinite(found.value) else None
