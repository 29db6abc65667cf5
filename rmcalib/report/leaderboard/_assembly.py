"""From tidy rows of many models to a leaderboard: ranks, correlations, one wide row a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.judges import Recipe, scale_note
from rmcalib.metrics import METHODS, METRICS, OVERALL, Method, Settings, correlation_rows
from rmcalib.report.leaderboard._words import summary_words

__all__ = ["SCORE", "Leaderboard", "Row", "assemble"]

Row = dict[str, Any]
SCORE = "rewardbench_score"


@dataclass(frozen=True)
class Leaderboard:
    """Models by calibration, as tidy tables; figures and page are drawn from them.

    ``models``: one row a model, best calibrated first, those without calibration last (``why`` says why).
    ``metrics``: one row a model, category and metric. ``correlations``: one a metric, target and method.
    ``ranks``: one a model and way of ranking. ``reliability``, ``rejection``: curves of each model.
    ``check``: our scores against official ones. ``metric`` is what models are sorted by, ``score_name`` what
    their score over all categories is called. Scores are from 0 to 1.
    """

    benchmark: str
    metric: str
    protocol: str
    score_name: str
    categories: list[str]
    models: list[Row]
    metrics: list[Row]
    correlations: list[Row]
    ranks: list[Row]
    reliability: list[Row]
    rejection: list[Row]
    check: list[Row]
    notes: list[str]
    summary: str
    settings: Settings

    @property
    def ranked(self) -> list[Row]:
        """The models that have a calibration error, best first."""
        return [row for row in self.models if row["rank"] is not None]

    @property
    def other(self) -> str:
        """What ranks are compared with: accuracy where it was measured, else the score."""
        return "accuracy" if any("accuracy" in row["ranks"] for row in self.models) else "score"


def assemble(
    *,
    benchmark: str,
    metric: str,
    protocol: str,
    models: list[str],
    marks: Mapping[str, Recipe],
    metrics: list[Row],
    categories: list[str],
    correlated: Sequence[str],
    ranked_by: Sequence[str],
    score_name: str,
    methods: Sequence[Method],
    curves: tuple[list[Row], list[Row]],
    check: list[Row],
    notes: list[str],
    settings: Settings,
) -> Leaderboard:
    """Rank and correlate ``models`` by their tidy ``metrics``.

    ``correlated`` are the errors to correlate with scores, ``ranked_by`` what ranks are made by, ``marks``
    what is known about each model, ``curves`` those of reliability and rejection.
    """
    by_model: dict[str, dict[tuple[str, str], Row]] = {name: {} for name in models}
    for row in metrics:
        by_model[row["model"]][row["category"], row["metric"]] = row

    def column(name: str, category: str = OVERALL) -> FloatArray:
        found = [by_model[model].get((category, name), {}).get("value") for model in models]
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)

    score = column(SCORE)
    if not np.isfinite(score).any():
        score = column("accuracy")
        score_name = "accuracy"
        notes.append("No score over all categories can be had; accuracy stands in for it.")
    columns = {name: score if name == "score" else column(name) for name in (*ranked_by, metric)}
    ranks = {name: _ranks(values, up=name in ("score", "accuracy")) for name, values in columns.items()}
    unknown = [name for i, name in enumerate(models) if not np.isfinite(columns[metric][i])]
    rows = [
        _wide(by_model[name], name, marks[name], categories, metric, score[i])
        | {"ranks": {by: ranks[by][i] for by in ranked_by}, "rank": ranks[metric][i]}
        for i, name in enumerate(models)
    ]
    rows.sort(key=lambda row: (row["rank"] is None, row["rank"] or 0, row["model"]))
    correlations = [
        row
        for method in methods
        for name in correlated
        for row in correlation_rows(
            column(name),
            {category: column(SCORE, category) for category in categories},
            leaderboard=score,
            metric=name,
            method=method,
            resamples=settings.resamples,
            level=settings.level,
            seed=settings.seed,
        )
    ]
    tied = {row["rank"] for row in rows if row["rank"] is not None}
    if len(rows) - len(unknown) > 1 and len(tied) == 1:
        notes.append("All models have the same calibration error: their order means nothing.")
    if len(models) - len(unknown) < 3:
        notes.append("Correlations need at least three models with a calibration error.")
    return Leaderboard(
        benchmark=benchmark,
        metric=metric,
        protocol=protocol,
        score_name=score_name,
        categories=categories,
        models=rows,
        metrics=[{"model": r["model"], "benchmark": benchmark, **r} for r in metrics],
        correlations=correlations,
        ranks=[
            {"model": row["model"], "by": by, "rank": row["ranks"][by]}
            for row in rows
            for by in ranked_by
            if row["ranks"][by] is not None
        ],
        reliability=curves[0],
        rejection=curves[1],
        check=check,
        notes=notes,
        summary=summary_words(rows, correlations, metric, METHODS, score_name),
        settings=settings,
    )


def _wide(
    found: Mapping[tuple[str, str], Row],
    name: str,
    recipe: Recipe,
    categories: Sequence[str],
    metric: str,
    score: float,
) -> Row:
    def of(category: str, wanted: str) -> Row | None:
        row = found.get((category, wanted))
        return None if row is None or row["value"] is None else row

    values = {key: of(OVERALL, key) for key in dict.fromkeys((metric, *METRICS))}
    main = found.get((OVERALL, metric))
    category_score = {c: of(c, SCORE) for c in categories}
    return {
        "model": name,
        "scale": recipe.bradley_terry,
        "mark": scale_note(recipe),
        "why": ""
        if main is not None and main["value"] is not None
        else (main or {}).get("note") or "not measured",
        "score": float(score) if np.isfinite(score) else None,
        "values": {key: row for key, row in values.items() if row is not None},
        "category_scores": {c: None if r is None else r["value"] for c, r in category_score.items()},
        "category_ece": {c: row for c in categories if (row := of(c, "ece")) is not None},
    }


def _ranks(values: FloatArray, *, up: bool) -> list[int | None]:
    """1 for the best; equal values share the better rank; None where there is no value."""
    errors = -values if up else values
    known = errors[np.isfinite(errors)]
    return [1 + int((known < error).sum()) if np.isfinite(error) else None for error in errors]
