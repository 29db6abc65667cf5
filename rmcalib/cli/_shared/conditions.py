"""Conditions like ``ece>0.1`` or ``ece[Math]>=0.2``, for pipelines that should stop when one is met."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rmcalib.metrics import OVERALL, catalogue, find_value

__all__ = ["Condition", "check_categories", "parse_condition"]

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_FORM = re.compile(
    r"\s*(?P<metric>\w+)\s*(?:\[(?P<category>[^\]]+)\])?\s*(?P<sign>[<>]=?)\s*(?P<limit>\S+)\s*"
)


@dataclass(frozen=True)
class Condition:
    """One condition: a metric of a category against a limit."""

    text: str
    metric: str
    category: str
    sign: str
    limit: float

    def value(self, rows: Iterable[Mapping[str, Any]]) -> float:
        """Return the metric's value; a ValueError says why there is none."""
        row = find_value(rows, self.metric, self.category)
        if row is None or row["value"] is None:
            why = "it is not measured" if row is None else row["note"] or "it cannot be had"
            raise ValueError(f"--fail-if '{self.text}': no value of {self.metric} ({self.category}): {why}")
        return float(row["value"])

    def met(self, rows: Iterable[Mapping[str, Any]]) -> bool:
        """Tell whether the condition holds, and so the run fails."""
        return _OPERATORS[self.sign](self.value(rows), self.limit)


def parse_condition(text: str) -> Condition:
    """Parse ``metric>limit`` or ``metric[category]>limit``, with ``>``, ``>=``, ``<`` or ``<=``.

    >>> parse_condition("ece[Precise IF] >= 0.2").category
    'Precise IF'
    >>> parse_condition("eec>0.1")
    Traceback (most recent call last):
    ValueError: --fail-if 'eec>0.1': unknown metric 'eec' (did you mean 'ece'?)
    """
    match = _FORM.fullmatch(text)
    try:
        limit = float(match["limit"]) if match else float("nan")
    except ValueError:
        limit = float("nan")
    if match is None or not math.isfinite(limit):
        raise ValueError(f"--fail-if '{text}': expected something like 'ece>0.1' or 'ece[Math]>=0.2'")
    metric = match["metric"]
    have = catalogue()
    if metric not in have:
        near = difflib.get_close_matches(metric, have, n=1)
        told = f"did you mean '{near[0]}'?" if near else f"have: {', '.join(have)}"
        raise ValueError(f"--fail-if '{text}': unknown metric '{metric}' ({told})")
    return Condition(text, metric, (match["category"] or OVERALL).strip(), match["sign"], limit)


def check_categories(conditions: Iterable[Condition], categories: Iterable[str]) -> None:
    """Raise a ValueError if a condition names a category that is not there.

    >>> check_categories([parse_condition("ece[Maths]>0.1")], ["Math", "Focus"])
    Traceback (most recent call last):
    ValueError: --fail-if 'ece[Maths]>0.1': unknown category 'Maths' (have: overall, Math, Focus)
    """
    have = [OVERALL, *categories]
    for condition in conditions:
        if condition.category not in have:
            raise ValueError(
                f"--fail-if '{condition.text}': unknown category '{condition.category}' "
                f"(have: {', '.join(have)})"
            )
