"""Reports of many models: leaderboards from runs or from a table, and what they say together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmcalib._util.display import clean_line
from rmcalib._util.files import plain, read_csv_table
from rmcalib.benchmarks._entries import known_entry
from rmcalib.metrics import Settings
from rmcalib.metrics import board as ranking
from rmcalib.metrics.board import SCORE, Board
from rmcalib.metrics.catalogue import TRAINING_METRICS
from rmcalib.metrics.results import Shown
from rmcalib.metrics.table import OVERALL, Row
from rmcalib.metrics.transfer import transfer
from rmcalib.metrics.views import FEWEST
from rmcalib.report.boards import PROTOCOL, board_sentences, report_sentences, transfer_sentence, write_report
from rmcalib.report.runs import runs_by_benchmark, source_notes, training_steps
from rmcalib.report.sentences import HEADLINE, RESPONSES
from rmcalib.scores._runs import ScoredRun
from rmcalib.scores.scale import Scale, family_of, refusal, registered_scale, scale_note

if TYPE_CHECKING:
    import pandas

CATEGORIES = ("Factuality", "Precise IF", "Math", "Safety", "Focus", "Ties")
_LARGEST = 1.02  # larger scores are percentages
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
        ranking.check_sortable(metric)
    groups, notes = runs_by_benchmark(folders, benchmark)
    if official is not None and len(groups) > 1:
        have = ", ".join(f"{name} ({len(runs)})" for name, runs in groups.items())
        raise ValueError(
            f"official scores belong to one benchmark; choose one with --benchmark (have: {have})"
        )
    boards = {}
    for name, runs in groups.items():
        board = _board_of_runs(runs, metric, bradley_terry_only, settings, on_model)
        boards[name] = board if official is None else _checked(board, runs, official)
    if len(boards) == 1:
        return _of_one(next(iter(boards.values())), notes)
    notes = [*source_notes(run for runs in groups.values() for run in runs), *notes]
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
    table = _read_models(path)
    error = _column(path, table, *([metric] if metric else ["ece", "ece_score"]))
    score = _column(path, table, "leaderboard_score", "score")
    scores = {OVERALL: score} | {name: name for name in CATEGORIES if _plain(name) in table}
    measured = [
        (SCORE, category, _fractions(_numbers(path, table, name))) for category, name in scores.items()
    ]
    scales = {clean_line(name): registered_scale(name) or Scale() for name in table.index}
    kept, notes = _on_scale(scales, bradley_terry_only)
    metrics = [
        _tidy(model, category, name, value)
        for name, category, values in [*measured, (error, OVERALL, _numbers(path, table, error))]
        for model, value in zip(scales, values, strict=True)
        if model in kept
    ]
    board = ranking.rank_models(
        kept,
        metrics,
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
    settings: Settings,
    on_model: Callable[[int, int, str], None] | None,
) -> Board:
    """Make a leaderboard of runs of one benchmark; parameters as in `report_from_runs`."""
    scales = {run.label: run.scale for run in runs}
    kept, notes = _on_scale(scales, bradley_terry_only)
    runs = [run for run in runs if run.label in kept]
    entries = [ranking.Entry(run.label, run.scores, family_of(run.model)) for run in runs]
    of_pairs = any(run.scale.kind == "pairs" for run in runs)
    usual = _OF_PAIRS if of_pairs else None
    board = ranking.measure_entries(entries, metric=metric or usual, settings=settings, on_model=on_model)
    notes = [*source_notes(runs), *_manifest_notes(runs), *notes]
    steps = training_steps(runs)
    if steps:
        notes.append("These are steps of one training run: correlations over them are not over models.")
    return replace(
        board,
        models=_with_scale(board.models, scales),
        benchmark=clean_line(runs[0].benchmark),
        training=_training_rows(board.metrics, dict(zip(kept, steps, strict=False))),
        notes=[*notes, *board.notes],
    )


def _on_scale(scales: Mapping[str, Scale], bradley_terry_only: bool) -> tuple[list[str], list[str]]:
    """Return the names of the models to keep, and a note on those that are left out."""
    left = [name for name, scale in scales.items() if bradley_terry_only and scale.kind in _NO_UTILITIES]
    kept = [name for name in scales if name not in left]
    if not kept:
        raise ValueError("--bradley-terry-only: no model is left; leave the option out")
    return kept, [f"Left out, because not on a Bradley-Terry scale: {', '.join(left)}."] if left else []


def _with_scale(models: Sequence[Row], scales: Mapping[str, Scale]) -> list[Row]:
    """Return rows of models with what is known about the scale of each."""
    return [
        row | {"scale": scales[row["model"]].kind, "mark": scale_note(scales[row["model"]])} for row in models
    ]


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


def _manifest_notes(runs: Iterable[ScoredRun]) -> list[str]:
    """The notes of the manifests, with the models that they are about."""
    models: dict[str, list[str]] = {}
    for run in runs:
        for note in run.manifest.get("notes") or ():
            models.setdefault(clean_line(note), []).append(run.label)
    return [f"{', '.join(names)}: {note}" for note, names in models.items()]


# Several benchmarks.


def _side_by_side(groups: Mapping[str, Sequence[ScoredRun]], report: Report) -> Report:
    """Add whether one temperature serves all benchmarks of a model."""
    runs: dict[str, dict[str, ScoredRun]] = {}
    for bench, group in groups.items():
        for run in group:
            own = runs.setdefault(run.label, {})
            if refusal(run.scale, "best", "fit") is None:
                own[bench] = run
    level = report.settings.level
    models: list[Row] = []
    temperatures: list[Row] = []
    effects: list[Row] = []
    notes = list(report.notes)
    for name, own in runs.items():
        found = transfer({bench: run.scores() for bench, run in own.items()}, level=level)
        temperatures += [{"model": name, **row} for row in found.temperatures]
        effects += [{"model": name, **row} for row in found.effects]
        test = {key: getattr(found.equality, key, None) for key in ("temperature", "statistic", "p_value")}
        models.append({"model": name, "words": transfer_sentence(found, level), **test})
        notes += [
            f"{name}: no temperature was fitted on {bench}: fewer than {FEWEST} prompts with one correct response."
            for bench in found.left_out
        ]
    return replace(report, models=models, temperatures=temperatures, effects=effects, notes=notes)


# Tables of users, and official scores.


def _checked(board: Board, runs: Sequence[ScoredRun], official: str | Path) -> Board:
    """Add our scores beside official ones, and notes on models that have none."""
    shown = {row["model"] for row in board.models}
    models = {run.label: run.model for run in runs if run.label in shown}
    names = list(dict.fromkeys(models.values()))
    if official == "hub":
        theirs, notes = _official_of_hub(runs[0].benchmark, names)
    else:
        theirs, notes = _read_official(official), []
    rows: list[Row] = []
    for row in board.metrics:
        value = theirs.get(models[row["model"]], {}).get(_plain(row["category"]))
        if row["metric"] == SCORE and row["value"] is not None and value is not None:
            found = {"ours": row["value"], "official": value, "difference": row["value"] - value}
            rows.append({"model": row["model"], "category": row["category"], **found})
    notes += [f"{official} has no scores of {name}." for name in names if name not in theirs]
    return replace(board, check=rows, notes=[*notes, *board.notes])


def _read_official(path: str | Path) -> dict[str, dict[str, float]]:
    """Return official scores of each model, by category in plain letters; cells without a number are left out."""
    import pandas

    table = _read_models(path).apply(pandas.to_numeric, errors="coerce").apply(_fractions)
    table = table.rename(columns={"score": OVERALL, "leaderboardscore": OVERALL})
    return {str(model): row.dropna().to_dict() for model, row in table.iterrows()}


def _official_of_hub(benchmark: str, models: Sequence[str]) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Fetch the official scores of models on RewardBench 2; the overall score is the mean of the categories."""
    from rmcalib.scores._known import RESULTS, published_figures

    theirs = known_entry("reward-bench-2").hub_id
    if benchmark != theirs:
        raise ValueError(
            f"--leaderboard hub: {RESULTS} is about {theirs}, and the runs are of "
            f"{benchmark} (give a CSV of official scores instead)"
        )
    published, commit = published_figures(models)
    found = {}
    for model, figures in published.items():
        by_name = {_plain(name): value for name, value in figures.items()}
        own = {name: by_name[name] for name in map(_plain, CATEGORIES) if name in by_name}
        if len(own) == len(CATEGORIES):
            own[OVERALL] = sum(own.values()) / len(own)
        scale = 100 if max(own.values(), default=0.0) > _LARGEST else 1
        found[model] = {name: value / scale for name, value in own.items()}
    note = f"Official scores: {RESULTS} at commit {commit}, of {len(found)} of {len(models)} models."
    return found, [note]


