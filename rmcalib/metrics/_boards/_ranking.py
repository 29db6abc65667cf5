"""Rank models by their metrics, and correlate their errors with their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray
from rmcalib.metrics._boards._correlation import Method, correlation_rows
from rmcalib.metrics._catalogue import catalogue
from rmcalib.metrics._statistic import Settings
from rmcalib.metrics._table import OVERALL

if TYPE_CHECKING:
    import pandas

__all__ = ["SCORE", "Board", "rank_models"]

Row = dict[str, Any]
SCORE = "rewardbench_score"
"""The metric that is the score of a model, over all categories and in each of them."""
_UNINFORMATIVE = (
    "these prompts do not show that its rewards have usable information; at a high temperature such rewards "
    "give a uniform guess, whose ECE is near 0"
)


@dataclass(frozen=True)
class Board:
    """Models ranked by a metric, as tidy tables.

    Attributes
    ----------
    metric : str
        The metric that models are sorted by.
    score : str
        The metric that is their score: rewardbench_score, or accuracy where that is not available.
    categories : list[str]
        The categories of the benchmark.
    models : list[Row]
        One row per model, best first. Models that are not shown to be better than a uniform guess
        (``better_than_guess`` is False) come after those that are. Models without a rank come last, with the
        reason in ``why``.
    metrics : list[Row]
        One row per model, category and metric.
    correlations : list[Row]
        One row per metric, target and method. Errors and scores are from the same prompts, and intervals
        resample models only.
    split_correlations : list[Row]
        One row per error and target, from different halves of the prompts (`correlate_models`); empty if the
        numbers come from a table.
    ranks : list[Row]
        One row per model and way of ranking.
    reliability, rejection : list[Row]
        The reliability and the rejection curve of each model.
    notes : list[str]
        Warnings and remarks for readers.
    settings : Settings
        Bins, resamples, level and seed.

    Examples
    --------
    >>> from rmcalib.metrics import leaderboard
    >>> from rmcalib.scores import Scores
    >>> made = {"a": Scores.from_arrays([[1.0, 0.0]] * 3), "b": Scores.from_arrays([[0.0, 1.0]] * 3)}
    >>> board = leaderboard(made, metric="accuracy", resamples=20)
    >>> [(row["rank"], row["model"]) for row in board.models]
    [(1, 'a'), (2, 'b')]
    """

    metric: str
    score: str
    categories: list[str]
    models: list[Row]
    metrics: list[Row]
    correlations: list[Row]
    split_correlations: list[Row]
    ranks: list[Row]
    reliability: list[Row]
    rejection: list[Row]
    notes: list[str]
    settings: Settings

    @property
    def table(self) -> pandas.DataFrame:
        """One row per model as a pandas table: rank, score, every metric with its interval, categories."""
        import pandas

        return pandas.DataFrame(self.wide_rows())

    def wide_rows(self) -> list[Row]:
        """Return one flat row per model: rank, score, values with their intervals, categories, ranks."""
        keys = list(dict.fromkeys([self.metric, *(key for row in self.models for key in row["values"])]))
        rows = []
        for row in self.models:
            flat: Row = {"rank": row["rank"], "model": row["model"], "score": row["score"]}
            flat["better_than_guess"] = row["better_than_guess"]
            for key in keys:
                found = row["values"].get(key)
                flat[key] = found and found["value"]
                if any((other["values"].get(key) or {}).get("low") is not None for other in self.models):
                    flat[f"{key}_low"] = found and found["low"]
                    flat[f"{key}_high"] = found and found["high"]
            flat |= {f"score[{name}]": row["category_scores"][name] for name in self.categories}
            flat |= {f"rank_by[{by}]": rank for by, rank in row["ranks"].items()}
            rows.append(flat | {"note": row["why"]})
        return rows


def rank_models(
    models: Sequence[str],
    metrics: Sequence[Row],
    *,
    metric: str,
    categories: Sequence[str],
    correlated: Sequence[str],
    ranked_by: Sequence[str],
    methods: Sequence[Method],
    settings: Settings,
    curves: tuple[list[Row], list[Row]] = ([], []),
    notes: Sequence[str] = (),
    split_correlations: Sequence[Row] = (),
    chance: Mapping[str, float] | None = None,
) -> Board:
    """Rank models by their metrics, and correlate errors with scores.

    Parameters
    ----------
    models : Sequence[str]
        Names, in any order.
    metrics : Sequence[Row]
        One row per model, category and metric.
    metric : str
        The metric to sort by.
    categories : Sequence[str]
        The categories of the benchmark.
    correlated : Sequence[str]
        Names of the errors to correlate with the scores.
    ranked_by : Sequence[str]
        Names of the metrics to rank models by; "score" is the score over all categories. Models whose usable
        information may be 0 get no rank by "ece_at_temperature".
    methods : Sequence[Method]
        Coefficients of correlation.
    settings : Settings
        Resamples, level and seed of the correlations' intervals.
    curves : tuple[list[Row], list[Row]]
        Rows of the reliability curves and of the rejection curves.
    notes : Sequence[str]
        Warnings and remarks for readers.
    split_correlations : Sequence[Row]
        Correlations from different halves of the prompts (`correlate_models`).
    chance : Mapping[str, float], optional
        The accuracy of a random choice on each model's prompts. Models that are not shown to do better than a
        uniform guess come after those that do.

    Returns
    -------
    Board

    Examples
    --------
    >>> rows = [{"model": name, "category": "overall", "metric": "ece", "value": value, "low": None,
    ...          "high": None, "n": 100, "note": ""} for name, value in [("a", 0.2), ("b", 0.1)]]
    >>> board = rank_models(["a", "b"], rows, metric="ece", categories=[], correlated=[], ranked_by=["ece"],
    ...                     methods=[], settings=Settings())
    >>> [row["model"] for row in board.models]
    ['b', 'a']
    """
    found: dict[str, dict[tuple[str, str], Row]] = {name: {} for name in models}
    for row in metrics:
        found[row["model"]][row["category"], row["metric"]] = row
    notes, score = list(notes), SCORE
    if not np.isfinite(_column(found, SCORE)).any():
        score = "accuracy"
        notes.append("There is no score over all categories, so accuracy is used instead.")
    scores = _column(found, score)
    columns = {name: scores if name == "score" else _column(found, name) for name in (*ranked_by, metric)}
    if "ece_at_temperature" in columns:
        columns["ece_at_temperature"][_uninformative(found)] = np.nan
    informed = [_better_than_guess(found[name], (chance or {}).get(name)) for name in models]
    guesses = np.array([one is False for one in informed], dtype=bool)
    ranks = {
        name: _ranks(_badness(name, values), guesses & (name not in ("score", "accuracy")))
        for name, values in columns.items()
    }
    rows = [
        _wide(found[name], name, categories, metric, scores[i])
        | {"ranks": {by: ranks[by][i] for by in ranked_by}, "rank": ranks[metric][i]}
        | {"better_than_guess": informed[i]}
        for i, name in enumerate(models)
    ]
    for row in rows:
        if row["rank"] is None and metric in row["values"]:
            row["why"] = _UNINFORMATIVE
    rows.sort(key=lambda row: (row["rank"] is None, row["rank"] or 0, row["model"]))
    # One category is the same as all of them together.
    targets = categories if len(categories) > 1 else ()
    correlations = [
        row
        for method in methods
        for name in correlated
        for row in correlation_rows(
            _badness(name, _column(found, name)),
            {category: _column(found, SCORE, category) for category in targets},
            leaderboard=scores,
            metric=name,
            method=method,
            resamples=settings.resamples,
            level=settings.level,
            seed=settings.seed,
        )
    ]
    return Board(
        metric=metric,
        score=score,
        categories=list(categories),
        models=rows,
        metrics=list(metrics),
        correlations=correlations,
        split_correlations=list(split_correlations),
        ranks=[
            {"model": row["model"], "by": by, "rank": row["ranks"][by]}
            for row in rows
            for by in ranked_by
            if row["ranks"][by] is not None
        ],
        reliability=curves[0],
        rejection=curves[1],
        notes=[*notes, *_rank_notes(metric, rows)],
        settings=settings,
    )


def _column(
    found: Mapping[str, Mapping[tuple[str, str], Row]], name: str, category: str = OVERALL
) -> FloatArray:
    """Return the values of a metric, one per model (n,); NaN where there is none."""
    values = [rows.get((category, name), {}).get("value") for rows in found.values()]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _uninformative(found: Mapping[str, Mapping[tuple[str, str], Row]]) -> BoolArray:
    """Return which models (n,) are not shown to have usable information: its interval reaches 0."""
    usable = [rows.get((OVERALL, "usable_information"), {}) for rows in found.values()]
    return np.array([row.get("low") is not None and row["low"] <= 0 for row in usable], dtype=bool)


def _rank_notes(metric: str, rows: Sequence[Row]) -> list[str]:
    notes = []
    known = [row["rank"] for row in rows if row["rank"] is not None]
    if len(known) > 1 and len(set(known)) == 1:
        label = catalogue()[metric].label if metric in catalogue() else metric
        notes.append(f"All models have the same {label}, so their order has no meaning.")
    if len(known) < 3:
        notes.append("Correlations need at least three models with probabilities.")
    return notes


def _wide(
    found: Mapping[tuple[str, str], Row], name: str, categories: Sequence[str], metric: str, score: float
) -> Row:
    def of(category: str, wanted: str) -> Row | None:
        row = found.get((category, wanted))
        return None if row is None or row["value"] is None else row

    own = [name for category, name in found if category == OVERALL]
    values = {key: of(OVERALL, key) for key in dict.fromkeys((metric, *catalogue(), *own))}
    main = found.get((OVERALL, metric))
    category_score = {c: of(c, SCORE) for c in categories}
    return {
        "model": name,
        "why": ""
        if main is not None and main["value"] is not None
        else (main or {}).get("note") or "not measured",
        "score": float(score) if np.isfinite(score) else None,
        "values": {key: row for key, row in values.items() if row is not None},
        "category_scores": {c: None if r is None else r["value"] for c, r in category_score.items()},
        "category_ece": {c: row for c in categories if (row := of(c, "ece")) is not None},
    }


def _badness(name: str, values: FloatArray) -> FloatArray:
    """Numbers that are smaller for better values (n,)."""
    if name == "score":
        return -values
    metric = catalogue().get(name)
    return values if metric is None else np.array([metric.badness(value) for value in values])


def _ranks(errors: FloatArray, last: BoolArray) -> list[int | None]:
    """1 for the best; ``last`` come after the others; equal ones share the better rank; None for no value."""
    places = list(zip(last.tolist(), errors.tolist(), strict=True))
    known = [place for place in places if np.isfinite(place[1])]
    return [1 + sum(other < place for other in known) if np.isfinite(place[1]) else None for place in places]


def _better_than_guess(found: Mapping[tuple[str, str], Row], chance: float | None) -> bool | None:
    """Return whether a model is shown to be better than a uniform guess; None where nobody can say."""
    kept, accuracy, pairs = (
        found.get((OVERALL, name), {}) for name in ("kept_information", "accuracy", "pairwise_accuracy")
    )
    if kept.get("high") is not None and kept["high"] < 0:
        return False
    if accuracy.get("low") is not None and chance is not None:
        return bool(accuracy["low"] > chance)
    return bool(pairs["low"] > 0.5) if pairs.get("low") is not None else None  # a judge of pairs only
