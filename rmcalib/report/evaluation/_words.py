"""The results of one model in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rmcalib._util.display import interval, number, p_value, percent, points
from rmcalib._util.terminal import clean_line
from rmcalib.benchmarks import known_entry
from rmcalib.metrics import OVERALL, catalogue, find_value
from rmcalib.report._headline import FEW, gap_words, headline, leaves_out_zero
from rmcalib.report.evaluation._votes import vote_words

__all__ = [
    "beta_notes",
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


def plain_words(rows: Rows, *, p_floor: float | None = None) -> str:
    """Summarise the metrics of one model; ``p_floor`` is the smallest p-value that the draws allow.

    >>> plain_words([{"metric": "accuracy", "category": "overall", "value": 0.5, "low": None, "note": ""}])
    'It is right 50% of the time.'
    """
    ece = find_value(rows, "ece")
    known = ece is not None and ece["value"] is not None
    people = vote_words(rows)
    first = headline(
        rows, subject="Counting the most preferred response as the correct one, it" if people else "It"
    )
    if not known and not first:
        return " ".join(filter(None, [people, _without_calibration(rows)]))
    sentences = [people, first, _ece_words(rows, ece, p_floor) if ece is not None and known else ""]
    null = find_value(rows, "ece_p_value")
    off = null is not None and null["value"] is not None and null["value"] < 0.05
    if off or leaves_out_zero(find_value(rows, "overconfidence")):
        sentences += [temperature_words(rows), _worst_words(rows)]
    return " ".join(filter(None, sentences))


def values_in_words(rows: Rows) -> str:
    """List the overall values of some metrics.

    >>> values_in_words([{"metric": "ece", "category": "overall", "value": 0.1234, "note": ""}])
    'ECE 0.123.'
    """
    about = catalogue()
    values = [
        f"{about[row['metric']].label} {row['value']:.{about[row['metric']].digits}f}"
        for row in rows
        if row["category"] == OVERALL and row["value"] is not None
    ]
    return f"{', '.join(values) or 'No values'}."


def score_name(benchmark: str) -> str:
    """Return the name of the score over all categories.

    >>> score_name("allenai/reward-bench-2"), score_name("mine.jsonl")
    ('RewardBench 2 score', 'mean category score')
    """
    return (
        "RewardBench 2 score" if benchmark == known_entry("reward-bench-2").hub_id else "mean category score"
    )


def time_words(stamp: str) -> str:
    """Return a time in ISO 8601 as people write it, in UTC; return anything else unchanged.

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
    """Return the effect of the best temperature, or why there is none; empty if it was not fitted.

    The log loss decides whether it helps, because the ECE can hide a wrong scale.

    >>> values = {"temperature": 3.1, "nll": 1.5, "nll_at_temperature": 0.9, "ece": 0.12,
    ...           "ece_at_temperature": 0.02}
    >>> temperature_words([{"metric": name, "category": "overall", "value": value, "note": ""}
    ...                    for name, value in values.items()])
    'At T = 3.1 the log loss falls from 1.50 to 0.900 and the ECE from 0.120 to 0.020 (cross-fitted).'
    >>> values = {"temperature": 184.0, "nll": 1.5, "nll_at_temperature": 1.5}
    >>> temperature_words([{"metric": name, "category": "overall", "value": value, "note": ""}
    ...                    for name, value in values.items()])
    'No temperature would help: at T = 184 the log loss stays at 1.50 (cross-fitted).'
    """
    fitted = find_value(rows, "temperature", category)
    if fitted is None:
        return ""
    if fitted["value"] is None:
        return f"There is no best temperature: {fitted['note']}." if fitted["note"] else ""
    loss, ece = (_before_after(rows, name, category) for name in ("nll", "ece"))
    if loss is None:
        return ""
    before, after, best = number(loss[0]), number(loss[1]), _significant(fitted["value"])
    if loss[1] > loss[0] - 0.001:
        change = f"stays at {before}" if before == after else f"goes from {before} to {after}"
        return f"No temperature would help: at T = {best} the log loss {change} (cross-fitted)."
    change = ""
    if ece is not None:
        verb = "the ECE from" if ece[1] <= ece[0] else "the ECE rises from"
        change = f" and {verb} {number(ece[0])} to {number(ece[1])}"
    return f"At T = {best} the log loss falls from {before} to {after}{change} (cross-fitted)."


def _significant(value: float) -> str:
    """Return a temperature with two significant digits, or as a whole number."""
    return f"{value:#.2g}" if value < 10 else f"{value:,.0f}"


