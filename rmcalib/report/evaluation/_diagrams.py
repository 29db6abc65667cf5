"""The tables behind the figures of an evaluation: reliability, isotonic curves, margins."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.metrics import (
    Forecasts,
    Settings,
    category_names,
    isotonic_table,
    margin_table,
    margins,
    reliability_table,
    select_prompts,
    set_forecasts,
    top_1_prompts,
)

__all__ = ["isotonic_rows", "margin_rows", "reliability_rows"]

Rows = list[dict[str, Any]]


def reliability_rows(forecasts: Forecasts, settings: Settings) -> Rows:
    """Return the bins of the reliability diagrams: overall, each category, and sets of correct responses."""
    return [
        row
        for shown, p, y, prompt in _forecasts(forecasts)
        for row in reliability_table(
            p, y, panel=shown, groups=prompt, draw="one_per_group", bins=settings.bins, rng=settings.seed
        )
    ]


def isotonic_rows(forecasts: Forecasts) -> Rows:
    """Return the isotonic reliability curves of the same panels."""
    return [row for shown, p, y, _ in _forecasts(forecasts) for row in isotonic_table(p, y, panel=shown)]


def margin_rows(forecasts: Forecasts) -> Rows:
    """Return the histograms of margins, overall and by category."""
    panels = _panels(forecasts)
    if not panels:
        return []
    every = panels[0][1]
    return margin_table(
        margins(forecasts)[every], [shown for shown, _ in panels], [members[every] for _, members in panels]
    )


def _forecasts(forecasts: Forecasts) -> list[tuple[str, FloatArray, FloatArray, IntArray]]:
    """The panels of the reliability diagrams: name, probabilities, outcomes and prompts."""
    tables = []
    for shown, members in _panels(forecasts):
        part = select_prompts(forecasts, members)
        tables.append((shown, part.probability, part.is_correct.astype(np.float64), part.prompt))
    several = ~top_1_prompts(forecasts)
    if several.any():
        part = select_prompts(forecasts, several)
        shown = " and ".join(dict.fromkeys(part.category.tolist()))
        tables.append((f"{shown}: correct ones first", *set_forecasts(part)))
    return tables


def _panels(forecasts: Forecasts) -> list[tuple[str, Any]]:
    """The panels of the figures: overall and each category, prompts with one correct response only."""
    one_answer = top_1_prompts(forecasts)
    panels = []
    for shown, name in category_names(forecasts).items():
        members = one_answer if name is None else one_answer & (forecasts.category == name)
        if members.any():
            panels.append((shown, members))
    # A single category is the same as overall.
    return panels[:1] if len(panels) == 2 else panels
