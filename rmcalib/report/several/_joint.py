"""Models on several benchmarks: one table, and whether one temperature is right for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmcalib._util.terminal import clean_line, count
from rmcalib.judges import recipe_of_run, registry, why_no_calibration
from rmcalib.metrics import FEWEST, OVERALL, Method, Settings, check_sortable, transfer
from rmcalib.report._headline import HEADLINE
from rmcalib.report.leaderboard._board import Leaderboard, leaderboard_of
from rmcalib.report.leaderboard._runs import runs_by_benchmark, source_notes
from rmcalib.report.several._words import model_words
from rmcalib.scores import Missing, Scores

__all__ = ["Joint", "join_benchmarks", "report_from_runs"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Joint:
    """Models on several benchmarks, as tidy tables.

    Attributes
    ----------
    benchmarks : list[str]
        The names of the benchmarks.
    models : list[Row]
        One row per model: model, words (whether one temperature is right for all its benchmarks), and the
        test of this: temperature, statistic, degrees, p_value (None with fewer than two benchmarks).
    values : list[Row]
        One row per model, benchmark and headline metric: value, low, high, n, note.
    temperatures : list[Row]
        The best temperature of each model on each benchmark: temperature, low, high, n.
    effects : list[Row]
        The effect of each temperature on each benchmark; see :class:`rmcalib.metrics.Transfer`.
    notes : list[str]
        Warnings and remarks for readers.
    summary : str
        The result in a few sentences.
    settings : Settings
        Bins, resamples, level and seed.
    boards : dict[str, Leaderboard]
        The leaderboard of each benchmark, if there is one.

    Examples
    --------
    >>> joint = join_benchmarks([], {}, settings=Settings())
    >>> joint.summary
    '0 models on 0 benchmarks. No model has two benchmarks to compare temperatures on.'
    """

    benchmarks: list[str]
    models: list[Row]
    values: list[Row]
    temperatures: list[Row]
    effects: list[Row]
    notes: list[str]
    summary: str
    settings: Settings
    boards: dict[str, Leaderboard]

    def value(self, model: str, benchmark: str, metric: str) -> Row | None:
        """Return the row of a metric; None if it has no value."""
        wanted = (model, benchmark, metric)
        return next(
            (
                row
                for row in self.values
                if (row["model"], row["benchmark"], row["metric"]) == wanted and row["value"] is not None
            ),
            None,
        )

    def content(self) -> Row:
        """Return all numbers, ready for JSON: infinite temperatures and limits become None."""
        tables = ("models", "values", "temperatures", "effects")
        return {
            "benchmarks": self.benchmarks,
            "summary": self.summary,
            **{name: [_finite(row) for row in getattr(self, name)] for name in tables},
            "notes": self.notes,
        }


def join_benchmarks(
    metrics: Iterable[Mapping[str, Any]],
    scores: Mapping[str, Mapping[str, Callable[[], Scores]]],
    *,
    settings: Settings,
    notes: Sequence[str] = (),
    boards: Mapping[str, Leaderboard] | None = None,
) -> Joint:
    """Combine the metrics of models on several benchmarks, and compare their temperatures.

    Parameters
    ----------
    metrics : Iterable[Mapping[str, Any]]
        Tidy rows (model, benchmark, category, metric, value, low, high, n, note).
    scores : Mapping[str, Mapping[str, Callable[[], Scores]]]
        For each model and benchmark, a function that returns the scores. Leave out models whose rewards are
        not utilities.
    settings : Settings
        Its level is that of the intervals.
    notes : Sequence[str]
        Warnings and remarks for readers.
    boards : Mapping[str, Leaderboard], optional
        The leaderboard of each benchmark.

    Returns
    -------
    Joint

    Examples
    --------
    >>> from rmcalib.metrics import metric_rows
    >>> made = {name: Scores.from_arrays([[1.0, 0.0], [0.0, 1.0]] * 15) for name in ("x", "y")}
    >>> rows = [row for name, one in made.items() for row in metric_rows(
    ...     one, model="org/rm", benchmark=name, metrics=["accuracy", "overconfidence"])]
    >>> joint = join_benchmarks(rows, {"org/rm": {name: lambda one=one: one for name, one in made.items()}},
    ...                         settings=Settings())
    >>> joint.benchmarks, joint.value("org/rm", "x", "accuracy")["value"]
    (['x', 'y'], 0.5)
    """
    values = [
        {key: row[key] for key in ("model", "benchmark", "metric", "value", "low", "high", "n", "note")}
        for row in metrics
        if row["category"] == OVERALL and row["metric"] in HEADLINE
    ]
    names = list(dict.fromkeys(row["model"] for row in values))
    models: list[Row] = []
    temperatures: list[Row] = []
    effects: list[Row] = []
    more: list[str] = []
    for name in names:
        found = transfer(
            {bench: load() for bench, load in scores.get(name, {}).items()}, level=settings.level
        )
        temperatures += [{"model": name, **row} for row in found.temperatures]
        effects += [{"model": name, **row} for row in found.effects]
        test = found.equality
        models.append(
            {
                "model": name,
                "words": model_words(found, settings.level),
                "temperature": None if test is None else test.temperature,
                "statistic": None if test is None else test.statistic,
                "degrees": None if test is None else test.degrees,
                "p_value": None if test is None else test.p_value,
            }
        )
        more += [
            f"{name}: no temperature was fitted on {clean_line(bench)}, which has fewer than {FEWEST} "
            "prompts with one correct response."
            for bench in found.left_out
        ]
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in values))
    return Joint(
        benchmarks=benchmarks,
        models=models,
        values=values,
        temperatures=temperatures,
        effects=effects,
        notes=[*notes, *more],
        summary=_summary(models, benchmarks, settings.level),
        settings=settings,
        boards=dict(boards or {}),
    )


def report_from_runs(
    folders: Iterable[str | Path],
    *,
    metric: str | None = None,
    methods: Sequence[Method] = ("kendall",),
    bradley_terry_only: bool = False,
    recipes: Iterable[str | Path] = (),
    settings: Settings | None = None,
    on_model: Callable[[int, int, str], None] | None = None,
    steps: str = "product",
    missing: Missing | None = None,
) -> Leaderboard | Joint:
    """Make the report of all finished runs under some folders.

    Parameters
    ----------
    folders : Iterable[str | Path]
        Folders that hold runs, at any depth, or files of scores.
    metric, methods, bradley_terry_only, recipes, settings, on_model, steps, missing
        As for :func:`leaderboard_from_runs`.

    Returns
    -------
    Leaderboard or Joint
        A `Leaderboard` if all runs are on one benchmark, otherwise a `Joint` with a leaderboard of each.

    Examples
    --------
    >>> report = report_from_runs(["real"], settings=Settings(resamples=20))
    >>> type(report).__name__, len(report.models)
    ('Leaderboard', 9)
    """
    settings = settings or Settings()
    if metric is not None:
        check_sortable(metric)
    groups, notes = runs_by_benchmark(folders, steps=steps, missing=missing)
    recipes = tuple(recipes)
    total, before = sum(map(len, groups.values())), 0
    boards: dict[str, Leaderboard] = {}
    for name, runs in groups.items():
        done = before

        def on_one(i: int, _: int, model: str, done: int = done) -> None:
            if on_model is not None:
                on_model(done + i, total, model)

        boards[clean_line(name)] = leaderboard_of(
            runs,
            notes if len(groups) == 1 else [],
            metric=metric,
            methods=methods,
            bradley_terry_only=bradley_terry_only,
            recipes=recipes,
            settings=settings,
            on_model=on_one,
        )
        before += len(runs)
    if len(boards) == 1:
        return next(iter(boards.values()))
    known = registry(recipes)
    scores: dict[str, dict[str, Callable[[], Scores]]] = {}
    for name, runs in groups.items():
        for run in runs:
            if why_no_calibration(recipe_of_run(run.model, run.manifest, known)) is None:
                scores.setdefault(clean_line(run.label), {})[clean_line(name)] = run.scores
    rows = [row for board in boards.values() for row in board.metrics]
    notes = [*source_notes(run for runs in groups.values() for run in runs), *notes]
    return join_benchmarks(rows, scores, settings=settings, notes=notes, boards=boards)


def _summary(models: Sequence[Row], benchmarks: Sequence[str], level: float) -> str:
    start = f"{count(len(models), 'model')} on {count(len(benchmarks), 'benchmark')}."
    tested = [row for row in models if row["p_value"] is not None]
    if not tested:
        return f"{start} No model has two benchmarks to compare temperatures on."
    differ = sum(row["p_value"] < 1 - level for row in tested)
    if len(tested) == 1:
        return f"{start} {tested[0]['words']}"
    return (
        f"{start} {differ} of {count(len(tested), 'model')} {'needs' if differ == 1 else 'need'} different "
        "temperatures on different benchmarks, more than chance explains."
    )


def _finite(row: Row) -> Row:
    infinite = (math.inf, -math.inf)
    return {
        key: None if isinstance(value, float) and value in infinite else value for key, value in row.items()
    }
