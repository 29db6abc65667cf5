"""Conditions such as ``gap.low>0.05``, for pipelines that should stop when one holds.

A condition compares a metric with a limit. It may be about a bound of the metric's interval (``.low``,
``.high``), about a category (``ece[Math]``), and about the size of a metric (``abs(overconfidence)``).
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rmcalib._util.texts import did_you_mean
from rmcalib.metrics.catalogue import PLAIN, catalogue, shown_metric
from rmcalib.metrics.table import OVERALL, find_value

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_FORM = re.compile(
    r"\s*(?P<abs>abs\s*\()?\s*(?P<metric>\w+)\s*(?:\[(?P<category>.+)\])?\s*(?P<close>\))?"
    r"\s*(?:\.(?P<part>low|high))?\s*(?P<sign>[<>]=?)\s*(?P<limit>[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)\s*"
)
_SHARES = ("probability", "fraction of prompts", "fraction of pairs", "fraction of responses")  # units
_EXPECTED = "expected something like 'ece>0.1', 'gap[Math].low>0.05' or 'abs(gap).low>0.05'"


@dataclass(frozen=True)
class Condition:
    """One condition: a metric of a category, or a bound of its interval, against a limit."""

    text: str
    metric: str
    category: str
    sign: str
    limit: float
    part: str = "value"
    size: bool = False

    def value(self, rows: Iterable[Mapping[str, Any]], view: str = "top_1") -> float:
        """Return the metric's value or bound; a ValueError says why there is none.

        Says, right and gap are those of the view that the page shows.
        """
        row = find_value(rows, shown_metric(self.metric, view), self.category)
        if row is None or row[self.part] is None:
            what = "value" if self.part == "value" else f"{self.part} end of the interval"
            why = (row or {}).get("note") or "it is not available"
            raise ValueError(f"condition '{self.text}': no {what} of {self.metric} ({self.category}): {why}")
        if not self.size:
            return float(row[self.part])
        if self.part == "value":
            return abs(float(row["value"]))
        low, high = float(row["low"]), float(row["high"])
        if self.part == "high":
            return max(abs(low), abs(high))
        return 0.0 if low <= 0 <= high else min(abs(low), abs(high))

    def difference(self, rows: Iterable[Mapping[str, Any]], view: str = "top_1") -> float:
        """Return the same for rows of `compare`; ``abs`` of a gap is |B| − |A|."""
        kind = "size_" if self.size and catalogue()[shown_metric(self.metric, view)].better == "zero" else ""
        names = {"value": f"{kind}difference", "low": f"{kind}low", "high": f"{kind}high"}
        ours = [{**row, **{part: row[name] for part, name in names.items()}} for row in rows]
        return (replace(self, size=False) if kind else self).value(ours, view)


def holds(text: str, rows: Iterable[Mapping[str, Any]], view: str) -> bool:
    """Return whether a condition holds for the rows of an evaluation."""
    condition, names = parse_condition(text), list(rows)
    check_categories([condition], (row["category"] for row in names))
    return bool(holding({condition: condition.value(names, view)}))


def holding(values: Mapping[Condition, float]) -> dict[str, str]:
    """Return the conditions that hold for their values, by their texts, with the values in words."""
    return {
        condition.text: f"{condition.text} holds: the value is {value:.4g}"
        for condition, value in values.items()
        if _OPERATORS[condition.sign](value, condition.limit)
    }


def parse_condition(text: str, names: Iterable[str] | None = None) -> Condition:
    """Parse ``metric>limit`` with ``>``, ``>=``, ``<`` or ``<=``.

    The metric may be followed by a category, ``[Math]``, and by a bound, ``.low`` or ``.high``;
    ``abs(metric)`` takes its size, whose bounds are those of the interval of the size. ``names`` are the metrics
    that there are; default the catalogue.

    >>> parse_condition("ece[Precise IF] >= 0.2").category
    'Precise IF'
    >>> found = parse_condition("abs(overconfidence).low>0.05")
    >>> found.metric, found.part, found.size
    ('overconfidence', 'low', True)
    >>> parse_condition("eec>0.1")
    Traceback (most recent call last):
    ValueError: condition 'eec>0.1': unknown metric 'eec' (did you mean 'ece'?)
    """
    have = list([*catalogue(), *PLAIN] if names is None else names)
    match = _FORM.fullmatch(text)
    if match is None or bool(match["abs"]) != bool(match["close"]):
        raise ValueError(f"condition '{text}': {_EXPECTED}")
    metric = match["metric"]
    if metric not in have:
        hint = did_you_mean(metric.lower(), have, "`rmcalib list metrics` shows all" if names is None else "")
        raise ValueError(f"condition '{text}': unknown metric '{metric}' ({hint})")
    category, part = (match["category"] or OVERALL).strip(), match["part"] or "value"
    limit = float(match["limit"])
    if abs(limit) > (1 if _is_share(metric) else sys.float_info.max):
        raise ValueError(
            f"condition '{text}': {metric} never reaches {match['limit']}; 5 points or 5% are 0.05"
        )
    return Condition(text, metric, category, match["sign"], limit, part, bool(match["abs"]))


def _is_share(metric: str) -> bool:
    """Return whether a metric, and its bounds, are from -1 to 1."""
    return metric in PLAIN or (metric in catalogue() and catalogue()[metric].unit in _SHARES)


def check_categories(conditions: Iterable[Condition], categories: Iterable[str]) -> None:
    """Raise a ValueError if a condition names a category that is not there.

    >>> check_categories([parse_condition("ece[Maths]>0.1")], ["Math", "Focus"])
    Traceback (most recent call last):
    ValueError: condition 'ece[Maths]>0.1': unknown category 'Maths' (have: overall, Math, Focus)
    """
    have = list(dict.fromkeys([OVERALL, *categories]))
    for condition in conditions:
        if condition.category not in have:
            raise ValueError(
                f"condition '{condition.text}': unknown category '{condition.category}' "
                f"(have: {', '.join(have)})"
            )
