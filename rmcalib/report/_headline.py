"""The headline of a report: mean confidence, accuracy, their gap, and the information lost by the scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmcalib._util.display import number, percent, points
from rmcalib._util.terminal import count
from rmcalib.metrics import FEWEST, OVERALL, find_value

__all__ = [
    "HEADLINE",
    "crowded_bin",
    "direction",
    "gap_words",
    "headline",
    "headline_keys",
    "information_words",
    "leaves_out_zero",
]

Rows = Sequence[Mapping[str, Any]]
Row = Mapping[str, Any]

HEADLINE: dict[str, str] = {
    "mean_confidence": "says",
    "accuracy": "right",
    "overconfidence": "gap",
    "kept_information": "kept information",
    "lost_information": "lost information",
    "usable_information": "usable information",
}
"""The first metrics of every table, with their headings."""

FEW = 30  # prompts; with fewer, even bad probabilities look calibrated
_CROWDED = 0.8  # of all probabilities in one bin


def headline_keys(metric: str) -> dict[str, str]:
    """Return the first metrics of a table that is sorted by a metric, and their headings.

    If the metric is about pairs, so are these: all judges have them.

    Parameters
    ----------
    metric : str
        Name of the metric that the table is sorted by.

    Returns
    -------
    dict of str to str
        Headings by metric: confidence, accuracy and gap.

    Examples
    --------
    >>> list(headline_keys("pairwise_brier"))[:2], list(headline_keys("ece"))[:2]
    (['pairwise_confidence', 'pairwise_accuracy'], ['mean_confidence', 'accuracy'])
    """
    names = {"mean_confidence": "says", "accuracy": "right", "overconfidence": "gap in points"}
    if not metric.startswith("pairwise_"):
        return names
    keys = ("pairwise_confidence", "pairwise_accuracy", "pairwise_overconfidence")
    return dict(zip(keys, names.values(), strict=True))


def headline(rows: Rows, category: str = OVERALL, *, subject: str = "It") -> str:
    """Return the first sentences of a report.

    Parameters
    ----------
    rows : Rows
        Rows of `metric_rows`.
    category : str
        The category that they are about; by default all prompts.
    subject : str
        The first word of the sentence.

    Returns
    -------
    str
        Empty if the model has no probabilities.

    Examples
    --------
    >>> values = {"mean_confidence": 0.9, "accuracy": 0.222, "overconfidence": 0.678}
    >>> rows = [{"metric": name, "category": "overall", "value": value, "low": value - 0.04,
    ...          "high": value + 0.04, "n": 483} for name, value in values.items()]
    >>> headline(rows)
    'It says 90% and is right 22% of the time: over-confident by 68 points [64, 72].'
    """
    words = [gap_words(rows, category, subject=subject), information_words(rows, category)]
    return " ".join(filter(None, words))


def gap_words(rows: Rows, category: str = OVERALL, *, subject: str = "It", metric: str = "accuracy") -> str:
    """Return confidence, accuracy, and whether chance explains the gap, in a sentence.

    If ``metric`` is about pairs, so is the sentence.

    >>> values = {"pairwise_confidence": 1.0, "pairwise_accuracy": 0.76, "pairwise_overconfidence": 0.24}
    >>> rows = [{"metric": name, "category": "overall", "value": value, "low": value - 0.02,
    ...          "high": value + 0.02, "n": 483} for name, value in values.items()]
    >>> gap_words(rows, subject="In pairs it", metric="pairwise_accuracy")
    'In pairs it says 100% and is right 76% of the time: over-confident by 24 points [22, 26].'
    """
    says, right, gap = (_row(rows, name, category) for name in headline_keys(metric))
    if says is None or right is None or gap is None:
        return ""
    start = f"{subject} says {percent(says['value'])} and is right {percent(right['value'])} of the time"
    if gap.get("low") is None:
        return f"{start}: {count(gap['n'], 'prompt')} cannot show whether this is chance."
    if gap["n"] < FEWEST:
        return f"{start}: {count(gap['n'], 'prompt')} are too few for a verdict (gap {points(gap)} points)."
    if leaves_out_zero(gap):
        return f"{start}: {direction(gap['value'])} by {points(gap, sign=False, unit=' points')}."
    start += f": no more over- or under-confident than chance explains (gap {points(gap, unit=' points')})."
    if gap["n"] < FEW:
        return f"{start} {count(gap['n'], 'prompt').capitalize()} are too few to tell."
    cancelled = "" if metric.startswith("pairwise_") else _cancelled_words(rows, category)
    return f"{start} {cancelled}" if cancelled else start


def information_words(rows: Rows, category: str = OVERALL) -> str:
    """Return usable and lost information in a sentence."""
    lost, usable = (_row(rows, name, category) for name in ("lost_information", "usable_information"))
    if lost is None or usable is None or lost["n"] < FEWEST:
        return ""
    start = (
        f"At the best scale, its rewards would remove {_share(usable)} of the uncertainty of a uniform guess "
        "(usable information); "
    )
    if lost.get("low") is not None and lost["low"] <= 0:
        return f"{start}their own scale loses no more than chance explains (lost information {_share(lost)})."
    worse = lost["value"] > usable["value"]
    end = ": its probabilities are worse than a uniform guess." if worse else "."
    whole = "that uncertainty" if lost["value"] >= 1 else "of it"
    return f"{start}their own scale loses {_share(lost)} {whole} (lost information){end}"


def direction(gap: float) -> str:
    """Name the sign of a gap.

    >>> direction(0.1), direction(-0.1)
    ('over-confident', 'under-confident')
    """
    return "over-confident" if gap > 0 else "under-confident"


def leaves_out_zero(row: Row | None) -> bool:
    """Return whether the interval of a row of metrics leaves out zero.

    >>> leaves_out_zero({"low": 0.1, "high": 0.2}), leaves_out_zero({"low": -0.1, "high": 0.2})
    (True, False)
    >>> leaves_out_zero(None)
    False
    """
    if row is None or row["low"] is None:
        return False
    return bool(row["low"] > 0 or row["high"] < 0)


def crowded_bin(reliability: Rows) -> str:
    """Return a warning if most probabilities lie in one bin, where the ECE hides errors; else empty.

    >>> rows = [{"low": 0.2, "high": 0.3, "count": 95}, {"low": 0.3, "high": 0.4, "count": 5}]
    >>> crowded_bin(rows)
    '95% of all probabilities are in one bin of the ECE (0.2 to 0.3), where it hides errors. Use the gap.'
    """
    total = sum(row["count"] for row in reliability)
    fullest = max(reliability, key=lambda row: row["count"], default=None)
    if fullest is None or fullest["count"] < _CROWDED * total:
        return ""
    return (
        f"{percent(fullest['count'] / total)} of all probabilities are in one bin of the ECE "
        f"({fullest['low']:.3g} to {fullest['high']:.3g}), where it hides errors. Use the gap."
    )


def _cancelled_words(rows: Rows, category: str) -> str:
    """Return a sentence if a test shows that the gap is small only because errors of both signs cancel."""
    for metric in ("confidence_ece", "ece"):
        p = _row(rows, f"{metric}_p_value", category)
        error, null = (_row(rows, name, category) for name in (metric, f"{metric}_null_mean"))
        if p is not None and p["value"] < 0.05 and error is not None and null is not None:
            name = "the ECE of its first choice" if metric == "confidence_ece" else "its ECE"
            return (
                f"But errors of both signs cancel: {name} is {number(error['value'])}, and that of a "
                f"calibrated model would be about {number(null['value'])}."
            )
    return ""


def _row(rows: Rows, metric: str, category: str) -> Row | None:
    row = find_value(rows, metric, category)
    return None if row is None or row["value"] is None else row


def _share(row: Row) -> str:
    """Return a fraction with its interval, as a percentage, or as "times" if it is above 1."""
    values = [row["value"], row.get("low"), row.get("high")]
    if row["value"] >= 1:
        texts = [
            None if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}" for value in values
        ]
        first = f"{texts[0]} times"
    else:
        digits = 0 if abs(row["value"]) >= 0.0995 else 1
        texts = [None if value is None else f"{100 * value:.{digits}f}" for value in values]
        first = "<0.1%" if 0 < row["value"] < 0.0005 else f"{texts[0]}%"
    return first if texts[1] is None else f"{first} [{texts[1]}, {texts[2]}]"
