"""Tidy tables that figures are drawn from: reliability diagrams, isotonic curves, histograms of margins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.calibration import Draw, Reliability, consistency_band, corp, reliability
from rmcalib.metrics._events import margins, outcomes
from rmcalib.metrics._forecasts import Forecasts, select_prompts, top_1_prompts
from rmcalib.metrics._statistic import Settings
from rmcalib.metrics._table import category_names

__all__ = [
    "Table",
    "bin_rows",
    "isotonic_panels",
    "isotonic_table",
    "margin_panels",
    "margin_table",
    "reliability_panels",
    "reliability_table",
]

Table = Sequence[dict[str, Any]]
"""The rows that a figure is drawn from."""
Rows = list[dict[str, Any]]


def reliability_table(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    panel: str,
    groups: ArrayLike | None = None,
    draw: Draw = "independent",
    bins: int = 10,
    rng: np.random.Generator | int = 0,
) -> Rows:
    """Return the bins of a reliability diagram, with consistency bands.

    Parameters
    ----------
    probabilities : array (N,)
        Predicted probabilities.
    outcomes : array (N,)
        1 where the event happened, else 0.
    panel : str
        Name of the panel, which is copied to every row.
    groups : array (N,), optional
        Prompt of each forecast; default independent forecasts.
    draw : Draw
        "one_per_group" if exactly one outcome per prompt is 1, else "independent".
    bins : int
        Number of equal-width bins.
    rng : numpy Generator or int
        Random generator or seed of the consistency bands.

    Returns
    -------
    list of dict
        Rows of panel, low, high, count, confidence, frequency, band_low and band_high, one per bin that is
        not empty. The band contains 95% of the frequencies of a calibrated forecast.

    Examples
    --------
    >>> rows = reliability_table([0.5] * 4, [0, 1, 0, 1], panel="all")
    >>> rows[0]["panel"], rows[0]["confidence"], rows[0]["frequency"], rows[0]["count"]
    ('all', 0.5, 0.5, 4)
    """
    diagram = reliability(probabilities, outcomes, bins=bins)
    band = consistency_band(probabilities, groups=groups, draw=draw, bins=bins, rng=rng)
    limits = [(float(band.low[b]), float(band.high[b])) for b in np.flatnonzero(diagram.count)]
    return [
        {"panel": panel, **row, "band_low": low, "band_high": high}
        for row, (low, high) in zip(bin_rows(diagram), limits, strict=True)
    ]


def isotonic_table(probabilities: ArrayLike, outcomes: ArrayLike, *, panel: str) -> Rows:
    """Return the isotonic (CORP) reliability curve, which needs no bins.

    Parameters
    ----------
    probabilities : array (N,)
        Predicted probabilities.
    outcomes : array (N,)
        1 where the event happened, else 0.
    panel : str
        Name of the panel, which is copied to every row.

    Returns
    -------
    list of dict
        Rows of panel, probability and frequency. Where the frequency is constant over several probabilities,
        only the first and the last have a row.

    Examples
    --------
    >>> rows = isotonic_table([0.1, 0.3, 0.4, 0.9], [0, 0, 0, 1], panel="all")
    >>> [(row["probability"], row["frequency"]) for row in rows]
    [(0.1, 0.0), (0.4, 0.0), (0.9, 1.0)]
    """
    curve = corp(probabilities, outcomes)
    steps = np.flatnonzero(np.diff(curve.frequency))
    corners = np.unique(np.concatenate([[0, len(curve.frequency) - 1], steps, steps + 1]))
    return [
        {"panel": panel, "probability": float(curve.forecast[i]), "frequency": float(curve.frequency[i])}
        for i in corners
    ]


def bin_rows(diagram: Reliability) -> Rows:
    """Return one row for each bin that is not empty: low, high, count, confidence, frequency.

    >>> bin_rows(reliability([0.5] * 4, [0, 1, 0, 1], bins=2))
    [{'low': 0.5, 'high': 1.0, 'count': 4, 'confidence': 0.5, 'frequency': 0.5}]
    """
    return [
        {
            "low": float(diagram.low[b]),
            "high": float(diagram.high[b]),
            "count": int(diagram.count[b]),
            "confidence": float(diagram.confidence[b]),
            "frequency": float(diagram.frequency[b]),
        }
        for b in np.flatnonzero(diagram.count)
    ]


def margin_table(
    margins: ArrayLike, panels: Sequence[str], members: Sequence[ArrayLike], *, bins: int = 30
) -> Rows:
    """Return the histogram of margins (n,) of each panel; ``members`` (n,) says which prompts belong to it.

    All panels have the same edges: symmetric about 0, with the central 98% of the margins between them. The
    few margins beyond are counted in the outermost bins.

    >>> rows = margin_table([-1.0, 1.0, 3.0], ["all"], [[True, True, True]], bins=2)
    >>> [(row["low"] < 0, row["count"]) for row in rows]
    [(True, 1), (False, 2)]
    """
    values = np.asarray(margins, dtype=np.float64)
    reach = float(np.abs(np.quantile(values, [0.01, 0.99])).max()) or 1.0
    edges = np.linspace(-reach, reach, bins + 1)
    rows = []
    for panel, mask in zip(panels, members, strict=True):
        inside = np.clip(values[np.asarray(mask, dtype=bool)], edges[0], edges[-1])
        counts = np.histogram(inside, edges)[0]
        rows += [
            {"panel": panel, "low": float(edges[b]), "high": float(edges[b + 1]), "count": int(counts[b])}
            for b in range(bins)
        ]
    return rows


def reliability_panels(forecasts: Forecasts, settings: Settings) -> Rows:
    """Return the bins of the reliability diagrams of forecasts.

    One panel for all prompts with one correct response, and one for each category.

    Parameters
    ----------
    forecasts : Forecasts
        Forecasts of n prompts.
    settings : Settings
        Number of bins, and seed of the consistency bands.

    Returns
    -------
    list of dict
        Rows as those of `reliability_table`.

    Examples
    --------
    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
    >>> made = forecast(Scores.from_arrays([[1.0, 0.0]] * 4, category=["x", "x", "y", "y"]))
    >>> list(dict.fromkeys(row["panel"] for row in reliability_panels(made, Settings())))
    ['overall', 'x', 'y']
    """
    return [
        row
        for panel, p, y, prompt in _panel_forecasts(forecasts)
        for row in reliability_table(
            p, y, panel=panel, groups=prompt, draw="one_per_group", bins=settings.bins, rng=settings.seed
        )
    ]


def isotonic_panels(forecasts: Forecasts) -> Rows:
    """Return the isotonic reliability curves of forecasts, with the panels of `reliability_panels`.

    Parameters
    ----------
    forecasts : Forecasts
        Forecasts of n prompts.

    Returns
    -------
    list of dict
        Rows as those of `isotonic_table`.

    Examples
    --------
    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
    >>> isotonic_panels(forecast(Scores.from_arrays([[0.0, 0.0]] * 4)))
    [{'panel': 'overall', 'probability': 0.5, 'frequency': 0.5}]
    """
    return [
        row for panel, p, y, _ in _panel_forecasts(forecasts) for row in isotonic_table(p, y, panel=panel)
    ]


def margin_panels(forecasts: Forecasts) -> Rows:
    """Return the histograms of margins of forecasts, overall and by category.

    A margin is the reward of the correct response minus that of the best wrong one. Only prompts with one
    correct response are counted.

    Parameters
    ----------
    forecasts : Forecasts
        Forecasts of n prompts.

    Returns
    -------
    list of dict
        Rows of panel, low, high and count, one per bin.

    Examples
    --------
    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
    >>> rows = margin_panels(forecast(Scores.from_arrays([[1.0, 0.0], [0.0, 2.0]])))
    >>> sum(row["count"] for row in rows if row["low"] >= 0)
    1
    """
    panels = _panels(forecasts)
    if not panels:
        return []
    every = panels[0][1]
    return margin_table(
        margins(forecasts)[every], [panel for panel, _ in panels], [members[every] for _, members in panels]
    )


def _panel_forecasts(forecasts: Forecasts) -> list[tuple[str, FloatArray, FloatArray, IntArray]]:
    """The panels of the reliability diagrams: name, probabilities, outcomes and prompts."""
    tables = []
    for panel, members in _panels(forecasts):
        part = select_prompts(forecasts, members)
        tables.append((panel, part.probability, outcomes(part), part.prompt))
    return tables


def _panels(forecasts: Forecasts) -> list[tuple[str, BoolArray]]:
    """The panels of the figures and their prompts: overall and each category, one correct response only."""
    one_answer = top_1_prompts(forecasts)
    panels = []
    for shown, name in category_names(forecasts).items():
        members = one_answer if name is None else one_answer & (forecasts.category == name)
        if members.any():
            panels.append((shown, members))
    # A single category is the same as overall.
    return panels[:1] if len(panels) == 2 else panels
