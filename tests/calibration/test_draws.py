"""Sums of many groups, drawn from their moments, against sums of outcomes that are drawn one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import expit

from rmcalib._util.arrays import FloatArray
from rmcalib.calibration import ErrorOptions, ece, ece_interval, ece_null
from rmcalib.calibration._binning import bin_edges, bin_index
from rmcalib.calibration._draws import EXACT_GROUPS, draw_sums, expected_sums
from rmcalib.calibration._inference._pairwise import _ordered_pairs, _PairOutcomes
from rmcalib.calibration._inference._smooth import _GridOutcomes
from rmcalib.calibration._outcomes import CellOutcomes, Outcomes
from rmcalib.calibration._smooth_ece import grid_cells
from rmcalib.calibration._votes._error import _ShareOutcomes

EDGES = bin_edges(np.empty(0), ErrorOptions())
STEPS = (4, 2)


def prompts(n: int, seed: int = 0, scale: float = 1.5) -> tuple[FloatArray, np.ndarray, np.ndarray]:
    """Log-probabilities (N,) of n prompts with three to five responses, group numbers, and sizes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 6, n)
    groups = np.repeat(np.arange(n), sizes)
    utilities = scale * rng.normal(size=len(groups))
    return utilities - np.log(np.bincount(groups, np.exp(utilities)))[groups], groups, sizes


def of_kind(kind: str, n: int) -> tuple[Outcomes, list[FloatArray]]:
    """Outcomes of one kind, with their probabilities under a null and at two ends."""
    logs, groups, sizes = prompts(n)
    p = np.exp(logs)
    tilts = [size * np.sign(p - 0.5) for size in (0.0, 0.2, 0.5)]

    def tilted(one: CellOutcomes) -> list[FloatArray]:
        return [one.probabilities(np.clip(p * (1 + tilt), 0, 1)) for tilt in tilts]

    one = CellOutcomes.of_rows(groups, bin_index(p, EDGES), 10, one_per_group=kind != "independent")
    if kind == "grid":
        left, share = grid_cells(p, 16)
        return _GridOutcomes(CellOutcomes.of_rows(groups, left, 17, one_per_group=True), share), tilted(one)
    if kind == "pairs":
        winner, other = _ordered_pairs(sizes)
        pairs = expit(logs[winner] - logs[other])
        return _PairOutcomes(sizes, pairs, bin_index(pairs, EDGES), 10), tilted(one)
    if kind == "votes":
        best = np.maximum.reduceat(p, np.cumsum(sizes) - sizes)
        votes = _ShareOutcomes.of(bin_index(best, EDGES), np.full(n, 4), 10)
        return votes, [votes.probabilities(best - shift, 0.2) for shift in (0.0, 0.05, 0.1)]
    return one, tilted(one)


def draws(
    outcomes: Outcomes, ends: Sequence[FloatArray], *, exact: bool, size: int, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    groups = len(outcomes.sizes) if exact else 0
    rng = np.random.default_rng(seed)
    return draw_sums(outcomes, ends, STEPS, resamples=size, most=size, rng=rng, exact_groups=groups)


@pytest.mark.parametrize("kind", ["one_per_group", "independent", "grid", "pairs", "votes"])
def test_sums_have_the_moments_of_outcomes_drawn_one_by_one(kind: str) -> None:
    outcomes, ends = of_kind(kind, 1500)
    size = 1500
    exact, fast = (draws(outcomes, ends, exact=exact, size=size) for exact in (True, False))
    assert exact[1].shape == fast[1].shape == (size, 1 + sum(STEPS), outcomes.n_sums)
    assert np.array_equal(fast[0], fast[1][:, 0])
    for alternative in range(1 + sum(STEPS)):
        one, other = exact[1][:, alternative], fast[1][:, alternative]
        spread = np.maximum(one.std(axis=0), 1e-3)
        assert np.abs(one.mean(axis=0) - other.mean(axis=0)).max() < (6 * spread / np.sqrt(size)).max()
        assert other.std(axis=0) == pytest.approx(one.std(axis=0), rel=0.12, abs=1e-3)
        correlation = [np.cov((x / spread).T) for x in (one, other)]
        assert np.abs(correlation[0] - correlation[1]).max() < 0.25


@pytest.mark.parametrize("kind", ["one_per_group", "independent", "votes"])
def test_expected_sums_are_the_means_of_the_draws(kind: str) -> None:
    outcomes, ends = of_kind(kind, 300)
    expected = expected_sums(outcomes, ends)
    drawn = draws(outcomes, ends, exact=True, size=4000)[1][:, [0, 4, 6]]
    assert drawn.mean(axis=0) == pytest.approx(expected, abs=5 * np.sqrt(300 / 4000))


def test_errors_have_the_same_distribution() -> None:
    logs, groups, _ = prompts(4000, seed=3)
    p = np.exp(logs)
    outcomes = CellOutcomes.of_rows(groups, bin_index(p, EDGES), 10, one_per_group=True)
    forecast, n = outcomes.features(slice(0, 4000)).T @ p, len(p)
    marks = []
    for exact in (True, False):
        null, _ = draws(outcomes, [outcomes.probabilities(p)] * 3, exact=exact, size=3000, seed=5)
        marks.append(np.quantile(np.abs(null - forecast).sum(axis=1) / n, [0.05, 0.25, 0.5, 0.75, 0.95]))
    assert marks[1] == pytest.approx(marks[0], rel=0.04)


def test_groups_that_add_to_a_rare_sum_are_drawn_one_by_one() -> None:
    n = 2000
    cell = np.zeros((n, 2), dtype=np.int64)
    cell[:, 1] = 1
    cell[:3, 1] = 2  # three outcomes alone in a cell
    outcomes = CellOutcomes(np.full(n, 2), cell.reshape(-1), 3)
    q = np.tile([0.7, 0.3], n)
    null, _ = draws(outcomes, [q, q, q], exact=False, size=1000)
    assert set(null[:, 2].tolist()) == {0.0, 1.0, 2.0, 3.0}
    assert null[:, 2].mean() == pytest.approx(0.9, abs=0.1)
    assert null.sum(axis=1) == pytest.approx(n)  # exactly one outcome of every group


def test_many_groups_keep_interval_and_test_in_step() -> None:
    n = EXACT_GROUPS + 2000
    logs, groups, sizes = prompts(n, seed=1)
    p, rng = np.exp(logs), np.random.default_rng(2)
    starts = np.cumsum(sizes) - sizes
    for bold in (1.0, 1.02, 1.1):  # calibrated, nearly, and over-confident
        truth = np.exp(logs / bold)
        below = np.cumsum(truth) - np.repeat((np.cumsum(truth) - truth)[starts], sizes)
        total = np.repeat(np.bincount(groups, truth), sizes)
        reached = below >= np.repeat(rng.random(n), sizes) * total
        first = starts + (np.bincount(groups, ~reached)).astype(int)
        y = np.zeros(len(p))
        y[first] = 1
        null, interval = ece_null(p, y, groups=groups), ece_interval(p, y, groups=groups)
        assert interval.value == pytest.approx(ece(p, y), abs=1e-12)
        assert (interval.low > 0) == (null.p_value <= 0.05)
    assert null.p_value < 0.01
