"""Confidence sets of ranks: which models are surely better than which, when all pairs are looked at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmcalib._util.arrays import FloatArray, chunks


def rank_sets(
    values: Sequence[float],
    influences: Sequence[FloatArray],
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> list[tuple[int, int]]:
    """Return for each model the ranks that it may have: [1 + number surely better, M − number surely worse].

    Larger values are better. ``influences`` (M of (n,)) are what each prompt contributes to the deviation of
    a value. A model is surely better if the difference is larger than the 95% point of the largest of all
    standardised differences, from a multiplier bootstrap over prompts (Mogstad et al. 2024).
    """
    value, influence = np.asarray(values, dtype=np.float64), np.array(influences)
    n_models, n = influence.shape
    if n_models < 2 or n < 2:
        return [(1, n_models)] * n_models
    one, other = np.triu_indices(n_models, 1)
    covariance = influence @ influence.T * n / (n - 1)
    variance = np.diag(covariance)
    spread = np.sqrt(np.maximum(variance[one] + variance[other] - 2 * covariance[one, other], 0.0))
    known = spread > 1e-12 * max(float(np.sqrt(variance.max())), 1e-300)
    rng, largest = np.random.default_rng(seed), []
    for part in chunks(resamples, max(n, len(one))):
        moved = rng.standard_normal((part.stop - part.start, n)) @ influence.T
        ratio = np.abs(moved[:, one] - moved[:, other])[:, known] / spread[known]
        largest.append(ratio.max(axis=1) if known.any() else np.zeros(len(moved)))
    limit = float(np.quantile(np.concatenate(largest), level))
    difference = value[one] - value[other]
    surely = np.where(known, np.abs(difference) > limit * spread, np.abs(difference) > 1e-12)
    above, below = np.zeros(n_models, dtype=np.int64), np.zeros(n_models, dtype=np.int64)
    np.add.at(above, one[surely & (difference < 0)], 1)
    np.add.at(above, other[surely & (difference > 0)], 1)
    np.add.at(below, one[surely & (difference > 0)], 1)
    np.add.at(below, other[surely & (difference < 0)], 1)
    return [(1 + int(up), n_models - int(down)) for up, down in zip(above, below, strict=True)]
