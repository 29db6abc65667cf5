"""A badge: what a model says, how often it is right, and the gap, as a small SVG."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from rmcalib._util.display import percent
from rmcalib._util.terminal import clean_line
from rmcalib.metrics import find_value
from rmcalib.report import Evaluation

__all__ = ["badge_svg"]

_GREY, _GOOD, _FAIR, _BAD = "#555d69", "#20714b", "#8a5a00", "#a3352f"
_LARGE = 0.1  # a gap of ten points or more is red
_LETTER, _SPACE, _HEIGHT = 6.6, 8, 20  # pixels
_LABEL = "calibration"


def badge_svg(evaluation: Evaluation) -> str:
    """Return a badge as SVG, such as "calibration | says 94%, right 65%, gap +29".

    It is green if the interval of the gap includes 0, red if the gap is ten points or more, else amber.

    Parameters
    ----------
    evaluation : the result of :func:`rmcalib.evaluate`.

    Examples
    --------
    >>> from rmcalib.report import evaluate
    >>> from rmcalib.scores import Scores
    >>> report = evaluate(Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]]), model="org/rm", resamples=20)
    >>> "says 88%, right 50%, gap +38" in badge_svg(report)
    True
    """
    text, colour = _content(evaluation)
    left, right = (round(_LETTER * len(part) + 2 * _SPACE) for part in (_LABEL, text))
    name = quoteattr(f"{_LABEL} of {clean_line(evaluation.model)}: {text}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{_HEIGHT}" role="img" '
        f"aria-label={name}><title>{escape(f'{_LABEL}: {text}')}</title>"
        f'<rect width="{left + right}" height="{_HEIGHT}" rx="3" fill="{_GREY}"/>'
        f'<rect x="{left}" width="{right}" height="{_HEIGHT}" rx="3" fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14">{_LABEL}</text>'
        f'<text x="{left + right / 2}" y="14">{escape(text)}</text></g></svg>\n'
    )


def _content(evaluation: Evaluation) -> tuple[str, str]:
    """Return the text of the badge and its colour."""
    rows = evaluation.metrics
    says, right, gap = (find_value(rows, name) for name in ("mean_confidence", "accuracy", "overconfidence"))
    if any(row is None or row["value"] is None for row in (says, right, gap)):
        return "not available", _GREY
    assert says is not None and right is not None and gap is not None  # noqa: PT018 (checked above)
    text = f"says {percent(says['value'])}, right {percent(right['value'])}, gap {100 * gap['value']:+.0f}"
    if gap["low"] is not None and gap["low"] <= 0 <= gap["high"]:
        return text, _GOOD
    return text, _BAD if abs(gap["value"]) >= _LARGE else _FAIR
