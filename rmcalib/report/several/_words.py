"""Sentences about the temperatures of one model on several benchmarks."""

from __future__ import annotations

import math

from rmcalib._util.display import bracketed, number, p_value, temperature_text
from rmcalib.metrics import NO_TEMPERATURE, Transfer

__all__ = ["model_words"]


def model_words(found: Transfer, level: float) -> str:
    """Say whether one temperature serves all benchmarks of a model, and name the worst exchange."""
    if not found.temperatures:
        return "There are too few prompts to fit a temperature."
    if found.equality is None:
        (own,) = found.temperatures
        return f"There is one benchmark to fit a temperature on: {temperature_text(own['temperature'])}."
    p = p_value(found.equality.p_value)
    p = p.replace("<", "p < ") if p.startswith("<") else f"p = {p}"
    if all(math.isinf(row["temperature"]) for row in found.temperatures):
        return "No temperature helps on any benchmark: a uniform guess does as well."
    if found.equality.p_value >= 1 - level:
        return (
            f"One temperature, {temperature_text(found.equality.temperature)}, may serve all benchmarks: the "
            f"differences are no more than chance explains ({p})."
        )
    ends = sorted(found.temperatures, key=lambda row: float(row["temperature"]))
    shown = [f"{temperature_text(row['temperature'])} on {row['benchmark']}" for row in (ends[0], ends[-1])]
    words = f"No single temperature is right for all benchmarks ({p}): it is {shown[0]} and {shown[1]}."
    return f"{words} {_worst(found)}".strip()


def _worst(found: Transfer) -> str:
    """Name the benchmark's temperature that does most harm on another, if one surely does harm."""
    own = {row["benchmark"] for row in found.temperatures}
    worse = [
        row
        for row in found.effects
        if row["fitted_on"] in own and row["fitted_on"] != row["used_on"] and row["change_low"] > 0
    ]
    if not worse:
        return "On the other benchmarks, none of them is known to do harm."
    worst = max(worse, key=lambda row: float(row["change"]))
    before = next(
        row
        for row in found.effects
        if row["fitted_on"] == NO_TEMPERATURE and row["used_on"] == worst["used_on"]
    )
    uniform = " That is worse than a uniform guess." if worst["information_high"] < 0 else ""
    return (
        f"The temperature of {worst['fitted_on']} does harm on {worst['used_on']}: it loses "
        f"{bracketed({**worst, 'value': worst['lost_information']})} of the information, against "
        f"{number(before['lost_information'])} without a temperature.{uniform}"
    )
