"""From tidy rows of many models to a leaderboard: ranks, correlations, one wide row per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.judges import Recipe, scale_note
from rmcalib.metrics import METHODS, METRICS, OVERALL, Method, Settings, correlation_rows
from rmcalib.report.leaderboard._words import metric_name, summary_words

__all__ = ["SCORE", "Leaderboard", "Row", "assemble"]

Row = dict[str, Any]
SCORE = "rewardbench_score"
_LARGER_IS_BETTER = {"score", "accuracy", "usable_information"}


@dataclass(frozen=True)
class Leaderboard:
    """Models by calibration, as tidy tables; figures and page are drawn from them.

    Attributes
    ----------
    metric : the metric that models are sorted by.
    score_name : the name of the score over all categories. Scores are from 0 to 1.
    models : one row per model, the best first; those without a value come last, and ``why`` gives the reason.
    metrics : one row per model, category and metric.
    correlations : one row per metric, target and method.
    ranks : one row per model and way of ranking.
    reliability, rejection : the curves of each model.
    check : our scores against official ones.
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
        """The models that have a value of the metric, the best first."""
        return [row for row in self.models if row["rank"] is not None]

    @property
    def other(self) -> str:
        """The other way of ranking: accuracy if it was measured, else the score."""
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

    ``correlated`` are the errors to correlate with scores, ``ranked_by`` the metrics to rank by, ``marks``
    the recipe of each model, ``curves`` the rows of reliability and of rejection.
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
        notes.append("There is no score over all categories; accuracy is used instead.")
    columns = {name: score if name == "score" else column(name) for name in (*ranked_by, metric)}
    ranks = {name: _ranks(values, name) for name, values in columns.items()}
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
            _errors(column(name), name),
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
        notes.append(f"All models have the same {metric_name(metric)}: their order means nothing.")
    if len(models) - len(unknown) < 3:
        notes.append("Correlations need at least three models with probabilities.")
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

    own = [name for category, name in found if category == OVERALL]
    values = {key: of(OVERALL, key) for key in dict.fromkeys((metric, *METRICS, *own))}
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


def _ranks(values: FloatArray, metric: str) -> list[int | None]:
    """1 for the best; equal values share the better rank; None where there is no value."""
    errors = _errors(values, metric)
    known = errors[np.isfinite(errors)]
    return [1 + int((known < error).sum()) if np.isfinite(error) else None for error in errors]


def _errors(values: FloatArray, metric: str) -> FloatArray:
    """Values turned so that smaller is better: a gap counts by its size."""
    if metric == "overconfidence":
        return np.abs(values)
    return -values if metric in _LARGER_IS_BETTER else values
