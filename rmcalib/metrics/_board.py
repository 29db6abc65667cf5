"""From the metrics of many models to a leaderboard: ranks, correlations, one wide row per model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib._util.terminal import clean_line
from rmcalib.judges import recipe_of_run, registry, why_no_calibration
from rmcalib.metrics._catalogue import catalogue
from rmcalib.metrics._correlation import Method, correlation_rows
from rmcalib.metrics._leaderboard import measure_model, ranked_metrics
from rmcalib.metrics._statistic import Settings
from rmcalib.metrics._table import OVERALL
from rmcalib.metrics._two_way import ModelErrors, correlate_errors, model_errors
from rmcalib.scores import Scores

if TYPE_CHECKING:
    import pandas

__all__ = [
    "DEFAULT_METRIC",
    "SCORE",
    "Board",
    "Entry",
    "check_sortable",
    "leaderboard",
    "measure_entries",
    "rank_models",
    "sortable_metrics",
    "wide_rows",
]

Row = dict[str, Any]
SCORE = "rewardbench_score"
DEFAULT_METRIC = "lost_information"
_ALWAYS = ("lost_information", "ece", "ece_at_temperature", "reference_top_1")


@dataclass(frozen=True)
class Board:
    """Models by one metric, as tidy tables.

    Attributes
    ----------
    metric : what models are sorted by.
    score : what their score is: rewardbench_score, or accuracy where that is not available.
    categories : the categories of the benchmark.
    models : one row per model, best first; models without a value come last, and ``why`` says why.
    metrics : one row per model, category and metric.
    correlations : one row per metric, target and method; errors and scores are of the same prompts, and
        intervals resample models only.
    split_correlations : one row per error and target, from different halves of the prompts
        (`correlate_models`); empty for a table of figures.
    ranks : one row per model and way of ranking.
    reliability, rejection : curves of each model.
    notes : what a reader must know.
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

        return pandas.DataFrame(wide_rows(self.models, self.metric, self.categories))


@dataclass(frozen=True)
class Entry:
    """One model of a leaderboard: its name, how to get its scores, and what is known about it.

    ``no_calibration`` says why it has no probabilities, if so. Models of one ``family`` are not independent;
    by default the part of the name before the slash.
    """

    name: str
    scores: Callable[[], Scores]
    no_calibration: str | None = None
    family: str | None = None


