"""Tidy tables that figures and pages are drawn from."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rmcalib.calibration import Draw, Reliability, Summary, consistency_band, corp, reliability

__all__ = ["Table", "bin_rows", "isotonic_table", "margin_table", "reliability_table", "summary_table"]

Table = Sequence[dict[str, Any]]


def reliability_table(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    panel: str,
    groups: ArrayLike | None = None,
    draw: Draw = "independent",
    bins: int = 10,
    rng: np.random.Generator | int = 0,
) -> list[dict[str, Any]]:
    """Return one row for each bin that is not empty: where it is, what is in it, and its consistency band.

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


def isotonic_table(probabilities: ArrayLike, outcomes: ArrayLike, *, panel: str) -> list[dict[str, Any]]:
    """Return the isotonic (CORP) reliability curve, which needs no bins: panel, probability, frequency.

    Where the frequency is constant over several probabilities, only the first and the last have a row.

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


def bin_rows(diagram: Reliability) -> list[dict[str, Any]]:
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
) -> list[dict[str, Any]]:
    """Return the histogram of margins (n,) of each panel, whose prompts are marked in ``members`` (n,).

    All panels share their edges, which lie symmetrically about 0 and hold the middle 98% of the margins;
    the few beyond count in the outermost bins.

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


def summary_table(summary: Summary) -> list[dict[str, Any]]:
    """Return the rows of a :class:`~rmcalib.calibration.Summary` as dictionaries.

    >>> from rmcalib.calibration import SummaryRow
    >>> row = SummaryRow("sub", 2, 0.1, 0.05, 0.15, 0.02, 0.03, 0.01, 0.02)
    >>> summary_table(Summary((row,), None, 10, 3))[0]["notion"]
    'sub-2'
    """
    return [
        {
            "notion": f"{row.family}-{row.k}",
            "value": row.value,
            "low": row.low,
            "high": row.high,
            "null_mean": row.null_mean,
            "null_high": row.null_high,
            "p_value": row.p_value,
            "recalibrated": row.recalibrated,
        }
        for row in summary.rows
    ]
