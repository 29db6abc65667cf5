"""A change: more samples are copies of another one."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib.integrations.alarms.check import Change, Observed, Value, points


class Copies(Change):
    """The fraction of samples that repeat another one of their prompt."""

    name = column = "repeated"
    margin = 0.2
    heading, about = "copies", "fraction of samples that repeat another one of their prompt"

    def value(self, step: Observed) -> Value | None:
        """Return which samples are copies."""
        repeated = step.samples.repeated()
        return None if repeated is None else Value(step.samples.prompt, repeated.astype(np.float64))

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say by how much."""
        return f"{points(alarm)} more of the samples than at the start are copies of another one"
