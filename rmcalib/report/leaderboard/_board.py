"""The leaderboard by calibration: many models on one benchmark, and what calibration goes with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib.judges import Recipe, recipe_of_run, registry, why_no_calibration
from rmcalib.metrics import OVERALL, Method, Settings, measure_model
from rmcalib._util.terminal import clean_line as clean_text
from rmcalib.report.evaluation._words import score_name
from rmcalib.report.leaderboard._assembly import SCORE, Leaderboard, Row, assemble
from rmcalib.report.leaderboard._runs import ScoredRun, find_runs
from rmcalib.report.leaderboard._tables import Official, read_table
from rmcalib.report.leaderboard._words import check_notes, unseen_notes
from rmcalib.scores import Scores

__all__ = ["Leaderboard", "leaderboard_from_runs", "leaderboard_from_table"]

_FROM_RUNS = ("ece", "ece_at_temperature", "reference_top_1", "brier", "nll")
_REFERENCE = {
    "ece_score": (
        "The paper's public code writes 1 − mean P(chosen) into a column ece_score. That is an error rate "
        "and not a calibration error: its correlation with scores is built in.",
    )
}


def leaderboard_from_runs(
    folders: Iterable[str | Path],
    *,
    benchmark: str | None = None,
    metric: str = "ece",
    methods: Sequence[Method] = ("kendall",),
    official: Official | Callable[[str, Sequence[str]], Official] | None = None,
    bradley_terry_only: bool = False,
    recipes: Iterable[str | Path] = (),
    settings: Settings | None = None,
    on_model: Callable[[int, int, str], None] | None = None,
) -> Leaderboard:
    """Make a leaderboard of all finished runs under some folders (what ``rmcalib eval`` or ``batch`` wrote).

    Parameters
    ----------
    folders : folders that hold runs, at any depth.
    benchmark : which benchmark, where the runs are of several.
    metric : what to sort by and correlate: ece, ece_at_temperature, reference_top_1, brier or nll.
    methods : coefficients of correlation: kendall, spearman, pearson.
    official : official figures to check our own scores against, or what gets them for a benchmark and models.
    bradley_terry_only : leave out models known not to be on a Bradley-Terry scale.
    recipes : more YAML files that describe models.
    settings : bins, resamples, level, seed.
    on_model : called with the number done, the number of all and a name, as models are read.
    """
    settings = settings or Settings()
    if metric not in _FROM_RUNS:
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
        label = clean_text(run.label)
        found = measure_model(
            scores, model=label, no_calibration=why_no_calibration(recipe), settings=settings
        )
        metrics += found.metrics
        curves += found.reliability
        rejection += found.rejection
        marks[label], prompts[label] = recipe, _digest(scores)
    if len(set(prompts.values())) > 1:
        odd = _odd_ones(prompts)
        notes.append(
            f"Not all models were scored on the same prompts; other than most: {', '.join(odd)}. "
            "Compare with care."
        )
    notes += unseen_notes(metrics)
    models = list(marks)
    categories = [name for name in dict.fromkeys(row["category"] for row in metrics) if name != OVERALL]
    check = _check(metrics, {clean_text(run.label): run.model for run in kept}, official)
    if official is not None:
        notes += [
            *([official.note] if official.note else []),
            *check_notes([r.model for r in kept], official),
        ]
    return assemble(
        benchmark=clean_text(kept[0].benchmark),
        metric=metric,
        protocol="exact",
        models=models,
        marks=marks,
        metrics=metrics,
        categories=categories,
        correlated=tuple(dict.fromkeys((metric, "ece", "ece_at_temperature", "reference_top_1"))),
        ranked_by=("accuracy", "ece", "ece_at_temperature", "reference_top_1"),
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
    """Make a leaderboard of a ready table: model, leaderboard_score, categories, and an error of calibration.

    The error's column is ``ece``, ``ece_score`` or ``metric``; see :func:`~.leaderboard_tables.read_table`.
    """
    settings = settings or Settings()
    table = read_table(path, metric=metric, categories=categories)
    known = registry(recipes)
    kept, left_out = _on_scale(
        range(len(table.models)), lambda i: known.get(table.models[i]), bradley_terry_only
    )
    names = [clean_text(name) for name in table.models]
    columns = {"leaderboard": table.scores, **table.categories}
    metrics = [
        _tidy(names[i], OVERALL if name == "leaderboard" else name, SCORE, values[i])
        for i in kept
        for name, values in columns.items()
    ]
    metrics += [_tidy(names[i], OVERALL, table.metric, table.errors[i]) for i in kept]
    return assemble(
        benchmark=clean_text(Path(path).name),
        metric=table.metric,
        protocol=f"as {Path(path).name} has it: column {table.metric}",
        models=[names[i] for i in kept],
        marks={names[i]: known.get(table.models[i]) or Recipe(table.models[i]) for i in kept},
        metrics=metrics,
        categories=list(table.categories),
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
        "note": "" if known else "the table has none",
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
        raise ValueError("--bradley-terry-only: no model is left")
    return kept, left_out


def _left_out(entries: list[Any]) -> list[str]:
    names = [entry.label if isinstance(entry, ScoredRun) else str(entry) for entry in entries]
    if not names:
        return []
    return [f"Left out, because not on a Bradley-Terry scale: {', '.join(map(clean_text, names))}."]


def _check(metrics: list[Row], models: Mapping[str, str], official: Official | None) -> list[Row]:
    if official is None:
        return []
    rows = []
    for row in metrics:
        theirs = official.figure(models[row["model"]], row["category"])
        if row["metric"] == SCORE and row["value"] is not None and theirs is not None:
            ours = row["value"]
            told = {"ours": ours, "official": theirs, "difference": ours - theirs}
            rows.append({"model": row["model"], "category": row["category"], **told})
    return rows


def _digest(scores: Scores) -> str:
    ids = "\0".join(scores.item_id.tolist()).encode("utf-8", "surrogatepass")
    return hashlib.sha256(ids).hexdigest()


def _odd_ones(prompts: Mapping[str, str]) -> list[str]:
    found = list(prompts.values())
    usual = max(dict.fromkeys(found), key=found.count)
    return [name for name, digest in prompts.items() if digest != usual]
