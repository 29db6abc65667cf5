"""Metric: one entry of the catalogue."""

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
    """One metric: its name, its meaning, and how it is computed.

    Attributes
    ----------
    name : str
        The name in files and conditions: letters, digits and underscores.
    meaning : str
        The meaning in one line.
    statistic : Measure
        A function that computes it: ``statistic(forecasts, settings)`` returns a :class:`Statistic`.
    better : {"low", "high", "zero"}, optional
        Which values are better: "low", "high", or near "zero"; None if none are.
    unit : str
        The unit of the value, such as "probability" or "nats".
    prompts : {"one", "several", "all", "votes"}
        The prompts it is computed on: those with "one" correct response, with "several", "all", or those with
        people's "votes". A metric of "several" or "votes" is left out where there are none.
    needs : frozenset[Need]
        What it needs: "probabilities" if it has no meaning for rewards that are not utilities; "pairs" if
        pairwise probabilities are enough; "lengths" of the responses; "official" for a score that the
        benchmark's authors define.
    label : str
        The usual name; by default ``name``.
    heading : str, optional
        The heading of its column on the leaderboard's page. By default ``label`` for metrics of other
        packages, and no column for those of rmcalib. Empty: no column.
    digits : int
        Number of decimals.
    group : str
        The group on pages and in the documentation: a key of ``GROUPS``.
    compared : Where
        Where `compare` reports a difference: "everywhere", "overall" or "nowhere".
    ranked : Where
        Where the leaderboard computes it: "everywhere", "overall" or "nowhere".
    depends_on_m : bool
        Whether values cannot be compared between different numbers of responses.
    source : str
        The package it comes from; empty for metrics of rmcalib.

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
        """Check the entry, and set the label if it is not given."""
        if not isinstance(self.name, str) or not self.name.isidentifier() or keyword.iskeyword(self.name):
            raise ValueError(f"metric {self.name!r}: expected a name of letters, digits and underscores")
        if not callable(self.statistic):
            raise ValueError(f"metric {self.name}: statistic: expected a function of forecasts and settings")
        check_choice(self.better, f"metric {self.name}: better", ("low", "high", "zero", None))
        check_choice(self.prompts, f"metric {self.name}: prompts", ("one", "several", "all", "votes"))
        check_choice(self.group, f"metric {self.name}: group", tuple(GROUPS))
        for name in ("compared", "ranked"):
            where = ("everywhere", "overall", "nowhere")
            check_choice(getattr(self, name), f"metric {self.name}: {name}", where)
        object.__setattr__(self, "label", self.label or self.name)

    def badness(self, value: float) -> float:
        """Return a number that is smaller for better values.

        >>> Metric("gap", "a gap", lambda forecasts, settings: Statistic.constant(0.0, 1), "zero").badness(-2)
        2
        """
        return {"high": -value, "low": value, "zero": abs(value)}[self.better or "low"]
