"""Changes of what samples contain; to count something else, add it to `FORMS`."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib.integrations.alarms.check import Change, Observed, Value, points
from rmcalib.scores.rollouts import FORMS


class Contains(Change):
    """The fraction of samples that contain one of `FORMS`."""

    margin, sides = 0.2, (1, -1)

    def __init__(self, name: str) -> None:
        """Take the name of the form."""
        self.name = self.column = self.heading = name
        self.about = f"fraction of samples with {FORMS[name].what}"

    def value(self, step: Observed) -> Value | None:
        """Return which samples contain it."""
        if step.samples.form is None:
            return None
        place = [*FORMS].index(self.name)
        return Value(step.samples.prompt, step.samples.form[:, place].astype(np.float64))

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say by how much."""
        more = "more" if alarm["direction"] == "above" else "fewer"
        return f"{points(alarm)} {more} of the samples than at the start contain {FORMS[self.name].what}"
