"""Labels beside points that cover neither points nor other labels.

Labels that do not fit are left out. We do not use adjustText: it takes seconds for fifty labels, keeps all of
them, and lets them cover points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.report._drawing import GREY, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["label_points", "place_labels"]

_HEIGHT = 1.26  # of a line, in font sizes


def label_points(
    axes: Axes, points: FloatArray, names: Sequence[str], *, most: int, font: float = 6.3, gap: float = 0.05
) -> None:
    """Write names beside points; the limits, scales and position of the axes must be set before.

    ``points`` (n, 2) are all points that labels must not cover; the first ``len(names)`` of them are
    labelled, in this order, until ``most`` labels are placed. ``gap`` is the distance from a point in inches.
    """
    dpi = axes.figure.dpi
    box = axes.get_window_extent()
    corner = np.array([box.x0, box.y0])
    inches = (axes.transData.transform(points) - corner) / dpi
    # Widths are estimated, because measuring text means drawing it. Capitals are wider.
    letters = np.array([0.6 * len(name) + 0.12 * sum(map(str.isupper, name)) for name in names])
    widths = letters * font / 72
    frame = (box.width / dpi, box.height / dpi)
    for number, left, middle, far in place_labels(inches, widths, _HEIGHT * font / 72, frame, most, gap):
        # A name starts or ends beside its point, even if the estimated width is wrong.
        before = left + widths[number] <= inches[number][0]
        near = np.clip(inches[number][0], left, left + widths[number])
        spots = np.array([[left + widths[number] * before, middle], [near, middle]]) * dpi + corner
        at, start = axes.transData.inverted().transform(spots)
        align = "right" if before else "left"
        axes.text(at[0], at[1], names[number], fontsize=font, color=INK, va="center", ha=align)
        if far:
            line = np.array([start, points[number]])
            axes.plot(*line.T, color=GREY, linewidth=0.4, zorder=0)


def place_labels(
    points: FloatArray,
    widths: FloatArray,
    height: float,
    box: tuple[float, float],
    most: int,
    gap: float = 0.05,
) -> list[tuple[int, float, float, bool]]:
    """Find places for labels beside points, without covering points or other labels.

    ``points`` (n, 2), the ``widths`` (k,) of the labels of the first k points, their ``height`` and the
    ``box`` around all of them are in inches. Returns the number of each labelled point, the left and the
    middle of its label, and whether it is far enough to need a line. Labels that do not fit are left out.

    >>> place_labels(np.array([[1.0, 1.0]]), np.array([0.5]), 0.1, (3.0, 3.0), 5)[0][0]
    0
    """
    taken = np.column_stack([points - gap * 0.7, points + gap * 0.7])  # left, bottom, right, top
    placed: list[tuple[int, float, float, bool]] = []
    for i, ((x, y), width) in enumerate(zip(points, widths, strict=False)):
        if len(placed) == most:
            break
        for ring in (0.0, 0.09, 0.2, 0.34):
            reach = gap + ring
            middles = [
                (x + reach, y),
                (x - reach - width, y),
                (x - width / 2, y + reach + height / 2),
                (x - width / 2, y - reach - height / 2),
                (x + reach * 0.8, y + reach),
                (x + reach * 0.8, y - reach),
                (x - reach * 0.8 - width, y + reach),
                (x - reach * 0.8 - width, y - reach),
            ]
            found = next((place for place in middles if _free(place, width, height, taken, box, i)), None)
            if found is not None:
                left, middle = found
                own = [left, middle - height / 2, left + width, middle + height / 2]
                taken = np.vstack([taken, own])
                placed.append((i, left, middle, ring > 0))
                break
    return placed


def _free(
    place: tuple[float, float],
    width: float,
    height: float,
    taken: FloatArray,
    box: tuple[float, float],
    own: int,
) -> bool:
    left, bottom = place[0], place[1] - height / 2
    right, top = left + width, bottom + height
    if left < 0 or bottom < 0 or right > box[0] or top > box[1]:
        return False
    hit = (taken[:, 0] < right) & (taken[:, 2] > left) & (taken[:, 1] < top) & (taken[:, 3] > bottom)
    hit[own] = False
    return not hit.any()
