"""Temperatures on several benchmarks: what a temperature fitted on one does on the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rmcalib.calibration.equality import Equality, equal_temperatures
from rmcalib.calibration.intervals import mean_interval
from rmcalib.calibration.temperature import Scale, Softmax
from rmcalib.metrics.table import Row, temperature_rows
from rmcalib.metrics.views import FEWEST, Part, whole_part
from rmcalib.scores import Scores


@dataclass(frozen=True)
class Transfer:
    """The temperatures of one model on several benchmarks, and their effects on the others.

    ``fitted_on`` in the rows of ``effects`` is a benchmark, "none" for T = 1, or "all together".
    """

    temperatures: list[Row]
    effects: list[Row]
    equality: Equality | None
    left_out: list[str]


def transfer(scores: Mapping[str, Scores], *, level: float = 0.95) -> Transfer:
    """Fit the temperature of a model on each benchmark, and measure its effect on the others."""
    parts = {name: whole_part(each).prompts("one") for name, each in scores.items()}
    kept = {name: part for name, part in parts.items() if part is not None and len(part) >= FEWEST}
    temperatures = temperature_rows("benchmark", kept, level)
    scales = [each.scale for each in kept.values()]
    equality = equal_temperatures(scales) if len(kept) > 1 else None
    tried = {"none": 1.0} | {row["benchmark"]: row["temperature"] for row in temperatures}
    if equality is not None:
        tried["all together"] = equality.temperature
    effects = [
        _effect(source, name, part, value, level)
        for source, value in tried.items()
        if 0 < value < np.inf
        for name, part in kept.items()
    ]
    return Transfer(temperatures, effects, equality, [name for name in parts if name not in kept])


def _effect(source: str, name: str, part: Part, temperature: float, level: float) -> Row:
    scale = Scale(Softmax(part.reward / temperature, part.is_correct, part.sizes), part.cluster)
    before, after = part.scale.model.losses(1.0), part.scale.model.losses(temperature)
    lost = scale.lost_interval(level)
    row: Row = {"fitted_on": source, "used_on": name, "temperature": temperature}
    row |= {"lost_information": lost.value, "low": lost.low, "high": lost.high}
    for what, values in (
        ("change", (after - before) / scale.unit),
        ("information", 1 - after / scale.unit),
    ):
        interval = mean_interval(values, clusters=part.cluster, level=level)
        row |= {what: interval.value, f"{what}_low": interval.low, f"{what}_high": interval.high}
    return row | {"n": len(part)}
