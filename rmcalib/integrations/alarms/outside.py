"""A change: more rewards lie outside the range that the calibrator was fitted on."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib.integrations.alarms.check import Change, Observed, Value, points


class Outside(Change):
    """The fraction of rewards beyond the range of the calibrator's fit."""

    name = column = "outside"
    margin = 0.05
    heading, about = "outside", "fraction of rewards beyond the range of the calibrator's fit"

    def value(self, step: Observed) -> Value | None:
        """Return which rewards are outside."""
        if step.reference is None or not len(step.reference.reference):
            return None
        low, high = min(step.reference.reference), max(step.reference.reference)
        return Value(step.samples.prompt, ((step.rewards < low) | (step.rewards > high)).astype(np.float64))

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say by how much."""
        what = "of the rewards than at the start lie outside the range that the calibrator was fitted on"
        return f"{points(alarm)} more {what}"
