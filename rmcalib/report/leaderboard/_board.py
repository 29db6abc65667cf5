"""Make a leaderboard by calibration from run folders, or from a table of a user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.terminal import clean_line
from rmcalib.judges import Recipe, recipe_of_run, registry, why_no_calibration
from rmcalib.metrics import (
    DEFAULT_METRIC,
    OVERALL,
    SCORE,
    Entry,
    Method,
    Settings,
    check_sortable,
    measure_entries,
    rank_models,
)
from rmcalib.report.evaluation._words import score_name
from rmcalib.report.leaderboard._assembly import Leaderboard, Row, assemble
from rmcalib.report.leaderboard._runs import ScoredRun, find_runs, source_notes
from rmcalib.report.leaderboard._tables import Official, read_table
from rmcalib.report.leaderboard._training import step_labels, training_rows
from rmcalib.report.leaderboard._words import check_notes, unseen_notes
from rmcalib.scores import Missing

__all__ = ["Leaderboard", "leaderboard_from_runs", "leaderboard_from_table", "leaderboard_of"]

_OF_PAIRS = "pairwise_brier"
_REFERENCE = {
    "ece_score": (
        "The paper's public code writes 1 − mean P(chosen) into a column ece_score. This is an error rate, "
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
    steps: str = "product",
    missing: Missing | None = None,
) -> Leaderboard:
    """Make a leaderboard of all finished runs under some folders (written by ``rmcalib eval`` or ``batch``).

    Parameters
    ----------
    folders : Iterable[str | Path]
        Folders that hold runs, at any depth, or files of scores; ``"real"`` is the built-in board of real
        reward models.
    benchmark : str, optional
        The benchmark, if there are runs of several.
    metric : str, optional
        The metric to sort by and correlate: one of the catalogue for which low, high or near 0 is better.
        Default: kept_information, or pairwise_brier if a judge only compares pairs.
    methods : Sequence[Method]
        Coefficients of correlation: kendall, spearman, pearson.
    official : Official | Callable[[str, Sequence[str]], Official], optional
        Official scores to check ours against (`read_official`), or a function of a benchmark and models that
        returns them (`official_from_hub`).
    bradley_terry_only : bool
        Leave out models that are known not to be on a Bradley-Terry scale.
    recipes : Iterable[str | Path]
        YAML files that describe more models.
    settings : Settings, optional
        Bins, resamples, level and seed.
    on_model : Callable[[int, int, str], None], optional
        Called before each model is read, with the number of models done, their total number and the name.
    steps, missing
        How to read files of scores; see :func:`rmcalib.load_scores`.

    Returns
    -------
    Leaderboard

    Examples
    --------
    >>> board = leaderboard_from_runs(["real"], settings=Settings(resamples=20))
    >>> len(board.ranked), board.ranked[0]["model"]
    (9, 'internlm/internlm2-20b-reward')
    """
    if metric is not None:
        check_sortable(metric)
    runs, notes = find_runs(folders, benchmark=benchmark, steps=steps, missing=missing)
    return leaderboard_of(
        runs,
        notes,
        metric=metric,
        methods=methods,
        official=official,
        bradley_terry_only=bradley_terry_only,
        recipes=recipes,
        settings=settings or Settings(),
        on_model=on_model,
    )


def leaderboard_of(
    runs: Sequence[ScoredRun],
    notes: Sequence[str],
    *,
    metric: str | None,
    methods: Sequence[Method],
    official: Official | Callable[[str, Sequence[str]], Official] | None = None,
    bradley_terry_only: bool,
    recipes: Iterable[str | Path],
    settings: Settings,
    on_model: Callable[[int, int, str], None] | None,
) -> Leaderboard:
    """Make a leaderboard of runs of one benchmark; parameters as in :func:`leaderboard_from_runs`."""
    metric = metric or _default_metric(runs)
    notes = [*source_notes(runs), *notes, *_manifest_notes(runs)]
    known = registry(recipes)
    recipe_of = {run.folder: recipe_of_run(run.model, run.manifest, known) for run in runs}
    kept, left_out = _on_scale(runs, lambda run: recipe_of[run.folder], bradley_terry_only)
    notes += _left_out(left_out)
    if callable(official):
        official = official(kept[0].benchmark, [run.model for run in kept])
    names = {run.folder: clean_line(run.label) for run in kept}
    board = measure_entries(
        [
            Entry(
                names[run.folder],
                run.scores,
                why_no_calibration(recipe_of[run.folder]),
                recipe_of[run.folder].family or run.model.partition("/")[0],
            )
            for run in kept
        ],
        metric=metric,
        methods=methods,
        settings=settings,
        on_model=on_model,
    )
    notes += unseen_notes(board.metrics)
    check = _check(board.metrics, {names[run.folder]: run.model for run in kept}, official)
    if official is not None:
        notes += [
            *([official.note] if official.note else []),
            *check_notes([r.model for r in kept], official),
        ]
    assembled = assemble(
        board,
        benchmark=clean_line(kept[0].benchmark),
        protocol="exact",
        marks={names[run.folder]: recipe_of[run.folder] for run in kept},
        score_name=score_name(kept[0].benchmark),
        check=check,
        notes=notes,
    )
    steps = step_labels([run.model for run in kept], [run.manifest for run in kept])
    if steps is None:
        return assembled
    of_model = {names[kept[i].folder]: step for i, step in steps.items()}
    note = "These are steps of one training run, so correlations over them are not correlations over models."
    rows = training_rows(assembled.metrics, of_model)
    return replace(assembled, training=rows, notes=[*assembled.notes, note])


def _default_metric(runs: Sequence[ScoredRun]) -> str:
    """The metric to sort by: one that all judges have."""
    return _OF_PAIRS if any(run.manifest.get("scale") == "pairs" for run in runs) else DEFAULT_METRIC


def _manifest_notes(runs: Sequence[ScoredRun]) -> list[str]:
    """The notes of the manifests, with the models that they are about."""
    models: dict[str, list[str]] = {}
    for run in runs:
        for note in run.manifest.get("notes") or ():
            models.setdefault(clean_line(str(note)), []).append(clean_line(run.label))
    return [f"{', '.join(names)}: {note}" for note, names in models.items()]


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

    Parameters
    ----------
    path : str | Path
        The CSV file.
    metric : str, optional
        The column of the error; by default ``ece`` or ``ece_score``.
    categories : Iterable[str], optional
        Names of the columns with scores of categories; by default those of RewardBench 2.
    methods, bradley_terry_only, recipes, settings
        As for :func:`leaderboard_from_runs`.

    Returns
    -------
    Leaderboard

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "table.csv")
    ...     _ = path.write_text("model,leaderboard_score,ece,Math\\na,0.8,0.1,0.8\\nb,0.7,0.2,0.7\\n")
    ...     board = leaderboard_from_table(path, categories=["Math"], settings=Settings(resamples=20))
    >>> [row["model"] for row in board.ranked]
    ['a', 'b']
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
    board = rank_models(
        [names[i] for i in kept],
        metrics,
        metric=table.metric,
        categories=list(columns)[1:],
        correlated=(table.metric,),
        ranked_by=("score", table.metric),
        methods=methods,
        settings=settings,
    )
    return assemble(
        board,
        benchmark=clean_line(Path(path).name),
        protocol=f"column {clean_line(table.metric)} of {clean_line(Path(path).name)}",
        marks={names[i]: known.get(table.models[i]) or Recipe(table.models[i]) for i in kept},
        score_name="leaderboard score",
        check=[],
        notes=[*_left_out([table.models[i] for i in left_out]), *_REFERENCE.get(table.metric, ())],
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
        raise ValueError("--bradley-terry-only: no model is left; leave the option out")
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
