"""Sums of simulated outcomes: drawn group by group, or from their moments if there are many groups.

Up to `EXACT_GROUPS` groups, an outcome of every group is drawn in every simulated data set. With more, the
sums are nearly normal, and are drawn from the normal distribution with their exact mean and covariance. Only
groups that add to a sum with few outcomes are still drawn one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, check_integer, chunks
from rmcalib.calibration._outcomes import FeatureOutcomes, Outcomes, choose_rows, parts_of, rows_of

__all__ = ["EXACT_GROUPS", "draw_sums", "expected_sums"]

EXACT_GROUPS = 10_000
"""Up to this number of groups, an outcome of every group is drawn in every simulated data set."""
_FEW = 200  # a sum that fewer outcomes add to is never drawn as normal


def draw_sums(
    outcomes: Outcomes,
    ends: Sequence[FloatArray],
    steps: Sequence[int],
    *,
    resamples: int,
    most: int,
    rng: np.random.Generator,
    exact_groups: int = EXACT_GROUPS,
) -> tuple[FloatArray, FloatArray]:
    """Draw the sums of simulated data sets under a null and under a path of alternatives.

    Parameters
    ----------
    outcomes : Outcomes
        The A outcomes of G groups, and what each adds to q sums.
    ends : Sequence[FloatArray]
        1 + K arrays (A,): the outcomes' probabilities under the null, then at the K ends of the path.
    steps : Sequence[int]
        K numbers of steps from one end to the next: powers of 2, none larger than the one before. The
        alternatives between two ends are mixtures: each group has an outcome of one end or of the other.
    resamples : int
        R, data sets drawn under the null.
    most : int
        Data sets drawn under each alternative, at most R.
    rng : numpy Generator
        Source of randomness. The sums under the null do not depend on the alternatives.
    exact_groups : int
        The largest number of groups that are all drawn one by one.

    Returns
    -------
    null : float array (R, q)
        Sums under the null.
    drawn : float array (D, S, q)
        Sums under all S = 1 + Σ steps alternatives; the first one is the null. D is ``most``, at most R.
    """
    check_integer(resamples, "resamples", 1)
    if len(outcomes.sizes) <= exact_groups:
        return _one_by_one(outcomes, ends, steps, resamples, most, rng)
    moments, alone, features = _moments(outcomes, ends)
    null, drawn = moments.draw(steps, resamples, most, rng)
    if alone.any():
        rows = np.repeat(alone, outcomes.sizes)
        rest = FeatureOutcomes(outcomes.sizes[alone], features)
        more = _one_by_one(rest, [q[rows] for q in ends], steps, resamples, most, rng)
        null, drawn = null + more[0], drawn + more[1]
    return null, drawn


def expected_sums(outcomes: Outcomes, ends: Sequence[FloatArray]) -> FloatArray:
    """Return the expected sums (E, q) of outcomes whose probabilities (A,) are ``ends``."""
    expected = np.zeros((len(ends), outcomes.n_sums))
    for part in parts_of(outcomes):
        rows, features = rows_of(outcomes.sizes, part), outcomes.features(part)
        expected += [q[rows] @ features for q in ends]
    return expected


def _one_by_one(
    outcomes: Outcomes,
    ends: Sequence[FloatArray],
    steps: Sequence[int],
    resamples: int,
    most: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Draw an outcome of every group.

    One pass over the draws serves all alternatives: each group has a random step at which it changes from one
    end to the next.
    """
    mixer = rng.spawn(1)[0] if most else rng
    n_groups, once = len(outcomes.sizes), np.zeros((1, 1), dtype=np.int32)
    null, parts = [], []
    for part in chunks(resamples, n_groups):
        uniform = rng.random((part.stop - part.start, n_groups), dtype=np.float32)
        rows = choose_rows(uniform, ends[0], outcomes.sizes)
        null.append(outcomes.counts(rows, once, 1)[:, 0])
        kept = min(part.stop, most) - part.start
        if kept <= 0:
            continue
        mixing = mixer.random((kept, n_groups), dtype=np.float32)
        drawn, after = [null[-1][:kept, None]], None
        for n_steps, q in zip(steps, ends[1:], strict=True):
            step = (mixing * n_steps).astype(np.int32)
            if after is None:
                before = outcomes.counts(rows[:kept], step, n_steps)
            else:  # numbers of steps are powers of 2: a step here is several of those before
                before = after.reshape(kept, n_steps, -1, after.shape[-1]).sum(axis=2)
            rows = choose_rows(uniform[:kept], q, outcomes.sizes)
            after = outcomes.counts(rows, step, n_steps)
            drawn.append(before.sum(axis=1, keepdims=True) + np.cumsum(after - before, axis=1))
        parts.append(np.concatenate(drawn, axis=1))
    nothing = np.empty((0, 1 + sum(steps), null[0].shape[-1]))
    return np.concatenate(null), np.concatenate([nothing, *parts])


