"""Conditions of ``--fail-if``: values, bounds, categories and sizes."""

from __future__ import annotations

from typing import Any

import pytest

from rmcalib.metrics.conditions import holding, parse_condition

OVER, UNDER, UNSURE = (0.1, 0.06, 0.14), (-0.1, -0.14, -0.06), (0.03, -0.01, 0.07)


def rows(value: float, low: float | None, high: float | None, **more: Any) -> list[dict[str, Any]]:
    row = {"metric": "overconfidence", "category": "overall", "value": value, "low": low, "high": high}
    return [{**row, "note": "", **more}]


@pytest.mark.parametrize(
    ("text", "gap", "found", "met"),
    [
        ("overconfidence>0.05", OVER, 0.1, True),
        ("overconfidence.low > 0.05", OVER, 0.06, True),
        ("overconfidence.high<=0.05", OVER, 0.14, False),
        ("abs(overconfidence)>0.05", OVER, 0.1, True),
        ("abs( overconfidence ).low>0.05", OVER, 0.06, True),
        ("overconfidence.high<-0.05", UNDER, -0.06, True),
        ("abs(overconfidence).low>0.05", UNDER, 0.06, True),
        ("abs(overconfidence).high>0.05", UNDER, 0.14, True),
        ("abs(overconfidence).low>0.0", UNSURE, 0.0, False),
        ("abs(overconfidence).high>0.05", UNSURE, 0.07, True),
    ],
)
def test_bounds_and_sizes(text: str, gap: tuple[float, float, float], found: float, met: bool) -> None:
    condition = parse_condition(text)
    assert condition.value(rows(*gap)) == found
    assert (text in holding({condition: found})) is met


def test_a_category_goes_before_the_bound() -> None:
    condition = parse_condition("overconfidence[Precise IF].low>0.05")
    assert (condition.category, condition.part) == ("Precise IF", "low")
    assert condition.value(rows(*OVER, category="Precise IF")) == 0.06
    inside = parse_condition("abs(overconfidence[Math]).low>0.05")
    assert (inside.category, inside.size) == ("Math", True)


@pytest.mark.parametrize(
    "text",
    [
        *("overconfidence.middle>0.05", "abs(overconfidence.low>0.05", "overconfidence).low>0.05", "eec>0.1"),
        *("gap>5", "abs(gap[Math]).low>5", "accuracy<75", "temperature>1e999"),
    ],
)
def test_bad_conditions_are_refused_with_their_text(text: str) -> None:
    with pytest.raises(ValueError, match="condition") as error:
        parse_condition(text)
    assert text in str(error.value)


def test_a_missing_value_says_why() -> None:
    without = rows(0.1, None, None, note="no interval: a single prompt")
    with pytest.raises(ValueError, match=r"overconfidence .*a single prompt"):
        parse_condition("overconfidence.low>0.05").value(without)
    with pytest.raises(ValueError, match="vote_gap"):
        parse_condition("abs(vote_gap).low>0.05").value(rows(*OVER))
