"""The leaderboard by calibration: many models on one benchmark, and the correlation with their scores."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.terminal import clean_line
from rmcalib.judges import Recipe, recipe_of_run, registry, why_no_calibration
from rmcalib.metrics import OVERALL, Method, Settings, measure_model
from rmcalib.report.evaluation._words import score_name
from rmcalib.report.leaderboard._assembly import SCORE, Leaderboard, Row, assemble
from rmcalib.report.leaderboard._runs import ScoredRun, find_runs
from rmcalib.report.leaderboard._tables import Official, read_table
from rmcalib.report.leaderboard._words import check_notes, size_notes, unseen_notes
from rmcalib.scores import Scores

__all__ = ["Leaderboard", "leaderboard_from_runs", "leaderboard_from_table"]

_FROM_RUNS = (
    *("lost_information", "overconfidence", "ece", "ece_at_temperature"),
    *("reference_top_1", "brier", "nll"),
)
_REFERENCE = {
    "ece_score": (
        "The paper's public code writes 1 − mean P(chosen) into a column ece_score. That is an error rate, "
        "not a calibration error, so it correlates with scores by construction.",
    )
}


def leaderboard_from_runs(
    folders: Iterable[str | Path],
    *,
    benchmark: str | None = None,
    metric: str | None = None,
    methods: Sequence[Method] = ("kendall",),
    official: Official | Callable[[str, Sequence[str]], Official] | None = None,
    bradley_terry_only: bool = False,
    recipes: Iterable[str | Path] = (),
    settings: Settings | None = None,
    on_model: Callable[[int, int, str], None] | None = None,
) -> Leaderboard:
    """Make a leaderboard of all finished runs under some folders (written by ``rmcalib eval`` or ``batch``).

    Parameters
    ----------
    folders : folders that hold runs, at any depth.
    benchmark : which benchmark, if there are runs of several.
    metric : what to sort by and correlate: lost_information (default), overconfidence, ece,
        ece_at_temperature, reference_top_1, brier or nll.
    methods : coefficients of correlation: kendall, spearman, pearson.
    official : official figures to check our scores against, or a function of a benchmark and models that
        returns them.
    bradley_terry_only : leave out models known not to be on a Bradley-Terry scale.
    recipes : more YAML files that describe models.
    settings : bins, resamples, level, seed.
    on_model : called with the number of models read, the number of all models, and a name.

    Returns
    -------
    A :class:`Leaderboard`.
    """
    settings = settings or Settings()
    if metric not in (None, *_FROM_RUNS):
        raise ValueError(f"metric: unknown {metric!r} (have: {', '.join(_FROM_RUNS)})")
    runs, notes = find_runs(folders, benchmark=benchmark)
    known = registry(recipes)
    recipe_of = {run.folder: recipe_of_run(run.model, run.manifest, known) for run in runs}
    kept, left_out = _on_scale(runs, lambda run: recipe_of[run.folder], bradley_terry_only)
    notes += _left_out(left_out)
    if callable(official):
        official = official(kept[0].benchmark, [run.model for run in kept])
    metrics: list[Row] = []
    curves: list[Row] = []
    rejection: list[Row] = []
    marks: dict[str, Recipe] = {}
    prompts: dict[str, str] = {}
    for i, run in enumerate(kept):
        if on_model is not None:
            on_model(i, len(kept), run.label)
        scores = Scores.from_parquet(run.scores_file)
        recipe = recipe_of[run.folder]
        label = clean_line(run.label)
        found = measure_model(
            scores, model=label, no_calibration=why_no_calibration(recipe), settings=settings
        )
        metrics += [{**row, "category": clean_line(row["category"])} for row in found.metrics]
        curves += found.reliability
        rejection += found.rejection
        marks[label], prompts[label] = recipe, _digest(scores)
    if len(set(prompts.values())) > 1:
        odd = _odd_ones(prompts)
        notes.append(
            f"Not all models were scored on the same prompts. Different from most: {', '.join(odd)}. "
            "Compare them with care."
        )
    measured = {row["metric"] for row in metrics if row["value"] is not None}
    metric = metric or ("lost_information" if "lost_information" in measured else "ece")
    notes += [*size_notes(_sizes(metrics, curves), metric), *unseen_notes(metrics)]
    models = list(marks)
    first = [name for name in ("lost_information",) if name in measured]
    categories = [name for name in dict.fromkeys(row["category"] for row in metrics) if name != OVERALL]
    check = _check(metrics, {clean_line(run.label): run.model for run in kept}, official)
    if official is not None:
        notes += [
            *([official.note] if official.note else []),
            *check_notes([r.model for r in kept], official),
        ]
    return assemble(
        benchmark=clean_line(kept[0].benchmark),
        metric=metric,
        protocol="exact",
        models=models,
        marks=marks,
        metrics=metrics,
        categories=categories,
        correlated=tuple(dict.fromkeys((metric, *first, "ece", "ece_at_temperature", "reference_top_1"))),
        ranked_by=("accuracy", *first, "ece", "ece_at_temperature", "reference_top_1"),
        score_name=score_name(kept[0].benchmark),
        methods=methods,
        curves=(curves, rejection),
        check=check,
        notes=notes,
        settings=settings,
    )


def leaderboard_from_table(
    path: str | Path,
    *,
    metric: str | None = None,
    categories: Iterable[str] | None = None,
    methods: Sequence[Method] = ("kendall",),
    bradley_terry_only: bool = False,
    recipes: Iterable[str | Path] = (),
    settings: Settings | None = None,
) -> Leaderboard:
    """Make a leaderboard from a CSV: model, leaderboard_score, categories, and a calibration error.

    The column of the error is ``ece``, ``ece_score`` or ``metric``. The other parameters are those of
    :func:`leaderboard_from_runs`.
    """
    settings = settings or Settings()
    table = read_table(path, metric=metric, categories=categories)
    known = registry(recipes)
    kept, left_out = _on_scale(
        range(len(table.models)), lambda i: known.get(table.models[i]), bradley_terry_only
    )
    names = [clean_line(name) for name in table.models]
    columns = {"leaderboard": table.scores} | {clean_line(k): v for k, v in table.categories.items()}
    metrics = [
        _tidy(names[i], OVERALL if name == "leaderboard" else name, SCORE, values[i])
        for i in kept
        for name, values in columns.items()
    ]
    metrics += [_tidy(names[i], OVERALL, table.metric, table.errors[i]) for i in kept]
    return assemble(
        benchmark=clean_line(Path(path).name),
        metric=table.metric,
        protocol=f"column {clean_line(table.metric)} of {clean_line(Path(path).name)}",
        models=[names[i] for i in kept],
        marks={names[i]: known.get(table.models[i]) or Recipe(table.models[i]) for i in kept},
        metrics=metrics,
        categories=list(columns)[1:],
        correlated=(table.metric,),
        ranked_by=("score", table.metric),
        score_name="leaderboard score",
        methods=methods,
        curves=([], []),
        check=[],
        notes=[*_left_out([table.models[i] for i in left_out]), *_REFERENCE.get(table.metric, ())],
        settings=settings,
    )


def _tidy(model: str, category: str, metric: str, value: float) -> Row:
    known = bool(np.isfinite(value))
    return {
        "model": model,
        "category": category,
        "metric": metric,
        "value": float(value) if known else None,
        "low": None,
        "high": None,
        "n": None,
        "note": "" if known else "empty in the table",
    }


def _on_scale(
    entries: Iterable[Any], recipe: Callable[[Any], Recipe | None], wanted: bool
) -> tuple[list[Any], list[Any]]:
    """Split into those to keep and those that are known not to be on a Bradley-Terry scale."""
    kept: list[Any] = []
    left_out: list[Any] = []
    for entry in entries:
        found = recipe(entry)
        off_scale = wanted and found is not None and found.bradley_terry == "no"
        (left_out if off_scale else kept).append(entry)
    if not kept:
        raise ValueError("--bradley-terry-only: leaves no model")
    return kept, left_out


def _left_out(entries: list[Any]) -> list[str]:
    names = [entry.label if isinstance(entry, ScoredRun) else str(entry) for entry in entries]
    if not names:
        return []
    return [f"Left out, because not on a Bradley-Terry scale: {', '.join(map(clean_line, names))}."]


def _check(metrics: list[Row], models: Mapping[str, str], official: Official | None) -> list[Row]:
    if official is None:
        return []
    rows = []
    for row in metrics:
        theirs = official.figure(models[row["model"]], row["category"])
        if row["metric"] == SCORE and row["value"] is not None and theirs is not None:
            ours = row["value"]
            figures = {"ours": ours, "official": theirs, "difference": ours - theirs}
            rows.append({"model": row["model"], "category": row["category"], **figures})
    return rows


def _sizes(metrics: list[Row], reliability: list[Row]) -> dict[str, float]:
    """The mean number of responses per prompt of each model: forecasts in all bins over prompts."""
    counts: dict[str, int] = {}
    for row in reliability:
        counts[row["model"]] = counts.get(row["model"], 0) + row["count"]
    prompts = {
        row["model"]: row["n"] for row in metrics if (row["category"], row["metric"]) == (OVERALL, "ece")
    }
    return {model: total / prompts[model] for model, total in counts.items() if prompts.get(model)}


def _digest(scores: Scores) -> str:
    ids = "\0".join(scores.item_id.tolist()).encode("utf-8", "surrogatepass")
    return hashlib.sha256(ids).hexdigest()


def _odd_ones(prompts: Mapping[str, str]) -> list[str]:
    found = list(prompts.values())
    usual = max(dict.fromkeys(found), key=found.count)
    return [name for name, digest in prompts.items() if digest != usual]
