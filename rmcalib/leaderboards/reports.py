"""Leaderboards of one benchmark or several: from runs, from files of scores, or from a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rmcalib._util.display import clean_line
from rmcalib._util.files import plain
from rmcalib.leaderboards import measure, sources
from rmcalib.leaderboards.measure import Board
from rmcalib.leaderboards.page import (
    PROTOCOL,
    board_sentences,
    report_sentences,
    transfer_sentence,
    write_report,
)
from rmcalib.leaderboards.transfer import transfer
from rmcalib.metrics import Settings
from rmcalib.metrics.catalogue import TRAINING_METRICS
from rmcalib.metrics.results import Shown
from rmcalib.metrics.table import OVERALL, Row
from rmcalib.metrics.views import FEWEST
from rmcalib.report.sentences import HEADLINE, RESPONSES
from rmcalib.scores import Scores, load_scores
from rmcalib.scores._runs import ScoredRun
from rmcalib.scores.scale import Scale, family_of, refusal, registered_scale, scale_note

_NO_UTILITIES = ("rating", "none")
_OF_PAIRS = "pairwise_overconfidence"
_CONTENT = ("benchmark", "metric", "protocol", "correlations", "split_correlations", "check", "training")


@dataclass(frozen=True)
class Report(Shown):
    """The leaderboards of one or several benchmarks.

    Attributes
    ----------
    boards : dict of str to Board
        The leaderboard of each benchmark.
    models : list of dict
        With several benchmarks, one row per model: model, words (whether one temperature is right for all of its
        benchmarks), temperature, statistic, p_value of that test (None with fewer than two benchmarks).
    temperatures, effects : list of dict
        With several benchmarks, the best temperature of each model on each, and its effect on the others.
    notes : list of str
        Warnings and remarks.
    settings : Settings
        How the metrics were computed.
    """

    boards: dict[str, Board]
    notes: list[str]
    settings: Settings
    models: list[Row] = field(default_factory=list)
    temperatures: list[Row] = field(default_factory=list)
    effects: list[Row] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:  # type: ignore[override]
        """One row per model, benchmark and headline metric."""
        keys = ("metric", "value", "low", "high", "n", "note")
        return [
            {"model": row["model"], "benchmark": name, **{key: row[key] for key in keys}}
            for name, board in self.boards.items()
            for row in board.metrics
            if row["category"] == OVERALL and row["metric"] in (*HEADLINE, *RESPONSES)
        ]

    @property
    def board(self) -> Board | None:
        """The leaderboard, if there is one benchmark."""
        return next(iter(self.boards.values())) if len(self.boards) == 1 else None

    @property
    def summary(self) -> str:
        """The result in a few sentences."""
        return " ".join(report_sentences(self) if self.board is None else board_sentences(self.board))

    def document(self) -> Any:
        """Return the document of the page."""
        from rmcalib.leaderboards.page import report_document

        return report_document(self)

    def content(self) -> Row:
        """Return all numbers, ready for JSON: infinite temperatures and limits become None."""
        board = self.board
        if board is None:
            tables = {name: getattr(self, name) for name in ("models", "temperatures", "effects")}
            about: Row = {"benchmarks": list(self.boards), "values": self.rows, **tables}
        else:
            about = {name: getattr(board, name) for name in _CONTENT} | {"models": board.table_rows()}
        content: Row = plain({"summary": self.summary, **about, "notes": self.notes})
        return content

    def write(self, folder: str | Path) -> Path:
        """Write report.html, summary.md, tidy CSVs and figures/ to a folder or URL; return the page's path.

        Files of an earlier report that this one does not have are removed.
        """
        return write_report(self, folder)

    def __repr__(self) -> str:
        """Return the result in a few lines."""
        return f"Report on {', '.join(self.boards)}: {self.summary}"


def report_from_runs(
    folders: Iterable[str | Path],
    *,
    benchmark: str | None = None,
    metric: str | None = None,
    official: str | Path | None = None,
    bradley_terry_only: bool = False,
    labels: Any = None,
    cluster: str | None = None,
    settings: Settings | None = None,
    on_model: Callable[[int, int, str], None] | None = None,
) -> Report:
    """Make the report of all finished runs under some folders (written by ``rmcalib eval`` or ``batch``).

    Parameters
    ----------
    folders : paths
        Folders that hold runs, at any depth, files of scores, or names of built-in boards (`load_board`).
    benchmark : str, optional
        Only runs of this benchmark.
    metric : str, optional
        What to sort by; default kept_information, or the gap in pairs if a judge only compares pairs.
    official : path, optional
        Official scores to check ours against: a CSV with the columns model, score and categories, or "hub" for
        the results of RewardBench 2 on the Hub. They need runs of one benchmark.
    bradley_terry_only : bool
        Leave out models that are known not to be on a Bradley-Terry scale.
    labels : DataFrame or path, optional
        Labels to join with the scores of every model; see `load_scores`.
    cluster : str, optional
        A column that says which prompts belong together.
    settings : Settings, optional
        Bins, resamples, level and seed.
    on_model : function, optional
        Called before each model of a benchmark with the number of models done, their total number and the name.

    Returns
    -------
    Report
        With a leaderboard of each benchmark.

    Examples
    --------
    >>> report = report_from_runs(["rewardmath"], settings=Settings(resamples=20))
    >>> report.board.benchmark, report.board.models[0]["model"]
    ('rewardmath', 'internlm/internlm2-7b-reward')
    """
    settings = settings or Settings()
    if metric is not None:
        measure.check_sortable(metric)
    groups, notes = sources.runs_by_benchmark(folders, benchmark)
    if official is not None and len(groups) > 1:
        have = ", ".join(f"{name} ({len(runs)})" for name, runs in groups.items())
        raise ValueError(
            f'official scores belong to one benchmark; choose one: benchmark="NAME" (have: {have})'
        )
    boards = {}
    for name, runs in groups.items():
        board = _board_of_runs(runs, metric, bradley_terry_only, labels, cluster, settings, on_model)
        if official is not None:
            models = {
                run.label: run.model for run in runs if run.label in {row["model"] for row in board.models}
            }
            check, missing = sources.official_rows(official, board.metrics, models, runs[0].benchmark)
            board = replace(board, check=check, notes=[*missing, *board.notes])
        boards[name] = board
    if len(boards) == 1:
        return _of_one(next(iter(boards.values())), notes)
    notes = [*sources.source_notes(run for runs in groups.values() for run in runs), *notes]
    return _side_by_side(groups, Report(boards, notes, settings))


def report_from_table(
    path: str | Path,
    *,
    metric: str | None = None,
    bradley_terry_only: bool = False,
    settings: Settings | None = None,
) -> Report:
    """Make a report from a CSV: model, leaderboard_score, categories, and a calibration error.

    Parameters
    ----------
    path : path
        The CSV file.
    metric : str, optional
        The column of the error; default ``ece`` or ``ece_score``.
    bradley_terry_only, settings
        As for `report_from_runs`.

    Returns
    -------
    Report

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "table.csv")
    ...     _ = path.write_text("model,leaderboard_score,ece,Math\\na,0.8,0.1,0.8\\nb,0.7,0.2,0.7\\n")
    ...     report = report_from_table(path, settings=Settings(resamples=20))
    >>> [row["model"] for row in report.board.models]
    ['a', 'b']
    """
    error, metrics = sources.rows_of_table(path, metric)
    scales = {
        name: registered_scale(name) or Scale() for name in dict.fromkeys(row["model"] for row in metrics)
    }
    kept, notes = _on_scale(scales, bradley_terry_only)
    board = measure.rank_models(
        kept,
        [row for row in metrics if row["model"] in kept],
        metric=error,
        ranked_by=("score", error),
        settings=settings or Settings(),
    )
    source = clean_line(Path(path).name)
    board = replace(
        board,
        models=_with_scale(board.models, scales),
        benchmark=source,
        protocol=f"column {clean_line(error)} of {source}",
    )
    return _of_one(board, [*notes, PROTOCOL] if error == "ece_score" else notes)


# Leaderboards.


def _of_one(board: Board, notes: Sequence[str]) -> Report:
    board = replace(board, notes=[*notes, *board.notes])
    return Report({board.benchmark: board}, board.notes, board.settings)


def _board_of_runs(
    runs: Sequence[ScoredRun],
    metric: str | None,
    bradley_terry_only: bool,
    labels: Any,
    cluster: str | None,
    settings: Settings,
    on_model: Callable[[int, int, str], None] | None,
) -> Board:
    """Make a leaderboard of runs of one benchmark; parameters as in `report_from_runs`."""
    scales = {run.label: run.scale for run in runs}
    kept, notes = _on_scale(scales, bradley_terry_only)
    runs = [run for run in runs if run.label in kept]
    entries = [
        measure.Entry(run.label, partial(_scores_of, run, labels, cluster), family_of(run.model))
        for run in runs
    ]
    of_pairs = any(run.scale.kind == "pairs" for run in runs)
    usual = _OF_PAIRS if of_pairs else None
    board = measure.measure_entries(entries, metric=metric or usual, settings=settings, on_model=on_model)
    notes = [*sources.source_notes(runs), *sources.manifest_notes(runs), *notes]
    steps = sources.training_steps(runs)
    if steps:
        notes.append("These are steps of one training run: correlations over them are not over models.")
    return replace(
        board,
        models=_with_scale(board.models, scales),
        benchmark=clean_line(runs[0].benchmark),
        training=_training_rows(board.metrics, dict(zip(kept, steps, strict=False))),
        sources={run.label: str(run.folder) for run in runs if labels is None and sources.can_be_read(run)},
        notes=[*notes, *board.notes],
    )


def _scores_of(run: ScoredRun, labels: Any, cluster: str | None) -> Scores:
    return load_scores(run.scores(), labels=labels, cluster=cluster)


def _on_scale(scales: Mapping[str, Scale], bradley_terry_only: bool) -> tuple[list[str], list[str]]:
    """Return the names of the models to keep, and a note on those that are left out."""
    left = [name for name, scale in scales.items() if bradley_terry_only and scale.kind in _NO_UTILITIES]
    kept = [name for name in scales if name not in left]
    if not kept:
        raise ValueError("no model is left with bradley_terry_only=True; leave it out")
    return kept, [f"Left out, because not on a Bradley-Terry scale: {', '.join(left)}."] if left else []


def _with_scale(models: Sequence[Row], scales: Mapping[str, Scale]) -> list[Row]:
    """Return rows of models with what is known about the scale of each."""
    return [
        row | {"scale": scales[row["model"]].kind, "mark": scale_note(scales[row["model"]])} for row in models
    ]


def _training_rows(metrics: Sequence[Row], steps: Mapping[str, int]) -> list[Row]:
    """Return one row per step, the first step first: step, best, model, and each metric with its interval."""
    overall = {(row["model"], row["metric"]): row for row in metrics if row["category"] == OVERALL}
    rows: list[Row] = []
    for model, step in sorted(steps.items(), key=lambda item: item[1]):
        row: Row = {"step": step, "best": False, "model": model}
        for name in TRAINING_METRICS:
            measured = overall.get((model, name), {})
            row[name] = measured.get("value")
            if not name.endswith(("null_mean", "p_value")):
                row |= {f"{name}_{end}": measured.get(end) for end in ("low", "high")}
        rows.append(row)
    kept = [row["kept_information"] for row in rows if row["kept_information"] is not None]
    return [row | {"best": bool(kept) and row["kept_information"] == max(kept)} for row in rows]


# Several benchmarks.


def _side_by_side(groups: Mapping[str, Sequence[ScoredRun]], report: Report) -> Report:
    """Add whether one temperature serves all benchmarks of a model."""
    runs: dict[str, dict[str, ScoredRun]] = {}
    for bench, group in groups.items():
        for run in group:
            of_model = runs.setdefault(run.label, {})
            if refusal(run.scale, "best", "fit") is None:
                of_model[bench] = run
    level = report.settings.level
    models: list[Row] = []
    temperatures: list[Row] = []
    effects: list[Row] = []
    notes = list(report.notes)
    for name, of_model in runs.items():
        moved = transfer({bench: run.scores() for bench, run in of_model.items()}, level=level)
        temperatures += [{"model": name, **row} for row in moved.temperatures]
        effects += [{"model": name, **row} for row in moved.effects]
        test = {key: getattr(moved.equality, key, None) for key in ("temperature", "statistic", "p_value")}
        models.append({"model": name, "words": transfer_sentence(moved, level), **test})
        notes += [
            f"{name}: no temperature was fitted on {bench}: fewer than {FEWEST} prompts with one correct response."
            for bench in moved.left_out
        ]
    return replace(report, models=models, temperatures=temperatures, effects=effects, notes=notes)
