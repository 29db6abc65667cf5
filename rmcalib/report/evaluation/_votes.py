"""The metrics of people's votes on the page: sentences, tiles and the rows of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmcalib._util.display import interval, number, percent, points
from rmcalib.metrics import OVERALL, find_value
from rmcalib.report._headline import direction, leaves_out_zero

__all__ = ["VOTE_METRICS", "has_votes", "tie_note", "vote_tiles", "vote_words", "who_disagrees"]

Rows = Sequence[Mapping[str, Any]]
VOTE_METRICS = (
    "votes_per_prompt",
    "vote_tie_share",
    "vote_confidence",
    "vote_agreement",
    "vote_gap",
    "vote_agreement_ceiling",
    "vote_disagreement_excess",
    "voter_disagreement",
    "vote_calibration_error",
    "vote_calibration_error_null_mean",
    "vote_calibration_error_p_value",
    "vote_log_loss",
    "vote_log_loss_ceiling",
    "vote_log_loss_excess",
    "vote_brier",
    "vote_brier_ceiling",
    "vote_brier_excess",
)
"""The metrics of votes on the page."""

_TILES = {
    "vote_confidence": ("says", "mean probability of its first choice"),
    "vote_agreement": ("people agree", "how many people prefer its first choice"),
    "vote_gap": ("gap", "says minus people agree, in percentage points"),
    "vote_agreement_ceiling": (
        "best possible",
        "how many would agree with the best choice: the noise ceiling",
    ),
    "vote_log_loss_excess": ("log loss above the ceiling", "the true fractions of votes would have 0"),
}
_HOW = {
    "split": "A vote for “equally good” is split evenly among the responses (--ties split).",
    "drop": "Votes for “equally good” are left out (--ties drop).",
    "davidson": "“Equally good” has a separate probability, from Davidson's model, cross-fitted "
    "(--ties davidson).",
    "rao-kupper": "“Equally good” has a separate probability, from Rao and Kupper's model, cross-fitted "
    "(--ties rao-kupper).",
}


def has_votes(rows: Rows) -> bool:
    """Return whether the model was measured against people's votes."""
    return _value(rows, "vote_agreement") is not None


def vote_words(rows: Rows, category: str = OVERALL) -> str:
    """Return confidence, agreement with people, and the noise ceiling, in sentences; empty without votes.

    >>> values = {"vote_confidence": 0.9, "vote_agreement": 0.7, "vote_gap": 0.2}
    >>> vote_words([{"metric": name, "category": "overall", "value": value, "low": value - 0.04,
    ...              "high": value + 0.04, "n": 483} for name, value in values.items()])
    'It says 90%, people agree 70% of the time: over-confident by 20 points [16, 24].'
    """
    says, agree, gap = (
        _value(rows, name, category) for name in ("vote_confidence", "vote_agreement", "vote_gap")
    )
    if agree is None:
        return ""
    if says is None or gap is None:
        first = f"People agree with its first choice {percent(agree['value'])} of the time."
    else:
        first = f"It says {percent(says['value'])}, people agree {percent(agree['value'])} of the time"
        if gap["low"] is None:
            first += "."
        elif leaves_out_zero(gap):
            first += f": {direction(gap['value'])} by {points(gap, sign=False, unit=' points')}."
        else:
            first += f", no more over- or under-confident than chance explains (gap {points(gap)} points)."
    return " ".join(
        filter(None, [first, _ceiling_words(rows, category), _disagreement_words(rows, category)])
    )


def vote_tiles(rows: Rows) -> list[dict[str, str]]:
    """Return the headline metrics of votes, each with its interval and meaning."""
    tiles = []
    for metric, (name, meaning) in _TILES.items():
        row = _value(rows, metric)
        if row is None:
            continue
        known = row["low"] is not None
        if metric == "vote_gap":
            value, _, around = points(row).partition(" ")
            value, around = f"{value} points", around.strip("[]").replace(", ", " to ")
        elif metric == "vote_log_loss_excess":
            value, around = number(row["value"]), interval(row) if known else ""
        else:
            value = percent(row["value"])
            around = f"{percent(row['low'])} to {percent(row['high'])}" if known else ""
        tiles.append({"name": name, "value": value, "interval": around, "meaning": meaning})
    return tiles


def tie_note(rows: Rows, ties: str) -> list[str]:
    """Return how many votes are for "equally good", and how they are counted.

    >>> tie_note([{"metric": "vote_tie_share", "category": "overall", "value": 0.1}], "drop")
    ['10% of the votes are for “equally good”. Votes for “equally good” are left out (--ties drop).']
    """
    row = _value(rows, "vote_tie_share")
    if row is None or row["value"] == 0:
        return []
    return [f"{percent(row['value'])} of the votes are for “equally good”. {_HOW[ties]}"]


def who_disagrees(row: Mapping[str, Any] | None) -> str:
    """Return who disagrees more with a person: the model, or another person.

    >>> who_disagrees({"value": 0.1, "low": 0.05, "high": 0.15}), who_disagrees(None)
    ('the model', '–')
    """
    if row is None or row["low"] is None:
        return "–"
    if not leaves_out_zero(row):
        return "about the same"
    return "the model" if row["value"] > 0 else "another person"


def _ceiling_words(rows: Rows, category: str) -> str:
    best = _value(rows, "vote_agreement_ceiling", category)
    loss, least, above = (
        _value(rows, name, category)
        for name in ("vote_log_loss", "vote_log_loss_ceiling", "vote_log_loss_excess")
    )
    sentences = []
    if best is not None:
        sentences.append(f"With the best choices, about {percent(best['value'])} would agree.")
    elif find_value(rows, "vote_agreement_ceiling", category) is not None:
        sentences.append("There is no noise ceiling: no prompt has two votes.")
    if loss is not None and least is not None and above is not None:
        sentences.append(
            f"Its log loss against the votes is {number(loss['value'])}; that of the true fractions of votes "
            f"would be about {number(least['value'])}."
        )
    return " ".join(sentences)


def _disagreement_words(rows: Rows, category: str) -> str:
    row = _value(rows, "vote_disagreement_excess", category)
    if row is None or row["low"] is None:
        return ""
    shown = points(row, unit=" points")
    if not leaves_out_zero(row):
        return f"It disagrees with a person about as often as two people disagree ({shown})."
    word = "more" if row["value"] > 0 else "less"
    return f"It disagrees with a person {word} often than two people disagree with each other ({shown})."


def _value(rows: Rows, metric: str, category: str = OVERALL) -> Mapping[str, Any] | None:
    row = find_value(rows, metric, category)
    return None if row is None or row["value"] is None else row
