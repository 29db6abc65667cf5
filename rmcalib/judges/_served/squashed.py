"""Detect numbers that are not raw rewards.

Servers of classifiers often return probabilities (a sigmoid or a softmax of the reward) or an embedding of
length one. Calibration cannot be measured from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["why_squashed"]

_MANY = 8  # with fewer rewards, all may lie between 0 and 1 by chance


def why_squashed(rewards: Sequence[float], *, bounded_is_fine: bool = False) -> str | None:
    """Return why some rewards of different texts cannot be raw; None if they can be.

    Parameters
    ----------
    rewards : Sequence[float]
        At least two rewards.
    bounded_is_fine : bool
        The model's raw rewards may all lie between 0 and 1.

    Examples
    --------
    >>> why_squashed([1.0, 1.0, 1.0])
    'every reward is 1: the softmax of a single number'
    >>> why_squashed([1.0, -1.0, 1.0])
    'every reward is 1 or -1: an embedding that was scaled to length one'
    >>> why_squashed([0.2, 0.9, 0.4, 0.8, 0.1, 0.7, 0.6, 0.5])
    'all 8 rewards lie between 0 and 1, as after a sigmoid'
    >>> why_squashed([0.2, 0.9, 0.4, 0.8, 0.1, 0.7, 0.6, -3.0]) is None
    True
    """
    values = np.asarray(rewards, dtype=np.float64)
    if len(values) < 2:
        return None
    if np.allclose(values, 1.0, rtol=0, atol=1e-6):
        return "every reward is 1: the softmax of a single number"
    if np.allclose(np.abs(values), 1.0, rtol=0, atol=1e-6):
        return "every reward is 1 or -1: an embedding that was scaled to length one"
    if np.ptp(values) == 0:
        return f"different texts all have the reward {values[0]:g}"
    if not bounded_is_fine and len(values) >= _MANY and values.min() >= 0 and values.max() <= 1:
        return f"all {len(values)} rewards lie between 0 and 1, as after a sigmoid"
    return None