def _read_models(path: str | Path) -> pandas.DataFrame:
    """Read a CSV with one row per model; return its texts by model and by the plain names of columns."""
    import pandas

    table = read_csv_table(path)
    if not table.rows:
        raise ValueError(f"{path}: no models in it; expected a header and a line for each model")
    texts = pandas.DataFrame(table.rows, columns=[_plain(name) for name in table.header])
    texts = texts.loc[:, ~texts.columns.duplicated()].apply(lambda column: column.str.strip())
    models = texts.pop(_column(path, texts, "model"))
    for line, name, again in zip(table.lines, models, models.duplicated(), strict=True):
        if not name or again:
            raise ValueError(f"{path}, line {line}: the model {name!r} is there twice, or has no name")
    return texts.set_index(models)


def _plain(name: str) -> str:
    """Return the letters of a name: in those of columns, spaces, capitals and underscores do not matter."""
    return "".join(sign for sign in name.lower() if sign.isalnum())


def _column(path: str | Path, table: pandas.DataFrame, *names: str) -> str:
    """Return the first of some names that is a column."""
    for name in names:
        if _plain(name) in table:
            return name
    raise ValueError(f"{path}: no column {' or '.join(names)} (has {', '.join(map(str, table))})")


def _numbers(path: str | Path, table: pandas.DataFrame, name: str) -> pandas.Series[float]:
    """Return the numbers of a column, NaN where a cell is empty."""
    import pandas

    texts = table[_plain(name)]
    values = pandas.to_numeric(texts, errors="coerce")
    wrong = texts[values.isna() & ~texts.str.lower().isin(("", "nan"))]
    if len(wrong):
        raise ValueError(f"{path}: {name} is {wrong.iloc[0]!r}, not a number")
    return values.where(values.abs() < math.inf)


def _fractions(values: pandas.Series[float]) -> pandas.Series[float]:
    """Scores from 0 to 1, from fractions or percentages."""
    return values / 100 if values.max() > _LARGEST else values


def _tidy(model: str, category: str, metric: str, value: float) -> Row:
    row: Row = {"model": model, "category": category, "metric": metric, "low": None, "high": None, "n": None}
    known = math.isfinite(value)
    return row | {"value": value if known else None, "note": "" if known else "empty in the table"}
