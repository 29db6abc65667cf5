"""Intervals and null tests of the calibration error of pairs of responses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, segment_log_softmax
from rmcalib.calibration._binning import (
    ErrorOptions,
    bin_edges,
    bin_index,
    binned_error,
    unpack_bins,
)
from rmcalib.calibration._inference._binned import binned_influence, unlimited
from rmcalib.calibration._inference._estimates import Inference
from rmcalib.calibration._inference._simulation import FEWER_DRAWS, FEWER_STEPS, rare_errors, simulate
from rmcalib.calibration._nulls import sorted_rows
from rmcalib.calibration._outcomes import FeatureOutcomes, SmallInts, parts_of, rows_of

__all__ = ["pairwise_inference"]

_CLIP = 1e-9


def pairwise_inference(
    log_probability: FloatArray,
    is_correct: BoolArray,
    groups: IntArray,
    *,
    bins: int = 10,
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
) -> Inference:
    """Return the inference of the pairwise ECE, on the pairs of the correct response with each other one.

    Each pair counts in both orientations, (p, 1) and (1 − p, 0). Under the null, the correct response w of a
    group is drawn from P(i first), and its pairs change with it. They are calibrated: under Plackett-Luce,
    P(w = i | w is i or j) = p_i / (p_i + p_j) = P(i before j). Under the alternative of size s, the pairwise
    probabilities are shifted by s times the gap of their bin, and log P(w = i) is the mean of their log-odds.

    Parameters
    ----------
    log_probability : float array (N,)
        Log P(i first) of each response.
    is_correct : bool array (N,)
        True for exactly one response of each group.
    groups : int array (N,)
        Group numbers 0, ..., G − 1.
    bins : int
        Number of equal-width bins.
    resamples, rng
        As for `binned_inference`.

    Returns
    -------
    Inference

    Examples
    --------
    >>> logs, correct = np.log(np.tile([0.8, 0.1, 0.1], 20)), np.tile([False, True, False], 20)
    >>> found = pairwise_inference(logs, correct, np.repeat(np.arange(20), 3))
    >>> round(found.value, 3), found.test().p_value < 0.01
    (0.444, True)
    """
    from scipy.special import expit

    order, groups = sorted_rows(log_probability, is_correct.astype(np.float64), groups)
    logs, correct, sizes = log_probability[order], is_correct[order], np.bincount(groups)
    options = ErrorOptions(bins)
    edges = bin_edges(np.empty(0), options)
    winner, other = _ordered_pairs(sizes)
    p = expit(logs[winner] - logs[other])
    del other  # pairs are many: keep only what is needed below
    index = bin_index(p, edges)
    outcomes = _PairOutcomes(sizes, p, index, bins)
    observed = outcomes.observed(correct)
    total = unpack_bins(observed.sum(axis=0))
    gap = (total.outcome - total.probability) / np.maximum(total.count, 1)

    def probabilities(size: float) -> FloatArray:
        if size == 0:
            return np.exp(logs)
        shifted = np.clip(p + (size * gap)[index], _CLIP, 1 - _CLIP)
        odds = np.bincount(winner, np.log(shifted) - np.log1p(-shifted), len(logs)) / np.repeat(sizes, sizes)
        return np.exp(segment_log_softmax(odds, sizes))

    def errors(sums: FloatArray) -> FloatArray:
        return binned_error(unpack_bins(sums), options)

    def true_error(expected: FloatArray) -> FloatArray:
        return errors(unlimited(options) * expected)

    null, draws, truths = simulate(
        outcomes,
        probabilities,
        errors,
        true_error,
        steps=FEWER_STEPS,
        resamples=resamples,
        rng=rng,
        most=FEWER_DRAWS,
    )
    value = float(binned_error(total, options))
    rarely = rare_errors(outcomes, np.exp(logs), correct.astype(np.float64), true_error)
    return Inference(value, null, draws, truths, binned_influence(observed, options), rarely=rarely)


@dataclass(frozen=True)
class _PairOutcomes:
    """Outcomes (N,), one per response that may be the correct one. Each adds the bin sums (3B,) of its pairs.

    sizes: (G,) number of responses. p: (P,) forecast of each ordered pair of a group. index: (P,) its bin.
    """

    sizes: IntArray
    p: FloatArray
    index: IntArray
    bins: int

    @property
    def n_sums(self) -> int:
        return 3 * self.bins

    @cached_property
    def _whole(self) -> FeatureOutcomes:
        return FeatureOutcomes(self.sizes, self._sums(slice(0, len(self.sizes))))

    def features(self, groups: slice) -> Any:
        from scipy.sparse import csr_array

        return csr_array(self._sums(groups))

    def counts(self, rows: SmallInts, step: SmallInts, n_steps: int) -> FloatArray:
        return self._whole.counts(rows, step, n_steps)

    def observed(self, correct: BoolArray) -> FloatArray:
        """Return the bin sums of each group (G, 3B), given which response is the correct one (N,)."""
        sums = [self._sums(part)[correct[rows_of(self.sizes, part)]] for part in parts_of(self)]
        return np.concatenate(sums)

    def _sums(self, groups: slice) -> FloatArray:
        """Bin sums of a group's pairs if row i is the correct response, for every row of groups: (N', 3B)."""
        winner, other = _ordered_pairs(self.sizes[groups])
        pairs = rows_of(self.sizes * (self.sizes - 1), groups)
        p, index, bins = self.p[pairs], self.index[pairs], self.bins
        n = int(self.sizes[groups].sum())
        won, lost = winner * bins + index, other * bins + index  # the pair (other, winner) has outcome 0
        cells = np.concatenate([won, lost])
        sums = [
            np.bincount(cells, minlength=n * bins),
            np.bincount(cells, np.concatenate([p, p]), n * bins),
            np.bincount(won, minlength=n * bins),
        ]
        return np.concatenate([part.reshape(n, bins) for part in sums], axis=1).astype(np.float64)


def _ordered_pairs(sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of all ordered pairs of different rows of a group."""
    repeats = np.repeat(sizes, sizes)  # how many rows the group of each row has
    one = np.repeat(np.arange(len(repeats)), repeats)
    start = np.repeat(np.repeat(np.cumsum(sizes) - sizes, sizes), repeats)
    other = start + np.arange(len(one)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    different = one != other
    return one[different], other[different]
