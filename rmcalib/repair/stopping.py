"""When to accept the best of n samples, and when to stop drawing: exact averages over the order of drawing.

Both rules need P(correct) of single samples. `best`: draw n, and accept the one with the largest reward if its
probability is at least t. `first`: draw until a sample's probability is at least t, at most n times. Both accept the
same prompts, those with such a sample among n, but not the same sample. A prompt that is not accepted goes to a
person. With m labelled samples per prompt, of which a reach t, all subsets and orders are averaged: a prompt is
accepted with probability 1 − C(m − a, n)/C(m, n), and takes Σ_{j<n} C(m − a, j)/C(m, j) samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration.best_of import averaged_over_ties, chosen_weights, doubled
from rmcalib.calibration.clusters import prompts_per_observation
from rmcalib.repair.decisions import (
    ALL_SHARE,
    THRESHOLDS,
    _cluster_size,
    _fewest,
    _first_size,
    _upper,
    log_odds,
)

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
    found = Drawn(np.empty(shape), np.empty(shape), np.empty(shape))
    for m in np.unique(sizes).tolist():
        mine = sizes == m
        rows = np.repeat(mine, sizes)
        own, wrong = odds[rows].reshape(-1, m), 1 - label[rows].reshape(-1, m)
        order = np.argsort(-own, axis=1, kind="stable")
        own, wrong = np.take_along_axis(own, order, axis=1), np.take_along_axis(wrong, order, axis=1)
        reach = np.stack([np.searchsorted(-row, -thresholds, side="right") for row in own])
        weight = chosen_weights(m, np.array([n]))[:, 0]
        found.accepted[mine] = np.concatenate([[0.0], np.cumsum(weight)])[reach]
        if rule == "best":
            errors = np.cumsum(np.pad(averaged_over_ties(own, wrong) * weight, ((0, 0), (1, 0))), axis=1)
            found.wrong[mine] = np.take_along_axis(errors, reach, axis=1)
            found.samples[mine] = n
        else:
            errors = np.cumsum(np.pad(wrong, ((0, 0), (1, 0))), axis=1)
            share = np.take_along_axis(errors, reach, axis=1) / np.maximum(reach, 1)
            found.wrong[mine] = found.accepted[mine] * share
            found.samples[mine] = _expected_draws(m, n)[reach]
    return found


def _expected_draws(m: int, n: int) -> FloatArray:
    """Return how many of m samples are drawn until one of a good ones appears, at most n: for a = 0..m.

    >>> _expected_draws(2, 2)
    array([2. , 1.5, 1. ])
    """
    good = np.arange(m + 1)[:, None]
    # P(none of the first j is good) is the product of (m − a − i)/(m − i) over i < j.
    missed = np.maximum(m - good - np.arange(n - 1), 0) / (m - np.arange(n - 1))
    return 1 + np.cumprod(missed, axis=1).sum(axis=1)


def safe_stop(
    found: Drawn,
    thresholds: FloatArray,
    *,
    alpha: float,
    level: float = 0.95,
    cluster: IntArray | None = None,
) -> tuple[int | None, FloatArray]:
    """Return the place of the lowest threshold that passes the sequence of tests (None: none does), and all bounds.

    It is the test of `safe_threshold`. Averages over orders vary less than the outcome of one order, so its binomial
    bounds hold.
    """
    accepted, wrong = found.accepted.sum(axis=0), found.wrong.sum(axis=0)
    n = len(found.accepted)
    rate = np.divide(wrong, accepted, out=np.zeros(len(accepted)), where=accepted > 0)
    alike = np.ones(len(thresholds))
    if cluster is not None:
        residual = found.wrong - rate * found.accepted
        alike = np.array([prompts_per_observation(column, cluster, 2 * level - 1) for column in residual.T])
        alike = np.maximum(alike, _cluster_size(cluster))
    everything = 1 - ALL_SHARE * (1 - level)
    if _upper(wrong[-1] / alike[-1], accepted[-1] / alike[-1], everything) <= alpha:
        return len(thresholds) - 1, _upper(wrong / alike, accepted / alike, everything)
    level = 1 - (1 - ALL_SHARE) * (1 - level)
    high = np.where(
        accepted >= _fewest(alpha, level) * alike, _upper(wrong / alike, accepted / alike, level), 1.0
    )
    first = _first_size(int(n / alike[-1]), alpha, level) * alike[-1]
    start = int(np.argmax(accepted >= first))
    failed = np.flatnonzero(high[start:] > alpha)
    last = start + (int(failed[0]) if len(failed) else len(high) - start) - 1
    return (None if last < start else last), high


def drawing_rows(
    odds: FloatArray,
    label: FloatArray,
    sizes: IntArray,
    cluster: IntArray | None = None,
    *,
    alpha: float,
    level: float = 0.95,
    ask_cost: float,
    sample_cost: float = 0.0,
) -> list[dict[str, Any]]:
    """Return one row per number of samples n = 1, 2, 4, ... and rule: its safe threshold, and what it costs.

    Rows have n, rule, threshold (a probability; None: nothing can be accepted), accepted, wrong (of the accepted),
    high (its bound), samples (drawn per prompt) and cost: a wrong answer costs 1, asking a person ``ask_cost``, a
    sample ``sample_cost``. If nothing can be accepted, a person is asked without drawing. The guarantee holds for
    each row alone. Prompts with fewer samples than the largest n must have been left out.
    """
    with np.errstate(divide="ignore"):  # the last threshold is 0
        thresholds = log_odds(np.log(np.array(THRESHOLDS)))
    rows = []
    for n in doubled(int(sizes.min())).tolist():
        for rule in RULES[: 1 if n == 1 else None]:
            found = drawn(odds, label, sizes, n, thresholds, rule)
            place, high = safe_stop(found, thresholds, alpha=alpha, level=level, cluster=cluster)
            row: dict[str, Any] = {"n": n, "rule": rule, "threshold": None, "accepted": 0.0, "wrong": None}
            row |= {"high": None, "samples": 0.0, "cost": ask_cost}
            if place is not None:
                accepted, wrong, samples = (
                    float(values[:, place].mean()) for values in (found.accepted, found.wrong, found.samples)
                )
                row |= {"threshold": THRESHOLDS[place], "accepted": accepted, "wrong": wrong / accepted}
                row |= {"high": float(high[place]), "samples": samples}
                row["cost"] = wrong + ask_cost * (1 - accepted) + sample_cost * samples
            rows.append(row)
    return rows
