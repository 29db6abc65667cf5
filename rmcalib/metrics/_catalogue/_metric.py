"""Metric: one entry of the catalogue, and everything that is known about it."""

from __future__ import annotations

import keyword
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rmcalib._util.arrays import check_choice
from rmcalib.metrics._forecasts import Forecasts
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["GROUPS", "Measure", "Metric", "Need"]

Measure = Callable[[Forecasts, Settings], Statistic]
Need = Literal["probabilities", "pairs", "lengths", "official"]
Where = Literal["everywhere", "overall", "nowhere"]

GROUPS: dict[str, str] = {
    "headline": "Headline",
    "pairs": "Pairs of a correct and a wrong response",
    "calibration": "Calibration",
    "scores": "Proper scores",
    "decomposition": "Decomposition of the score of the first choice",
    "temperature": "At the best temperature",
    "reference": "Reference protocol",
    "several": "Several correct responses",
    "votes": "People's votes",
    "rewards": "Benchmark score and rewards",
    "length": "Length",
    "other": "Other",
}
"""The groups of metrics, in the order of pages and documents, with their headings."""


@dataclass(frozen=True)
class Metric:
    """One metric: what it is called, what it means, and how it is computed.

    Attributes
    ----------
    name : its name in files and conditions: letters, digits and underscores.
    meaning : one line that says what it is.
    statistic : computes it: ``statistic(forecasts, settings)`` returns a :class:`Statistic` of the prompts.
    better : whether a "low" or a "high" value is better, or one near "zero"; None if none is.
    unit : what the number counts, such as "probability" or "nats".
    prompts : what it is computed on: prompts with "one" correct response, with "several", "all", or those
        with people's "votes". A metric of "several" or "votes" is left out where there are none.
    needs : "probabilities" if it means nothing for rewards that are not utilities; "pairs" if pairwise
        probabilities are enough; "lengths" if it needs the lengths of the responses; "official" if the
        benchmark's authors must have defined a score.
    label : what people call it; the name by default.
    heading : the heading of its column in the leaderboard's table; the label by default, none if empty.
    digits : digits after the point.
    group : one of ``GROUPS``.
    compared : where `compare` reports a difference: in every category, overall only, or nowhere.
    ranked : where the leaderboard computes it: in every category, overall only, or nowhere.
    depends_on_m : whether values for different numbers of responses cannot be compared.
    source : the distribution that it comes from; empty for those of rmcalib.

    Examples
    --------
    >>> import numpy as np
    >>> def bold(forecasts, settings):
    ...     top = np.maximum.reduceat(forecasts.probability, forecasts.starts)
    ...     return Statistic.mean((top > 0.9).astype(float))
    >>> Metric("bold_fraction", "fraction of prompts with a probability above 0.9", bold).label
    'bold_fraction'
    """

    name: str
    meaning: str
    statistic: Measure
    better: Literal["low", "high", "zero"] | None = None
    unit: str = ""
    prompts: Literal["one", "several", "all", "votes"] = "one"
    needs: frozenset[Need] = frozenset({"probabilities"})
    label: str = ""
    heading: str | None = None
    digits: int = 3
    group: str = "other"
    compared: Where = "everywhere"
    ranked: Where = "overall"
    depends_on_m: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        """Check the entry, and fill in what follows from other fields."""
        if not isinstance(self.name, str) or not self.name.isidentifier() or keyword.iskeyword(self.name):
            raise ValueError(f"metric {self.name!r}: a name has letters, digits and underscores only")
        if not callable(self.statistic):
            raise ValueError(f"metric {self.name}: statistic is not a function of forecasts and settings")
        check_choice(self.better, f"metric {self.name}: better", ("low", "high", "zero", None))
        check_choice(self.prompts, f"metric {self.name}: prompts", ("one", "several", "all", "votes"))
        check_choice(self.group, f"metric {self.name}: group", tuple(GROUPS))
        for name in ("compared", "ranked"):
            where = ("everywhere", "overall", "nowhere")
            check_choice(getattr(self, name), f"metric {self.name}: {name}", where)
        label = self.label or self.name
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "heading", label if self.heading is None else self.heading)

    def badness(self, value: float) -> float:
        """Return a number that is smaller for better values.

        >>> Metric("gap", "a gap", lambda forecasts, settings: Statistic.constant(0.0, 1), "zero").badness(-2)
        2
        """
        return {"high": -value, "low": value, "zero": abs(value)}[self.better or "low"]
