"""Prompts that belong together: standard errors, degrees of freedom, design effects."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmcalib.calibration import mean_interval
from rmcalib.calibration.clusters import (
    cluster_freedom,
    design_effect,
    mean_error,
    prompts_per_observation,
    student_quantile,
    too_few_clusters,
)
from rmcalib.calibration.estimates import Estimate
from rmcalib.calibration.intervals import proportion_interval
from rmcalib.calibration.simulation import widening
from rmcalib.calibration.temperature import Scale, Softmax

SIZES = st.lists(st.integers(1, 40), min_size=2, max_size=12).map(np.array)


@given(SIZES, st.floats(0.1, 1.0))
def test_degrees_of_freedom_against_eigenvalues(sizes: np.ndarray, correlation: float) -> None:
    share = sizes / sizes.sum()
    centre = np.eye(len(sizes)) - np.outer(share, np.ones(len(sizes)))
    scale = np.diag(1 / np.sqrt(1 - share))
    spread = np.diag(sizes * (1 + correlation * (sizes - 1.0)))
    values = np.linalg.eigvalsh(scale @ centre @ spread @ centre.T @ scale)
    assert cluster_freedom(sizes, correlation) == pytest.approx(values.sum() ** 2 / (values**2).sum())


@given(SIZES)
def test_the_variance_of_independent_prompts_has_no_bias_in_any_clusters(sizes: np.ndarray) -> None:
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    n = len(cluster)
    # The expected square of the standard error of independent values with variance 1, from unit vectors.
    found = [mean_error(np.eye(n)[i], cluster).se ** 2 for i in range(n)]
    assert np.sum(found) == pytest.approx(1 / n)


def test_without_clusters_it_is_the_usual_standard_error() -> None:
    x = np.random.default_rng(0).normal(size=30)
    found, same = mean_error(x), mean_error(x, np.arange(30))
    assert found.se == pytest.approx(x.std(ddof=1) / np.sqrt(30))
    assert found.freedom == 29
    assert (same.se, same.freedom) == pytest.approx((found.se, found.freedom))
    assert found.margin(0.95) == pytest.approx(2.0452 * found.se, rel=1e-4)


def test_one_large_cluster_leaves_little_to_go_by() -> None:
    half = np.concatenate([np.zeros(150, dtype=int), np.arange(1, 151)])
    assert cluster_freedom(np.bincount(half)) == pytest.approx(1.25, abs=0.01)
    assert too_few_clusters(half)
    assert too_few_clusters(np.repeat(np.arange(4), 75))
    assert not too_few_clusters(np.repeat(np.arange(5), 60))
    assert not too_few_clusters(None)
    y = np.random.default_rng(0).random(300)
    assert Estimate.mean(y, cluster=half).interval() is None
    assert Estimate.mean(y, cluster=half).why_no_interval
    assert Estimate.mean(y, cluster=np.repeat(np.arange(5), 60)).interval() is not None


@pytest.mark.parametrize("sizes", [[60] * 5, [15] * 20, [40, 30, 20, 10, 10] + [5] * 10])
def test_intervals_of_few_clusters_cover(sizes: list[int]) -> None:
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    rng, covered, narrow, right = np.random.default_rng(1), 0, 0, 0
    for _ in range(300):
        effect = rng.normal(size=len(sizes))[cluster]
        x = effect + rng.normal(size=len(cluster))
        found, error = mean_interval(x, clusters=cluster), mean_error(x, cluster)
        covered += found.low <= 0 <= found.high
        narrow += abs(x.mean()) <= student_quantile(0.95, np.inf) * error.se
        low, high = proportion_interval((effect > 0.5).astype(float), 0.95, cluster)
        right += low <= 0.3085 <= high
    assert covered / 300 > 0.91
    assert right / 300 > 0.91
    assert covered > narrow  # the quantile of the normal distribution is not enough


@pytest.mark.parametrize(("clusters", "size"), [(80, 5), (20, 15), (5, 60)])
def test_clusters_that_are_wrong_together_may_all_have_been_missed(clusters: int, size: int) -> None:
    cluster = np.repeat(np.arange(clusters), size)
    rng, covered = np.random.default_rng(2), 0
    for _ in range(300):
        alike, together = rng.random(len(cluster)) < 0.8, rng.random(clusters)[cluster]
        right = (np.where(alike, together, rng.random(len(cluster))) < 0.97).astype(float)
        low, high = proportion_interval(right, 0.95, cluster)
        covered += low <= 0.97 <= high
    assert covered / 300 > 0.925
    wrong = (np.arange(len(cluster)) % 40 == 0)[:, None] * 1.0
    assert prompts_per_observation(wrong[:, 0], cluster) >= size
    assert design_effect(wrong - wrong.mean(), np.ones_like(wrong), cluster)[0] >= size


def test_where_many_prompts_are_wrong_their_clusters_count_as_they_vary() -> None:
    cluster, wrong = np.repeat(np.arange(80), 5), np.arange(400)[:, None] % 4 == 0
    assert prompts_per_observation(wrong[:, 0] * 1.0, cluster) < 1.1
    assert design_effect(wrong - 0.25, np.ones_like(wrong), cluster)[0] < 1.1


@pytest.mark.parametrize("copies", [1, 3])
def test_few_clusters_do_not_tell_a_skewness(copies: int) -> None:
    values = np.repeat([0.0, 0.1, 0.2, 0.1, 4.0], copies)
    found = mean_interval(values, clusters=np.repeat(np.arange(5), copies))
    margin = 2.776445 * np.std(values[::copies], ddof=1) / np.sqrt(5)  # Student's t with 4 degrees of freedom
    assert found.low <= found.value - margin + 1e-6
    assert found.high > found.value + margin
    many = mean_interval(np.tile(values, 20))
    assert many.value - many.low < 0.95 * mean_error(np.tile(values, 20)).margin(0.95)


def test_few_clusters_that_are_all_right_leave_little_information_certain() -> None:
    rng, cluster = np.random.default_rng(9), np.repeat(np.arange(5), 30)
    r = np.repeat(rng.normal(scale=1.5, size=(5, 4)), 30, axis=0) + rng.normal(scale=0.2, size=(150, 4))
    alike, shared = rng.random((150, 1)) < 0.8, np.repeat(rng.gumbel(size=(5, 4)), 30, axis=0)
    y = (r + np.where(alike, shared, rng.gumbel(size=r.shape))).argmax(axis=1)[:, None] == np.arange(4)
    scale = Scale(Softmax.from_arrays(r.ravel(), y.ravel(), np.repeat(np.arange(150), 4)), cluster)
    high = scale.temperature_limits(0.95)[1]
    p = np.exp(r / high) / np.exp(r / high).sum(axis=1, keepdims=True)
    entropy = -(p * np.log(p)).sum(axis=1).mean()
    assert 0 < scale.usable_interval().low <= 1 - entropy / np.log(4) + 1e-9 < scale.usable


def test_prompts_that_agree_count_as_one() -> None:
    cluster = np.repeat(np.arange(20), 5)
    assert prompts_per_observation(np.ones(100), cluster) == 5
    assert prompts_per_observation(np.ones(100), None) == 1
    same = np.random.default_rng(0).random(20)[cluster]
    spread = student_quantile(0.95, 19) / student_quantile(0.95, 99)
    # n/(n − 1) of prompts and of clusters differ.
    assert prompts_per_observation(same, cluster) == pytest.approx(5 * 99 / 95 * spread**2)
    assert prompts_per_observation(np.arange(100.0) % 5, cluster) == pytest.approx(spread**2)


def test_a_cluster_with_a_bin_for_itself_counts() -> None:
    cluster, bins = np.repeat(np.arange(6), 10), np.eye(6)[np.repeat(np.arange(6), 10)]
    together = bins * np.repeat([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], 10)[:, None] / 2
    effect, freedom = design_effect(together, bins, cluster)
    assert effect > 5
    assert freedom == pytest.approx(5)
    assert design_effect(together, bins, None) == (1.0, np.inf)
    common = 0.2 + np.tile([1.0, -1.0], 30)[:, None]  # a common gap is no effect of clusters
    assert design_effect(common, np.ones((60, 1)), cluster)[0] == 1


def test_a_design_effect_from_few_clusters_differs_between_data_sets() -> None:
    rng = np.random.default_rng(0)
    assert widening((1.0, np.inf), 10, rng) is None
    drawn = widening((2.0, 10.0), 50_000, rng)
    assert drawn is not None
    assert np.mean(drawn**2) == pytest.approx(2 * 10 / 8, rel=0.03)  # the mean of effect · freedom/χ²


def test_the_interval_of_a_temperature_knows_how_few_clusters_there_are() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(100, 3))
    winner = (rewards + rng.gumbel(size=rewards.shape)).argmax(axis=1)
    model = Softmax.from_arrays(
        0.3 * rewards.ravel(), np.eye(3)[winner].ravel(), np.repeat(np.arange(100), 3)
    )
    few = Scale(model, np.repeat(np.arange(5), 20))
    spread = student_quantile(0.95, 4) / student_quantile(0.95, np.inf)
    lost = mean_error(few.lost_influence() * 100 * few.unit, few.cluster)
    root = np.sqrt(2 * few.delta)
    assert few.lost_interval().high * few.unit >= (root + lost.margin(0.95) / root) ** 2 / 2 - 1e-12
    assert few.wider_factor(0.95) == pytest.approx(few.variance_factor() * spread**2)
    assert Scale(model).wider_factor(0.95) == Scale(model).variance_factor()
