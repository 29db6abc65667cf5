"""Lost and usable information, temperature intervals and CORP, compared with slow code."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import (
    brier_score,
    corp,
    difference,
    fit_top_1_temperature,
    log_score,
    scale_loss,
    temperature_interval,
    top_1_probabilities,
)


def rewards(
    n: int, scale: float, seed: int, responses: tuple[int, int] = (2, 6)
) -> tuple[FloatArray, FloatArray, IntArray]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(*responses, size=n)
    groups = np.repeat(np.arange(n), sizes)
    utility = rng.normal(scale=1.5, size=len(groups))
    noisy = utility + rng.gumbel(size=len(groups))
    best = np.repeat(np.maximum.reduceat(noisy, np.cumsum(sizes) - sizes), sizes)
    return scale * utility, (noisy == best).astype(np.float64), groups


def slow_pav(p: FloatArray, y: FloatArray) -> FloatArray:
    """Pool adjacent violators, one block at a time; equal forecasts are pooled first."""
    blocks = [[y[p == value].sum(), (p == value).sum()] for value in np.unique(p)]
    spans = [1] * len(blocks)
    i = 0
    while i + 1 < len(blocks):
        if blocks[i][0] / blocks[i][1] > blocks[i + 1][0] / blocks[i + 1][1]:
            blocks[i] = [blocks[i][0] + blocks[i + 1][0], blocks[i][1] + blocks[i + 1][1]]
            spans[i] += spans.pop(i + 1)
            del blocks[i + 1]
            i = max(i - 1, 0)
        else:
            i += 1
    return np.repeat([total / count for total, count in blocks], spans)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.05, 0.2, 0.35, 0.5, 0.8, 0.95]), st.booleans()), min_size=1))
def test_corp_parts_add_up_and_match_slow_code(rows: list[tuple[float, bool]]) -> None:
    p, y = np.array([row[0] for row in rows]), np.array([float(row[1]) for row in rows])
    scores = {"brier": brier_score, "log": log_score}
    for name, mean in scores.items():
        parts = corp(p, y, score=name)  # type: ignore[arg-type]
        assert parts.score == pytest.approx(mean(p, y))
        assert parts.miscalibration - parts.discrimination + parts.uncertainty == pytest.approx(parts.score)
        assert parts.miscalibration >= -1e-12
        assert parts.discrimination >= -1e-12
        assert parts.frequency == pytest.approx(slow_pav(p, y))
        assert (np.diff(parts.frequency) >= 0).all()
        assert parts.count.sum() == len(p)


def test_corp_of_a_calibrated_table_has_no_miscalibration() -> None:
    p, y = np.repeat([0.25, 0.75], 4), np.array([1, 0, 0, 0, 1, 1, 1, 0])
    for score in ("brier", "log"):
        assert corp(p, y, score=score).miscalibration == pytest.approx(0, abs=1e-15)
    with pytest.raises(ValueError, match="score: unknown 'crps'"):
        corp(p, y, score="crps")  # type: ignore[arg-type]


def test_scale_loss_against_slow_code() -> None:
    r, y, groups = rewards(60, 2.0, 0)
    found = scale_loss(r, y, groups)
    uniform = np.mean([np.log((groups == g).sum()) for g in range(60)])

    def nll(t: float) -> float:
        return log_score(top_1_probabilities(r, groups, temperature=t), y, groups=groups)

    grid = [nll(t) for t in np.exp(np.linspace(-2, 3, 2001))]
    assert found.delta == pytest.approx(nll(1.0) - min(grid), abs=1e-5)
    assert found.lost.value == pytest.approx((nll(1.0) - min(grid)) / uniform, abs=1e-5)
    assert found.usable.value == pytest.approx(1 - min(grid) / uniform, abs=1e-5)
    assert found.temperature.value == pytest.approx(fit_top_1_temperature(r, y, groups).temperature)
    for interval in (found.lost, found.usable, found.temperature):
        assert interval.low < interval.value < interval.high
    assert found.lost.low > 0


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 25), st.floats(0.01, 30), st.integers(0, 10**6))
def test_intervals_of_scale_loss_contain_their_values(n: int, scale: float, seed: int) -> None:
    r, y, groups = rewards(n, scale, seed)
    found = scale_loss(r, y, groups)
    for interval in (found.lost, found.usable, found.temperature):
        assert interval.low <= interval.value + 1e-9
        assert interval.value <= interval.high + 1e-9
    assert (found.lost.low == 0) or not found.temperature.low <= 1 <= found.temperature.high
    shuffled = np.random.default_rng(seed).permutation(len(r))
    again = scale_loss(r[shuffled], y[shuffled], groups[shuffled])
    assert again.lost.high == pytest.approx(found.lost.high, rel=1e-6, abs=1e-9)
    assert again.usable.low == pytest.approx(found.usable.low, rel=1e-6, abs=1e-9)


def test_limits_of_the_temperature() -> None:
    r, groups = np.tile([2.0, 0.0], 20), np.repeat(np.arange(20), 2)
    cold = scale_loss(r, np.tile([1, 0], 20), groups)
    assert cold.at_limit == "cold"
    assert (cold.temperature.value, cold.temperature.low) == (0.0, 0.0)
    assert cold.usable.value == 1
    hot = scale_loss(r, np.tile([0, 1], 20), groups)
    assert hot.at_limit == "hot"
    assert hot.temperature.high == np.inf
    assert hot.usable.value == pytest.approx(0, abs=1e-12)
    equal = scale_loss(np.zeros(40), np.tile([0, 1], 20), groups)
    assert (equal.lost.value, equal.lost.low, equal.lost.high) == pytest.approx((0, 0, 0))
    single = scale_loss([1.0, 2.0], [1, 1], [0, 1])
    assert single.lost.value == 0


def test_temperature_limits_are_those_of_the_likelihood_ratio() -> None:
    r, y, groups = rewards(150, 1.0, 4, responses=(4, 5))
    interval = temperature_interval(r, y, groups)

    def excess(t: float) -> float:
        loss = [
            log_score(top_1_probabilities(r, groups, temperature=x), y, groups=groups)
            for x in (t, interval.value)
        ]
        return 2 * 150 * (loss[0] - loss[1])

    assert excess(interval.low) == pytest.approx(excess(interval.high), rel=1e-4)
    assert excess(interval.low) >= 1.9599**2 - 1e-3


def test_a_very_accurate_model_has_an_interval_that_reaches_zero() -> None:
    """Every answer is right, which is common for a calibrated model of accuracy .99 with 60 prompts."""
    r, groups = np.tile([5.0, 0.0], 60), np.repeat(np.arange(60), 2)
    found = scale_loss(r, np.tile([1, 0], 60), groups)
    assert found.lost.low == 0
    assert found.temperature.low <= 1 <= found.temperature.high


def test_differences_of_lost_information() -> None:
    r, y, groups = rewards(400, 1.0, 5)
    one, other = scale_loss(r, y, groups), scale_loss(3 * r, y, groups)
    found = difference(one.lost, other.lost, one.lost_influence, other.lost_influence)
    assert found.low > 0
    scaled = difference(one.usable, other.usable, one.usable_influence, other.usable_influence)
    assert scaled.value == pytest.approx(0, abs=1e-9)  # usable information does not depend on the scale
    assert scaled.low <= 0 <= scaled.high


def test_errors_name_the_bad_input() -> None:
    with pytest.raises(ValueError, match="outcomes: 1 outcomes for 2 rewards"):
        scale_loss([1.0, 2.0], [1], [0, 0])
    with pytest.raises(ValueError, match="outcomes: group number 0 has 2 outcomes of 1"):
        scale_loss([1.0, 2.0], [1, 1], [0, 0])
    with pytest.raises(ValueError, match="level: 2 is out of range"):
        temperature_interval([1.0, 2.0], [1, 0], [0, 0], level=2)
