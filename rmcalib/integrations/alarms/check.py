"""What an alarm is, and what it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib._util.display import count
from rmcalib.repair import Calibrator
from rmcalib.scores.rollouts import StepSamples

COLUMNS = 5


class Value(NamedTuple):
    """A value of each sample or prompt (n,), and whose it is."""

    prompt: IntArray
    value: FloatArray


@dataclass(frozen=True)
class Observed:
    """The samples of a step, one row per sample: what alarms are made of.

    Attributes
    ----------
    samples : StepSamples
        Their prompts are numbers, which stay over the run.
    rewards : float (N,)
        The rewards as they are read: probabilities are log-odds here.
    log_odds : float (N,), optional
        Of the stated probability that a sample is correct; None if nothing is stated.
    pair_odds : float (N,), optional
        Their differences are the log-odds that one sample of a prompt is better than another.
    reference : Calibrator, optional
        What the probabilities were made by.
    """

    samples: StepSamples
    rewards: FloatArray
    log_odds: FloatArray | None = None
    pair_odds: FloatArray | None = None
    reference: Calibrator | None = None


@dataclass(frozen=True)
class Sums:
    """Sums over the samples of each prompt: one row of ``values`` (prompts, 5) for each.

    The columns are the residual (stated − observed, or the value that may change), the number of samples, the variance
    that was stated, and the derivatives of the stated p by the slope and the shift of the reference.
    """

    prompt: IntArray
    values: FloatArray

    @classmethod
    def of(cls, prompt: IntArray, *columns: FloatArray) -> Sums:
        """Add up the rows of each prompt; columns that are not given are 0."""
        owner, index = np.unique(prompt, return_inverse=True)
        values = np.zeros((len(owner), COLUMNS))
        for place, column in enumerate(columns):
            values[:, place] = np.bincount(index, column, len(owner))
        return cls(owner, values)

    @classmethod
    def merged(cls, parts: Sequence[Sums]) -> Sums:
        """Add up the sums of each prompt."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls(np.empty(0, dtype=np.int64), np.empty((0, COLUMNS)))
        values = np.concatenate([part.values for part in parts])
        return cls.of(np.concatenate([part.prompt for part in parts]), *values.T)


class Check:
    """An alarm: what is measured, and how it is said. Those of a list share the error budget equally."""

    name: str
    """What the alarm is called."""
    margin: float | None = None
    """Means up to this size raise no alarm; None for the margin of the watcher."""
    relative: ClassVar[bool] = False
    """Whether the margin is a fraction of the mean at the start."""
    from_start: ClassVar[bool] = False
    """Whether the mean is compared with that of the first looks, and not with 0."""
    sides: tuple[int, ...] = (1,)
    """1 for too large, -1 for too small; the second one only if both sides are asked for."""

    def sums(self, step: Observed) -> Sums | None:
        """Return the sums of a step; None if it shows nothing."""
        raise NotImplementedError

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say what was seen, in words that follow "Alarm at step 7: "."""
        raise NotImplementedError


class Change(Check):
    """Needs no labels: the mean of a value is not that of the first looks. Its column of steps has that mean."""

    from_start = True
    heading: str
    """Of its column."""
    about: str
    """What its column shows."""
    page_only: ClassVar[bool] = True
    """Whether the column is on the page alone, and without limits."""

    column: str
    """The name of its column, usually that of the change."""

    def value(self, step: Observed) -> Value | None:
        """Return what is compared; None if it is unknown."""
        raise NotImplementedError

    def sums(self, step: Observed) -> Sums | None:
        """Return the sums of each prompt."""
        compared = self.value(step)
        return None if compared is None else Sums.of(*compared, np.ones(len(compared.value)))


def points(alarm: dict[str, Any]) -> str:
    """Return the size of an alarm.

    >>> points({"value": -0.083})
    '8.3 points'
    """
    return f"{100 * abs(alarm['value']):.1f} points"


def points_over(alarm: dict[str, Any]) -> str:
    """Return the size of an alarm, and what it was seen in.

    >>> points_over({"value": 0.083, "over": "last 10 looks", "first_step": 11, "step": 30, "prompts": 40})
    '8.3 points over steps 11 to 30, from 40 labelled prompts'
    """
    over = (
        "the run so far"
        if alarm["over"] == "run"
        else f"steps {alarm['first_step']:.15g} to {alarm['step']:.15g}"
    )
    return f"{points(alarm)} over {over}, from {count(alarm['prompts'], 'labelled prompt')}"
