"""Proper scores: Brier and log score, of yes/no forecasts or of one-of-many forecasts."""

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_groups
from rmcalib.calibration._ece import as_forecast

__all__ = ["brier_score", "check_one_per_group", "log_score"]


def brier_score(probabilities: ArrayLike, outcomes: ArrayLike, *, groups: ArrayLike | None = None) -> float:
    """Return the Brier score: the mean of (p − y)², or with ``groups`` the mean of its sum over a group.

    With groups, a group's rows are the alternatives of one question and the score is the multi-class one.

    >>> brier_score([0.75, 0.25], [1, 0])
    0.0625
    >>> brier_score([0.75, 0.25], [1, 0], groups=[0, 0])
    0.125
    """
    p, y = as_forecast(probabilities, outcomes)
    index = as_groups(groups, len(p))
    return float(((p - y) ** 2).sum() / (index.max() + 1))


def log_score(probabilities: ArrayLike, outcomes: ArrayLike, *, groups: ArrayLike | None = None) -> float:
    """Return the mean negative log-likelihood of yes/no outcomes, or with ``groups`` of what happened.

    With groups, exactly one row of each group has outcome 1. An outcome that was given probability 0 makes
    the score infinite, as it should.

    >>> round(log_score([0.5, 0.5], [1, 0]), 4)
    0.6931
    >>> round(log_score([0.8, 0.2], [1, 0], groups=["a", "a"]), 4)
    0.2231
    """
    p, y = as_forecast(probabilities, outcomes)
    if groups is not None:
        check_one_per_group(y, as_groups(groups, len(p)))
        likelihood = p[y == 1]
    else:
        likelihood = np.where(y == 1, p, 1 - p)
    with np.errstate(divide="ignore"):
        return float(-np.log(likelihood).mean() + 0.0)


def check_one_per_group(outcomes: FloatArray, groups: IntArray) -> None:
    """Raise a ValueError unless exactly one outcome of each group happened.

    >>> check_one_per_group(np.array([1.0, 1.0]), np.array([0, 0]))
    Traceback (most recent call last):
    ...
    ValueError: outcomes: group number 0 has 2 outcomes of 1, expected exactly one
    """
    happened = np.bincount(groups, outcomes)
    bad = happened != 1
    if bad.any():
        group = int(np.argmax(bad))
        raise ValueError(
            f"outcomes: group number {group} has {int(happened[group])} outcomes of 1, expected exactly one"
        )
