"""Compare two reward models, or two checkpoints, on the same prompts.

Differences are paired: prompts that are hard for both models cancel. Noise increases calibration errors, and
by more for some models than for others. So these errors are compared by their intervals, which reach 0 where
noise alone explains the error. Of two gaps the smaller one is better, whatever their signs, so the sizes of
gaps are compared as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import FloatArray, check_integer
from rmcalib.calibration import Difference, check_level
from rmcalib.calibration import difference as interval_difference
from rmcalib.judges import recipe_of_run, registry, why_no_calibration
from rmcalib.metrics._catalogue import Metric, chosen_metrics
from rmcalib.metrics._common import on_common_prompts
from rmcalib.metrics._statistic import Settings, Statistic, difference
from rmcalib.metrics._table import Part, parts_of, statistic_of, why_missing
from rmcalib.scores import Scores

if TYPE_CHECKING:
    import pandas

__all__ = ["Comparison", "compare", "compare_scores"]

Row = dict[str, Any]
ROUNDING = 1e-9
"""A difference of at most this fraction of the two values is rounding."""
_SIZE = ("size_difference", "size_low", "size_high", "size_p_value")


@dataclass(frozen=True)
class Comparison:
    """Two models on the same prompts.

    Attributes
    ----------
    a, b : str
        The names of the models.
    rows : list[Row]
        The result of `compare_scores`.

    Examples
    --------
    >>> scores = Scores.from_arrays([[2.0, 0.0], [0.0, 1.0]])
    >>> found = compare(scores, scores, names=("old", "new"), metrics=["accuracy"])
    >>> found.a, found.b, len(found.table)
    ('old', 'new', 2)
    """

    a: str
    b: str
    rows: list[Row]

    @property
    def table(self) -> pandas.DataFrame:
        """The rows as a pandas table, one row per category and metric."""
        import pandas

        return pandas.DataFrame(self.rows)


def compare(
    scores_a: Scores,
    scores_b: Scores,
    *,
    names: tuple[str, str] | None = None,
    recipes: Iterable[str | Path] = (),
    metrics: Iterable[str] | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compare two models on the prompts that both have scored: the difference of every metric.

    Parameters
    ----------
    scores_a, scores_b : Scores
        The scores of the two models.
    names : tuple[str, str], optional
        Names of the two models; by default those in the manifests of the scores.
    recipes : Iterable[str | Path]
        YAML files that describe more models. They say which rewards are not utilities.
    metrics : Iterable[str], optional
        Names of the metrics to compare; by default all of the catalogue.
    resamples, level, seed
        Number of resamples, confidence level and seed of the intervals.

    Returns
    -------
    Comparison
        Its ``table`` has the columns category, metric, a, b, difference (b − a), low, high, p_value (1 for no
        difference), size_difference (of the absolute values, for gaps only), size_low, size_high,
        size_p_value, better ("a", "b" or empty), n and note.

    Examples
    --------
    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [2.0, 0.0, 0.0, 1.0]}
    >>> scores = Scores.from_columns(columns)
    >>> compare(scores, scores, metrics=["accuracy"]).table["difference"].tolist()
    [0.0, 0.0]
    """
    pair = (scores_a, scores_b)
    called = names or tuple(
        str(one.manifest.get("model") or letter) for one, letter in zip(pair, "AB", strict=True)
    )
    known = registry(recipes)
    reasons = [
        why_no_calibration(recipe_of_run(name, one.manifest, known))
        for name, one in zip(called, pair, strict=True)
    ]
    rows = compare_scores(
        scores_a,
        scores_b,
        no_calibration=(reasons[0], reasons[1]),
        settings=Settings(resamples=resamples, level=level, seed=seed),
        metrics=metrics,
    )
    return Comparison(called[0], called[1], rows)


def compare_scores(
    a: Scores,
    b: Scores,
    *,
    no_calibration: tuple[str | None, str | None] = (None, None),
    settings: Settings | None = None,
    metrics: Iterable[str] | None = None,
) -> list[Row]:
    """Return the difference of every metric between two models.

    Prompts that only one model has scored are left out. Metrics that do not depend on the model, nulls and
    p-values are not compared (`Metric.compared`).

    Parameters
    ----------
    a, b : Scores
        The scores of the two models.
    no_calibration : tuple[str | None, str | None]
        For each model, why its rewards are not utilities; None if they are. Metrics that need probabilities
        are then empty.
    settings : Settings, optional
        Bins, resamples, level and seed.
    metrics : Iterable[str], optional
        Names of the metrics to compare; by default all of the catalogue.

    Returns
    -------
    list of dict
        The rows of `Comparison.table`; see `compare`.

    Examples
    --------
    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [2.0, 0.0, 0.0, 1.0]}
    >>> scores = Scores.from_columns(columns)
    >>> {row["difference"] for row in compare_scores(scores, scores) if row["metric"] == "ece"}
    {0.0}
    """
    settings = settings or Settings()
    check_level(settings.level)
    check_integer(settings.resamples, "resamples", 1)
    wanted = chosen_metrics(metrics)
    both = [parts_of(scores) for scores in on_common_prompts([a, b])]
    return [
        {"category": one.name, "metric": metric.name, **row}
        for one, other in zip(*both, strict=True)
        for metric in wanted
        if (row := _row(metric, one, other, no_calibration, settings)) is not None
    ]


