"""Best-of-k: how often the choice among k responses is correct, and how probable the judge says it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import mean_interval
from rmcalib.metrics import Forecasts, select_prompts

__all__ = ["best_of_rows", "chosen_weights"]

MOST = 32
"""Up to this many responses, every k is reported; above it, only powers of two and the largest k."""


def best_of_rows(part: Forecasts, level: float = 0.95) -> list[dict[str, Any]]:
    """Return how often the best of k responses is correct, and the judge's probability of it, for k = 1..m.

    The k responses are drawn at random from the m of a prompt, and the one with the largest reward is chosen.
    Both numbers are exact averages over all subsets. "says" is the mean probability of the chosen response
    among all m. Only prompts with the most common number of responses are used.

    Parameters
    ----------
    part : Forecasts
        Forecasts of prompts with one correct response each.
    level : float
        Confidence level of the intervals.

    Returns
    -------
    list of dict
        k, n (prompts), right with low and high, says.

    Examples
    --------
    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
    >>> rewards = [[np.log(3.0), 0.0], [0.0, np.log(3.0)], [np.log(3.0), 0.0]]
    >>> [(row["k"], round(row["right"], 3), round(row["says"], 3))
    ...  for row in best_of_rows(forecast(Scores.from_arrays(rewards)))]
    [(1, 0.5, 0.5), (2, 0.667, 0.75)]
    """
    sizes, counts = np.unique(part.sizes, return_counts=True)
    m = int(sizes[np.argmax(counts)])
    own = select_prompts(part, part.sizes == m)
    shape = (len(own), m)
    reward, p = own.reward.reshape(shape), own.probability.reshape(shape)
    correct = own.is_correct.reshape(shape).astype(np.float64)
    order = np.argsort(-reward, axis=1, kind="stable")
    ranked_reward, ranked_p, ranked_correct = (
        np.take_along_axis(values, order, axis=1) for values in (reward, p, correct)
    )
    numbers = np.arange(1, m + 1) if m <= MOST else np.unique([*(2 ** np.arange(m.bit_length())), m])
    weights = chosen_weights(m, numbers)
    right = _averaged_over_ties(ranked_reward, ranked_correct) @ weights
    says = (ranked_p @ weights).mean(axis=0)
    rows = []
    for i, k in enumerate(numbers):
        found = mean_interval(right[:, i], level=level)
        limits = {"low": max(found.low, 0.0), "high": min(found.high, 1.0)}
        rows.append({"k": int(k), "n": len(own), "right": found.value, **limits, "says": float(says[i])})
    return rows


def chosen_weights(m: int, k: IntArray) -> FloatArray:
    """Return the probability that the response of rank r (best first) is the best of k drawn out of m.

    C(m − 1 − r, k − 1) / C(m, k) for r = 0..m − 1: float (m, K) for K values of k. Columns sum to one.

    >>> chosen_weights(3, np.array([1, 2, 3])).round(3)
    array([[0.333, 0.667, 1.   ],
           [0.333, 0.333, 0.   ],
           [0.333, 0.   , 0.   ]])
    """
    from scipy.special import gammaln

    below = np.arange(m - 1, -1, -1)[:, None]
    possible = below >= k - 1
    left = np.where(possible, below - (k - 1), 0)
    logs = (gammaln(below + 1) - gammaln(left + 1)) - (gammaln(m + 1) - gammaln(m - k + 1)) + np.log(k)
    return np.where(possible, np.exp(logs), 0.0)


def _averaged_over_ties(reward: FloatArray, values: FloatArray) -> FloatArray:
    """Replace values (n, m) by their mean over equal rewards, which are in descending order."""
    new = np.ones(reward.shape, dtype=bool)
    new[:, 1:] = reward[:, 1:] != reward[:, :-1]
    group = np.cumsum(new.ravel()) - 1
    means = np.bincount(group, values.ravel()) / np.bincount(group)
    averaged: FloatArray = means[group].reshape(reward.shape)
    return averaged
