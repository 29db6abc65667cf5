"""Kendall's tau over models against scipy, its bootstrap against explicit resampling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rmcalib.leaderboards.correlation import LEADERBOARD, correlation_rows
from rmcalib.metrics import Settings

NAN = float("nan")
Pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=3, max_size=12)


def tau(
    errors: list[float], scores: list[float], target: str = "Math", resamples: int = 20
) -> dict[str, object]:
    """The row of one kind of score."""
    how = Settings(resamples=resamples, seed=5)
    (row,) = correlation_rows("ece", np.array(errors, float), {target: np.array(scores, float)}, how)
    return row


@settings(deadline=None, max_examples=60)
@given(Pairs)
def test_kendall_is_that_of_scipy(pairs: list[tuple[int, int]]) -> None:
    x, y = map(list, zip(*pairs, strict=True))
    found = tau(x, y)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert found["value"] is None
        return
    expected = stats.kendalltau(x, [-value for value in y])
    assert found["value"] == pytest.approx(expected.statistic)
    assert found["p_value"] == pytest.approx(expected.pvalue)


def test_the_bootstrap_is_that_of_explicit_resamples() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=15).round(1)
    y = (x + rng.normal(size=15)).round(1)
    found = tau(x.tolist(), y.tolist(), resamples=300)
    drawn = np.random.default_rng(5).integers(15, size=(300, 15))
    values = [stats.kendalltau(x[index], -y[index]).statistic for index in drawn]
    assert (found["low"], found["high"]) == pytest.approx(tuple(np.nanquantile(values, [0.025, 0.975])))


def test_a_positive_correlation_means_that_better_calibrated_models_have_better_scores() -> None:
    assert tau([0.1, 0.2, 0.3, 0.4], [90, 80, 70, 60], LEADERBOARD)["value"] == 1
    assert tau([0.1, 0.2, 0.3, 0.4], [60, 70, 80, 90])["value"] == -1


def test_missing_few_and_equal_models() -> None:
    some = tau([0.1, NAN, 0.3, 0.2], [3, 9, 1, 2])
    assert (some["value"], some["low"], some["high"], some["n"]) == (1.0, -1.0, 1.0, 3)
    for errors, scores in (
        ([0.1, 0.2], [1.0, 2.0]),
        ([0.1, 0.2, 0.3], [NAN] * 3),
        ([0.1, 0.2, 0.3], [5.0] * 3),
    ):
        found = tau(errors, scores, LEADERBOARD)
        assert found["value"] is None
        assert found["note"]
