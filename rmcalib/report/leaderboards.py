"""Leaderboards from run folders or from a user's table, their document and their files."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.terminal import clean_line
from rmcalib.benchmarks import known_entry
from rmcalib.judges import Recipe, registry
from rmcalib.judges._registry import recipe_of_run, scale_note, why_no_calibration
from rmcalib.metrics import Board, Settings
from rmcalib.metrics.board import DEFAULT_METRIC, SCORE, Entry, measure_entries, rank_models
from rmcalib.metrics.catalogue import TRAINING_METRICS
from rmcalib.metrics.correlation import Method
from rmcalib.metrics.table import OVERALL, Row
from rmcalib.report.official import Official, read_table
from rmcalib.report.runs import ScoredRun, source_notes, step_labels
from rmcalib.report.sentences import board_sentences

_OF_PAIRS = "pairwise_brier"
PROTOCOL = (
    "The paper's public code writes 1 − mean P(chosen) into a column ece_score. This is an error rate, not a "
    "calibration error, so it correlates with scores by construction."
)
"""What the paper's number is."""


@dataclass(frozen=True)
class Leaderboard(Board):
    """A ranked board with names: benchmark, protocol, official scores to check against, and training steps.

    Attributes
    ----------
    benchmark, protocol : str
        What models were measured on, and how.
    score_name : str
        The name of the score over all categories.
    check : list of dict
        Our scores against official ones.
    training : list of dict
        One row per step, if the runs are steps of one training run.

    Examples
    --------
    >>> from rmcalib.report import report_from_runs
    >>> board = report_from_runs(["rewardmath"], settings=Settings(resamples=20))
    >>> board.benchmark, board.models[0]["model"]
    ('rewardmath', 'internlm/internlm2-7b-reward')
    """

    benchmark: str = ""
    protocol: str = "exact"
    score_name: str = "score"
    check: list[Row] = field(default_factory=list)
    training: list[Row] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """The result in a few sentences."""
        return " ".join(board_sentences(self))

    def wide_rows(self) -> list[Row]:
        """Return one flat row per model, for leaderboard.csv."""
        return [
            flat | {"bradley_terry": row["scale"], "note": row["why"] or row["mark"]}
            for flat, row in zip(super().wide_rows(), self.models, strict=True)
        ]

    def content(self) -> dict[str, Any]:
        """Return the numbers and sentences, ready for JSON."""
        return {
            "benchmark": self.benchmark,
            "metric": self.metric,
            "protocol": self.protocol,
            "summary": self.summary,
            "models": self.wide_rows(),
            "correlations": self.correlations,
            "split_correlations": self.split_correlations,
            "check": self.check,
            "training": self.training,
            "notes": self.notes,
        }

    __repr__ = Board.__repr__


