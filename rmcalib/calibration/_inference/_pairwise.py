"""Intervals and null tests of the calibration error of pairs of responses."""

from __future__ import annotations

from collections.abc import Iterator
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
_BLOCK = 1_000_000  # pairs in memory at a time
_KEPT = 10_000_000  # responses times sums: up to here, the sums of all pairs are kept


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
    outcomes = _PairOutcomes(sizes, logs, edges)
    observed = outcomes.observed(correct)
    total = unpack_bins(observed.sum(axis=0))
    gap = (total.outcome - total.probability) / np.maximum(total.count, 1)

    def probabilities(size: float) -> FloatArray:
        if size == 0:
            return np.exp(logs)
        odds = np.zeros(len(logs))
        for winner, other in _ordered_pairs(sizes):
            p = expit(logs[winner] - logs[other])
            shifted = np.clip(p + (size * gap)[bin_index(p, edges)], _CLIP, 1 - _CLIP)
            odds += np.bincount(winner, np.log(shifted) - np.log1p(-shifted), len(logs))
        return np.exp(segment_log_softmax(odds / np.repeat(sizes, sizes), sizes))

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

    sizes: (G,) number of responses. logs: (N,) log P(i first). edges: (B + 1,) of the bins.
    """

    sizes: IntArray
    logs: FloatArray
    edges: FloatArray

    @property
    def n_sums(self) -> int:
        return 3 * (len(self.edges) - 1)

    @cached_property
    def _whole(self) -> FeatureOutcomes:
        return FeatureOutcomes(self.sizes, self._sums(slice(0, len(self.sizes))))

    def features(self, groups: slice) -> Any:
        from scipy.sparse import csr_array

        if len(self.logs) * self.n_sums <= _KEPT:
            return self._whole.features(groups)
        return csr_array(self._sums(groups))

    def counts(self, rows: SmallInts, step: SmallInts, n_steps: int) -> FloatArray:
        return self._whole.counts(rows, step, n_steps)

    def observed(self, correct: BoolArray) -> FloatArray:
        """Return the bin sums of each group (G, 3B), given which response is the correct one (N,)."""
        sums = [self.features(part)[correct[rows_of(self.sizes, part)]].toarray() for part in parts_of(self)]
        return np.concatenate(sums)

    def _sums(self, groups: slice) -> FloatArray:
        """Bin sums of a group's pairs if row i is the correct response, for every row of groups: (N', 3B)."""
        from scipy.special import expit

        logs, bins = self.logs[rows_of(self.sizes, groups)], len(self.edges) - 1
        count, probability, outcome = np.zeros((3, len(logs) * bins))
        for winner, other in _ordered_pairs(self.sizes[groups]):
            p = expit(logs[winner] - logs[other])
            index = bin_index(p, self.edges)
            won, lost = winner * bins + index, other * bins + index  # the pair (other, winner) has outcome 0
            for cells in (won, lost):
                count += np.bincount(cells, minlength=len(count))
                probability += np.bincount(cells, p, len(count))
            outcome += np.bincount(won, minlength=len(count))
        return np.concatenate([x.reshape(len(logs), bins) for x in (count, probability, outcome)], axis=1)


def _ordered_pairs(sizes: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the rows of all ordered pairs of different rows of a group, in blocks that fit into memory."""
    repeats = np.repeat(sizes, sizes)  # how many rows the group of each row has
    start = np.repeat(np.cumsum(sizes) - sizes, sizes)
    block = np.cumsum(repeats) // _BLOCK
    for rows in np.split(np.arange(len(repeats)), np.flatnonzero(np.diff(block)) + 1):
        one = np.repeat(rows, repeats[rows])
        within = np.arange(len(one)) - np.repeat(np.cumsum(repeats[rows]) - repeats[rows], repeats[rows])
        other = np.repeat(start[rows], repeats[rows]) + within
        different = one != other
        yield one[different], other[different]
