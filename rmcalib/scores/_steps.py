"""Process reward models: combine the scores of the steps of a response into one reward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_choice

__all__ = ["STEPS", "step_rewards"]

_EDGE = 1e-8  # smallest distance of a probability from 0 and 1; float32 rounds 1 - 1e-8 to 1


def step_rewards(values: FloatArray, counts: IntArray, steps: str = "product") -> tuple[FloatArray, bool]:
    """Return one reward per response from the scores of its steps.

    If all step scores are from 0 to 1, they are probabilities that a step is correct. They are combined into
    a probability p that the response is correct, and the reward is its log-odds, log p − log(1 − p). If
    exactly one response of a prompt is correct, and the responses are independent, the softmax of these
    rewards is the probability that it is this one. Other step scores are combined without a transformation.

    Parameters
    ----------
    values : float (S,)
        The steps' scores, response after response.
    counts : int (N,)
        The number of steps of each response, at least 1.
    steps : str
        How to combine them, one of ``STEPS``.

    Returns
    -------
    rewards : float array (N,)
        The rewards.
    probabilities : bool
        Whether the step scores were probabilities.

    Examples
    --------
    >>> rewards, _ = step_rewards(np.array([0.5, 0.5, 0.25]), np.array([2, 1]), "product")
    >>> rewards.round(4)  # both are 0.25
    array([-1.0986, -1.0986])
    """
    check_choice(steps, "steps", STEPS)
    starts = np.cumsum(counts) - counts
    if not ((values >= 0) & (values <= 1)).all():
        if steps in ("product", "geometric_mean"):
            others = [name for name in STEPS if name not in ("product", "geometric_mean")]
            raise ValueError(
                f"steps: {steps} needs scores from 0 to 1, but one is "
                f"{values[(values < 0) | (values > 1)][0]:g}: use {', '.join(others)}"
            )
        return _COMBINED[steps](values, starts, counts), False
    p = np.clip(values, _EDGE, 1 - _EDGE)
    if steps in ("product", "geometric_mean"):
        logs = np.add.reduceat(np.log(p), starts)
        logs = logs / counts if steps == "geometric_mean" else logs
    else:
        logs = np.log(_COMBINED[steps](p, starts, counts))
    rewards: FloatArray = logs - np.log(-np.expm1(logs))
    return rewards, True


def _lowest(values: FloatArray, starts: IntArray, counts: IntArray) -> FloatArray:  # noqa: ARG001
    lowest: FloatArray = np.minimum.reduceat(values, starts)
    return lowest


def _last(values: FloatArray, starts: IntArray, counts: IntArray) -> FloatArray:
    return values[starts + counts - 1]


def _mean(values: FloatArray, starts: IntArray, counts: IntArray) -> FloatArray:
    means: FloatArray = np.add.reduceat(values, starts) / counts
    return means


_COMBINED: dict[str, Callable[..., Any]] = {"min": _lowest, "last": _last, "mean": _mean}
STEPS = ("product", "min", "last", "mean", "geometric_mean")
"""Ways to combine the step scores of a response: the values of ``steps``."""
