"""Temperatures on several benchmarks: what a temperature fitted on one does on the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib.calibration import (
    Equality,
    equal_temperatures,
    mean_interval,
    scale_loss,
    temperature_interval,
)
from rmcalib.metrics._catalogue import FEWEST
from rmcalib.metrics._forecasts import Forecasts, log_softmax, single_answers
from rmcalib.scores import Scores

if TYPE_CHECKING:
    import pandas

__all__ = ["NO_TEMPERATURE", "Transfer", "transfer"]

Row = dict[str, Any]
NO_TEMPERATURE = "none"
"""The value of ``fitted_on`` for T = 1."""
ALL = "all together"
"""The value of ``fitted_on`` for the temperature that was fitted on all benchmarks at once."""


@dataclass(frozen=True)
class Transfer:
    """The temperatures of one model on several benchmarks, and their effects on the others.

    Attributes
    ----------
    temperatures : list[Row]
        One row per benchmark: benchmark, temperature, low, high, n. A temperature is 0 if every forecast is
        right, and infinite if a uniform guess is best. Limits are 0 or infinite if the data does not rule
        that out.
    effects : list[Row]
        One row per temperature and benchmark, with these columns.

        - fitted_on: a benchmark, "all together", or "none" for T = 1.
        - used_on, temperature, n: the benchmark where it is used, T, and the number of prompts.
        - lost_information, low, high: the information lost on ``used_on`` at this temperature.
        - change, change_low, change_high: the same minus the loss without a temperature; negative if the
          temperature helps.
        - information: that of the forecasts as a whole; negative if they are worse than a uniform guess.

        Temperatures are taken as given: the intervals are about the prompts of ``used_on``.
    equality : Equality, optional
        The test that one temperature is right for all; None with fewer than two benchmarks.
    left_out : list[str]
        Benchmarks with fewer than 20 prompts that have one correct response.

    Examples
    --------
    >>> found = transfer({"a": Scores.from_arrays([[1.0, 0.0], [0.0, 1.0]] * 15)})
    >>> found.temperatures[0]["n"], found.equality
    (30, None)
    """

    temperatures: list[Row]
    effects: list[Row]
    equality: Equality | None
    left_out: list[str]

    @property
    def table(self) -> pandas.DataFrame:
        """The effects as a pandas table."""
        import pandas

        return pandas.DataFrame(self.effects)


def transfer(scores: Mapping[str, Scores], *, level: float = 0.95) -> Transfer:
    """Fit the temperature of a model on each benchmark, and measure its effect on the others.

    Parameters
    ----------
    scores : Mapping[str, Scores]
        The scores of one model, by benchmark. Prompts without exactly one correct response are left out.
    level : float
        Confidence level of all intervals.

    Returns
    -------
    Transfer
        The temperatures, their effects, and a test that they are equal.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def made(scale):
    ...     utilities = rng.normal(size=(300, 4))
    ...     correct = (utilities + rng.gumbel(size=(300, 4))).argmax(axis=1)
    ...     return Scores.from_arrays(scale * utilities, correct)
    >>> found = transfer({"a": made(2.0), "b": made(8.0)})
    >>> [round(row["temperature"]) for row in found.temperatures], found.equality.p_value < 0.001
    ([2, 9], True)
    """
    parts = {name: single_answers(one) for name, one in scores.items()}
    kept = {name: part for name, part in parts.items() if part is not None and len(part) >= FEWEST}
    temperatures = [_temperature(name, part, level) for name, part in kept.items()]
    equality = None
    if len(kept) > 1:
        equality = equal_temperatures([(p.reward, p.is_correct, p.prompt) for p in kept.values()])
    tried = {NO_TEMPERATURE: 1.0} | {row["benchmark"]: row["temperature"] for row in temperatures}
    if equality is not None:
        tried[ALL] = equality.temperature
    effects = [
        _effect(source, name, part, value, level)
        for source, value in tried.items()
        if 0 < value < np.inf
        for name, part in kept.items()
    ]
    return Transfer(temperatures, effects, equality, [name for name in parts if name not in kept])


def _temperature(name: str, part: Forecasts, level: float) -> Row:
    found = temperature_interval(part.reward, part.is_correct, part.prompt, level=level)
    limits = {"temperature": found.value, "low": found.low, "high": found.high}
    return {"benchmark": name, **limits, "n": len(part)}


def _effect(source: str, name: str, part: Forecasts, temperature: float, level: float) -> Row:
    lost = scale_loss(part.reward / temperature, part.is_correct, part.prompt, level=level).lost
    uniform = float(np.log(part.sizes).mean())
    before, after = (
        -log_softmax(part.reward, part.offsets, temperature=t)[part.is_correct] for t in (1.0, temperature)
    )
    change = mean_interval((after - before) / uniform, level=level)
    information = mean_interval(1 - after / uniform, level=level)
    return {
        "fitted_on": source,
        "used_on": name,
        "temperature": temperature,
        "lost_information": lost.value,
        "low": lost.low,
        "high": lost.high,
        "change": change.value,
        "change_low": change.low,
        "change_high": change.high,
        "information": information.value,
        "information_low": information.low,
        "information_high": information.high,
        "n": len(part),
    }
