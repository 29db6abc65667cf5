"""The first sentences of a report, and numbers as text."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmcalib._util.display import interval, number, p_value, percent, points, signed
from rmcalib.report import headline
from rmcalib.report._headline import crowded_bin
from rmcalib.report.evaluation._words import plain_words

Row = dict[str, Any]


def row(metric: str, value: float | None, half: float | None = None, n: int = 483) -> Row:
    low, high = (None, None) if value is None or half is None else (value - half, value + half)
    return {
        "metric": metric,
        "category": "overall",
        "value": value,
        "low": low,
        "high": high,
        "n": n,
        "note": "",
    }


def says(confidence: float, accuracy: float, half: float | None = 0.04, n: int = 483) -> list[Row]:
    return [
        row("mean_confidence", confidence, half, n),
        row("accuracy", accuracy, half, n),
        row("overconfidence", confidence - accuracy, half, n),
    ]


def information(lost: float, low: float, high: float, usable: float = 0.12) -> list[Row]:
    return [
        row("lost_information", lost) | {"low": low, "high": high},
        row("usable_information", usable, 0.03),
    ]


def test_an_over_confident_model() -> None:
    first = "It says 90% and is right 22% of the time: over-confident by 68 points [64, 72]."
    assert headline(says(0.9, 0.222)) == first
    assert headline(says(0.9, 0.222) + information(3.8, 3.5, 4.2)) == (
        f"{first} At the best scale, its rewards would remove 12% [9, 15] of the uncertainty of a uniform "
        "guess (usable information); their own scale loses 3.8 times [3.5, 4.2] that uncertainty (lost "
        "information): its probabilities are worse than a uniform guess."
    )


def test_an_under_confident_model() -> None:
    shown = headline(says(0.258, 0.4, 0.03) + information(0.1, 0.07, 0.13, usable=0.2))
    assert shown.startswith(
        "It says 26% and is right 40% of the time: under-confident by 14 points [11, 17]."
    )
    assert shown.endswith("their own scale loses 10% [7, 13] of it (lost information).")


def test_a_gap_that_chance_explains() -> None:
    shown = headline(says(0.42, 0.41, 0.02) + information(0.001, 0.0, 0.004))
    assert "no more over- or under-confident than chance explains (gap +1.0 points [-1.0, +3.0])." in shown
    assert "their own scale loses no more than chance explains (lost information 0.1% [0.0, 0.4])." in shown


def test_errors_of_both_signs_that_cancel_are_reported() -> None:
    test = [row("confidence_ece", 0.186), row("confidence_ece_null_mean", 0.03)]
    shown = headline([*says(0.62, 0.61, 0.03), *test, row("confidence_ece_p_value", 0.001)])
    assert "But errors of both signs cancel: the ECE of its first choice is 0.186" in shown
    assert "cancel" not in headline([*says(0.62, 0.61, 0.03), *test, row("confidence_ece_p_value", 0.4)])


def test_few_prompts_and_missing_numbers() -> None:
    assert "25 prompts are too few" in headline(says(0.6, 0.5, 0.3, n=25))
    assert headline(says(0.6, 1.0, None, n=1)).endswith("1 prompt cannot show whether this is chance.")
    assert headline([]) == ""
    assert headline([row("accuracy", 0.5)]) == ""
    assert plain_words([row("accuracy", 0.5), row("ece", None) | {"note": "ratings"}]) == (
        "It is right 50% of the time. Its calibration is not measured: ratings."
    )


def test_the_ece_keeps_its_null_its_bound_and_a_warning() -> None:
    ece = [row("ece", 0.139, 0.01), row("ece_null_mean", 0.021), row("ece_p_value", 1 / 1001)]
    rows = [*says(0.9, 0.222), *ece]
    shown = plain_words(rows, p_floor=1 / 1001)
    assert shown.startswith("It says 90%")
    assert "Its ECE is 0.139 [0.129, 0.149]; a calibrated model would show about 0.021" in shown
    assert "(p < 0.001)" in shown
    bins = [{"low": 0.2, "high": 0.3, "count": 1932}]
    assert "Use the gap" in crowded_bin(bins)
    assert crowded_bin([*bins, {"low": 0.3, "high": 0.4, "count": 1000}]) == ""
    assert crowded_bin([]) == ""


@pytest.mark.parametrize(
    ("draws", "shown"),
    [(200, "<0.005"), (1000, "<0.001"), (50, "<0.02"), (20, "<0.05"), (100_000, "<0.00001")],
)
def test_a_p_value_at_its_floor_says_so(draws: int, shown: str) -> None:
    assert p_value(1 / (draws + 1), 1 / (draws + 1)) == shown
    assert p_value(0.5, 1 / (draws + 1)) == "0.500"


def test_numbers_as_text() -> None:
    values = (0.0, 0.0004, -0.0004, 0.0005, 0.12345, 1.0, 3.8, 77.0, 1234.5, None, float("nan"))
    shown = ("0.000", "<0.001", "about 0", "0.001", "0.123", "1.000", "3.80", "77.0", "1,234", "–", "–")
    assert tuple(map(number, values)) == shown
    assert number(0.00004, 4) == "<0.0001"
    assert (signed(0.5), signed(-0.5), signed(0.0), signed(None)) == ("+0.500", "-0.500", "0.000", "–")
    assert tuple(map(percent, (0.9, 0.996, 0.9999, 1.0, 0.004, 0.0001, 0.0, None))) == (
        *("90%", "99.6%", ">99.9%", "100%", "0.4%", "<0.1%", "0%", "–"),
    )
    assert interval({"low": 0.0002, "high": 0.2}) == "<0.001 to 0.200"
    assert points(None) == points({"value": None}) == "–"
    assert points({"value": 0.5}) == "+50"
    assert points({"value": -0.12, "low": -0.228, "high": 0.002}) == "-12.0 [-22.8, +0.2]"


@given(st.floats(-1e6, 1e6).filter(bool), st.integers(2, 4))
def test_numbers_that_are_not_zero_are_not_shown_as_zero(value: float, digits: int) -> None:
    text = number(value, digits)
    if text.startswith("<") or text == "about 0":
        assert abs(value) < 10.0**-digits
        assert text.startswith("<") == (value > 0)
    else:
        assert float(text.replace(",", "")) != 0
        assert float(text.replace(",", "")) == pytest.approx(value, rel=5e-3, abs=10.0**-digits)


@given(st.floats(0, 1))
def test_a_percentage_is_exact_at_its_ends_only(share: float) -> None:
    text = percent(share)
    assert (text == "100%") == (share == 1)
    assert (text == "0%") == (share == 0)
    assert abs(float(re.sub("[<>%]", "", text)) - 100 * share) <= 0.5
