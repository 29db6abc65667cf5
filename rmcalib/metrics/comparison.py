"""Compare two reward models, or two checkpoints, on the same prompts.

Differences are paired: prompts that are hard for both models cancel. Noise increases calibration errors, and
by more for some models than for others, so these are compared by their intervals, which reach 0 where noise
alone explains the error. Of two gaps the smaller one is better, whatever their signs, so the sizes of gaps
are compared as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib.calibration.binning import CROWDED
from rmcalib.calibration.clusters import (
    FEW_DECIDE,
    cluster_freedom,
    mean_error,
    prompts_per_observation,
    student_quantile,
)
from rmcalib.calibration.estimates import difference_of, size_difference_of
from rmcalib.calibration.intervals import Difference
from rmcalib.metrics.catalogue import Metric, chosen_metrics
from rmcalib.metrics.measures import Settings, gap
from rmcalib.metrics.results import Shown
from rmcalib.metrics.table import OVERALL, Row, estimate_of, find_value, parts_of, why_missing
from rmcalib.metrics.views import Part, whole_part
from rmcalib.scores import Scores, load_scores
from rmcalib.scores._joining import in_order_of
from rmcalib.scores.scale import View


@dataclass(frozen=True)
class Comparison(Shown):
    """Two models on the same prompts.

    Attributes
    ----------
    a, b : str
        Their names.
    rows : list of dict
        One row per category and metric.
    settings : Settings
        How the metrics were computed.
    needed : int or None
        How many prompts a difference of 3 points of the gap would need, at 80% power.
    view : {"top_1", "pointwise"}
        Whether one response of a prompt is the best, or each is correct or not.
    sources : tuple of str
        Where the scores are, for the commands of the page; empty if there is none to give.
    """

    a: str
    b: str
    rows: list[Row]
    settings: Settings
    needed: int | None = None
    view: View = "top_1"
    sources: tuple[str, ...] = ()

    def document(self) -> Any:
        """Return the document of the page."""
        from rmcalib.report.comparisons import comparison_document

        return comparison_document(self)

    def row(self, metric: str, category: str = OVERALL) -> Row | None:
        """Return one row; None if it was not compared."""
        row = find_value(self.rows, metric, category)
        return None if row is None else dict(row)

    def __repr__(self) -> str:
        """Return the verdict."""
        from rmcalib.report.comparisons import comparison_sentences

        return f"Comparison({self.a!r}, {self.b!r}: {comparison_sentences(self)[0]})"


def compare(
    a: Any,
    b: Any,
    *,
    names: tuple[str, str] | None = None,
    metrics: Iterable[str | Metric] | None = None,
    bins: int = 10,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compare two models on the prompts that both have scored: the difference of every metric.

    Parameters
    ----------
    a, b : Scores, DataFrame or path
        The scores of the two models; see `load_scores`.
    names : tuple of str, optional
        Their names; default those of the scores.
    metrics : names or Metric objects, optional
        What to compare; default everything.
    bins, resamples, level, seed
        How errors and intervals are computed.

    Returns
    -------
    Comparison
        Its ``table`` has the columns category, metric, a, b, difference (b − a), low, high, p_value (1 for no
        difference), size_difference (of the absolute values, for gaps only), size_low, size_high,
        size_p_value, better ("a", "b" or empty), n and note.

    Examples
    --------
    >>> from rmcalib import Scores
    >>> one = Scores.from_arrays([[1.0, 0.0], [0.5, 0.2], [0.1, 0.4]] * 20)
    >>> compare(one, one.at_temperature(0.5)).row("accuracy")["difference"]
    0.0
    """
    pair = load_scores(a), load_scores(b)
    called = names or tuple(
        str(each.manifest.get("model") or letter) for each, letter in zip(pair, "AB", strict=True)
    )
    settings = Settings(bins, resamples, level, seed)
    wanted = chosen_metrics(metrics)
    for each, name in zip(pair, called, strict=True):
        if each.labels is None:
            raise ValueError(f"{name}: {each.refusal()}, so nothing can be compared")
    if pair[0].view != pair[1].view:
        meanings = " and ".join(f"{each.labels!r} ({name})" for each, name in zip(pair, called, strict=True))
        raise ValueError(
            f'labels mean different things: {meanings}; state it for both: labels_are="best" or labels_are="correct"'
        )
    wholes = [whole_part(each, seed=seed) for each in on_common_prompts(pair)]
    rows = [
        {"category": each.name, "metric": metric.name, **row}
        for each, other in zip(*(parts_of(whole) for whole in wholes), strict=True)
        for metric in wanted
        if metric.compared and (row := _row(metric, each, other, settings)) is not None
    ]
    return Comparison(called[0], called[1], rows, settings, _needed(wholes), pair[0].view)


