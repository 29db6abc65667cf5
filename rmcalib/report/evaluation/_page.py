"""The HTML page of an evaluation: its content, prepared for the template."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rmcalib import __version__
from rmcalib._util.display import interval, number, percent, points
from rmcalib._util.terminal import REPLACEMENT, clean, clean_line, count
from rmcalib.metrics import OVERALL, SMOOTH_RESAMPLES, Example, catalogue, find_value
from rmcalib.report._confidence import groups_figure
from rmcalib.report._decisions import decisions_figure
from rmcalib.report._drawing import figure_svg
from rmcalib.report._headline import HEADLINE, crowded_bin, direction, leaves_out_zero
from rmcalib.report._margins import margin_svg
from rmcalib.report._page import render
from rmcalib.report._reliability import reliability_svg
from rmcalib.report.evaluation._votes import VOTE_METRICS, vote_tiles, who_disagrees
from rmcalib.report.evaluation._words import score_name, time_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from markupsafe import Markup

    from rmcalib.metrics import Table
    from rmcalib.report.evaluation._evaluation import Evaluation

__all__ = ["clean_text", "evaluation_page", "folded"]

_ECE = ("ece", "ece_null_mean", "ece_null_95", "ece_p_value", "temperature", "ece_at_temperature")
_SETS = ("correct_first_probability", "correct_first")
_LENGTHS = (
    "accuracy",
    "shortest_baseline",
    "longest_baseline",
    "reward_length_correlation",
    "confidence_length_correlation",
)
_PREVIEW, _LONGEST = 400, 20_000
_UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_MEANINGS = {
    "mean_confidence": "mean probability of its first choice",
    "accuracy": "how often its first choice is correct",
    "overconfidence": "says minus right, in percentage points",
    "kept_information": "what the stated probabilities are worth: usable minus lost",
    "lost_information": "lost because the rewards have the wrong scale",
    "usable_information": "information of the rewards at their best scale",
}


def evaluation_page(evaluation: Evaluation) -> str:
    """Return the page as HTML: self-contained, with every text escaped."""
    rows = evaluation.metrics
    categories = list(dict.fromkeys(row["category"] for row in rows))
    several = _by_category(rows, categories, (*_SETS, "rewardbench_score"))
    settings = evaluation.settings
    smooth = any(row["metric"] == "smooth_ece" and row["low"] is not None for row in rows)
    fewer = f" (smooth ECE: {SMOOTH_RESAMPLES})" if smooth and settings.resamples > SMOOTH_RESAMPLES else ""
    overall = [row for row in evaluation.reliability if row["panel"] == OVERALL]
    groups = groups_figure(evaluation.groups)
    headline = _by_category(rows, categories, (*HEADLINE, "ece"))
    lead, stop, rest = clean_line(evaluation.summary).partition(". ")
    return render(
        "evaluation.html",
        title=f"Calibration of {clean_line(evaluation.model)}",
        subtitle=clean_line(_subtitle(evaluation)),
        lead=f"{lead}." if stop else lead,
        rest=rest,
        notes=[clean_line(note) for note in evaluation.notes],
        tiles=vote_tiles(rows) or _tiles(rows),
        votes=_votes(rows, categories),
        headline=[row | _direction(row["overconfidence"]) for row in headline],
        has_information=any(_known(row["lost_information"]) for row in headline),
        ece=_by_category(rows, categories, _ECE),
        bound=(find_value(rows, "ece_bound") or _NOTHING)["value"],
        crowded=crowded_bin(overall),
        answers=evaluation.answers,
        groups=evaluation.groups,
        groups_figure=None
        if groups is None
        else figure_svg(groups, "groups", label="The gap of each group of prompts, with its interval"),
        decisions=_decisions(evaluation),
        several=[row for row in several if row[_SETS[0]] is not None and row["category"] != OVERALL],
        lengths=[row for row in _by_category(rows, categories, _LENGTHS) if _known(row["shortest_baseline"])],
        everything=_everything(rows, categories),
        categories=[clean_line(name) for name in categories],
        reliability=_reliability(evaluation),
        margins=_panels(evaluation.margins, margin_svg, "margins"),
        examples=[_example(example) for example in evaluation.examples],
        manifest=clean(json.dumps(evaluation.manifest, indent=2, ensure_ascii=False, default=str)),
        isotonic=bool(evaluation.isotonic),
        n_bins=settings.bins,
        level=f"{settings.level:.0%}",
        p_floor=1 / (settings.resamples + 1),
        apart=_apart(rows),
        footer=(
            f"rmcalib {__version__}, protocol exact, {settings.bins} equal-width bins, {settings.level:.0%} "
            f"intervals from {settings.resamples:,} resamples of prompts{fewer}, seed {settings.seed}."
        ),
    )


def _decisions(evaluation: Evaluation) -> dict[str, Any] | None:
    """The section about decisions: sentences, a figure, and best-of-k."""
    found = evaluation.decisions
    if found is None:
        return None
    drawing = figure_svg(
        decisions_figure(found), "decisions", label="Accuracy of the surest choices, and of the best of k"
    )
    return {"sentences": found.sentences, "figure": drawing, "best_of": found.best_of, "n": found.n}


def folded(text: str) -> dict[str, str]:
    """Split a text into a preview and the whole text to unfold (empty if the text is short).

    >>> folded("short")
    {'preview': 'short', 'whole': ''}
    >>> folded("long " * 200)["preview"][-6:]
    'long …'
    """
    text = text.strip() or "(empty)"
    if len(text) <= _PREVIEW * 1.25:
        return {"preview": text, "whole": ""}
    whole = text
    if len(text) > _LONGEST:
        whole = f"{text[:_LONGEST]}… ({len(text) - _LONGEST:,} more characters)"
    return {"preview": text[:_PREVIEW].rstrip() + " …", "whole": whole}


def clean_text(text: str) -> str:
    r"""Return text that every browser shows: control characters and lone surrogates become `�`.

    Marks of direction stay, because right-to-left texts need them; the page isolates each text.

    >>> clean_text("a\x00b\ud800c\u200f")
    'a�b�c\u200f'
    """
    return _UNSHOWN.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def _subtitle(evaluation: Evaluation) -> str:
    manifest = evaluation.manifest
    row = find_value(evaluation.metrics, "rewardbench_score") or {"n": 0}
    parts = [f"{count(row['n'], 'prompt')} of {evaluation.benchmark}"]
    if row.get("value") is not None:
        parts.append(f"{score_name(evaluation.benchmark)} {row['value']:.3f}")
    parts += [str(manifest[key]) for key in ("dtype", "device", "source") if manifest.get(key)]
    timings = manifest.get("timings")
    if isinstance(timings, dict) and timings.get("finished"):
        parts.append(f"scored {time_words(str(timings['finished']))}")
    return " · ".join(parts)


def _apart(rows: list[dict[str, Any]]) -> str:
    """Return how many prompts the first tables leave out, in a sentence."""
    every, here = find_value(rows, "rewardbench_score"), find_value(rows, "ece")
    n = every["n"] - here["n"] if every is not None and here is not None else 0
    return (
        f" The other {count(n, 'prompt')} (several correct responses, or Ties) are further below."
        if n
        else ""
    )


def _tiles(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The headline metrics with their intervals and meanings; missing ones are left out."""
    tiles = []
    for metric, name in HEADLINE.items():
        row = find_value(rows, metric)
        if row is None or row["value"] is None:
            continue
        if metric == "overconfidence":
            value, _, around = points(row).partition(" ")
            tile = {"value": f"{value} points", "interval": around.strip("[]").replace(", ", " to ")}
        elif metric in ("mean_confidence", "accuracy"):
            around = "" if row["low"] is None else f"{percent(row['low'])} to {percent(row['high'])}"
            tile = {"value": percent(row["value"]), "interval": around}
        else:
            around = "" if row["low"] is None else interval(row)
            tile = {"value": number(row["value"]), "interval": around}
        tiles.append({"name": name, "meaning": _MEANINGS[metric], **tile})
    return tiles


