"""What a leaderboard is made of: finished runs, a table of a user, and official scores to check against."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmcalib._util.display import clean_line
from rmcalib._util.files import read_csv_table
from rmcalib._util.storage import as_path, within
from rmcalib.benchmarks._entries import known_entry
from rmcalib.leaderboards.measure import SCORE
from rmcalib.metrics.table import OVERALL, Row
from rmcalib.report.sentences import UNNAMED
from rmcalib.scores import Scores, load_all_scores, load_board
from rmcalib.scores._known import BOARDS, RESULTS, published_figures
from rmcalib.scores._runs import ScoredRun, find_runs

if TYPE_CHECKING:
    import pandas

CATEGORIES = ("Factuality", "Precise IF", "Math", "Safety", "Focus", "Ties")
"""The categories of RewardBench 2, which a table of a user may have."""
_LARGEST = 1.02  # larger scores are percentages

# Runs.


def runs_by_benchmark(
    folders: Iterable[str | Path], benchmark: str | None = None
) -> tuple[dict[str, list[ScoredRun]], list[str]]:
    """Find the finished runs under some folders, by benchmark, or those of one; return them with notes.

    A run that is found twice (the same hash) counts once. Runs of one model with different hashes are all
    kept, and labelled by their folders. A part of a benchmark (``--part``) is left out if its model was scored
    on the whole, too. The folder ``real`` is the built-in board. A file of scores counts as one run for each of
    its models.
    """
    runs, notes = _finished_runs(folders)
    if benchmark is not None:
        runs = _of_benchmark(runs, benchmark)
    scored = {(run.model, run.benchmark) for run in runs}
    groups: dict[str, list[ScoredRun]] = {}
    for run in runs:
        whole = re.sub(r"-\d+of\d+$", "", run.benchmark)
        if whole != run.benchmark and (run.model, whole) in scored:
            notes.append(
                clean_line(f"{run.model}: {run.benchmark} is left out, because {whole} has its prompts, too.")
            )
        else:
            groups.setdefault(clean_line(run.benchmark), []).append(run)
    return {name: _tell_apart(same) for name, same in groups.items()}, notes


def can_be_read(run: ScoredRun) -> bool:
    """Return whether `load_scores` reads this run from its folder: several models of one file have none."""
    return run.read is None or run.folder.parts[0] in BOARDS or run.folder.is_file()


def source_notes(runs: Iterable[ScoredRun]) -> list[str]:
    """Return where built-in scores come from, if there are any."""
    sources = {run.manifest["source"]: run.manifest for run in runs if "licence" in run.manifest}
    return [
        f"The built-in scores of {about['benchmark']} are from {source} at commit {about['source_revision'][:12]} "
        f"({about['licence']})" + (f", published with {about['paper']}." if "paper" in about else ".")
        for source, about in sources.items()
    ]


def training_steps(runs: Sequence[ScoredRun]) -> list[int]:
    """Return the step of each run if they are steps of one training run; else nothing."""
    steps = [run.manifest.get("step") for run in runs]
    numbers = [step for step in steps if isinstance(step, int)]
    same_model = len({run.model for run in runs}) == 1 and len(runs) > 1
    return numbers if same_model and len(set(numbers)) == len(runs) else []


def manifest_notes(runs: Iterable[ScoredRun]) -> list[str]:
    """Return the notes of the manifests, with the models that they are about."""
    models: dict[str, list[str]] = {}
    for run in runs:
        for note in run.manifest.get("notes") or ():
            models.setdefault(clean_line(note), []).append(run.label)
    return [f"{', '.join(names)}: {note}" for note, names in models.items()]


def _finished_runs(folders: Iterable[str | Path]) -> tuple[list[ScoredRun], list[str]]:
    """Find the finished runs of all models and benchmarks; the notes name those that are not finished."""
    runs: list[ScoredRun] = []
    notes: list[str] = []
    for name in dict.fromkeys(map(str, folders)):
        folder = Path(name)
        if name in BOARDS and not folder.exists():
            runs += _of_scores(folder, load_board(name))
            continue
        folder = _named(name)
        if folder.is_file():
            runs += _of_scores(folder, load_all_scores(folder))
            continue
        finished, unfinished = find_runs(folder)
        runs += finished
        notes += unfinished
    if not runs:
        raise ValueError("no finished run; run the same `rmcalib eval` command again to finish one")
    return runs, notes


def _of_scores(source: Path, models: dict[str, Scores]) -> list[ScoredRun]:
    """Return the models of a file or of a built-in board as runs; the folders of several are only names."""
    runs = []
    for model, scores in models.items():
        # Several files may hold parts of one run, so its hash does not tell them apart.
        manifest = {key: value for key, value in scores.manifest.items() if key != "hash"}
        benchmark = str(manifest.get("benchmark") or UNNAMED)
        folder = source if len(models) == 1 else source / model
        runs.append(ScoredRun(folder, manifest, model, benchmark, clean_line(model), scores))
    return runs


def _named(source: str | Path) -> Path:
    """Return the path of a folder or file of scores; storage that does not answer is reported by its URL."""
    if not str(source).strip():
        raise ValueError("an empty name; '.' is the current folder")
    path = as_path(source)
    try:
        within(path.exists)
    except OSError as error:
        raise ValueError(f"{source}: cannot be read: {error.strerror or error}") from error
    return path


def _of_benchmark(runs: list[ScoredRun], wanted: str) -> list[ScoredRun]:
    """Return the runs of one benchmark, by its name, with or without the owner, or by its format."""
    kept = [
        run
        for run in runs
        if wanted in (run.benchmark, run.benchmark.rpartition("/")[2], run.manifest.get("benchmark_format"))
    ]
    if not kept:
        have = ", ".join(dict.fromkeys(run.benchmark for run in runs))
        raise ValueError(f"benchmark {wanted}: no run of it (have: {have})")
    return kept


def _tell_apart(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    """Leave out runs that were found twice, and label several runs of a model by step or folder."""
    different = {str(run.manifest.get("hash") or run.folder): run for run in runs}
    by_model: dict[str, list[ScoredRun]] = {}
    for run in different.values():
        by_model.setdefault(run.model, []).append(run)
    labelled = []
    for same in by_model.values():
        if len(same) == 1:
            labelled += same
            continue
        labels = [f"step {step}" for step in training_steps(same)] or [str(run.folder) for run in same]
        labelled += [
            replace(run, label=clean_line(f"{run.model} ({label})"))
            for run, label in zip(same, labels, strict=True)
        ]
    return labelled


# Tables of users, and official scores.


def rows_of_table(path: str | Path, metric: str | None = None) -> tuple[str, list[Row]]:
    """Read a CSV with one row per model: return the name of its error, and one row per model and number."""
    table = _read_models(path)
    error = _column(path, table, *([metric] if metric else ["ece", "ece_score"]))
    score = _column(path, table, "leaderboard_score", "score")
    numbers = [
        (SCORE, category, _fractions(_numbers(path, table, name)))
        for category, name in {OVERALL: score, **{name: name for name in CATEGORIES}}.items()
        if _plain(name) in {_plain(str(column)) for column in table}
    ]
    numbers.append((error, OVERALL, _numbers(path, table, error)))
    rows: list[Row] = [
        {"model": clean_line(str(model)), "category": category, "metric": name, "value": value}
        | {"low": None, "high": None, "n": None, "note": ""}
        for name, category, values in numbers
        for model, value in values.items()
    ]
    return error, [
        row if math.isfinite(row["value"]) else row | {"value": None, "note": "empty in the table"}
        for row in rows
    ]


def official_rows(
    official: str | Path, metrics: Iterable[Row], models: dict[str, str], benchmark: str
) -> tuple[list[Row], list[str]]:
    """Return our scores beside official ones, and notes on models that have none.

    ``official`` is a CSV, or "hub" for the results of RewardBench 2; ``models`` are the names there, by ours.
    """
    names = list(dict.fromkeys(models.values()))
    theirs, notes = (
        _official_of_hub(benchmark, names) if official == "hub" else (_read_official(official), [])
    )
    rows: list[Row] = []
    for row in metrics:
        value = theirs.get(models[row["model"]], {}).get(_plain(row["category"]))
        if row["metric"] == SCORE and row["value"] is not None and value is not None:
            about = {"model": row["model"], "category": row["category"], "ours": row["value"]}
            rows.append(about | {"official": value, "difference": row["value"] - value})
    return rows, notes + [f"{official} has no scores of {name}." for name in names if name not in theirs]


def _read_official(path: str | Path) -> dict[str, dict[str, float]]:
    """Return official scores of each model, by category in plain letters; cells without a number are left out."""
    import pandas

    table = _read_models(path).apply(pandas.to_numeric, errors="coerce").apply(_fractions)
    table = table.rename(columns=_plain).rename(columns={"score": OVERALL, "leaderboardscore": OVERALL})
    return {str(model): row.dropna().to_dict() for model, row in table.iterrows()}


def _official_of_hub(benchmark: str, models: Sequence[str]) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Fetch the official scores of models on RewardBench 2; the overall score is the mean of the categories."""
    theirs = known_entry("reward-bench-2").hub_id
    if benchmark != theirs:
        raise ValueError(
            f'official="hub": {RESULTS} is about {theirs}, and the runs are of '
            f"{benchmark} (give a CSV of official scores instead)"
        )
    published, commit = published_figures(models)
    scores = {}
    for model, figures in published.items():
        by_name = {_plain(name): value for name, value in figures.items()}
        of_model = {name: by_name[name] for name in map(_plain, CATEGORIES) if name in by_name}
        if len(of_model) == len(CATEGORIES):
            of_model[OVERALL] = sum(of_model.values()) / len(of_model)
        scale = 100 if max(of_model.values(), default=0.0) > _LARGEST else 1
        scores[model] = {name: value / scale for name, value in of_model.items()}
    note = f"Official scores: {RESULTS} at commit {commit}, of {len(scores)} of {len(models)} models."
    return scores, [note]


