"""Tidy tables that figures are drawn from: reliability, isotonic curves, accuracy of the surest prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.calibration.errors import Reliability, consistency_band, reliability
from rmcalib.calibration.events import Events
from rmcalib.calibration.maps import corp
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import OVERALL, Row, shown_name
from rmcalib.metrics.views import Part

_REJECTED: FloatArray = np.linspace(0.0, 0.95, 20)


def reliability_rows(
    whole: Part, settings: Settings, view: Literal["top_1", "pointwise"] = "top_1"
) -> list[Row]:
    """Return the bins of the reliability diagrams, overall and by category, with consistency bands."""
    which = "one" if view == "top_1" else "labelled"
    return [
        {"panel": name, **row}
        for name, part in _panels(whole, which)
        for row in _with_band(getattr(part, view), settings)
    ]


def isotonic_rows(whole: Part) -> list[Row]:
    """Return the isotonic (CORP) reliability curves, which need no bins."""
    rows = []
    for name, part in _panels(whole):
        curve = corp(part.top_1.p, part.top_1.y)
        steps = np.flatnonzero(np.diff(curve.frequency))
        corners = np.unique(np.concatenate([[0, len(curve.frequency) - 1], steps, steps + 1]))
        rows += [
            {"panel": name, "probability": float(curve.forecast[i]), "frequency": float(curve.frequency[i])}
            for i in corners
        ]
    return rows


def rejection_rows(part: Part, seed: int = 0) -> list[Row]:
    """Return the accuracy on the remaining prompts when a fraction of them, the least confident, is dropped."""
    events = part.first_choice
    # Equal confidences are ordered at random: the order of the file may follow difficulty.
    chance = np.random.default_rng(seed).random(len(part))
    order = np.lexsort((chance, -events.log_p))
    cumulative = np.cumsum(events.y[order])
    kept = np.maximum(np.ceil((1 - _REJECTED) * len(part)).astype(np.int64), 1)
    return [
        {"rejected": float(share), "accuracy": float(cumulative[k - 1] / k), "n": int(k)}
        for share, k in zip(_REJECTED, kept, strict=True)
    ]


def bin_rows(diagram: Reliability) -> list[Row]:
    """Return one row for each bin that is not empty: low, high, count, confidence, frequency."""
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


def _with_band(events: Events, settings: Settings) -> list[Row]:
    diagram = reliability(events.p, events.y, bins=settings.bins)
    low, high = consistency_band(events, bins=settings.bins, level=settings.level, rng=settings.seed)
    filled = np.flatnonzero(diagram.count)
    return [
        {**row, "band_low": float(low[b]), "band_high": float(high[b])}
        for row, b in zip(bin_rows(diagram), filled, strict=True)
    ]


def _panels(whole: Part, which: str = "one") -> Iterator[tuple[str, Part]]:
    """Yield some prompts, by default those with one correct response: overall, and each of several categories."""
    every = whole.prompts(which)
    if every is None:
        return
    yield OVERALL, every
    names = list(dict.fromkeys(every.category.tolist()))
    for name in names if len(names) > 1 else ():
        yield shown_name(name), every.take(every.category == name, shown_name(name))
