"""The HTML page of an evaluation: what it shows, arranged for its template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmcalib import __version__
from rmcalib.metrics import OVERALL, SMOOTH_RESAMPLES, catalogue, find_value
from rmcalib.report._page import render
from rmcalib.report._svg import margin_svg, reliability_svg
from rmcalib.report.evaluation._examples import Example, clean_text
from rmcalib.report.evaluation._words import score_name, time_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from markupsafe import Markup

    from rmcalib.metrics import Table
    from rmcalib.report.evaluation._evaluation import Evaluation

__all__ = ["evaluation_page", "folded"]

_OVERVIEW = (
    "accuracy",
    "mean_confidence",
    "ece",
    "ece_null_mean",
    "ece_null_95",
    "ece_p_value",
    "temperature",
    "ece_at_temperature",
)
_SETS = ("correct_first_probability", "correct_first_ece", "correct_first_ece_null_mean")
_LENGTHS = (
    "accuracy",
    "shortest_baseline",
    "longest_baseline",
    "reward_length_correlation",
    "confidence_length_correlation",
)
_PREVIEW, _LONGEST = 400, 20_000


def evaluation_page(evaluation: Evaluation) -> str:
    """Return the page as HTML: self-contained, and every text in it escaped."""
    rows = evaluation.metrics
    categories = list(dict.fromkeys(row["category"] for row in rows))
    several = _by_category(rows, categories, (*_SETS, "correct_first_ece_p_value", "rewardbench_score"))
    settings = evaluation.settings
    smooth = any(row["metric"] == "smooth_ece" and row["low"] is not None for row in rows)
    fewer = f" (smooth ECE: {SMOOTH_RESAMPLES})" if smooth and settings.resamples > SMOOTH_RESAMPLES else ""
    return render(
        "evaluation.html",
        title=f"Calibration of {clean_text(evaluation.model)}",
        subtitle=clean_text(_subtitle(evaluation)),
        summary=clean_text(evaluation.summary),
        notes=[clean_text(note) for note in evaluation.notes],
        overview=_by_category(rows, categories, _OVERVIEW),
        several=[row for row in several if _SETS[0] in row and row["category"] != OVERALL],
        lengths=_by_category(rows, categories, _LENGTHS),
        everything=_everything(rows, categories),
        categories=[clean_text(name) for name in categories],
        reliability=_drawings(reliability_svg, evaluation.reliability),
        margins=_drawings(margin_svg, evaluation.margins),
        examples=[_example(example) for example in evaluation.examples],
        manifest=clean_text(json.dumps(evaluation.manifest, indent=2, ensure_ascii=False, default=str)),
        n_bins=settings.bins,
        level=f"{settings.level:.0%}",
        apart=_apart(rows),
        footer=(
            f"rmcalib {__version__}, protocol exact, {settings.bins} equal-width bins, {settings.level:.0%} "
            f"intervals from {settings.resamples:,} resamples of prompts{fewer}, seed {settings.seed}."
        ),
    )


def folded(text: str) -> dict[str, str]:
    """Split a text into what is shown at once and the whole to unfold (empty if it is short).

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


def _subtitle(evaluation: Evaluation) -> str:
    manifest = evaluation.manifest
    row = find_value(evaluation.metrics, "rewardbench_score") or {"n": 0}
    parts = [f"{row['n']:,} prompts of {evaluation.benchmark}"]
    if row.get("value") is not None:
        parts.append(f"{score_name(evaluation.benchmark)} {row['value']:.3f}")
    parts += [str(manifest[key]) for key in ("dtype", "device", "source") if manifest.get(key)]
    timings = manifest.get("timings")
    if isinstance(timings, dict) and timings.get("finished"):
        parts.append(f"scored {time_words(str(timings['finished']))}")
    return " · ".join(parts)


def _apart(rows: list[dict[str, Any]]) -> str:
    """Say how many prompts are not in the first table, which counts fewer than the page's head."""
    every, here = find_value(rows, "rewardbench_score"), find_value(rows, "ece")
    n = every["n"] - here["n"] if every is not None and here is not None else 0
    return f" (the other {n:,} are below: several correct responses, or Ties)" if n else ""


def _by_category(
    rows: list[dict[str, Any]], categories: list[str], metrics: tuple[str, ...]
) -> list[dict[str, Any]]:
    """One row a category with the rows of some metrics; categories that have none of them are left out."""
    result = []
    for category in categories:
        found = {
            row["metric"]: row for row in rows if row["category"] == category and row["metric"] in metrics
        }
        if any(row["value"] is not None or row["n"] for row in found.values()):
            n = max(row["n"] for row in found.values())
            result.append({"category": clean_text(category), "n": n, **found})
    return result


def _everything(rows: list[dict[str, Any]], categories: list[str]) -> list[dict[str, Any]]:
    """One row a metric: what it means, its value in each category, and the interval overall."""
    result = []
    for name, metric in catalogue().items():
        found = [find_value(rows, name, category) for category in categories]
        if any(row is not None for row in found):
            result.append(
                {"metric": name, "meaning": metric.meaning, "cells": found, "overall": found[0] or _NOTHING}
            )
    return result


_NOTHING: Mapping[str, Any] = {"value": None, "low": None, "high": None, "n": 0, "note": ""}


def _drawings(draw: Callable[[Table, str], Markup], table: Table) -> list[Markup]:
    """One drawing for each panel of a table."""
    panels = dict.fromkeys(row["panel"] for row in table)
    return [draw([row for row in table if row["panel"] == panel], clean_text(panel)) for panel in panels]


def _example(example: Example) -> dict[str, Any]:
    correct = next(response for response in example.responses if response.is_correct)
    return {
        "item_id": clean_text(example.item_id),
        "category": clean_text(example.category),
        "prompt": None if example.prompt is None else folded(example.prompt),
        "correct": correct.probability,
        "first": example.responses[0].probability,
        "responses": [
            {
                "text": None if response.text is None else folded(response.text),
                "probability": response.probability,
                "reward": response.reward,
                "is_correct": response.is_correct,
            }
            for response in example.responses
        ],
    }
