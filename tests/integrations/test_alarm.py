"""The alarm of a training run: the error that it spends, and the least variance that it assumes."""

from __future__ import annotations

import numpy as np
import pytest
from rmcalib.integrations.alarm import Alarm, Sums, gap_sums
from scipy.stats import t as student

NOTHING = Sums(np.empty(0, dtype=np.int64), np.empty((0, 5)))


def samples(p: float, y: float, first: int, n: int = 20) -> Sums:
    """Return n prompts with one sample each."""
    p_of, y_of = np.full(n, p), np.full(n, y)
    return gap_sums(np.arange(first, first + n), p_of, y_of, np.log(p_of / (1 - p_of)))


def spent_at(look: int, level: float) -> float:
    """Return the error that each test of this look spends, from the limit of an alarm that it raises."""
    alarm = Alarm(level=level, window=1)
    for step in range(look - 1):
        both = [samples(0.5, y, 2000 * step + 1000 * y, n=500) for y in (0, 1)]
        quiet = Sums(
            np.concatenate([one.prompt for one in both]), np.concatenate([one.values for one in both])
        )
        alarm.add(step, quiet, NOTHING)
    assert alarm.alarm is None
    alarm.add(look, samples(0.99, 0.0, 10**6, n=100_000), NOTHING)
    assert alarm.alarm is not None
    assert alarm.alarm["look"] == look
    reached = (alarm.alarm["limit"] - alarm.margin) / alarm.alarm["error"]
    return float(2 * student.sf(reached, alarm.alarm["prompts"] - 1))


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_all_looks_together_spend_at_most_the_error_that_is_promised(level: float) -> None:
    tests = 4  # gap and order, of the run and of the window
    spent = [tests * spent_at(look, level) for look in range(1, 9)]
    assert sum(spent) <= (1 - level) * (1 + 1e-6)
    assert sum(spent) >= 0.05 * (1 - level)  # a budget that is not spent finds nothing


def test_samples_that_agree_by_chance_raise_no_alarm() -> None:
    alarm = Alarm()
    alarm.add(0, samples(0.85, 1.0, 0, n=20), NOTHING)  # all correct, which happens in 4% of such samples
    assert alarm.alarm is None
    alarm.add(1, samples(0.85, 0.0, 100, n=2000), NOTHING)
    assert alarm.alarm is not None