def leaderboard(
    scores: Iterable[Scores] | Mapping[str, Scores],
    *,
    names: Sequence[str] | None = None,
    metric: str = DEFAULT_METRIC,
    methods: Sequence[Method] = ("kendall",),
    recipes: Iterable[str | Path] = (),
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Board:
    """Rank models by a metric, and correlate it with their scores.

    Parameters
    ----------
    scores : the scores of each model, on the same benchmark; or a mapping from names to scores.
    names : what to call the models; by default what the manifests of the scores say.
    metric : what to sort by: a metric of the catalogue with a better direction.
    methods : coefficients of correlation: kendall, spearman, pearson.
    recipes : YAML files that describe more models, to know which rewards are not utilities.
    resamples, level, seed : of the intervals.

    Returns
    -------
    Board: its ``table`` has one row per model, best first.

    Examples
    --------
    >>> def made(confidence):
    ...     columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...                "is_correct": [True, False] * 2, "reward": [confidence, 0.0, 0.0, confidence]}
    ...     return Scores.from_columns(columns)
    >>> board = leaderboard({"bold": made(3.0), "timid": made(0.1)}, metric="brier", resamples=20)
    >>> board.table["model"].tolist()
    ['timid', 'bold']
    """
    if isinstance(scores, Mapping):
        names, every = [*scores], [*scores.values()]
    else:
        every = list(scores)
        names = list(names or [str(one.manifest.get("model") or i + 1) for i, one in enumerate(every)])
    if not every or len(names) != len(every) or len(set(names)) < len(names):
        raise ValueError(
            f"leaderboard: {len(every)} scores and the names {', '.join(names) or '(none)'}; expected at "
            "least one model, and a different name for each (give names=[...])"
        )
    known = registry(recipes)
    entries = []
    for name, one in zip(names, every, strict=True):
        recipe = recipe_of_run(name, one.manifest, known)
        entries.append(Entry(name, partial(_itself, one), why_no_calibration(recipe), recipe.family))
    settings = Settings(resamples=resamples, level=level, seed=seed)
    return measure_entries(entries, metric=metric, methods=methods, settings=settings)


def sortable_metrics() -> list[str]:
    """Return the names of the metrics that a leaderboard can be sorted by."""
    return [name for name, metric in ranked_metrics().items() if metric.better is not None]


def check_sortable(metric: str) -> None:
    """Raise a ValueError unless a leaderboard can be sorted by this metric."""
    if metric not in sortable_metrics():
        raise ValueError(f"metric: unknown {metric!r} (have: {', '.join(sortable_metrics())})")


def measure_entries(
    entries: Sequence[Entry],
    *,
    metric: str,
    methods: Sequence[Method] = ("kendall",),
    settings: Settings | None = None,
    on_model: Callable[[int, int, str], None] | None = None,
) -> Board:
    """Measure and rank models whose scores are read one after the other.

    ``on_model`` is called with the number done, the number of all and a name, as models are read.
    """
    settings = settings or Settings()
    check_sortable(metric)
    metrics: list[Row] = []
    curves: tuple[list[Row], list[Row]] = ([], [])
    prompts: dict[str, str] = {}
    sizes: dict[str, float] = {}
    errors: dict[str, ModelErrors] = {}
    for i, entry in enumerate(entries):
        if on_model is not None:
            on_model(i, len(entries), entry.name)
        scores = entry.scores()
        found = measure_model(
            scores, model=entry.name, no_calibration=entry.no_calibration, settings=settings
        )
        metrics += [{**row, "category": clean_line(row["category"])} for row in found.metrics]
        curves[0].extend(found.reliability)
        curves[1].extend(found.rejection)
        prompts[entry.name] = _digest(scores)
        sizes[entry.name] = round(len(scores) / scores.n_items, 1)
        if entry.no_calibration is None and (own := model_errors(scores)) is not None:
            errors[entry.name] = own
    notes = _size_notes(metric, sizes)
    if len(set(prompts.values())) > 1:
        odd = ", ".join(_odd_ones(prompts))
        notes.append(
            f"Not all models were scored on the same prompts. Different from most: {odd}. Compare them with "
            "care."
        )
    return rank_models(
        [entry.name for entry in entries],
        metrics,
        metric=metric,
        categories=[name for name in dict.fromkeys(row["category"] for row in metrics) if name != OVERALL],
        correlated=tuple(dict.fromkeys((metric, *_ALWAYS))),
        ranked_by=("accuracy", *_ALWAYS),
        methods=methods,
        settings=settings,
        curves=curves,
        notes=notes,
        split_correlations=correlate_errors(
            errors, families={one.name: one.family for one in entries if one.family}, settings=settings
        ),
    )


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
) -> Board:
    """Rank and correlate ``models`` by their tidy ``metrics``.

    ``correlated`` are the errors to correlate with scores, ``ranked_by`` what ranks are made by, ``curves``
    those of reliability and rejection.
    """
    by_model: dict[str, dict[tuple[str, str], Row]] = {name: {} for name in models}
    for row in metrics:
        by_model[row["model"]][row["category"], row["metric"]] = row

    def column(name: str, category: str = OVERALL) -> FloatArray:
        found = [by_model[model].get((category, name), {}).get("value") for model in models]
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)

    notes, score = list(notes), SCORE
    if not np.isfinite(column(SCORE)).any():
        score = "accuracy"
        notes.append("There is no score over all categories; accuracy is used instead.")
    columns = {name: column(score if name == "score" else name) for name in (*ranked_by, metric)}
    ranks = {name: _ranks(_badness(name, values)) for name, values in columns.items()}
    scores = column(score)
    rows = [
        _wide(by_model[name], name, categories, metric, scores[i])
        | {"ranks": {by: ranks[by][i] for by in ranked_by}, "rank": ranks[metric][i]}
        for i, name in enumerate(models)
    ]
    rows.sort(key=lambda row: (row["rank"] is None, row["rank"] or 0, row["model"]))
    # One category is the same as all of them together.
    targets = categories if len(categories) > 1 else ()
    correlations = [
        row
        for method in methods
        for name in correlated
        for row in correlation_rows(
            _badness(name, column(name)),
            {category: column(SCORE, category) for category in targets},
            leaderboard=scores,
            metric=name,
            method=method,
            resamples=settings.resamples,
            level=settings.level,
            seed=settings.seed,
        )
    ]
    known = [row["rank"] for row in rows if row["rank"] is not None]
    if len(known) > 1 and len(set(known)) == 1:
        label = catalogue()[metric].label if metric in catalogue() else metric
        notes.append(f"All models have the same {label}: their order means nothing.")
    if len(known) < 3:
        notes.append("Correlations need at least three models with probabilities.")
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
        notes=notes,
        settings=settings,
    )


def wide_rows(models: Sequence[Row], metric: str, categories: Sequence[str]) -> list[Row]:
    """Return one flat row per model: rank, score, values with their intervals, categories, ranks."""
    keys = list(dict.fromkeys([metric, *(key for row in models for key in row["values"])]))
    rows = []
    for row in models:
        flat: Row = {"rank": row["rank"], "model": row["model"], "score": row["score"]}
        for key in keys:
            found = row["values"].get(key)
            flat[key] = found and found["value"]
            if any((other["values"].get(key) or {}).get("low") is not None for other in models):
                flat[f"{key}_low"] = found and found["low"]
                flat[f"{key}_high"] = found and found["high"]
        flat |= {f"score[{name}]": row["category_scores"][name] for name in categories}
        flat |= {f"rank_by[{by}]": rank for by, rank in row["ranks"].items()}
        rows.append(flat | {"note": row["why"]})
    return rows


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


def _ranks(errors: FloatArray) -> list[int | None]:
    """1 for the best; equal values share the better rank; None where there is no value."""
    known = errors[np.isfinite(errors)]
    return [1 + int((known < error).sum()) if np.isfinite(error) else None for error in errors]


def _size_notes(metric: str, sizes: Mapping[str, float]) -> list[str]:
    """Warn if models with different numbers of responses are sorted by a metric that depends on them."""
    different = sorted(set(sizes.values()))
    if len(different) < 2 or not catalogue()[metric].depends_on_m:
        return []
    shown = ", ".join(f"{size:g}" for size in different)
    return [
        f"Models were scored with different numbers of responses per prompt ({shown}), and "
        f"{catalogue()[metric].label} depends on that number: do not compare their ranks. "
        f"{catalogue()[DEFAULT_METRIC].label.capitalize()} can be compared."
    ]


def _itself(scores: Scores) -> Scores:
    return scores


def _digest(scores: Scores) -> str:
    ids = "\0".join(scores.item_id.tolist()).encode("utf-8", "surrogatepass")
    return hashlib.sha256(ids).hexdigest()


def _odd_ones(prompts: Mapping[str, str]) -> list[str]:
    found = list(prompts.values())
    usual = max(dict.fromkeys(found), key=found.count)
    return [name for name, digest in prompts.items() if digest != usual]
