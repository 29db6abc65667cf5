"""Intervals that allow for errors which a sample shows rarely, or not at all.

If every choice among n prompts is right, the spread of the losses says nothing about wrong choices, although
3 of n may be wrong. So a value is split into what it would be if the choice were right, and the jump to what
it is if the choice is wrong. How often it jumps has an exact interval. How far it would jump where no jump
was seen is known from the forecast: the runner-up would have been the correct response.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, first_and_next
from rmcalib.calibration._intervals import clopper_pearson, skew_interval

__all__ = ["frequency_distances", "jump_interval", "outcome_limits"]


def jump_interval(
    values: FloatArray, base: FloatArray, others: Sequence[FloatArray], level: float = 0.95
) -> tuple[float, float]:
    """Return the interval of the mean of values that jump where a choice is wrong.

    A value is its ``base`` plus a jump: v_i = b_i + j_i. Let k of the n jumps be positive, [l, u] the exact
    interval of their frequency k/n, and J the mean of these k jumps and of one more: the mean of the largest
    possible jumps of the prompts that did not jump, from ``base`` to one of ``others``. The mean jump may
    then be larger by (u − k/n) J, or smaller by (k/n − l) times the mean of the k jumps. Negative jumps are
    treated alike. These distances y and those of `skew_interval` of the base, x, are combined as
    √(x² + y² + 2ρxy), where ρ is the correlation of base and jump (Zou and Donner 2008). The result is united
    with `skew_interval` of the values, which knows how much the jumps differ from each other.

    Parameters
    ----------
    values : float array (n,)
        One number per prompt.
    base : float array (n,)
        What it would be if the choice were right.
    others : Sequence[FloatArray]
        What it would be otherwise: arrays (n,).
    level : float
        Confidence level.

    Returns
    -------
    low, high : float
        The limits.

    Examples
    --------
    >>> low, high = jump_interval(np.zeros(100), np.zeros(100), [np.ones(100)])  # 0 of 100 choices are wrong
    >>> low, round(high, 3)
    (0.0, 0.036)
    """
    jump, possible = values - base, np.stack([base, *others]) - base
    more_up, fewer_up = frequency_distances(jump, possible.max(axis=0), level)
    more_down, fewer_down = frequency_distances(-jump, -possible.min(axis=0), level)
    low, high = skew_interval(base, level)
    below, above = float(base.mean()) - low, high - float(base.mean())
    spread = float(base.std() * jump.std())
    rho = float(((base - base.mean()) * (jump - jump.mean())).mean()) / spread if spread > 0 else 0.0
    mean, (low, high) = float(values.mean()), skew_interval(values, level)
    low = min(low, mean - _combined(below, float(np.hypot(more_down, fewer_up)), rho))
    high = max(high, mean + _combined(above, float(np.hypot(more_up, fewer_down)), rho))
    return low, high


def frequency_distances(jump: FloatArray, possible: FloatArray, level: float) -> tuple[float, float]:
    """Return how much larger and smaller the mean of the positive jumps may be, given an exact frequency.

    ``jump`` (n,) are the jumps; ``possible`` (n,) has those of the other prompts. See `jump_interval`.

    >>> more, fewer = frequency_distances(np.zeros(100), np.full(100, 2.0), 0.95)
    >>> round(more, 3), fewer
    (0.072, 0.0)
    """
    n, seen = len(jump), jump > 1e-12
    k, total = int(seen.sum()), float(jump[seen].sum())
    low, high = clopper_pearson(k, n, level)
    unseen = float(possible[~seen].mean()) if k < n else 0.0
    return (high - k / n) * (total + unseen) / (k + 1), (k / n - low) * total / max(k, 1)


def outcome_limits(
    probability: FloatArray, happened: FloatArray, sizes: IntArray, level: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Return outcome shares (N,) with as few and as many wrong choices as their exact interval allows.

    ``probability`` (N,) of the outcomes of groups of ``sizes`` (G,), and ``happened`` (N,): 1 for one outcome
    of each group. A choice is wrong if a less probable outcome happened than the most probable one. Let k be
    wrong, and [l, u] the interval of their frequency. With fewer errors, k − lG of the wrong ones are right
    instead. With more, uG − k are wrong in addition, in k + 1 equal parts: one for each wrong choice, which
    counts more than once, and one for all right ones, where the runner-up happens instead. Mean losses then
    differ from the observed one by the distances of `frequency_distances`.

    >>> p, happened = np.array([0.9, 0.1] * 100), np.array([1.0, 0.0] * 100)
    >>> [shares[:2].round(4).tolist() for shares in outcome_limits(p, happened, np.full(100, 2))]
    [[1.0, 0.0], [0.9638, 0.0362]]
    """
    first, second = first_and_next(probability, sizes)
    n, row = len(sizes), np.flatnonzero(happened)
    wrong = probability[row] < probability[first]
    movable = ~wrong & (first != second)
    k, n_movable = int(wrong.sum()), max(int(movable.sum()), 1)
    low, high = clopper_pearson(k, n, level)
    fewer, more, part = happened.copy(), happened.copy(), (n * high - k) / (k + 1)
    for shares, change in ((fewer, (n * low - k) / max(k, 1)), (more, part)):
        shares[row[wrong]] += change
        shares[first[wrong]] -= change
    more[second[movable]] += part / n_movable
    more[row[movable]] -= part / n_movable
    return fewer, more


def _combined(x: float, y: float, rho: float) -> float:
    return float(np.sqrt(max(x**2 + y**2 + 2 * rho * x * y, 0.0)))
