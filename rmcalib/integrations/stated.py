"""What the rewards of a run state about single samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import FloatArray, check_choice
from rmcalib.scores._meaning import SCALES
from rmcalib.scores.scale import Scale, refusal

OTHER_SCALE = "assumed, but the first labels show another scale"
"""The reason after rewards that were taken as log-odds turned out to be none."""
_EDGE = 1e-8  # smallest distance of a stated probability from 0 and 1


@dataclass(frozen=True)
class Reading:
    """How the rewards of a run are read.

    Attributes
    ----------
    kind : str
        One of `rmcalib.scores._meaning.SCALES`; empty before the first step.
    reason : str
        Why the rewards are read in this way, or why they state nothing.
    states : bool
        Whether a reward states the probability that its sample is correct.
    asked : bool
        Whether the user said so, or the first labels agree.
    """

    kind: str = ""
    reason: str = ""
    states: bool = True
    asked: bool = False

    @classmethod
    def of(cls, scale: str | None) -> Reading:
        """Return the reading that the user asks for, or the one before the first step."""
        if scale is None:
            return cls()
        check_choice(scale, "scale", SCALES)
        if scale == "reward":
            return cls("log_odds", "assumed", asked=True)
        if scale in ("probability", "logprob"):
            return cls(scale, "as you said", asked=True)
        meant = Scale("utility" if scale == "logit" else scale, "as you said")  # type: ignore[arg-type]
        why = refusal(meant, "correct", "pointwise")
        return cls(scale, why or "as you said", why is None, asked=True)

    def rewards(self, numbers: FloatArray) -> FloatArray:
        """Return rewards; those of probabilities are their log-odds."""
        if self.kind == "logprob":
            numbers = np.exp(numbers)
        if self.kind not in ("probability", "logprob", "logit"):
            return numbers
        p = np.clip(numbers, _EDGE, 1 - _EDGE)
        return np.asarray(np.log(p) - np.log1p(-p))


def read_numbers(numbers: FloatArray, before: Reading) -> Reading:
    """Return how rewards are read, by those of a new step and what was known before it.

    >>> read_numbers(np.array([0.25, 1.0]), Reading()).kind, read_numbers(np.array([0.25, 2.0]), Reading()).kind
    ('probability', 'log_odds')
    >>> read_numbers(np.array([0.0, 1.0]), Reading()).states
    False
    """
    low, high = (float(numbers.min()), float(numbers.max()))
    if before.asked:
        if before.kind in ("probability", "logit") and (low < 0 or high > 1):
            worst = low if low < 0 else high
            raise ValueError(f"scale: {before.kind} needs numbers from 0 to 1, but one is {worst:g}")
        if before.kind == "logprob" and high > 1e-6:
            raise ValueError(f"scale: {high:g} is above 0, so it cannot be a log-probability")
        return before
    if before.kind == "log_odds":
        return before
    if low < 0 or high > 1:
        return Reading("log_odds", "assumed: give a calibrator, or the scale, if they are anything else")
    if before.kind == "probability" or ((numbers > 0) & (numbers < 1)).any():
        return Reading("probability", "all numbers are from 0 to 1")
    return Reading("none", "its rewards are only 0 and 1, which state no probability", states=False)
