"""Alarms that need no labels: the samples have changed since the start. A change is not an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.integrations.alarms.monitor import Observed, Sums


@dataclass(frozen=True)
class Outside:
    """More rewards lie outside the range of the calibrator's fit, where nobody knows what they mean."""

    name: str = "outside"
    share: float = 1 / 3
    margin: float | None = 0.05
    relative: bool = False
    from_start: bool = True
    both_sides: bool = False

    def sums(self, step: Observed) -> Sums | None:
        """Return the fraction of each prompt."""
        return None if step.outside is None else value_sums(step, step.outside.astype(np.float64))

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say how many more."""
        return (
            f"{100 * alarm['value']:.1f} points more of the rewards than at the start lie outside the range that the "
            "calibrator was fitted on"
        )


@dataclass(frozen=True)
class Length:
    """The mean length has changed by more than half of what it was."""

    name: str = "length"
    share: float = 1 / 3
    margin: float | None = 0.5
    relative: bool = True
    from_start: bool = True
    both_sides: bool = True

    def sums(self, step: Observed) -> Sums | None:
        """Return the lengths of each prompt."""
        return None if np.isnan(step.length).any() else value_sums(step, step.length)

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say by how many characters."""
        what = "longer" if alarm["direction"] == "above" else "shorter"
        return f"samples are {abs(alarm['value']):,.0f} characters {what} than at the start"


@dataclass(frozen=True)
class Repeated:
    """More samples are copies of another sample of their prompt: the policy collapses."""

    name: str = "repeated"
    share: float = 1 / 3
    margin: float | None = 0.2
    relative: bool = False
    from_start: bool = True
    both_sides: bool = False

    def sums(self, step: Observed) -> Sums | None:
        """Return the fraction of each prompt."""
        return None if step.repeated is None else value_sums(step, step.repeated.astype(np.float64))

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say how many more."""
        return f"{100 * alarm['value']:.1f} points more of the samples than at the start are copies of another one"


def value_sums(step: Observed, values: FloatArray) -> Sums:
    """Return the sums of a value of each sample."""
    return Sums.of(step.prompt, values, np.ones(len(values)))
