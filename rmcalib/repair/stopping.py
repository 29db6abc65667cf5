"""When to accept the best of n samples, and when to stop drawing: exact averages over the order of drawing.

Both rules need P(correct) of single samples. `best`: draw n, and accept the one with the largest reward if its
probability is at least t. `first`: draw until a sample's probability is at least t, at most n times. Both accept the
same prompts, those with such a sample among n, but not the same sample. A prompt that is not accepted goes to a
person. With m labelled samples per prompt and a of them at or above t, all subsets and orders are averaged: a prompt is
accepted with probability 1 − C(m − a, n)/C(m, n), and takes Σ_{j<n} C(m − a, j)/C(m, j) samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration.best_of import averaged_over_ties, chosen_weights

Rule = Literal["best", "first"]
RULES: tuple[Rule, ...] = ("best", "first")


@dataclass(frozen=True)
class Drawn:
    """What a rule does with each prompt at each threshold, on average over orders: (prompts, thresholds) each.

    Attributes
    ----------
    accepted : float
        The probability that the prompt is accepted.
    wrong : float
        The probability that it is accepted, and wrong.
    samples : float
        How many samples are drawn.
    """

    accepted: FloatArray
    wrong: FloatArray
    samples: FloatArray


def drawn(
    odds: FloatArray, label: FloatArray, sizes: IntArray, n: int, thresholds: FloatArray, rule: Rule
) -> Drawn:
    """Return what a rule does with the samples of prompts of ``sizes``, which follow each other.

    ``odds`` (N,) are their log-odds of being correct, ``label`` (N,) whether they are, ``thresholds`` are log-odds in
    descending order. Every size must be at least n.
    """
    shape = len(sizes), len(thresholds)
    outcome = Drawn(np.empty(shape), np.empty(shape), np.empty(shape))
    for m in np.unique(sizes).tolist():
        mine = sizes == m
        rows = np.repeat(mine, sizes)
        ordered, wrong = odds[rows].reshape(-1, m), 1 - label[rows].reshape(-1, m)
        order = np.argsort(-ordered, axis=1, kind="stable")
        ordered, wrong = np.take_along_axis(ordered, order, axis=1), np.take_along_axis(wrong, order, axis=1)
        reach = np.stack([np.searchsorted(-row, -thresholds, side="right") for row in ordered])
        weight = chosen_weights(m, np.array([n]))[:, 0]
        outcome.accepted[mine] = np.concatenate([[0.0], np.cumsum(weight)])[reach]
        if rule == "best":
            errors = np.cumsum(np.pad(averaged_over_ties(ordered, wrong) * weight, ((0, 0), (1, 0))), axis=1)
            outcome.wrong[mine] = np.take_along_axis(errors, reach, axis=1)
            outcome.samples[mine] = n
        else:
            errors = np.cumsum(np.pad(wrong, ((0, 0), (1, 0))), axis=1)
            share = np.take_along_axis(errors, reach, axis=1) / np.maximum(reach, 1)
            outcome.wrong[mine] = outcome.accepted[mine] * share
            outcome.samples[mine] = _expected_draws(m, n)[reach]
    return outcome


def _expected_draws(m: int, n: int) -> FloatArray:
    """Return how many of m samples are drawn until one of a good ones appears, at most n: for a = 0..m.

    >>> _expected_draws(2, 2)
    array([2. , 1.5, 1. ])
    """
    good = np.arange(m + 1)[:, None]
    # P(none of the first j is good) is the product of (m − a − i)/(m − i) over i < j.
    missed = np.maximum(m - good - np.arange(n - 1), 0) / (m - np.arange(n - 1))
    return 1 + np.cumprod(missed, axis=1).sum(axis=1)
