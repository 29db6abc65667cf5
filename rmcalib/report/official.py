"""Tables of users: models with a calibration error, and official scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmcalib._util.files import CsvTable, read_csv_table

CATEGORIES = ("Factuality", "Precise IF", "Math", "Safety", "Focus", "Ties")
_CALIBRATION = ("ece", "ece_score")
_SCORES = ("leaderboard_score", "score")


@dataclass(frozen=True)
class ModelTable:
    """The errors, scores and category scores of n models; scores are from 0 to 1, and NaN if missing."""

    models: list[str]
    metric: str
    errors: list[float]
    scores: list[float]
    categories: dict[str, list[float]]


@dataclass(frozen=True)
class Official:
    """Official scores of each model from 0 to 1, with the key "overall" or a category."""

    path: str
    figures: dict[str, dict[str, float]]
    note: str = ""

    def figure(self, model: str, category: str) -> float | None:
        """Return a model's score in a category, or None; spaces and capitals in its name do not matter.

        >>> Official("official.csv", {"org/rm": {"precise_if": 0.5}}).figure("org/rm", "Precise IF")
        0.5
        """
        own = self.figures.get(model, {})
        return next((value for name, value in own.items() if _plain(name) == _plain(category)), None)


def read_table(
    path: str | Path, *, metric: str | None = None, categories: Iterable[str] | None = None
) -> ModelTable:
    """Read a CSV with columns model, leaderboard_score, categories, and ece, ece_score or ``metric``.

    Category columns are those named, by default those of RewardBench 2 that the table has. Empty cells become
    NaN.
    """
    table = _read(path)
    header, rows = table.header, table.rows
    names = _column(path, header, "model")
    scores = _column(path, header, *_SCORES)
    error = _column(path, header, *((metric,) if metric is not None else _CALIBRATION), hint="--metric NAME")
    wanted = list(categories or ())
    found = {name: _find(header, name) for name in wanted or CATEGORIES}
    missing = [name for name in wanted if found[name] is None]
    if missing:
        raise ValueError(f"{path}: no column {missing[0]!r} (has {', '.join(header)})")
    models = [row[names].strip() for row in rows]
    for i, name in enumerate(models):
        if not name:
            raise ValueError(f"{path}, line {table.lines[i]}: the model has no name")
        if name in models[:i]:
            raise ValueError(f"{path}, line {table.lines[i]}: {name!r} appears twice")
    return ModelTable(
        models,
        header[error],
        _numbers(path, table, error),
        _fractions(_numbers(path, table, scores)),
        {
            name: _fractions(_numbers(path, table, column))
            for name, column in found.items()
            if column is not None
        },
    )


def read_official(path: str | Path) -> Official:
    """Read official scores from a CSV with columns model, score (or leaderboard_score) and categories.

    The categories of RewardBench 2 must be numbers. Other columns count as categories if they are numbers.

    Parameters
    ----------
    path : str | Path
        The CSV file.

    Returns
    -------
    Official
        The scores of each model, as fractions.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "official.csv")
    ...     _ = path.write_text("model,score,Math\\norg/rm,0.8,0.75\\n")
    ...     official = read_official(path)
    >>> official.figure("org/rm", "Math")
    0.75
    """
    table = _read(path)
    header, rows = table.header, table.rows
    names = _column(path, header, "model")
    overall = next((place for n in _SCORES if (place := _find(header, n)) is not None), None)
    known = {_plain(name) for name in CATEGORIES}
    there = {} if overall is None else {header[overall]: overall}
    there |= {
        name: place
        for place, name in enumerate(header)
        if place not in (names, overall) and (_plain(name) in known or _all_numbers(rows, place))
    }
    if not there:
        raise ValueError(f"{path}: no scores in it; expected columns such as score, {', '.join(CATEGORIES)}")
    values = {
        "overall" if place == overall else name: _fractions(_numbers(path, table, place))
        for name, place in there.items()
    }
    figures = {
        row[names].strip(): {name: value[i] for name, value in values.items() if math.isfinite(value[i])}
        for i, row in enumerate(rows)
    }
    return Official(str(path), figures)


def official_from_hub(benchmark: str, models: Sequence[str]) -> Official:
    """Fetch the official scores of models on RewardBench 2 from its results on the Hub.

    The overall score is the mean of the six categories, if all of them are available.

    Parameters
    ----------
    benchmark : str
        The name of the benchmark; other names than RewardBench 2's are refused.
    models : Sequence[str]
        Hub ids.

    Returns
    -------
    Official
        The scores of each model, as fractions, and a note that names the commit.

    Examples
    --------
    Needs the network, or the files in the Hugging Face cache::

        official = official_from_hub("allenai/reward-bench-2", ["org/name"])
        official.figure("org/name", "Math")
    """
    from rmcalib.benchmarks import known_entry
    from rmcalib.scores._known import RESULTS, published_figures

    theirs = known_entry("reward-bench-2").hub_id
    if benchmark != theirs:
        raise ValueError(
            f"--leaderboard hub: {RESULTS} is about {theirs}, and the runs are of "
            f"{benchmark} (give a CSV of official scores instead)"
        )
    found, commit = published_figures(models)
    figures = {}
    for model, values in found.items():
        places = {name: _find(list(values), name) for name in CATEGORIES}
        there = {name: list(values.values())[place] for name, place in places.items() if place is not None}
        fractions = dict(zip(there, _fractions(list(there.values())), strict=True))
        if len(fractions) == len(CATEGORIES):
            fractions["overall"] = sum(fractions.values()) / len(CATEGORIES)
        figures[model] = fractions
    note = f"Official scores: {RESULTS} at commit {commit}, of {len(figures)} of {len(set(models))} models."
    return Official(RESULTS, figures, note)


def _read(path: str | Path) -> CsvTable:
    table = read_csv_table(path)
    kept = [i for i, row in enumerate(table.rows) if any(cell.strip() for cell in row)]
    if not kept:
        raise ValueError(f"{path}: no models in it; expected a header and a line for each model")
    header = [name.strip() for name in table.header]
    return CsvTable(header, [table.rows[i] for i in kept], [table.lines[i] for i in kept])


def _plain(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


def _find(header: Sequence[str], name: str) -> int | None:
    return next((i for i, column in enumerate(header) if _plain(column) == _plain(name)), None)


def _column(path: str | Path, header: Sequence[str], *names: str, hint: str = "") -> int:
    for name in names:
        place = _find(header, name)
        if place is not None:
            return place
    remedy = f"; name another with {hint}" if hint else ""
    raise ValueError(f"{path}: no column {' or '.join(names)} (has {', '.join(header)}){remedy}")


def _all_numbers(rows: list[list[str]], column: int) -> bool:
    cells = [row[column] for row in rows if row[column].strip()]
    try:
        return bool(cells) and all(math.isfinite(float(cell)) for cell in cells)
    except ValueError:
        return False


def _numbers(path: str | Path, table: CsvTable, column: int) -> list[float]:
    values = []
    for line, row in zip(table.lines, table.rows, strict=True):
        text = row[column].strip()
        try:
            value = float(text) if text else math.nan
        except ValueError:
            name = table.header[column]
            raise ValueError(f"{path}, line {line}: {name} is {text!r}, not a number") from None
        values.append(value if math.isfinite(value) else math.nan)
    return values


def _fractions(values: list[float]) -> list[float]:
    """Scores from 0 to 1, from fractions or percentages."""
    largest = max((value for value in values if math.isfinite(value)), default=0.0)
    return [value / 100 for value in values] if largest > 1.02 else values