def _read_models(path: str | Path) -> pandas.DataFrame:
    """Read a CSV with one row per model; return its texts by model and column."""
    import pandas

    table = read_csv_table(path)
    if not table.rows:
        raise ValueError(f"{path}: no models in it; expected a header and a line for each model")
    texts = pandas.DataFrame(table.rows, columns=list(table.header))
    texts = texts.loc[:, ~texts.columns.map(_plain).duplicated()].apply(lambda column: column.str.strip())
    models = texts.pop(_written(path, texts, "model"))
    for line, name, again in zip(table.lines, models, models.duplicated(), strict=True):
        if not name or again:
            raise ValueError(f"{path}, line {line}: the model {name!r} is there twice, or has no name")
    return texts.set_index(models)


def _plain(name: str) -> str:
    """Return the letters of a name: in those of columns, spaces, capitals and underscores do not matter."""
    return "".join(sign for sign in name.lower() if sign.isalnum())


def _column(path: str | Path, table: pandas.DataFrame, *names: str) -> str:
    """Return the first of some names that is a column."""
    written = _plain(_written(path, table, *names))
    return next(name for name in names if _plain(name) == written)


def _written(path: str | Path, table: pandas.DataFrame, *names: str) -> str:
    """Return the first column that has one of some names, as it is written in the file."""
    columns = {_plain(str(column)): str(column) for column in table}
    for name in names:
        if _plain(name) in columns:
            return columns[_plain(name)]
    raise ValueError(f"{path}: no column {' or '.join(names)} (has {', '.join(map(str, table))})")


def _numbers(path: str | Path, table: pandas.DataFrame, name: str) -> pandas.Series[float]:
    """Return the numbers of a column, NaN where a cell is empty."""
    import pandas

    texts = table[_written(path, table, name)]
    values = pandas.to_numeric(texts, errors="coerce")
    wrong = texts[values.isna() & ~texts.str.lower().isin(("", "nan"))]
    if len(wrong):
        raise ValueError(f"{path}: {name} is {wrong.iloc[0]!r}, not a number")
    return values.where(values.abs() < math.inf)


def _fractions(values: pandas.Series[float]) -> pandas.Series[float]:
    """Scores from 0 to 1, from fractions or percentages."""
    return values / 100 if values.max() > _LARGEST else values
