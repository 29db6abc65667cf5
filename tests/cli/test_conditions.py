"""Conditions of ``--fail-if``: values, bounds, categories and sizes."""

from __future__ import annotations

from typing import Any

import pytest

from rmcalib.cli.conditions import parse_condition

ROW = {"metric": "overconfidence", "category": "overall", "value": 0.1, "low": 0.06, "high": 0.14, "note": ""}


def rows(**changes: Any) -> list[dict[str, Any]]:
    return [{**ROW, **changes}]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("overconfidence>0.05", 0.1),
        ("overconfidence.low > 0.05", 0.06),
        ("overconfidence.high>=0.05", 0.14),
        ("abs(overconfidence)>0.05", 0.1),
        ("abs( overconfidence ).low>0.05", 0.06),
        ("abs(overconfidence).high>0.05", 0.14),
    ],
)
def test_bounds_and_sizes_of_a_positive_gap(text: str, found: float) -> None:
    condition = parse_condition(text)
    assert condition.value(rows()) == found
    assert condition.met(rows())


def test_the_size_of_a_negative_gap_has_its_own_bounds() -> None:
    under = rows(value=-0.1, low=-0.14, high=-0.06)
    assert parse_condition("overconfidence.high<-0.05").met(under)
    assert not parse_condition("overconfidence.low>0.05").met(under)
    assert parse_condition("abs(overconfidence).low>0.05").value(under) == 0.06
    assert parse_condition("abs(overconfidence).high>0.05").value(under) == 0.14


def test_a_gap_that_may_be_zero_does_not_fail_the_lower_bound() -> None:
    unsure = rows(value=0.03, low=-0.01, high=0.07)
    assert parse_condition("abs(overconfidence).low>0.0").value(unsure) == 0.0
    assert not parse_condition("abs(overconfidence).low>0.0").met(unsure)
    assert parse_condition("abs(overconfidence).high>0.05").met(unsure)


def test_a_category_goes_before_the_bound() -> None:
    condition = parse_condition("overconfidence[Precise IF].low>0.05")
    assert (condition.category, condition.part) == ("Precise IF", "low")
    assert condition.met(rows(category="Precise IF"))
    inside = parse_condition("abs(overconfidence[Math]).low>0.05")
    assert (inside.category, inside.size) == ("Math", True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("overconfidence.middle>0.05", r"unknown '.middle' \(have: .low, .high\)"),
        ("abs(overconfidence.low>0.05", "expected something like"),
        ("overconfidence).low>0.05", "expected something like"),
        ("overconfidance.low>0.05", "did you mean 'overconfidence'"),
    ],
)
def test_bad_conditions_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_condition(text)


def test_a_missing_bound_says_why() -> None:
    without = rows(low=None, high=None, note="no interval: a single prompt")
    with pytest.raises(ValueError, match=r"no low end of the interval of overconfidence .*a single prompt"):
        parse_condition("overconfidence.low>0.05").value(without)


def test_a_metric_of_votes_says_that_there_are_none() -> None:
    with pytest.raises(ValueError, match=r"vote_gap \(overall\): no prompt has people's votes"):
        parse_condition("abs(vote_gap).low>0.05").value(rows())