def _row(
    metric: Metric, part_a: Part, part_b: Part, why: tuple[str | None, str | None], settings: Settings
) -> Row | None:
    """Return the row of a metric; None if it is not compared here, or if a model has no value."""
    if metric.compared == "nowhere" or (metric.compared == "overall" and not part_a.is_everything):
        return None
    a, b = (statistic_of(metric, part, settings) for part in (part_a, part_b))
    if a is None or b is None or a.value is None or b.value is None:
        return None
    reasons = (why_missing(metric, part_a, why[0]), why_missing(metric, part_b, why[1]))
    if any(reasons):
        return _without(a, b, reasons)
    found, sizes = _corrected(difference(a, b, settings), a, b), None
    if metric.better == "zero":
        sizes = _corrected(_size_difference(a, b, settings), a, b)
    return {
        "a": a.value,
        "b": b.value,
        "difference": b.value - a.value if found is None else found.value,
        **_columns(("low", "high", "p_value"), found),
        "size_difference": None if sizes is None else sizes.value,
        **_columns(_SIZE[1:], sizes),
        "better": _better(metric, a.value, b.value, sizes if metric.better == "zero" else found),
        "n": a.n,
        "note": "",
    }


def _columns(names: tuple[str, ...], found: Difference | None) -> Row:
    values = (None, None, None) if found is None else (found.low, found.high, found.p_value)
    return dict(zip(names, values, strict=True))


def _better(metric: Metric, a: float, b: float, found: Difference | None) -> str:
    """Return "a" or "b"; empty if the interval holds 0, or if no direction is better."""
    if found is None or metric.better is None or found.low <= 0 <= found.high:
        return ""
    return "b" if metric.badness(b) < metric.badness(a) else "a"


def _corrected(found: Difference | None, a: Statistic, b: Statistic) -> Difference | None:
    """Replace a difference within rounding of the two values by 0, with p-value 1."""
    assert a.value is not None
    assert b.value is not None
    rounding = ROUNDING * max(abs(a.value), abs(b.value))
    if found is None or abs(found.value) > rounding:
        return found
    if _same(a, b):
        return Difference(0.0, 0.0, 0.0, 1.0)
    low, high = (0.0 if abs(limit) <= rounding else limit for limit in (found.low, found.high))
    return Difference(0.0, min(low, 0.0), max(high, 0.0), 1.0)


def _same(a: Statistic, b: Statistic) -> bool:
    """Return whether every prompt contributes the same to both statistics, up to rounding."""
    if a.choices is not None and b.choices is not None and not np.array_equal(a.choices, b.choices):
        return False
    one, other = _influence(a), _influence(b)
    if one is None or other is None:
        return False
    scale = max(np.abs(one).max(), np.abs(other).max())
    return bool(np.abs(one - other).max() <= 1e-6 * scale)


def _influence(statistic: Statistic) -> FloatArray | None:
    """Return what each prompt contributes to the deviation of a mean or an estimate (n,); None if unknown."""
    if statistic.values is not None:
        return (statistic.values - statistic.values.mean()) / statistic.n
    return None if statistic.influence is None else statistic.influence()


def _size_difference(a: Statistic, b: Statistic, settings: Settings) -> Difference | None:
    """Return |b| − |a| with its interval and p-value.

    With d = b − a and s = b + a, |b| − |a| is min(|d|, |s|) with the sign of d·s, so neither is larger if and
    only if d or s is 0. The p-value is the larger one of d and s (an intersection-union test). The limits are
    the extremes for d and s in their intervals, which lie at corners.
    """
    apart, total = difference(a, b, settings), _sum(a, b, settings)
    if apart is None or total is None or a.value is None or b.value is None:
        return None
    corners = [
        float(np.sign(d) * np.sign(s) * min(abs(d), abs(s)))
        for d in (apart.low, apart.high)
        for s in (total.low, total.high)
    ]
    value = abs(b.value) - abs(a.value)
    p_value = max(apart.p_value, total.p_value)
    return Difference(value, min(*corners, value), max(*corners, value), p_value)


def _sum(a: Statistic, b: Statistic, settings: Settings) -> Difference | None:
    """Return b + a with its interval: the difference of b and −a."""
    one, other = a.interval(settings), b.interval(settings)
    mine, theirs = _influence(a), _influence(b)
    if one is None or other is None or mine is None or theirs is None:
        return None
    turned = replace(one, value=-one.value, low=-one.high, high=-one.low)
    return interval_difference(turned, other, -mine, theirs)


def _without(a: Statistic, b: Statistic, why: tuple[str | None, str | None]) -> Row:
    """Return the row of a metric that one or both models have no value for."""
    sides = {"a": (a, why[0]), "b": (b, why[1])}
    return {
        **{name: found.value if reason is None else None for name, (found, reason) in sides.items()},
        **dict.fromkeys(("difference", "low", "high", "p_value", *_SIZE)),
        "better": "",
        "n": a.n,
        "note": "; ".join(f"{name.upper()}: {reason}" for name, (_, reason) in sides.items() if reason),
    }
