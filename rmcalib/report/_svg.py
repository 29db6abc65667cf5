"""Figures inside the page: small vector drawings whose colours follow the page's light or dark theme.

Each function takes a table's rows of one panel and returns SVG. They are styled by the page (classes `ink`,
`line`, `band`, `bar`, ...), stand in a grid that goes to one column on a phone, and nothing is computed here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rmcalib.metrics import Table

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["margin_svg", "reliability_svg"]

_WIDTH, _LEFT, _RIGHT, _TOP = 250, 46, 8, 22
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_PLOT = _WIDTH - _LEFT - _RIGHT


def reliability_svg(rows: Table, title: str) -> Markup:
    """Draw one reliability diagram with its consistency band, and the histogram of forecasts below.

    >>> row = {"low": 0.5, "high": 0.6, "count": 4, "confidence": 0.55, "frequency": 0.5, "band_low": 0.2,
    ...        "band_high": 0.9}
    >>> drawing = reliability_svg([row], "A & B")
    >>> "A &amp; B" in drawing, drawing.count("<circle")
    (True, 1)
    """
    height, bottom = 190, _TOP + 190
    floor = bottom + 62

    def x(value: float) -> float:
        return _LEFT + _PLOT * value

    def y(value: float) -> float:
        return bottom - height * value

    parts = [_axis(_LEFT, bottom, x(1), bottom), _axis(_LEFT, _TOP, _LEFT, bottom)]
    parts += [_text(_LEFT - 5, y(tick) + 3.5, f"{tick:g}", "end") for tick in _TICKS]
    parts.append(_upright(y(0.5), "how often it came true"))
    parts.append(f'<path class="diagonal" d="M{x(0):.1f},{y(0):.1f}L{x(1):.1f},{y(1):.1f}"/>')
    for row in rows:
        top, base = y(row["band_high"]), y(row["band_low"])
        parts.append(
            f'<rect class="band" x="{x(row["confidence"]) - 4:.1f}" y="{top:.1f}" width="8" '
            f'height="{max(base - top, 1):.1f}"/>'
        )
    points = [(x(row["confidence"]), y(row["frequency"])) for row in rows]
    parts.append(f'<path class="line" d="M{"L".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>')
    for (a, b), row in zip(points, rows, strict=True):
        told = f"{row['count']:,} forecasts of about {row['confidence']:.2f}: {row['frequency']:.2f} happened"
        parts.append(f'<circle class="dot" cx="{a:.1f}" cy="{b:.1f}" r="3"><title>{told}</title></circle>')
    largest = max(row["count"] for row in rows)
    for row in rows:
        size = 40 * row["count"] / largest
        parts.append(
            f'<rect class="bar" x="{x(row["low"]) + 0.5:.1f}" y="{floor - size:.1f}" '
            f'width="{_PLOT * (row["high"] - row["low"]) - 1:.1f}" height="{size:.1f}"/>'
        )
    parts += [_axis(_LEFT, floor, x(1), floor), _text(_LEFT - 5, floor - 33, f"{largest:,}", "end")]
    parts += [_text(x(tick), floor + 12, f"{tick:g}", "middle") for tick in _TICKS]
    parts.append(_text(x(0.5), floor + 26, "predicted probability", "middle"))
    parts.append(_upright(floor - 20, "count"))
    seen = ", ".join(f"{row['confidence']:.2f} came true {row['frequency']:.2f}" for row in rows)
    return _drawing(parts, title, floor + 32, f"Reliability diagram, {title}: predicted {seen}")


def margin_svg(rows: Table, title: str) -> Markup:
    """Draw one histogram of margins: right of zero the model is right.

    >>> rows = [{"low": -1.0, "high": 0.0, "count": 2}, {"low": 0.0, "high": 1.0, "count": 1}]
    >>> margin_svg(rows, "all").count("<rect")
    2
    """
    low, high = rows[0]["low"], rows[-1]["high"]
    largest = max(1, *(row["count"] for row in rows))
    floor = _TOP + 90

    def x(value: float) -> float:
        return _LEFT + _PLOT * (value - low) / (high - low)

    parts = []
    for row in rows:
        size = 85 * row["count"] / largest
        kind = "bar" if row["low"] + row["high"] > 0 else "bar wrong"
        parts.append(
            f'<rect class="{kind}" x="{x(row["low"]) + 0.3:.1f}" y="{floor - size:.1f}" '
            f'width="{x(row["high"]) - x(row["low"]) - 0.6:.1f}" height="{size:.1f}"/>'
        )
    parts += [_axis(_LEFT, floor, _LEFT + _PLOT, floor), _axis(x(0), _TOP, x(0), floor)]
    parts.append(_text(_LEFT - 5, _TOP + 8, f"{largest:,}", "end"))
    step = _round_step(high)
    for tick in (-2 * step, -step, 0.0, step, 2 * step):
        if low <= tick <= high:
            parts.append(_text(x(tick), floor + 12, f"{tick:g}", "middle"))
    parts.append(_text(_LEFT + _PLOT / 2, floor + 26, "margin of the correct response", "middle"))
    parts.append(_upright((_TOP + floor) / 2, "prompts"))
    right = sum(row["count"] for row in rows if row["low"] + row["high"] > 0)
    told = f"{right:,} of {sum(row['count'] for row in rows):,} prompts right of zero"
    return _drawing(parts, title, floor + 32, f"Histogram of margins, {title}: {told}")


def _round_step(reach: float) -> float:
    """A round number of which two fit into ``reach``."""
    power = 10.0 ** math.floor(math.log10(reach / 2))
    return max(factor * power for factor in (1, 2, 5) if factor * power <= reach / 2)


def _axis(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path class="axis" d="M{x1:.1f},{y1:.1f}L{x2:.1f},{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _upright(y: float, text: str) -> str:
    """The name of the axis that goes up, left of its numbers, around a height."""
    return f'<text transform="translate(10,{y:.1f}) rotate(-90)" text-anchor="middle">{text}</text>'


def _drawing(parts: list[str], title: str, height: float, label: str) -> Markup:
    """Put the parts together; title and label hold the only text that comes from data, and are escaped."""
    from markupsafe import Markup, escape

    short = escape(title if len(title) <= 34 else title[:33] + "…")
    head = f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
    name = f'<text class="name" x="{_LEFT}" y="13">{short}</text>'
    return Markup(head + name + "".join(parts) + "</svg>")