def prompts_needed(gap: float, *, spread: float = 0.45, level: float = 0.95, power: float = 0.8) -> int:
    """Return how many prompts show a gap of this size: n = (z₁₋α/₂ + z_power)² σ²/δ².

    Parameters
    ----------
    gap : float
        The gap δ between what a model says and how often it is right, as a fraction: 0.03 for 3 points.
    spread : float
        The standard deviation σ of (says − right) over prompts; 0.45 is usual for four responses. `evaluate`
        reports it for a model.
    level : float
        Confidence level of the interval that must exclude 0.
    power : float
        How often it shall do so.

    Returns
    -------
    int

    Examples
    --------
    >>> prompts_needed(0.03), prompts_needed(0.1)
    (1766, 159)
    """
    if not (math.isfinite(gap) and gap != 0):
        raise ValueError(f"gap: {gap} is not a size; give a fraction such as 0.03 for 3 points")
    if not (math.isfinite(spread) and spread > 0):
        raise ValueError(f"spread: {spread} is not a positive number")
    return math.ceil((_quantiles(level, power) * spread / gap) ** 2)


def smallest_gap(part: Part, *, level: float = 0.95, power: float = 0.8) -> float | None:
    """Return the smallest gap that these prompts show with this power; None if there is none, or it is unknown.

    A gap is detected if it is larger than half its interval by t·se, where t is the quantile ``power`` of Student's t
    with the degrees of freedom of the standard error se. It is unknown if a few clusters may decide the gap: a sample
    does not say how much their prompts agree, and so not what another one would show.
    """
    if part.cluster is not None:
        sizes = np.bincount(part.cluster)
        if cluster_freedom(sizes, correlation=1.0) < min(FEW_DECIDE, len(sizes) / 2):
            return None
    interval = gap(part, Settings(level=level), "first_choice").interval(level)
    error = mean_error(part.first_choice.p - part.first_choice.y, part.cluster)
    if interval is None or error.se == 0:
        return None
    return (interval.high - interval.low) / 2 + student_quantile(2 * power - 1, error.freedom) * error.se


def _quantiles(level: float, power: float) -> float:
    from scipy.special import ndtri

    for name, value in (("level", level), ("power", power)):
        if not 0 < value < 1:
            raise ValueError(f"{name}: {value} is out of range, expected a number between 0 and 1")
    return float(ndtri((1 + level) / 2) + ndtri(power))


def _needed(wholes: Sequence[Part]) -> int | None:
    """Return how many prompts would show a difference of 3 points between the two gaps."""
    ones = [whole.prompts("one") for whole in wholes]
    if any(part is None for part in ones):
        return None
    gaps = [part.first_choice.p - part.first_choice.y for part in ones if part is not None]
    moved = gaps[1] - gaps[0]
    alike = prompts_per_observation(moved, ones[0].cluster) if ones[0] is not None else 1.0
    spread = float(np.std(moved) * np.sqrt(alike))
    return prompts_needed(0.03, spread=spread) if spread > 0 else None


