"""How often the best of k samples is right, from m labelled samples per prompt, for every k up to m.

Draw k of a prompt's m samples at random and keep the one with the largest reward. Averaged over all subsets,
its label is b_k = Σ_r w_kr y_(r), where y_(r) is the label of the sample of rank r (0 is the largest reward, ties
are averaged) and w_kr = C(m − 1 − r, k − 1)/C(m, k). The mean over prompts is unbiased for every k ≤ m. Nothing
is known about k > m.

Whether more samples help is a question about all pairs k < l at once. `joint_level` finds the level at which the
intervals of single differences hold together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration.clusters import by_cluster, mean_error, too_few_clusters
from rmcalib.calibration.intervals import Limits, jump_interval

MOST = 32
"""Up to this many samples, every k has a value; above it, only powers of two and the largest k."""
DRAWS = 10_000
"""Draws of the largest standardised deviation."""


@dataclass(frozen=True)
class Gains:
    """How much more often the best of l samples is right than the best of k, for all pairs k < l.

    Attributes
    ----------
    fewer, more : int (P,)
        The numbers of samples, k and l.
    value : float (P,)
        B_l − B_k.
    low, high : float (P,)
        Limits that hold for all pairs at once.
    """

    fewer: IntArray
    more: IntArray
    value: FloatArray
    low: FloatArray
    high: FloatArray

    def useful_up_to(self) -> int:
        """Return the largest number of samples that is significantly better than all smaller ones; 1 if none is."""
        shown = [int(k) for k in np.unique(self.more) if (self.low[self.more == k] > 0).all()]
        return max(shown, default=1)

    def enough_at(self, allowed: float, cost: float = 0.0) -> int | None:
        """Return the smallest k after which no larger number can gain more than ``allowed`` + cost · (l − k).

        None if every k but the largest, after which nothing is known, may still gain more.
        """
        small = self.high <= allowed + cost * (self.more - self.fewer)
        return next((int(k) for k in np.unique(self.fewer) if small[self.fewer == k].all()), None)

    def over_optimised_from(self) -> int | None:
        """Return the smallest number of samples that is significantly worse than a smaller one; None if none is."""
        worse = self.more[self.high < 0]
        return int(worse.min()) if len(worse) else None


def chosen_weights(m: int, k: IntArray) -> FloatArray:
    """Return the probability that the sample of rank r (best first) is the best of k drawn out of m.

    C(m − 1 − r, k − 1) / C(m, k) for r = 0..m − 1: float (m, K) for K values of k. Columns sum to one.

    >>> chosen_weights(3, np.array([1, 2, 3])).round(3)
    array([[0.333, 0.667, 1.   ],
           [0.333, 0.333, 0.   ],
           [0.333, 0.   , 0.   ]])
    """
    rank = np.arange(m - 1)[:, None]
    # The ratio of the weights of ranks r + 1 and r: exact where logarithms of factorials would lose digits.
    ratio = np.maximum(m - k - rank, 0) / (m - 1 - rank)
    return np.cumprod(np.vstack([k / m, ratio]), axis=0)


def best_of_values(rewards: FloatArray, values: FloatArray, sizes: IntArray, k: IntArray) -> FloatArray:
    """Return the value of the best of k samples of each prompt, averaged over all subsets: (n, K).

    ``rewards`` and ``values`` (N,) belong to the samples of prompts of ``sizes`` (n,), which follow each other.
    Equal rewards are chosen with equal probability. Every size must be at least the largest k.

    >>> best_of_values(np.array([3.0, 2.0, 1.0]), np.array([0.0, 1.0, 1.0]), np.array([3]), np.array([1, 3]))
    array([[0.66666667, 0.        ]])
    """
    result = np.empty((len(sizes), len(k)))
    for m in np.unique(sizes).tolist():
        mine = sizes == m
        rows = np.repeat(mine, sizes)
        reward, value = rewards[rows].reshape(-1, m), values[rows].reshape(-1, m)
        order = np.argsort(-reward, axis=1, kind="stable")
        ranked = np.take_along_axis(reward, order, axis=1), np.take_along_axis(value, order, axis=1)
        result[mine] = averaged_over_ties(*ranked) @ chosen_weights(m, k)
    return result


def averaged_over_ties(reward: FloatArray, values: FloatArray) -> FloatArray:
    """Replace values (n, m) by their mean over equal rewards, which are in descending order."""
    new = np.ones(reward.shape, dtype=bool)
    new[:, 1:] = reward[:, 1:] != reward[:, :-1]
    group = np.cumsum(new.ravel()) - 1
    means = np.bincount(group, values.ravel()) / np.bincount(group)
    averaged: FloatArray = means[group].reshape(reward.shape)
    return averaged


def numbers_of_samples(most: int) -> IntArray:
    """Return the k that are reported: all up to `MOST`, above it powers of two and the largest."""
    return np.arange(1, most + 1) if most <= MOST else doubled(most)


def doubled(most: int) -> IntArray:
    """Return 1, 2, 4, ... and the largest number: the k that are compared with each other.

    >>> doubled(12)
    array([ 1,  2,  4,  8, 12])
    """
    return np.unique([*(2 ** np.arange(most.bit_length())), most])


def joint_level(
    values: FloatArray, cluster: IntArray | None = None, *, level: float = 0.95, seed: int = 0
) -> float:
    """Return the level of single intervals of means at which all of them hold together with ``level``.

    ``values`` (n, P) are the numbers of each prompt. With c the quantile of the largest standardised deviation
    of the P means, from a Gaussian multiplier bootstrap over prompts or clusters, it is 2Φ(c) − 1. Given the
    values, the bootstrap's deviations are normal with the correlations of the values, so these are drawn.
    Columns that do not vary are left out.

    >>> same = np.random.default_rng(0).normal(size=(50, 1)) * np.ones(3)
    >>> round(joint_level(same), 2)  # perfectly correlated: as one
    0.95
    """
    from scipy.special import ndtr

    deviation = by_cluster(values - values.mean(axis=0), cluster)
    spread = np.sqrt((deviation**2).sum(axis=0))
    varies = spread > 1e-12 * len(deviation)
    if not varies.any():
        return level
    scaled = deviation[:, varies] / spread[varies]
    # The square root of the correlation matrix; its small eigenvalues may be negative by rounding.
    eigenvalue, vector = np.linalg.eigh(scaled.T @ scaled)
    root = vector * np.sqrt(np.maximum(eigenvalue, 0.0))
    drawn = np.random.default_rng(seed).standard_normal((DRAWS, len(root))) @ root.T
    largest = np.abs(drawn).max(axis=1)
    return max(level, float(2 * ndtr(np.quantile(largest, level)) - 1))


def curve_limits(
    values: FloatArray, cluster: IntArray | None = None, *, level: float = 0.95, seed: int = 0
) -> list[Limits]:
    """Return limits of the means of values (n, K) in [0, 1], which hold for all K at once.

    If nearly all samples of all prompts are right, a prompt whose samples are wrong may have been missed; see
    `jump_interval`. NaN if there are too few clusters.
    """
    if too_few_clusters(cluster):
        return [(np.nan, np.nan)] * values.shape[1]
    single = joint_level(values, cluster, level=level, seed=seed)
    limits = []
    for column in values.T:
        mean = float(column.mean())
        if np.ptp(column) < 1e-12 and 1e-12 < mean < 1 - 1e-12:
            # One correct sample of m in every prompt fixes the mean of k = 1: there is nothing to estimate.
            limits.append((mean, mean))
            continue
        usual = np.full(len(column), float(mean > 0.5))
        low, high = jump_interval(column, usual, (1 - usual,), single, cluster)
        limits.append((max(low, 0.0), min(high, 1.0)))
    return limits


def gains_of(
    values: FloatArray,
    k: IntArray,
    sizes: IntArray,
    cluster: IntArray | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> Gains:
    """Return the differences of all pairs of columns of values (n, K) of `best_of_values`, with joint limits."""
    first, last = np.triu_indices(len(k), 1)
    moved = values[:, last] - values[:, first]
    low, high = difference_limits(moved, _largest_gains(k, sizes), cluster, level=level, seed=seed)
    return Gains(k[first], k[last], moved.mean(axis=0), low, high)


def difference_limits(
    moved: FloatArray,
    possible: FloatArray,
    cluster: IntArray | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[FloatArray, FloatArray]:
    """Return limits of the means of differences (n, P), which hold for all P at once: (P,) each.

    Where all or nearly all prompts show no difference, others may: the limits are those of `jump_interval`, with
    the largest ``possible`` difference of each prompt (n, P). They are united with symmetric ones, because
    correcting for skewness pays for one limit with the other, and both are used here. NaN if there are too few
    clusters.
    """
    single = joint_level(moved, cluster, level=level, seed=seed)
    still, mean = np.zeros(len(moved)), moved.mean(axis=0)
    low, high = np.full(len(mean), np.nan), np.full(len(mean), np.nan)
    if too_few_clusters(cluster):
        return low, high
    for i, largest in enumerate(possible.T):
        below, above = jump_interval(moved[:, i], still, (largest, -largest), single, cluster)
        margin = mean_error(moved[:, i], cluster).margin(single)
        low[i], high[i] = min(below, mean[i] - margin), max(above, mean[i] + margin)
    return low, high


def _largest_gains(k: IntArray, sizes: IntArray) -> FloatArray:
    """Return the largest possible difference of each pair of columns for each prompt: (n, P).

    b_l − b_k = Σ_r (w_lr − w_kr) y_(r) is largest if exactly the labels with positive weights are 1. As both
    weights sum to one, the smallest is its negative.
    """
    first, last = np.triu_indices(len(k), 1)
    return _of_sizes(sizes, lambda m: _positive((w := chosen_weights(m, k))[:, last] - w[:, first]))


def largest_disagreements(k: IntArray, sizes: IntArray) -> FloatArray:
    """Return how much two judges can differ in the best of k of a prompt (n, K): most if their orders are opposite."""
    return _of_sizes(sizes, lambda m: _positive((w := chosen_weights(m, k)) - w[::-1]))


def _positive(weights: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(weights, 0.0).sum(axis=0))


def _of_sizes(sizes: IntArray, function: Callable[[int], FloatArray]) -> FloatArray:
    """Return a row of numbers for each prompt, which depend on its number of samples only."""
    every, index = np.unique(sizes, return_inverse=True)
    return np.stack([function(m) for m in every.tolist()])[index]
