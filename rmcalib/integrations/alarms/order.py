"""The alarm about the order within prompts: it is worse than the rewards say."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.integrations.alarms.check import Check, Observed, Sums, points_over
from rmcalib.integrations.alarms.gap import gap_sums
from rmcalib.metrics.views import decided_pairs


class Order(Check):
    """Of a correct and a wrong sample of a prompt, the preferred one is correct as often as the rewards say."""

    name = "order"

    def sums(self, step: Observed) -> Sums | None:
        """Return the residuals of the pairs of a correct and a wrong sample."""
        labelled = ~np.isnan(step.samples.label)
        if step.pair_odds is None or not labelled.any():
            return None
        samples = step.samples.take(labelled)
        return pair_sums(samples.prompt, step.pair_odds[labelled], samples.label, samples.weight)

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say by how much, over what, and from how many prompts."""
        return f"the order within prompts is worse than the rewards say, by {points_over(alarm)}"


def pair_sums(prompt: IntArray, x: FloatArray, y: FloatArray, weight: FloatArray) -> Sums:
    """Return the sums of pairs of a correct and a wrong sample of a prompt; the mean of a prompt counts once.

    Stated is σ(|x_i − x_j|), observed whether the one with the larger x is correct (a tie counts 1/2). A pair has the
    geometric mean of its weights: that of the prompt if prompts were drawn whole.
    """
    order = np.argsort(prompt, kind="stable")
    prompt, x, y, weight = prompt[order], x[order], y[order], weight[order]
    left, right = decided_pairs(np.unique(prompt, return_inverse=True)[1], y)
    d = x[left] - x[right]
    sums = gap_sums(prompt[left], np.abs(d), np.heaviside(d, 0.5), np.sqrt(weight[left] * weight[right]))
    _, n_pairs = np.unique(prompt[left], return_counts=True)
    sums.values[:] /= n_pairs[:, None]
    sums.values[:, 2] /= n_pairs  # the variance of a mean falls with the number of pairs
    sums.values[:, 4] = 0.0  # a difference does not depend on the shift
    return sums
