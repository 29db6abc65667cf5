"""The alarm of a training run: the error that it spends, and the least variance that it assumes."""

from __future__ import annotations

import numpy as np
import pytest

from rmcalib.integrations.alarms import Monitor
from rmcalib.integrations.alarms.check import Sums
from rmcalib.integrations.alarms.gap import Gap, gap_sums
from rmcalib.integrations.alarms.monitor import Boundary, spent


def sums(p: float, y: float, first: int, n: int) -> Sums:
    """Return those of n prompts with one sample each."""
    return gap_sums(np.arange(first, first + n), np.full(n, np.log(p / (1 - p))), np.full(n, y))


def test_the_budget_is_never_spent_whole_and_half_of_it_by_the_horizon() -> None:
    fractions = [spent(look, 50) for look in range(5000)]
    assert fractions[50] == pytest.approx(0.5)
    assert np.diff(fractions).min() > 0
    assert fractions[-1] < 1
    np.testing.assert_allclose(np.diff(fractions[:51]), 0.01)  # equally over the looks up to the horizon


@pytest.mark.parametrize("alpha", [0.1, 0.02])
def test_limits_spend_the_error_that_they_may(alpha: float) -> None:
    """Of other random walks, the wanted fraction exceeds the limits at some look."""
    windows = (5, 20)
    boundary, rng = Boundary(alpha, 20, windows), np.random.default_rng(1)
    variances = rng.uniform(0.5, 2, size=20)
    limits = np.array([boundary.limit(float(variance)) for variance in variances])
    walks = np.pad(np.cumsum(rng.normal(size=(10_000, 20)) * np.sqrt(variances), axis=1), ((0, 0), (1, 0)))
    total = np.append(0.0, np.cumsum(variances))
    crossed = np.zeros(len(walks), dtype=bool)
    for look in range(1, 21):
        for start in (0, *(max(look - window, 0) for window in windows)):
            reached = (walks[:, look] - walks[:, start]) / np.sqrt(total[look] - total[start])
            crossed |= reached > limits[look - 1]
    expected = alpha * spent(20, 20)
    assert crossed.mean() == pytest.approx(expected, abs=4 * np.sqrt(expected / 10_000))


def test_samples_that_agree_by_chance_raise_no_alarm() -> None:
    monitor = Monitor(Gap(), 0.025, 0.03, both_sides=True)
    monitor.add(0, sums(0.85, 1.0, 0, 20))  # all correct, which happens in 4% of such samples
    assert monitor.alarms == []
    monitor.add(1, sums(0.85, 0.0, 100, 2000))
    assert [alarm["direction"] for alarm in monitor.alarms] == ["above"]


def test_a_look_needs_twenty_prompts() -> None:
    monitor = Monitor(Gap(), 0.025, 0.03)
    for step in range(7):
        monitor.add(step, sums(0.9, 0.0, 10 * step, 5))
    assert monitor.looks == 1
    assert [alarm["step"] for alarm in monitor.alarms] == [3]


def test_an_alarm_of_the_last_looks_names_their_first_step() -> None:
    monitor = Monitor(Gap(), 0.025, 0.03, window=2)
    for step in range(14):  # a look is two steps
        p, y = (0.5, 1.0) if step < 10 else (0.9, 0.0)
        monitor.add(step, sums(p, y, 10 * step, 10))
    (alarm,) = monitor.alarms
    assert (alarm["over"], alarm["first_step"], alarm["step"]) == ("last 2 looks", 10, 13)
