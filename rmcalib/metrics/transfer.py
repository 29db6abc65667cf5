"""Temperatures on several benchmarks: what a temperature fitted on one does on the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rmcalib.calibration.equality import Equality, equal_temperatures
from rmcalib.calibration.intervals import mean_interval
from rmcalib.calibration.temperature import Scale, Softmax
from rmcalib.metrics.table import Row
from rmcalib.metrics.views import FEWEST, Part, whole_part
from rmcalib.scores import Scores

if TYPE_CHECKING:
    import pandas

NO_TEMPERATURE = "none"
"""The value of ``fitted_on`` for T = 1."""
ALL = "all together"
"""The value of ``fitted_on`` for the temperature that was fitted on all benchmarks at once."""


@dataclass(frozen=True)
class Transfer:
    """The temperatures of one model on several benchmarks, and their effects on the others."""

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
    """Fit the temperature of a model on each benchmark, and measure its effect on the others."""
    parts = {name: whole_part(one).prompts("one") for name, one in scores.items()}
    kept = {name: part for name, part in parts.items() if part is not None and len(part) >= FEWEST}
    temperatures: list[Row] = []
    for name, part in kept.items():
        found = part.scale.temperature_interval(level)
        limits = {"temperature": found.value, "low": found.low, "high": found.high}
        temperatures.append({"benchmark": name, **limits, "n": len(part)})
    equality = None
    if len(kept) > 1:
        equality = equal_temperatures([Softmax(p.reward, p.is_correct, p.sizes) for p in kept.values()])
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


def _effect(source: str, name: str, part: Part, temperature: float, level: float) -> Row:
    scale = Scale(Softmax(part.reward / temperature, part.is_correct, part.sizes), part.cluster)
    lost = scale.lost_interval(level)
    before, after = part.scale.model.losses(1.0), part.scale.model.losses(temperature)
    change = mean_interval((after - before) / scale.unit, clusters=part.cluster, level=level)
    information = mean_interval(1 - after / scale.unit, clusters=part.cluster, level=level)
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
