"""What replaces functions of scipy.optimize, which takes long to import, equals them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, isotonic_regression

from rmcalib._util.arrays import find_root
from rmcalib.calibration.maps import corp


@given(st.floats(-3, 3), st.floats(0.1, 5), st.sampled_from([1e-4, 1e-10, 1e-14]))
def test_roots_are_those_of_brent(place: float, slope: float, tolerance: float) -> None:
    def function(x: float) -> float:
        return float(np.tanh(slope * (x - place)) + 0.1 * (x - place) ** 3)

    assert find_root(function, -4.0, 4.0, tolerance=tolerance) == brentq(function, -4.0, 4.0, xtol=tolerance)


@pytest.mark.parametrize(("low", "high"), [(1.0, 2.0), (-2.0, -1.0)])
def test_equal_signs_have_no_root_between_them(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="same sign"):
        find_root(lambda x: x, low, high)


@pytest.mark.parametrize(("low", "high"), [(0.0, 2.0), (-2.0, 0.0)])
def test_an_end_may_be_the_root(low: float, high: float) -> None:
    assert find_root(lambda x: x, low, high) == 0.0


def test_frequencies_are_isotonic_means() -> None:
    rng = np.random.default_rng(3)
    p = rng.choice(np.linspace(0.05, 0.95, 40), size=400)
    y = (rng.random(400) < p**2).astype(float)
    forecast, index = np.unique(p, return_inverse=True)
    count = np.bincount(index)
    expected = isotonic_regression(np.bincount(index, y) / count, weights=count).x
    parts = corp(p, y)
    assert parts.forecast == pytest.approx(forecast)
    assert parts.frequency == pytest.approx(expected, abs=1e-12)