def leaderboard_of(
    runs: Sequence[ScoredRun],
    notes: Sequence[str],
    *,
    metric: str | None,
    methods: Sequence[Method],
    bradley_terry_only: bool,
    recipes: Iterable[str | Path],
    settings: Settings,
    official: Official | Callable[[str, Sequence[str]], Official] | None = None,
    on_model: Callable[[int, int, str], None] | None = None,
) -> Leaderboard:
    """Make a leaderboard of runs of one benchmark; parameters as in `report_from_runs`."""
    pairs_only = any(run.manifest.get("scale") == "pairs" for run in runs)
    known = registry(recipes)
    recipe_of = {run.folder: recipe_of_run(run.model, run.manifest, known) for run in runs}
    kept, left_out = _on_scale(runs, [recipe_of[run.folder] for run in runs], bradley_terry_only)
    if callable(official):
        official = official(kept[0].benchmark, [run.model for run in kept])
    names = {run.folder: clean_line(run.label) for run in kept}
    entries = [
        Entry(
            names[run.folder],
            run.scores,
            why_no_calibration(recipe_of[run.folder]),
            recipe_of[run.folder].family or run.model.partition("/")[0],
        )
        for run in kept
    ]
    board = measure_entries(
        entries,
        metric=metric or (_OF_PAIRS if pairs_only else DEFAULT_METRIC),
        methods=methods,
        settings=settings,
        on_model=on_model,
    )
    steps = step_labels([run.model for run in kept], [run.manifest for run in kept])
    of_model = {} if steps is None else {names[kept[i].folder]: step for i, step in steps.items()}
    more = [*source_notes(runs), *notes, *_manifest_notes(runs), *_left_out([run.label for run in left_out])]
    if official is not None:
        more += [note for note in (official.note, *_unknown_models(kept, official)) if note]
    if steps is not None:
        more.append("These are steps of one training run: correlations over them are not over models.")
    return named(
        board,
        {names[run.folder]: recipe_of[run.folder] for run in kept},
        benchmark=clean_line(kept[0].benchmark),
        score_name=_score_name(board, kept[0].benchmark),
        check=_check(board.metrics, {names[run.folder]: run.model for run in kept}, official),
        training=_training_rows(board.metrics, of_model),
        notes=[*more, *board.notes],
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

    Parameters
    ----------
    path : path
        The CSV file.
    metric : str, optional
        The column of the error; default ``ece`` or ``ece_score``.
    categories : names, optional
        Columns with scores of categories; default those of RewardBench 2.
    methods, bradley_terry_only, recipes, settings
        As for `report_from_runs`.

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
    >>> [row["model"] for row in board.models]
    ['a', 'b']
    """
    table = read_table(path, metric=metric, categories=categories)
    known = registry(recipes)
    recipe_of = [known.get(name) or Recipe(name) for name in table.models]
    kept, left_out = _on_scale(range(len(table.models)), recipe_of, bradley_terry_only)
    names = [clean_line(name) for name in table.models]
    columns = {OVERALL: table.scores} | {
        clean_line(name): values for name, values in table.categories.items()
    }
    metrics = [_tidy(names[i], name, SCORE, values[i]) for i in kept for name, values in columns.items()]
    metrics += [_tidy(names[i], OVERALL, table.metric, table.errors[i]) for i in kept]
    board = rank_models(
        [names[i] for i in kept],
        metrics,
        metric=table.metric,
        categories=list(columns)[1:],
        correlated=(table.metric,),
        ranked_by=("score", table.metric),
        methods=methods,
        settings=settings or Settings(),
    )
    source = clean_line(Path(path).name)
    notes = [*_left_out([names[i] for i in left_out]), *([PROTOCOL] if table.metric == "ece_score" else [])]
    return named(
        board,
        {names[i]: recipe_of[i] for i in kept},
        benchmark=source,
        protocol=f"column {clean_line(table.metric)} of {source}",
        score_name="leaderboard score",
        notes=[*notes, *board.notes],
    )


# Parts.


def named(board: Board, recipes: Mapping[str, Recipe], **about: Any) -> Leaderboard:
    """Return a board with names, and with what is known about the scale of each model."""
    models = [
        row
        | {
            "scale": recipes[row["model"]].bradley_terry if row["model"] in recipes else "",
            "mark": scale_note(recipes[row["model"]]) if row["model"] in recipes else "",
        }
        for row in board.models
    ]
    own = {name: value for name, value in vars(board).items() if name in Board.__dataclass_fields__}
    benchmark = about.get("benchmark", "")
    metrics = [{"model": row["model"], "benchmark": benchmark, **row} for row in board.metrics]
    return Leaderboard(**{**own, "models": models, "metrics": metrics, **about})


def _score_name(board: Board, benchmark: str) -> str:
    same = all((row["values"].get("accuracy") or {}).get("value") == row["score"] for row in board.models)
    if board.score == "accuracy" or (len(board.categories) == 1 and same):
        return "accuracy"
    return (
        "RewardBench 2 score" if benchmark == known_entry("reward-bench-2").hub_id else "mean category score"
    )


def _training_rows(metrics: Sequence[Row], steps: Mapping[str, int]) -> list[Row]:
    """Return one row per step, the first step first: step, best, model, and each metric with its interval."""
    found = {(row["model"], row["metric"]): row for row in metrics if row["category"] == OVERALL}
    rows: list[Row] = []
    for model, step in sorted(steps.items(), key=lambda one: one[1]):
        row: Row = {"step": step, "best": False, "model": model}
        for name in TRAINING_METRICS:
            own = found.get((model, name), {})
            row[name] = own.get("value")
            if not name.endswith(("null_mean", "p_value")):
                row |= {f"{name}_{end}": own.get(end) for end in ("low", "high")}
        rows.append(row)
    known = [row["kept_information"] for row in rows if row["kept_information"] is not None]
    return [row | {"best": bool(known) and row["kept_information"] == max(known)} for row in rows]


def _manifest_notes(runs: Sequence[ScoredRun]) -> list[str]:
    """The notes of the manifests, with the models that they are about."""
    models: dict[str, list[str]] = {}
    for run in runs:
        for note in run.manifest.get("notes") or ():
            models.setdefault(clean_line(str(note)), []).append(clean_line(run.label))
    return [f"{', '.join(names)}: {note}" for note, names in models.items()]


def _on_scale(entries: Iterable[Any], recipes: Sequence[Recipe], wanted: bool) -> tuple[list[Any], list[Any]]:
    """Split into those to keep and those that are known not to be on a Bradley-Terry scale."""
    kept: list[Any] = []
    left_out: list[Any] = []
    for entry, recipe in zip(entries, recipes, strict=True):
        (left_out if wanted and recipe.bradley_terry == "no" else kept).append(entry)
    if not kept:
        raise ValueError("--bradley-terry-only: no model is left; leave the option out")
    return kept, left_out


def _left_out(names: Sequence[str]) -> list[str]:
    shown = ", ".join(map(clean_line, names))
    return [f"Left out, because not on a Bradley-Terry scale: {shown}."] if names else []


def _check(metrics: Sequence[Row], models: Mapping[str, str], official: Official | None) -> list[Row]:
    """Return our scores beside official ones."""
    if official is None:
        return []
    return [
        {name: row[name] for name in ("model", "category")}
        | {"ours": row["value"], "official": theirs, "difference": row["value"] - theirs}
        for row in metrics
        if row["metric"] == SCORE and row["value"] is not None
        if (theirs := official.figure(models[row["model"]], row["category"])) is not None
    ]


def _unknown_models(runs: Sequence[ScoredRun], official: Official) -> list[str]:
    """Return which models have no official scores, with similar names that have some."""
    models = list(dict.fromkeys(run.model for run in runs))
    missing = [name for name in models if name not in official.figures]
    others = {name.lower(): name for name in official.figures if name not in models}
    notes = []
    for name in missing[:5]:
        near = difflib.get_close_matches(name.lower(), others, n=1, cutoff=0.8)
        hint = f" (did you mean {others[near[0]]}?)" if near else ""
        notes.append(f"{official.path} has no scores of {name}{hint}.")
    return notes + (
        [f"{official.path} has no scores of {len(missing) - 5} more models."] if len(missing) > 5 else []
    )


def _tidy(model: str, category: str, metric: str, value: float) -> Row:
    known = bool(np.isfinite(value))
    row: Row = {
        "model": model,
        "category": category,
        "metric": metric,
        "value": float(value) if known else None,
    }
    return row | {"low": None, "high": None, "n": None, "note": "" if known else "empty in the table"}
