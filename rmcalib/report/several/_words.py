"""The temperatures of one model on several benchmarks, in sentences."""

from __future__ import annotations

import math

from rmcalib._util.display import bracketed, number, p_value, temperature_text
from rmcalib.metrics import NO_TEMPERATURE, Transfer

__all__ = ["model_words"]


def model_words(found: Transfer, level: float) -> str:
    """Return whether one temperature is right for all benchmarks of a model, and the worst effect of one."""
    if not found.temperatures:
        return "There are too few prompts to fit a temperature."
    if found.equality is None:
        (own,) = found.temperatures
        return f"A temperature was fitted on one benchmark only: {temperature_text(own['temperature'])}."
    p = p_value(found.equality.p_value)
    p = p.replace("<", "p < ") if p.startswith("<") else f"p = {p}"
    if all(math.isinf(row["temperature"]) for row in found.temperatures):
        return "No temperature helps on any benchmark: a uniform guess does as well."
    if found.equality.p_value >= 1 - level:
        return (
            f"One temperature, {temperature_text(found.equality.temperature)}, may be right for all "
            f"benchmarks: the differences are no more than chance explains ({p})."
        )
    ends = sorted(found.temperatures, key=lambda row: float(row["temperature"]))
    shown = [f"{temperature_text(row['temperature'])} on {row['benchmark']}" for row in (ends[0], ends[-1])]
    words = f"No single temperature is right for all benchmarks ({p}): it is {shown[0]} and {shown[1]}."
    return f"{words} {_worst(found)}".strip()


def _worst(found: Transfer) -> str:
    """Return the temperature that makes another benchmark worst, if one does beyond chance."""
    own = {row["benchmark"] for row in found.temperatures}
    worse = [
        row
        for row in found.effects
        if row["fitted_on"] in own and row["fitted_on"] != row["used_on"] and row["change_low"] > 0
    ]
    if not worse:
        return "None of them is shown to make another benchmark worse."
    worst = max(worse, key=lambda row: float(row["change"]))
    before = next(
        row
        for row in found.effects
        if row["fitted_on"] == NO_TEMPERATURE and row["used_on"] == worst["used_on"]
    )
    uniform = " That is worse than a uniform guess." if worst["information_high"] < 0 else ""
    return (
        f"The temperature of {worst['fitted_on']} makes {worst['used_on']} worse: the lost information is "
        f"{bracketed({**worst, 'value': worst['lost_information']})}, against "
        f"{number(before['lost_information'])} without a temperature.{uniform}"
    )