@dataclass(frozen=True)
class _Moments:
    """Moments of what groups add to the sums, added up over the groups, for E ends.

    Attributes
    ----------
    mean : float array (E, q)
        The mean of each feature.
    square : float array (E, q, q)
        The mean of the products of two features.
    product : float array (E, E, q, q)
        The product of the means of two features at two ends, where the second end is the first one or the
        next.
    largest : float array (q,)
        An upper bound of the sums.
    """

    mean: FloatArray
    square: FloatArray
    product: FloatArray
    largest: FloatArray

    def draw(
        self, steps: Sequence[int], resamples: int, most: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Draw normal sums with these moments; the same normal numbers serve all alternatives."""
        normal = rng.standard_normal((resamples, len(self.largest)))
        null = self._normal(normal, self.mean[0], self.square[0] - self.product[0, 0])
        path = [null[:most]]
        for a, n_steps in enumerate(steps):
            b = a + 1
            for w in np.arange(1, n_steps + 1) / n_steps:
                product = (1 - w) ** 2 * self.product[a, a] + w**2 * self.product[b, b]
                product += w * (1 - w) * (self.product[a, b] + self.product[a, b].T)
                mean, square = ((1 - w) * x[a] + w * x[b] for x in (self.mean, self.square))
                path.append(self._normal(normal[:most], mean, square - product))
        return null, np.stack(path, axis=1)

    def _normal(self, normal: FloatArray, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        return np.clip(mean + normal @ root, 0.0, self.largest)


def _moments(outcomes: Outcomes, ends: Sequence[FloatArray]) -> tuple[_Moments, BoolArray, Any]:
    """Return the moments of most groups, which groups (G,) must be drawn one by one, and their features.

    These are the groups with an outcome that adds to a sum of few outcomes.
    """
    from scipy.sparse import csr_array, diags_array, vstack

    width, sizes = outcomes.n_sums, outcomes.sizes
    entries = np.zeros(width)
    for part in parts_of(outcomes):
        entries += np.bincount(outcomes.features(part).indices, minlength=width)
    mean, square = np.zeros((len(ends), width)), np.zeros((len(ends), width, width))
    product = np.zeros((len(ends), len(ends), width, width))
    largest, alone, rest = np.zeros(width), np.zeros(len(sizes), dtype=bool), []
    for part in parts_of(outcomes):
        rows, features = rows_of(sizes, part), outcomes.features(part)
        starts = np.concatenate([[0], np.cumsum(sizes[part])])
        alone[part] = np.add.reduceat(features @ (entries < _FEW).astype(np.float64), starts[:-1]) > 0
        own = np.repeat(alone[part], sizes[part])
        rest.append(features[own])
        largest += features[~own].sum(axis=0)
        before = None
        for end, probabilities in enumerate(ends):
            q = np.where(own, 0.0, probabilities[rows])
            square[end] += (features.T @ diags_array(q) @ features).toarray()
            by_group = csr_array((q, np.arange(len(q)), starts), shape=(len(starts) - 1, len(q)))
            means = (by_group @ features).toarray()
            mean[end] += means.sum(axis=0)
            product[end, end] += means.T @ means
            if before is not None:
                product[end - 1, end] += before.T @ means
            before = means
    return _Moments(mean, square, product, largest), alone, vstack(rest, format="csr")
