"""Kendall's tau against scipy and plain loops, its bootstrap against explicit resampling."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rmcalib.metrics import Settings
from rmcalib.metrics.correlation import correlate, correlation_rows

FEW = Settings(resamples=20)
NAN = float("nan")


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
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=3, max_size=12))
def test_kendall_counts_pairs(pairs: list[tuple[int, int]]) -> None:
    x, y = ([pair[i] for pair in pairs] for i in (0, 1))
    found = correlate(np.array(x, dtype=float), np.array(y, dtype=float), FEW)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert found["value"] is None
        return
    assert found["value"] == pytest.approx(tau_by_pairs(x, y))
    assert found["p_value"] == pytest.approx(stats.kendalltau(x, y).pvalue)


def test_the_bootstrap_is_that_of_explicit_resamples() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=15).round(1)
    y = (x + rng.normal(size=15)).round(1)
    found = correlate(x, y, Settings(resamples=300, seed=5))
    drawn = np.random.default_rng(5).integers(15, size=(300, 15))
    values = [stats.kendalltau(x[index], y[index]).statistic for index in drawn]
    assert [found["low"], found["high"]] == pytest.approx(np.nanquantile(values, [0.025, 0.975]).tolist())


@pytest.mark.parametrize(
    ("target", "scores", "value", "n"),
    [
        ("leaderboard", [90, 80, 70, 60], 1.0, 4),  # better calibrated models have better scores
        ("Math", [60, 70, 80, 90], -1.0, 4),
        ("Math", [9, NAN, 8, 7], 1.0, 3),
        ("Math", [9, NAN, 8, NAN], None, 2),
        ("Math", [NAN] * 4, None, 0),
        ("leaderboard", [5, 5, 5, 5], None, 4),
    ],
)
def test_signs_missing_numbers_and_ties(
    target: str, scores: list[float], value: float | None, n: int
) -> None:
    errors, values = np.array([0.1, 0.2, 0.3, 0.4]), np.array(scores, dtype=float)
    (row,) = correlation_rows("ece", errors, {target: values}, FEW)
    assert (row["target"], row["value"], row["n"]) == (target, value, n)
    assert (row["low"], row["high"]) == ((None, None) if value is None else (-1.0, 1.0))
    assert bool(row["note"]) is (value is None)
