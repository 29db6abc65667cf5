"""A change: samples are longer or shorter."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib.integrations.alarms.check import Change, Observed, Value


class Length(Change):
    """The mean length of the samples."""

    name, column = "length", "mean_length"
    margin, relative, sides = 0.5, True, (1, -1)
    heading, about = "length", "mean length in characters"

    def value(self, step: Observed) -> Value | None:
        """Return the lengths, if all are known."""
        length = step.samples.length
        return None if np.isnan(length).any() else Value(step.samples.prompt, length)

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say by how much."""
        what = "longer" if alarm["direction"] == "above" else "shorter"
        return f"samples are {abs(alarm['value']):,.0f} characters {what} than at the start"
