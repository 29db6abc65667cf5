"""Coefficients against scipy and plain loops, their bootstrap against explicit resampling."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rmcalib.metrics.correlation import METHODS, Method, correlate, correlation_rows, ranks_from_scores

Values = st.lists(st.integers(0, 6), min_size=3, max_size=12)


def tau_by_pairs(x: list[int], y: list[int]) -> float:
    """Tau-b by counting pairs."""
    agree = untied_x = untied_y = 0
    for i, j in itertools.combinations(range(len(x)), 2):
        a, b = np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
        agree += int(a * b)
        untied_x += int(a != 0)
        untied_y += int(b != 0)
    return float(agree / np.sqrt(untied_x * untied_y))


@settings(deadline=None, max_examples=60)
@given(Values, st.randoms(use_true_random=False))
def test_kendall_counts_pairs(x: list[int], random: object) -> None:
    y = [random.randint(0, 6) for _ in x]  # type: ignore[attr-defined]
    found = correlate(x, y, resamples=20)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert found.value is None
        assert found.note == "all models are equal"
        return
    assert found.value == pytest.approx(tau_by_pairs(x, y))
    assert found.value == pytest.approx(stats.kendalltau(x, y).statistic)
    assert found.p_value == pytest.approx(stats.kendalltau(x, y).pvalue)


@pytest.mark.parametrize("method", METHODS)
def test_the_bootstrap_is_that_of_explicit_resamples(method: Method) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=15).round(1)
    y = (x + rng.normal(size=15)).round(1)
    found = correlate(x, y, method=method, resamples=300, seed=5)
    drawn = np.random.default_rng(5).integers(15, size=(300, 15))
    test: Any = {"kendall": stats.kendalltau, "spearman": stats.spearmanr, "pearson": stats.pearsonr}[method]
    values = [test(x[index], y[index]).statistic for index in drawn]
    low, high = np.nanquantile(values, [0.025, 0.975])
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)
    assert found.value == pytest.approx(test(x, y).statistic)


def test_a_positive_correlation_means_that_better_calibrated_models_have_better_scores() -> None:
    rows = correlation_rows(
        [0.1, 0.2, 0.3, 0.4], {"Math": [60, 70, 80, 90]}, metric="ece", leaderboard=[90, 80, 70, 60]
    )
    assert [(row["target"], row["value"]) for row in rows] == [("leaderboard", 1.0), ("Math", -1.0)]


def test_models_without_a_number_are_left_out() -> None:
    nan = float("nan")
    rows = correlation_rows([0.1, nan, 0.3, 0.2], {"a": [3, 9, 1, 2], "b": [nan] * 4}, metric="ece")
    assert (rows[0]["value"], rows[0]["n"]) == (1.0, 3)
    assert (rows[1]["value"], rows[1]["note"]) == (None, "no model has both numbers")


def test_two_models_have_no_correlation() -> None:
    assert correlate([1, 2], [1, 2]).note == "needs at least 3 models"
    few = correlate([1, 2, 3], [1, 2, 3])
    assert (few.value, few.low, few.high) == (1.0, -1.0, 1.0)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="2 and 3 values"):
        correlate([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="unknown 'tau'"):
        correlate([1, 2, 3], [1, 2, 3], method="tau")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="level"):
        correlate([1, 2, 3], [1, 2, 3], level=95)


def test_equal_scores_have_no_order() -> None:
    assert ranks_from_scores([5.0, 5.0]).tolist() == [1.0, 1.0]
    assert correlation_rows([0.1, 0.2, 0.3], {}, metric="ece", leaderboard=[5, 5, 5])[0]["value"] is None


def test_a_category_called_leaderboard_is_not_taken_for_the_leaderboard() -> None:
    errors, best, other = [0.1, 0.2, 0.3, 0.4], [9.0, 8.0, 7.0, 6.0], [1.0, 2.0, 4.0, 3.0]
    rows = correlation_rows(errors, {"leaderboard": other}, metric="ece", leaderboard=best, resamples=20)
    assert {row["target"]: row["value"] for row in rows} == {
        "leaderboard": 1.0,
        "leaderboard (category)": pytest.approx(-2 / 3),
    }