def temperature_notes(rows: Rows) -> list[str]:
    """Return notes on categories without a best temperature, and on those where it makes the log loss worse.

    :func:`temperature_words` is about all prompts together.

    >>> rows = [{"metric": name, "category": "Math", "value": value, "note": note, "n": 9}
    ...         for name, value, note in [("temperature", None, "needs 20 prompts"), ("nll", 0.5, ""),
    ...                                   ("nll_at_temperature", 0.8, "")]]
    >>> for note in temperature_notes(rows): print(note)
    No best temperature for Math: needs 20 prompts.
    A temperature fitted on one category alone makes its held-out log loss worse: Math (0.500 to 0.800).
    """
    without: dict[str, list[str]] = {}
    worse = []
    for row in rows:
        category = str(row["category"])
        if category == OVERALL:
            continue
        if row["metric"] == "temperature" and row["value"] is None and row["note"] and row["n"]:
            without.setdefault(str(row["note"]), []).append(category)
        if row["metric"] == "nll_at_temperature" and row["value"] is not None:
            before = find_value(rows, "nll", category)
            if before is not None and before["value"] is not None and row["value"] > before["value"] + 0.01:
                worse.append(f"{category} ({number(before['value'])} to {number(row['value'])})")
    notes = [f"No best temperature for {', '.join(names)}: {note}." for note, names in without.items()]
    if worse:
        what = "A temperature fitted on one category alone makes its held-out log loss worse"
        notes.append(f"{what}: {', '.join(worse)}.")
    return notes


def beta_notes(rows: Rows, manifest: Mapping[str, Any]) -> list[str]:
    """Return which beta would calibrate a DPO policy: beta / T, because its rewards are beta times a sum.

    >>> rows = [{"metric": "temperature", "category": "overall", "value": 2.0, "low": 1.6, "high": 2.5}]
    >>> beta_notes(rows, {"beta": 0.1, "beta_from": "option", "reference": "org/base"})
    ['Beta is 0.1 (option). The rewards would be calibrated with a beta of 0.05 [0.04, 0.0625] (beta / T).']
    """
    beta, best = manifest.get("beta"), find_value(rows, "temperature")
    if not isinstance(beta, (int, float)) or not manifest.get("reference"):
        return []
    source = {"default": "the default; training may have used another"}.get(
        str(manifest.get("beta_from")), str(manifest.get("beta_from") or "option")
    )
    start = f"Beta is {beta:.3g} ({clean_line(source)})."
    if best is None or best["value"] is None:
        return [start]
    around = "" if best["low"] is None else f" [{beta / best['high']:.3g}, {beta / best['low']:.3g}]"
    wanted = f"{beta / best['value']:.3g}{around}"
    return [f"{start} The rewards would be calibrated with a beta of {wanted} (beta / T)."]


def _before_after(rows: Rows, metric: str, category: str) -> tuple[float, float] | None:
    """The value of a metric at temperature 1 and at the best temperature."""
    found = [find_value(rows, name, category) for name in (metric, f"{metric}_at_temperature")]
    values = [None if row is None else row["value"] for row in found]
    return None if values[0] is None or values[1] is None else (values[0], values[1])


def _ece_words(rows: Rows, ece: Mapping[str, Any], p_floor: float | None) -> str:
    null, p = find_value(rows, "ece_null_mean"), find_value(rows, "ece_p_value")
    start = f"Its ECE is {number(ece['value'])}"
    if ece["low"] is not None:
        start += f" [{interval(ece).replace(' to ', ', ')}]"
    if null is None or p is None or p["value"] is None:
        return f"{start}."
    expected = f"a calibrated model would show about {number(null['value'])} with as many prompts"
    if p["value"] >= 0.05 and ece["n"] < FEW:
        return f"{start}; {expected}, which are too few to tell the two apart."
    shown = p_value(p["value"], p_floor)
    shown = f"p {shown[0]} {shown[1:]}" if shown.startswith("<") else f"p = {shown}"
    if p["value"] >= 0.05:
        return f"{start}, no larger than chance explains ({expected}; {shown})."
    return f"{start}; {expected} ({shown})."


def _worst_words(rows: Rows) -> str:
    """Name the category with the largest significant gap; empty if there is none, or only one category."""
    gaps = [
        row
        for row in rows
        if row["metric"] == "overconfidence" and row["category"] != OVERALL and row["value"] is not None
    ]
    off = [row for row in gaps if leaves_out_zero(row)]
    if len(gaps) < 2 or not off:
        return ""
    worst = max(off, key=lambda row: abs(row["value"]))
    return f"Largest gap: {worst['category']}, {points(worst, unit=' points')}."


def _without_calibration(rows: Rows) -> str:
    right, ece = find_value(rows, "accuracy"), find_value(rows, "ece")
    if right is None or right["value"] is None:
        sentences = ["No prompt here has exactly one correct response."]
    else:
        sentences = [f"It is right {percent(right['value'])} of the time."]
        pairs = gap_words(
            rows, subject="In pairs of a correct and a wrong response it", metric="pairwise_accuracy"
        )
        if pairs:
            whole = (
                f"The correct response wins all its comparisons on {percent(right['value'])} of the prompts."
            )
            sentences = [pairs, whole]
        elif ece is not None and ece["note"]:
            sentences.append(f"Its calibration is not measured: {ece['note']}.")
    first = find_value(rows, "correct_first")
    if first is not None and first["value"] is not None:
        sentences.append(
            f"Where several are correct, one of them is first {percent(first['value'])} of the time."
        )
    return " ".join(sentences)
