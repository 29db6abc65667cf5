"""What the numbers mean, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rmcalib.benchmarks import SHORT_NAMES
from rmcalib.metrics import OVERALL, catalogue, find_value

__all__ = [
    "is_sure",
    "plain_words",
    "score_name",
    "temperature_notes",
    "temperature_words",
    "time_words",
    "values_in_words",
]

Rows = Sequence[Mapping[str, Any]]
_MONTHS = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]
_FEW = 30  # prompts: with fewer, even a bad forecast passes for calibrated


def plain_words(model: str, rows: Rows, level: float = 0.95) -> str:
    """Say what the metrics of one model come to.

    >>> plain_words("org/rm", [{"metric": "accuracy", "category": "overall", "value": 0.5, "note": ""}])
    'org/rm picks the correct response with an accuracy of 0.500.'
    """

    def value(metric: str, category: str = OVERALL) -> float | None:
        row = find_value(rows, metric, category)
        return None if row is None else row["value"]

    accuracy, ece = value("accuracy"), value("ece")
    if ece is None:
        return _without_calibration(model, rows, accuracy)
    confidence, over, p_value = value("mean_confidence"), value("overconfidence"), value("ece_p_value")
    # They are measured wherever the ECE is.
    accuracy, confidence, over, p_value = (x or 0.0 for x in (accuracy, confidence, over, p_value))
    row = find_value(rows, "ece", OVERALL) or {}
    sentences = [
        f"{model} picks the correct response with an accuracy of {accuracy:.3f} and a mean confidence of "
        f"{confidence:.3f}."
    ]
    if p_value >= 0.05 and row["n"] < _FEW:
        sentences.append(
            f"{_prompts(row['n'])} too few to tell whether it is calibrated: its ECE is {ece:.3f}, where a "
            f"calibrated model would show about {value('ece_null_mean'):.3f} with as many."
        )
    elif p_value >= 0.05 and is_sure(find_value(rows, "overconfidence")):
        direction = "over-confident" if over > 0 else "under-confident"
        sentences.append(
            f"Its first choice is {direction}: it is right {accuracy:.3f} of the time. The ECE of {ece:.3f} "
            f"does not show it, for it pools all responses (a calibrated model shows about "
            f"{value('ece_null_mean'):.3f}; p = {p_value:.2f})."
        )
    elif p_value >= 0.05:
        sentences.append(
            f"No sign of miscalibration: its ECE of {ece:.3f} is what a calibrated model shows with this "
            f"much data (about {value('ece_null_mean'):.3f}; p = {p_value:.2f})."
        )
    else:
        direction = "over-confident" if over > 0 else "under-confident"
        low, high = row["low"], row["high"]
        interval = "" if low is None else f" ({level:.0%} interval {low:.3f} to {high:.3f})"
        sentences.append(
            f"It is {direction}: the ECE is {ece:.3f}{interval}, where a "
            f"calibrated model would show about {value('ece_null_mean'):.3f}."
        )
        told = temperature_words(rows)
        if told:
            sentences.append(told)
    worst = _worst_category(rows)
    if worst is not None:
        sentences.append(f"Worst calibrated: {worst['category']} (ECE {worst['value']:.3f}).")
    return " ".join(sentences)


def values_in_words(model: str, rows: Rows) -> str:
    """List the overall values of some metrics.

    >>> values_in_words("org/rm", [{"metric": "ece", "category": "overall", "value": 0.1234, "note": ""}])
    'org/rm: ECE 0.123.'
    """
    about = catalogue()
    values = [
        f"{about[row['metric']].label} {row['value']:.{about[row['metric']].digits}f}"
        for row in rows
        if row["category"] == OVERALL and row["value"] is not None
    ]
    return f"{model}: {', '.join(values) or 'no values'}."


def is_sure(row: Mapping[str, Any] | None) -> bool:
    """Tell whether the interval of a row of metrics leaves out zero.

    >>> is_sure({"low": 0.1, "high": 0.2}), is_sure({"low": -0.1, "high": 0.2}), is_sure(None)
    (True, False, False)
    """
    if row is None or row["low"] is None:
        return False
    return bool(row["low"] > 0 or row["high"] < 0)


def _prompts(n: int) -> str:
    return "1 prompt is" if n == 1 else f"{n} prompts are"


def score_name(benchmark: str) -> str:
    """Return what the score over all categories is called: its benchmark's name for it, or what it is.

    >>> score_name("allenai/reward-bench-2"), score_name("mine.jsonl")
    ('RewardBench 2 score', 'mean category score')
    """
    return "RewardBench 2 score" if benchmark == SHORT_NAMES["reward-bench-2"] else "mean category score"


def time_words(stamp: str) -> str:
    """Return a time in ISO 8601 as people write it, in UTC; anything else as it is.

    >>> time_words("2026-11-16T10:24:31Z"), time_words("yesterday")
    ('16 November 2026, 10:24 UTC', 'yesterday')
    """
    try:
        at = datetime.fromisoformat(stamp)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return stamp
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}, {at:%H:%M} UTC"


def temperature_words(rows: Rows, category: str = OVERALL) -> str:
    """Say what the best temperature would bring, or why there is none; empty if nothing is known.

    >>> rows = [{"metric": name, "category": "overall", "value": value, "note": ""} for name, value in
    ...         [("ece", 0.12), ("temperature", 3.1), ("ece_at_temperature", 0.02)]]
    >>> temperature_words(rows)
    'Dividing the rewards by T = 3.1 brings the ECE from 0.120 to 0.020, on prompts not used for the fit.'
    """
    found = {name: find_value(rows, name, category) for name in ("ece", "temperature", "ece_at_temperature")}
    before, fitted, after = found.values()
    if before is None or fitted is None or after is None or before["value"] is None:
        return ""
    if fitted["value"] is None or after["value"] is None:
        note = str(fitted["note"])
        return f"Temperature: {note}." if note else ""
    if after["value"] > before["value"] - 0.001:
        return (
            f"Temperature scaling would not help (T = {fitted['value']:.2g}: ECE {before['value']:.3f} "
            f"before, {after['value']:.3f} after)."
        )
    return (
        f"Dividing the rewards by T = {fitted['value']:.2g} brings the ECE from {before['value']:.3f} "
        f"to {after['value']:.3f}, on prompts not used for the fit."
    )


def temperature_notes(rows: Rows) -> list[str]:
    """Say where there is no temperature, and why, and where one makes the log loss worse.

    >>> rows = [{"metric": name, "category": "Math", "value": value, "note": note, "n": 9}
    ...         for name, value, note in [("temperature", None, "needs 20 prompts"), ("nll", 0.5, ""),
    ...                                   ("nll_at_temperature", 0.8, "")]]
    >>> temperature_notes(rows)
    ['No temperature T for Math: needs 20 prompts.', 'At T the log loss gets worse: Math (0.500 to 0.800).']
    """
    without: dict[str, list[str]] = {}
    worse = []
    for row in rows:
        category = str(row["category"])
        if row["metric"] == "temperature" and row["value"] is None and row["note"] and row["n"]:
            without.setdefault(str(row["note"]), []).append(category)
        if row["metric"] == "nll_at_temperature" and row["value"] is not None:
            before = find_value(rows, "nll", category)
            if before is not None and before["value"] is not None and row["value"] > before["value"] + 0.01:
                worse.append(f"{category} ({before['value']:.3f} to {row['value']:.3f})")
    told = [f"No temperature T for {', '.join(names)}: {note}." for note, names in without.items()]
    return [*told, *([f"At T the log loss gets worse: {', '.join(worse)}."] if worse else [])]


def _without_calibration(model: str, rows: Rows, accuracy: float | None) -> str:
    sentences = [f"{model} has no prompt with exactly one correct response here."]
    if accuracy is not None:
        sentences = [f"{model} picks the correct response with an accuracy of {accuracy:.3f}."]
    row = find_value(rows, "ece", OVERALL)
    if row is not None and row["note"] and accuracy is not None:
        sentences.append(f"Its calibration is not measured: {row['note']}.")
    first = find_value(rows, "correct_first_ece", OVERALL)
    if first is not None and first["value"] is not None:
        sentences.append(
            f"Where several are correct, the ECE of “a correct one is first” is {first['value']:.3f}."
        )
    return " ".join(sentences)


def _worst_category(rows: Rows) -> Mapping[str, Any] | None:
    """The category of the largest ECE among those that are not calibrated, if there are several."""
    measured = [
        row
        for row in rows
        if row["metric"] == "ece" and row["category"] != OVERALL and row["value"] is not None
    ]
    off = [row for row in measured if (_p_value(rows, row["category"]) or 0.0) < 0.05]
    return max(off, key=lambda row: row["value"]) if len(measured) > 1 and off else None


def _p_value(rows: Rows, category: str) -> float | None:
    row = find_value(rows, "ece_p_value", category)
    return None if row is None else row["value"]
