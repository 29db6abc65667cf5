"""Alarms that need no labels: the samples are not what they were at the start. A change is not an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.integrations.alarms.monitor import Observed, Sums, Value


@dataclass(frozen=True)
class Change:
    """The mean of a value of the samples is not that of the first looks: one row of `CHANGES`.

    ``says`` is a sentence with ``{points}`` or ``{size}``, and ``{more}`` or ``{longer}``.
    """

    name: str
    margin: float | None
    says: str
    sides: tuple[int, ...] = (1,)
    relative: bool = False
    from_start: bool = True

    @property
    def share(self) -> float:
        """All changes have the same share."""
        return 1 / len(CHANGES)

    def sums(self, step: Observed) -> Sums | None:
        """Return the sums of each prompt."""
        value = step.values.get(self.name)
        return None if value is None else Sums.of(value.prompt, value.value, np.ones(len(value.value)))

    def sentence(self, alarm: dict[str, Any]) -> str:
        """Say by how much."""
        above, size = alarm["direction"] == "above", abs(alarm["value"])
        return self.says.format(
            points=f"{100 * size:.1f} points",
            size=f"{size:,.0f}",
            more="more" if above else "fewer",
            longer="longer" if above else "shorter",
        )


_CONTAIN = "{points} {more} of the samples than at the start contain "
CHANGES: tuple[Change, ...] = (
    Change(
        "outside",
        0.05,
        "{points} more of the rewards than at the start lie outside the range that the calibrator was fitted on",
    ),
    Change(
        "agreement",
        0.1,
        "a second judge orders {points} fewer of the pairs as the reward does than at the start",
        (-1,),
    ),
    Change("length", 0.5, "samples are {size} characters {longer} than at the start", (1, -1), relative=True),
    Change("repeated", 0.2, "{points} more of the samples than at the start are copies of another one"),
    Change("markdown", 0.2, _CONTAIN + "headings, lists, tables or bold", (1, -1)),
    Change("code", 0.2, _CONTAIN + "a code block", (1, -1)),
    Change("answer", 0.2, _CONTAIN + "a marked final answer", (1, -1)),
)
"""Changes that need no labels: the samples differ from those at the start."""


def agreement(prompt: IntArray, reward: FloatArray, second: FloatArray) -> Value:
    """Return how often a second judge orders two samples of a prompt as the reward does, by prompt.

    Pairs that the second judge does not tell apart are left out; equal rewards count 1/2.
    """
    known = ~np.isnan(second)
    order = np.argsort(prompt[known], kind="stable")
    p, r, s = (values[known][order] for values in (prompt, reward, second))
    pairs: list[IntArray] = []
    for apart in range(1, len(p)):
        same = np.flatnonzero(p[apart:] == p[:-apart])
        if not len(same):
            break
        pairs.append(np.column_stack([same, same + apart]))
    one, other = np.concatenate([np.empty((0, 2), dtype=np.int64), *pairs]).T
    wins = np.heaviside((r[one] - r[other]) * np.sign(s[one] - s[other]), 0.5)
    decided = s[one] != s[other]
    names, index = np.unique(p[one][decided], return_inverse=True)
    return Value(names, np.bincount(index, wins[decided]) / np.bincount(index))
