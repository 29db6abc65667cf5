"""The alarm about the gap: the reward says more than is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib._util.display import count
from rmcalib.integrations.alarms.monitor import Observed, Sums


@dataclass(frozen=True)
class Gap:
    """The mean of (stated probability − correct) is at most the margin."""

    name: str = "gap"
    share: float = 0.5
    margin: float | None = None
    relative: bool = False
    from_start: bool = False
    sides: tuple[int, ...] = (1, -1)

    def sums(self, step: Observed) -> Sums | None:
        """Return the residuals of the labelled samples."""
        known = ~np.isnan(step.label)
        if step.log_odds is None or not known.any():
            return None
        return gap_sums(step.prompt[known], step.log_odds[known], step.label[known], step.weight[known])

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say by how much, over what, and from how many prompts."""
        what = "more" if alarm["direction"] == "above" else "less"
        return f"the reward says {what} than is right, by {points_over(alarm)}"


def points_over(alarm: dict[str, Any]) -> str:
    """Return the size of an alarm in words.

    >>> points_over({"value": 0.083, "over": "run", "prompts": 40})
    '8.3 points over the run so far, from 40 labelled prompts'
    """
    over = "the run so far" if alarm["over"] == "run" else f"the {alarm['over']}"
    size = f"{100 * abs(alarm['value']):.1f} points over {over}"
    return f"{size}, from {count(alarm['prompts'], 'labelled prompt')}"


def gap_sums(prompt: IntArray, x: FloatArray, y: FloatArray, weight: FloatArray | None = None) -> Sums:
    """Return the sums of samples with stated log-odds x and outcomes y."""
    w = np.ones(len(x)) if weight is None else weight
    p = np.asarray(expit(x))
    spread = p * (1 - p)
    return Sums.of(prompt, w * (p - y), w, w * w * spread, w * spread * x, w * spread)
