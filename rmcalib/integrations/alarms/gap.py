"""The alarm about the gap: the reward says more than is right."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.integrations.alarms.check import Check, Observed, Sums, points_over


class Gap(Check):
    """The mean of (stated probability − correct) is at most the margin."""

    name = "gap"
    sides = (1, -1)

    def sums(self, step: Observed) -> Sums | None:
        """Return the residuals of the labelled samples."""
        labelled = ~np.isnan(step.samples.label)
        if step.log_odds is None or not labelled.any():
            return None
        samples = step.samples.take(labelled)
        return gap_sums(samples.prompt, step.log_odds[labelled], samples.label, samples.weight)

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say by how much, over what, and from how many prompts."""
        what = "more" if alarm["direction"] == "above" else "less"
        return f"the reward says {what} than is right, by {points_over(alarm)}"


def gap_sums(prompt: IntArray, x: FloatArray, y: FloatArray, weight: FloatArray | None = None) -> Sums:
    """Return the sums of samples with stated log-odds x and outcomes y."""
    w = np.ones(len(x)) if weight is None else weight
    p = np.asarray(expit(x))
    spread = p * (1 - p)
    return Sums.of(prompt, w * (p - y), w, w * w * spread, w * spread * x, w * spread)
