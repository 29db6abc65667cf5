"""How labelled prompts stand for all prompts: how many there are, how they were drawn, whether they look alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from rmcalib._util.arrays import FloatArray
from rmcalib.metrics.views import Part

UNLIKE = 3.0
"""Labelled prompts are unlike the others if their mean confidence is this many standard errors away."""


def labelled_facts(whole: Part) -> dict[str, Any] | None:
    """Return how labelled prompts stand for all of these; None if all are labelled.

    n, of : numbers of labelled and of all prompts. drawn : "at random", "with unequal probabilities", or None
    if the probabilities are unknown. says, says_all : mean confidence of the labelled prompts, with their weights,
    and of all. z : their distance in standard errors. outside : fraction of prompts whose confidence is outside the
    range of the labelled ones. unlike : whether the labelled prompts are unlike the others. Labels that depend on
    the outcome cannot be seen.
    """
    part = whole.prompts("labelled")
    if part is None or len(part) == len(whole):
        return None
    n, total = len(part), len(whole)
    confidence, every = _confidence(part), _confidence(whole)
    labelled = "inclusion" in part.scores.extra and np.isfinite(part.scores.extra["inclusion"]).all()
    weight = np.ones(n) if part.weight is None else part.weight
    says, says_all = float((weight * confidence).mean()), float(every.mean())
    effective = n**2 / float((weight**2).sum())
    error = float(every.std()) * float(np.sqrt((1 - n / total) / effective))
    z = (says - says_all) / error if error > 0 else 0.0
    drawn = None if not labelled else "at random" if part.weight is None else "with unequal probabilities"
    return {
        "n": n,
        "of": total,
        "drawn": drawn,
        "says": says,
        "says_all": says_all,
        "z": z,
        "outside": float(((every < confidence.min()) | (every > confidence.max())).mean()),
        "unlike": abs(z) > UNLIKE,
    }


def _confidence(part: Part) -> FloatArray:
    """Return the stated probability of each prompt (n,): of its first choice, or the mean over its responses."""
    if part.scores.view == "top_1":
        return part.first_choice.p
    t, b = part.calibrator
    return np.asarray(np.add.reduceat(expit((part.reward - b) / t), part.starts) / part.sizes)
