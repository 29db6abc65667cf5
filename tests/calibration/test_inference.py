"""Intervals of calibration errors: compared with slow code, with the tests, and with shuffled rows."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import (
    Difference,
    ErrorOptions,
    Interval,
    binned_inference,
    difference,
    ece,
    ece_interval,
    ece_null,
    mean_difference,
    mean_interval,
    pairwise_inference,
    proportion_interval,
    skew_interval,
    smooth_ece,
    smooth_inference,
    top_1_probabilities,
)
from rmcalib.calibration._inference._binned import _squared_error, binned_influence
from rmcalib.calibration._inference._simulation import STEPS
from rmcalib.calibration._outcomes import choose_rows


def forecasts(
    n: int, confidence: float, seed: int, sizes: tuple[int, int] = (2, 5)
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Top-1 forecasts of prompts with different numbers of responses."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(*sizes, size=n)
    groups = np.repeat(np.arange(n), counts)
    rewards = rng.normal(scale=1.5, size=len(groups))
    noisy = rewards + rng.gumbel(size=len(groups))
    starts = np.cumsum(counts) - counts
    y = (noisy == np.repeat(np.maximum.reduceat(noisy, starts), counts)).astype(np.float64)
    return top_1_probabilities(confidence * rewards, groups), y, groups


OPTIONS: list[dict[str, Any]] = [
    {},
    {"spacing": "mass"},
    {"norm": 2},
    {"norm": 2, "debias": True},
    {"discrepancy": "jeffreys"},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("draw", ["one_per_group", "independent"])
def test_the_interval_excludes_zero_exactly_if_the_test_rejects(options: Any, draw: Any) -> None:
    decisions = []
    for seed in range(40):
        p, y, groups = forecasts(80, 1.0 + 0.02 * seed, seed)
        interval = ece_interval(p, y, groups=groups, draw=draw, resamples=99, rng=seed, **options)
        null = ece_null(p, y, groups=groups, draw=draw, resamples=99, rng=seed, **options)
        assert (interval.low > 0) == (null.p_value <= 0.05)
        assert interval.value == pytest.approx(null.value)
        assert interval.low <= interval.value <= interval.high
        decisions.append(interval.low > 0)
    assert any(decisions)
    assert not all(decisions)


@pytest.mark.parametrize("level", [0.8, 0.9, 0.99])
def test_agreement_at_other_levels(level: float) -> None:
    for seed in range(30):
        p, y, groups = forecasts(60, 1.4, seed)
        found = binned_inference(p, y, groups, ErrorOptions(), one_per_group=True, resamples=199, rng=seed)
        assert (found.interval(level).low > 0) == (found.test().p_value <= round(1 - level, 12))


def test_intervals_grow_with_the_level() -> None:
    p, y, groups = forecasts(150, 1.5, 3)
    found = binned_inference(p, y, groups, ErrorOptions(), one_per_group=True)
    wide = [found.interval(level) for level in (0.5, 0.8, 0.95, 0.99)]
    assert all(a.low >= b.low and a.high <= b.high for a, b in itertools.pairwise(wide))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 30),
    st.floats(0.1, 8),
    st.integers(0, 10**6),
    st.sampled_from(OPTIONS),
)
def test_intervals_contain_their_value(n: int, confidence: float, seed: int, options: Any) -> None:
    p, y, groups = forecasts(n, confidence, seed)
    interval = ece_interval(p, y, groups=groups, resamples=40, rng=seed, **options)
    assert interval.value == pytest.approx(ece(p, y, **options), abs=1e-12)
    assert 0 <= interval.low <= interval.value <= interval.high
    if options.get("discrepancy") != "jeffreys":
        assert interval.high <= 1


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 20), st.integers(0, 10**6))
def test_the_order_of_rows_does_not_matter(n: int, seed: int) -> None:
    p, y, groups = forecasts(n, 2.0, seed)
    shuffled = np.random.default_rng(seed).permutation(len(p))
    for infer in (
        lambda i: binned_inference(p[i], y[i], groups[i], ErrorOptions(), one_per_group=True, resamples=30),
        lambda i: smooth_inference(p[i], y[i], groups[i], one_per_group=True, resamples=30),
        lambda i: pairwise_inference(np.log(p[i]), y[i] == 1, groups[i], resamples=30),
    ):
        one, other = infer(np.arange(len(p))), infer(shuffled)  # type: ignore[no-untyped-call]
        assert one.interval().low == pytest.approx(other.interval().low, abs=1e-9)
        assert one.interval().high == pytest.approx(other.interval().high, abs=1e-9)


def test_the_order_of_groups_matters_only_by_chance() -> None:
    p, y, groups = forecasts(200, 2.0, 1)
    renamed = np.random.default_rng(0).permutation(200)[groups]
    one, other = (ece_interval(p, y, groups=g, resamples=1000) for g in (groups, renamed))
    assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=0.006)


def test_outcomes_are_drawn_with_their_probabilities() -> None:
    sizes, q = np.array([3, 1, 2]), np.array([0.2, 0.5, 0.3, 1.0, 0.9, 0.1])
    uniform = np.random.default_rng(0).random((20_000, 3), dtype=np.float32)
    rows = choose_rows(uniform, q, sizes)
    drawn = np.bincount(rows.reshape(-1), minlength=6) / 20_000
    assert drawn == pytest.approx(q, abs=0.012)
    assert (rows >= [0, 3, 4]).all()
    assert (rows < [3, 4, 6]).all()


def test_alternatives_against_slow_code() -> None:
    """Draw outcomes from p + s · gap, scaled within prompts, one prompt at a time."""
    p, y, groups = forecasts(30, 2.0, 5)
    found = binned_inference(p, y, groups, ErrorOptions(), one_per_group=True, resamples=400)
    index = np.minimum((p * 10).astype(int), 9)
    gap = np.array([(y - p)[index == b].mean() if (index == b).any() else 0.0 for b in range(10)])
    sizes = [0.0]
    for end, steps in STEPS:
        sizes += list(np.linspace(sizes[-1], end, steps + 1)[1:])
    ends = {0.0: p}
    for end, _ in STEPS:
        shifted = np.maximum(p + end * gap[index], 1e-9)
        ends[end] = shifted / np.bincount(groups, shifted)[groups]
    rng = np.random.default_rng(1)
    marks = sorted(ends)
    for size, truth, draws in list(zip(sizes, found.truths, found.draws, strict=True))[::3]:
        upper = next(mark for mark in marks if mark >= size)
        lower = max((mark for mark in marks if mark <= size), default=0.0)
        mixed = ends[upper] if upper == lower else (
            ((upper - size) * ends[lower] + (size - lower) * ends[upper]) / (upper - lower)
        )  # fmt: skip
        expected = [(mixed - p)[index == b].sum() for b in range(10)]
        assert truth == pytest.approx(np.abs(expected).sum() / len(p), abs=1e-9) or truth >= found.truths[-2]
        slow = []
        for _ in range(150):
            happened = np.zeros(len(p))
            for g in range(30):
                rows = np.flatnonzero(groups == g)
                happened[rng.choice(rows, p=mixed[rows] / mixed[rows].sum())] = 1
            slow.append(ece(p, happened))
        assert np.mean(draws) == pytest.approx(np.mean(slow), abs=4 * np.std(slow) / np.sqrt(100))


def test_the_influence_predicts_the_spread_of_the_error() -> None:
    """Against the bootstrap, where the error is large and so nearly a smooth function of the data."""
    p, y, groups = forecasts(300, 4.0, 2, sizes=(3, 4))
    rng = np.random.default_rng(0)
    binned, smooth, pairs = [], [], []
    for _ in range(120):
        chosen = rng.integers(300, size=300)
        rows = (3 * chosen[:, None] + np.arange(3)).reshape(-1)
        binned.append(ece(p[rows], y[rows]))
        smooth.append(smooth_ece(p[rows], y[rows]))
        again = np.repeat(np.arange(300), 3)
        pairs.append(pairwise_inference(np.log(p[rows]), y[rows] == 1, again, resamples=1).value)
    found = (
        (binned_inference(p, y, groups, ErrorOptions(), one_per_group=True, resamples=5), binned),
        (smooth_inference(p, y, groups, one_per_group=True, resamples=5), smooth),
        (pairwise_inference(np.log(p), y == 1, groups, resamples=5), pairs),
    )
    for one, resampled in found:
        assert one.influence.sum() == pytest.approx(0, abs=1e-12)
        assert np.sqrt((one.influence**2).sum()) == pytest.approx(np.std(resampled), rel=0.25)


def test_the_pairwise_null_of_pairs_is_the_top_1_null() -> None:
    """With two responses, P(i first) and P(i before j) are the same."""
    p, y, groups = forecasts(100, 1.5, 0, sizes=(2, 3))
    pairs = pairwise_inference(np.log(p), y == 1, groups, resamples=200, rng=4)
    top = binned_inference(p, y, groups, ErrorOptions(), one_per_group=True, resamples=200, rng=4)
    assert pairs.value == pytest.approx(top.value)
    assert pairs.null == pytest.approx(top.null)
    assert pairs.interval().high == pytest.approx(top.interval().high, abs=0.02)


def test_pairwise_null_against_slow_code() -> None:
    p, y, groups = forecasts(25, 1.0, 3)
    rng = np.random.default_rng(0)
    slow = []
    for _ in range(400):
        forecast, outcome = [], []
        for g in range(25):
            rows = np.flatnonzero(groups == g)
            winner = rng.choice(rows, p=p[rows] / p[rows].sum())
            for other in rows[rows != winner]:
                first = p[winner] / (p[winner] + p[other])
                forecast += [first, 1 - first]
                outcome += [1, 0]
        slow.append(ece(forecast, outcome))
    null = pairwise_inference(np.log(p), y == 1, groups, resamples=2000).null
    assert null.mean() == pytest.approx(np.mean(slow), rel=0.05)
    assert null.std() == pytest.approx(np.std(slow), rel=0.15)


def test_squared_error_is_unbiased_and_its_standard_error_right() -> None:
    """The U-statistic of pairs of different groups, by a double loop; and its spread over data sets."""
    sums = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        p = np.where(rng.random(120) < 0.5, 0.3, 0.7)
        y = rng.random(120) < np.where(p < 0.5, 0.45, 0.7)
        index = (p > 0.5).astype(int)
        row = np.zeros((120, 6))
        row[np.arange(120), index], row[np.arange(120), 2 + index], row[np.arange(120), 4 + index] = 1, p, y
        sums.append(row)
    found = np.array([_squared_error(row) for row in sums])
    assert found[:, 0].mean() == pytest.approx(0.5 * 0.15**2, abs=3 * found[:, 0].std() / np.sqrt(300))
    assert found[:, 1].mean() == pytest.approx(found[:, 0].std(), rel=0.15)
    z = (sums[0][:, 4:] - sums[0][:, 2:4]) / np.sqrt(sums[0][:, :2].mean(axis=0))
    double = sum(float(z[g] @ z[h]) for g in range(120) for h in range(120) if g != h) / (120 * 119)
    assert found[0, 0] == pytest.approx(double)


def test_gradient_of_the_error_is_exact_for_the_plain_ece() -> None:
    p, y, groups = forecasts(40, 3.0, 1)
    index, bins = np.minimum((p * 10).astype(int), 9), 10
    cells = np.zeros((40, 30))
    np.add.at(cells, (groups, index), 1)
    np.add.at(cells, (groups, bins + index), p)
    np.add.at(cells, (groups, 2 * bins + index), y)
    total = cells.sum(axis=0)
    sign = np.sign(total[20:] - total[10:20])
    by_hand = ((cells[:, 20:] - cells[:, 10:20]) * sign).sum(axis=1) / total[:10].sum()
    by_hand -= ece(p, y) * cells[:, :10].sum(axis=1) / total[:10].sum()
    assert binned_influence(cells, ErrorOptions()) == pytest.approx(by_hand - by_hand.mean(), abs=1e-6)


def test_skew_interval_is_students_for_symmetric_values() -> None:
    values = np.concatenate([np.linspace(-1, 1, 50), np.linspace(1, -1, 50)])
    low, high = skew_interval(values)
    assert high == pytest.approx(1.984217 * values.std(ddof=1) / 10, rel=1e-6)
    assert low == pytest.approx(-high)
    assert skew_interval(np.ones(5)) == (1.0, 1.0)


def test_skew_interval_reaches_towards_rare_values() -> None:
    low, high = skew_interval(np.array([0.0] * 97 + [1.0] * 3))
    assert high - 0.03 > 1.5 * (0.03 - low)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30))
def test_intervals_of_means_contain_them(values: list[float]) -> None:
    interval = mean_interval(values)
    assert interval.low <= interval.value <= interval.high
    shares = np.clip(np.abs(values) / 5, 0, 1)
    wilson = proportion_interval(shares)
    assert 0 <= wilson.low <= wilson.value + 1e-12
    assert wilson.value - 1e-12 <= wilson.high <= 1


def test_means_of_groups_resample_groups() -> None:
    values, groups = np.repeat(np.random.default_rng(0).normal(size=40), 5), np.repeat(np.arange(40), 5)
    alone, together = mean_interval(values), mean_interval(values, groups=groups)
    assert together.high - together.low > 2 * (alone.high - alone.low)
    boot = mean_interval(values, groups=groups, method="percentile")
    assert together.high - together.low == pytest.approx(boot.high - boot.low, rel=0.15)


def test_exact_interval_matches_the_textbook_and_ties_narrow_it() -> None:
    exact = proportion_interval([1] * 9 + [0])
    assert (exact.low, exact.high) == pytest.approx((0.5550, 0.9975), abs=1e-4)
    tied = proportion_interval([0.5] * 50 + [1.0] * 25 + [0.0] * 25)
    assert tied.high - tied.low == pytest.approx((0.25 / 100 / 2) ** 0.5 * 2 * 1.96, rel=0.05)
    with pytest.raises(ValueError, match=r"values: 1.5 is outside \[0, 1\]"):
        proportion_interval([0.5, 1.5])


def test_differences() -> None:
    zero = np.array([1.0, -1.0])
    a, b = Interval(0.1, 0.08, 0.13, 0.95, 0), Interval(0.2, 0.19, 0.22, 0.95, 0)
    independent = difference(a, b, zero, np.array([1.0, 1.0]))
    assert independent.low == pytest.approx(0.1 - (0.01**2 + 0.03**2) ** 0.5)
    assert independent.high == pytest.approx(0.1 + (0.02**2 + 0.02**2) ** 0.5)
    together = difference(a, b, zero, zero)
    assert together.low == pytest.approx(0.1 - 0.02)
    assert independent.p_value <= 0.05
    back = difference(b, a, zero, zero)
    assert (back.low, back.high) == pytest.approx((-together.high, -together.low))
    same = difference(a, a, zero, zero)
    assert same.low <= 0 <= same.high
    assert same.p_value == 1
    with pytest.raises(ValueError, match=r"b: its level 0.9 is not that of a"):
        difference(a, Interval(0.2, 0.1, 0.3, 0.9, 0), zero, zero)


@settings(max_examples=60, deadline=None)
@given(*[st.floats(0, 1)] * 6, st.integers(0, 100))
def test_p_value_and_interval_of_a_difference_agree(
    a: float, b: float, x: float, y: float, u: float, v: float, seed: int
) -> None:
    one, other = Interval(a, a - x, a + y, 0.95, 0), Interval(b, b - u, b + v, 0.95, 0)
    influence = np.random.default_rng(seed).normal(size=(2, 5))
    for centres in (None, (a - x * x, b + v * u)):
        found = difference(one, other, *influence, centres=centres)
        assert found.low <= found.value <= found.high
        if min(abs(found.low), abs(found.high)) > 1e-9:
            assert (found.p_value <= 0.05) == (not found.low <= 0 <= found.high)


def test_difference_of_errors_with_upward_bias() -> None:
    one, other = np.array([1.0, -1.0]), np.array([1.0, 1.0])
    noise, real = Interval(0.05, 0.0, 0.06, 0.95, 0), Interval(0.11, 0.07, 0.14, 0.95, 0)
    found = difference(noise, real, one, other, centres=(0.0, 0.1))
    assert found.value == pytest.approx(0.06)
    assert found.high == pytest.approx(0.1 + 0.04)  # the noise of the calibrated one cannot add to it
    assert found.low == pytest.approx(0.1 - (0.03**2 + 0.06**2) ** 0.5)
    # A positive correlation with an error that may be 0 is not used.
    assert difference(noise, real, one, one, centres=(0.0, 0.1)) == found
    both = difference(noise, Interval(0.04, 0.0, 0.08, 0.95, 0), one, one, centres=(0.0, 0.01))
    assert (both.low, both.high) == pytest.approx((-0.06, 0.08))


def test_centre_has_no_bias_of_noise() -> None:
    rng = np.random.default_rng(0)
    p, groups = rng.uniform(0.05, 0.95, 300), np.arange(300)
    centres, values = [], []
    for seed in range(30):
        y = (rng.random(300) < p).astype(float)
        found = binned_inference(p, y, groups, ErrorOptions(), one_per_group=False, resamples=99, rng=seed)
        centres.append(found.centre)
        values.append(found.value)
    assert min(values) > 0
    assert 5 <= sum(centre == 0 for centre in centres) <= 25  # half of them


def test_jumps_widen_the_interval_even_if_no_prompt_has_one() -> None:
    same = np.ones(100)
    assert mean_difference(same, same) == Difference(0.0, 0.0, 0.0, 1.0)
    none = np.zeros(100)
    found = mean_difference(same, same, base=none, others=[same, -same])
    assert (found.low, found.high) == pytest.approx((-found.high, -found.low))
    assert found.high == pytest.approx(1 - 0.025**0.01)  # 0 of 100 prompts
    worse = np.where(np.arange(100) < 9, 0.0, 1.0)
    plain = mean_difference(same, worse)
    wider = mean_difference(same, worse, base=none, others=[same, -same])
    assert plain.value == wider.value == pytest.approx(-0.09)
    assert wider.p_value < 0.05
    assert wider.high >= plain.high


def test_mean_difference_is_paired() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(size=200)
    a, b = common + 0.1 * rng.normal(size=200), common + 0.1 * rng.normal(size=200) + 0.05
    found = mean_difference(a, b)
    assert found.low > 0
    assert found.p_value < 0.05
    assert mean_difference(a, a).p_value == 1


def test_the_interval_of_an_error_that_is_0_by_construction() -> None:
    rng = np.random.default_rng(0)
    p = np.full((200, 4), 0.25) + rng.uniform(-0.02, 0.02, (200, 1)) * [1, -1, 0, 0]
    y = (np.arange(4) == rng.integers(4, size=(200, 1))).astype(float)
    groups = np.repeat(np.arange(200), 4)
    found = binned_inference(p.ravel(), y.ravel(), groups, ErrorOptions(), one_per_group=True, resamples=99)
    interval = found.interval()
    assert (interval.value, interval.low) == pytest.approx((0.0, 0.0))
    # 3 / 200 of the prompts could be elsewhere, with an ECE of at most 2/4.
    assert interval.high == pytest.approx(0.5 * 3 / 200, rel=0.02)
    other = Interval(0.1, 0.0, 0.12, 0.95, 0)
    nothing = Interval(0.0, 0.0, 0.0, 0.95, 0)
    limit = difference(nothing, other, np.zeros(5), np.zeros(5), centres=(0.0, 0.1))
    assert limit.low == pytest.approx(0.0)
    assert limit.p_value > 0.05 or limit.low > 0