def _row(metric: Metric, part_a: Part, part_b: Part, settings: Settings) -> Row | None:
    """Return the row of a metric; None if neither model has a value, or if the prompts of one have none."""
    a, b = (estimate_of(metric, part, settings) for part in (part_a, part_b))
    if a is None or b is None:
        return None
    reasons = {"a": why_missing(metric, part_a), "b": why_missing(metric, part_b)}
    if a.value is None or b.value is None:
        if all(reasons.values()) or not any(reasons.values()):
            return None
        difference, sizes, moved, better = None, None, None, ""
    else:
        difference = difference_of(a, b, settings.level)
        sizes = size_difference_of(a, b, settings.level) if metric.better == "zero" else None
        moved = b.value - a.value if difference is None else difference.value
        better = _better(metric, a.value, b.value, sizes if metric.better == "zero" else difference)
        if max(a.fullest, b.fullest) > CROWDED:
            better = ""  # the error of probabilities that are all alike is small, whatever they are worth
    return {
        "a": a.value,
        "b": b.value,
        "difference": moved,
        **_limits(difference, ""),
        "size_difference": None if sizes is None else sizes.value,
        **_limits(sizes, "size_"),
        "better": better,
        "n": max(a.n, b.n),
        "note": "; ".join(f"{name.upper()}: {reason}" for name, reason in reasons.items() if reason),
    }


def _limits(difference: Difference | None, prefix: str) -> Row:
    values = (
        (None, None, None) if difference is None else (difference.low, difference.high, difference.p_value)
    )
    return dict(zip((f"{prefix}low", f"{prefix}high", f"{prefix}p_value"), values, strict=True))


def _better(metric: Metric, a: float, b: float, difference: Difference | None) -> str:
    """Return "a" or "b"; empty if the interval holds 0, or if no direction is better."""
    if difference is None or metric.better is None or difference.low <= 0 <= difference.high:
        return ""
    return "b" if metric.badness(b) < metric.badness(a) else "a"


def named_scores(
    scores: Iterable[Any] | Mapping[str, Any], names: Sequence[str] | None = None, *, least: int = 1
) -> dict[str, Scores]:
    """Return the scores of several judges by name. Unnamed or equal names get numbers."""
    if isinstance(scores, Mapping):
        names, every = [*scores], [load_scores(each) for each in scores.values()]
    else:
        every = [load_scores(each) for each in scores]
    if len(every) < least:
        raise ValueError(f"scores: {len(every)} judges, expected at least {least}")
    if names is None:
        names = [str(each.manifest.get("model") or i + 1) for i, each in enumerate(every)]
    if len(names) != len(every):
        raise ValueError(f"names: {len(names)} names for {len(every)} judges")
    by_name: dict[str, Scores] = {}
    for name, each in zip(names, every, strict=True):
        number, unique = 1, name
        while unique in by_name:
            number += 1
            unique = f"{name} ({number})"
        by_name[unique] = each
    return by_name


def on_common_prompts(scores: Sequence[Scores]) -> list[Scores]:
    """Return the scores of the prompts that all judges have scored, in the order of the first judge.

    Responses go by their ids or texts if the scores have some, and otherwise by their numbers.
    """
    every = list(scores)
    who = "the two" if len(every) == 2 else f"the {len(every)} judges"
    ids = [each.item_id[each.offsets[:-1]].tolist() for each in every]
    common = set(ids[0]).intersection(*ids[1:])
    if not common:
        raise ValueError(f"{who} have no prompt in common: were they scored on the same benchmark?")
    place = {name: i for i, name in enumerate(ids[0]) if name in common}
    parts: list[Scores] = []
    for each in every:
        at = np.array([place.get(name, -1) for name in each.item_id.tolist()])
        rows = np.flatnonzero(at >= 0)
        rows = rows[np.argsort(at[rows], kind="stable")]
        columns = {name: array[rows] for name, array in each.columns().items()}
        if parts and len(parts[0]) == len(rows):  # a prompt has one category, whatever each judge's file says
            columns["category"] = parts[0].category
        part = Scores.from_columns(columns, each.manifest)
        parts.append(in_order_of(parts[0], part) if parts else part)
    first = parts[0]
    for other in parts[1:]:
        question = "were they scored on the same benchmark?"
        if len(first) != len(other) or (first.item_id != other.item_id).any():
            raise ValueError(f"{who} differ in the responses to a prompt: {question}")
        if not np.array_equal(first.label, other.label, equal_nan=True):
            raise ValueError(
                f"{who} differ in the label of a response: {question} (rewards of different things: "
                "`combine --method all`)"
            )
    return parts