def _votes(rows: list[dict[str, Any]], categories: list[str]) -> list[dict[str, Any]]:
    """The metrics of votes of each category that has votes."""
    found = _by_category(rows, categories, VOTE_METRICS)
    return [
        row | _direction(row["vote_gap"]) | {"more": who_disagrees(row["vote_disagreement_excess"])}
        for row in found
        if _known(row["vote_agreement"])
    ]


def _direction(gap: Mapping[str, Any] | None) -> dict[str, str]:
    """The direction of a gap in words, and its colour."""
    if gap is None or gap["value"] is None or gap["low"] is None:
        return {"verdict": "–", "tone": "soft"}
    if not leaves_out_zero(gap):
        return {"verdict": "chance explains it", "tone": "soft"}
    return {"verdict": direction(gap["value"]), "tone": "bad"}


def _known(row: Mapping[str, Any] | None) -> bool:
    return row is not None and row["value"] is not None


def _by_category(
    rows: list[dict[str, Any]], categories: list[str], metrics: tuple[str, ...]
) -> list[dict[str, Any]]:
    """One row per category with the rows of some metrics; categories without any of them are left out."""
    result = []
    for category in categories:
        found = {
            row["metric"]: row for row in rows if row["category"] == category and row["metric"] in metrics
        }
        if any(row["value"] is not None or row["n"] for row in found.values()):
            n = max(row["n"] for row in found.values())
            result.append({"category": clean_line(category), "n": n, **dict.fromkeys(metrics), **found})
    return result


def _everything(rows: list[dict[str, Any]], categories: list[str]) -> list[dict[str, Any]]:
    """One row per metric: its meaning, its value in each category, and the interval overall."""
    result = []
    for name, metric in catalogue().items():
        found = [find_value(rows, name, category) for category in categories]
        if any(row is not None for row in found):
            result.append(
                {"metric": name, "meaning": metric.meaning, "cells": found, "overall": found[0] or _NOTHING}
            )
    return result


_NOTHING: Mapping[str, Any] = {"value": None, "low": None, "high": None, "n": 0, "note": ""}


def _panels(table: Table, draw: Callable[..., Markup], name: str) -> list[Markup]:
    """One drawing for each panel of a table."""
    table = [{**row, "panel": clean_line(row["panel"])} for row in table]
    panels = dict.fromkeys(row["panel"] for row in table)
    return [draw(table, panel, name=f"{name}-{i}") for i, panel in enumerate(panels)]


def _reliability(evaluation: Evaluation) -> list[Markup]:
    curve = [{**row, "panel": clean_line(row["panel"])} for row in evaluation.isotonic]
    return _panels(evaluation.reliability, partial(reliability_svg, curve=curve), "reliability")


def _example(example: Example) -> dict[str, Any]:
    correct = next(response for response in example.responses if response.is_correct)
    return {
        "item_id": clean_line(example.item_id),
        "category": clean_line(example.category),
        "prompt": None if example.prompt is None else folded(clean_text(example.prompt)),
        "correct": correct.probability,
        "first": example.responses[0].probability,
        "responses": [
            {
                "text": None if response.text is None else folded(clean_text(response.text)),
                "probability": response.probability,
                "reward": response.reward,
                "is_correct": response.is_correct,
            }
            for response in example.responses
        ],
    }
