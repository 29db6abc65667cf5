"""Models on several benchmarks, side by side: does one temperature serve them all?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rmcalib._util.display import bracketed, number, p_value, short_names, temperature_text
from rmcalib._util.files import write_csv, write_json, write_text
from rmcalib._util.hub import folder_name
from rmcalib._util.storage import as_path
from rmcalib._util.terminal import clean_line, count
from rmcalib.judges import Recipe, registry
from rmcalib.judges._registry import recipe_of_run, why_no_calibration
from rmcalib.metrics import Settings
from rmcalib.metrics.board import check_sortable
from rmcalib.metrics.correlation import Method
from rmcalib.metrics.table import OVERALL, Row
from rmcalib.metrics.transfer import NO_TEMPERATURE, Transfer, transfer
from rmcalib.metrics.views import FEWEST
from rmcalib.report.boards import GUESS, write_leaderboard
from rmcalib.report.document import (
    Cell,
    Column,
    Columns,
    Document,
    Section,
    Table,
    table_of,
    to_html,
    to_markdown,
)
from rmcalib.report.leaderboards import Leaderboard, leaderboard_of
from rmcalib.report.official import Official
from rmcalib.report.pages import HEADLINE, footer_of, metric_cell, metric_column
from rmcalib.report.runs import ScoredRun, runs_by_benchmark, source_notes
from rmcalib.report.sentences import metric_name
from rmcalib.scores import Scores


@dataclass(frozen=True)
class Joint:
    """Models on several benchmarks, as tidy tables.

    Attributes
    ----------
    benchmarks : list of str
        Their names.
    models : list of dict
        One row per model: model, words (whether one temperature is right for all its benchmarks),
        temperature, statistic, p_value of that test (None with fewer than two benchmarks).
    values : list of dict
        One row per model, benchmark and headline metric.
    temperatures, effects : list of dict
        The best temperature of each model on each benchmark, and its effect on the others.
    notes : list of str
        Warnings and remarks.
    settings : Settings
        How the metrics were computed.
    boards : dict
        The leaderboard of each benchmark.
    """

    benchmarks: list[str]
    models: list[Row]
    values: list[Row]
    temperatures: list[Row]
    effects: list[Row]
    notes: list[str]
    settings: Settings
    boards: dict[str, Leaderboard]

    @property
    def summary(self) -> str:
        """The result in a few sentences."""
        return " ".join(_sentences(self))

    def content(self) -> Row:
        """Return all numbers, ready for JSON: infinite temperatures and limits become None."""
        tables = ("models", "values", "temperatures", "effects")
        return {
            "benchmarks": self.benchmarks,
            "summary": self.summary,
            **{name: [_finite(row) for row in getattr(self, name)] for name in tables},
            "notes": self.notes,
        }


def report_from_runs(
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
) -> Leaderboard | Joint:
    """Make the report of all finished runs under some folders (written by ``rmcalib eval`` or ``batch``).

    Parameters
    ----------
    folders : paths
        Folders that hold runs, at any depth, files of scores, or names of built-in boards (`load_board`).
    benchmark : str, optional
        Only runs of this benchmark.
    metric : str, optional
        What to sort by; default kept_information, or pairwise_brier if a judge only compares pairs.
    methods : sequence of {"kendall", "spearman", "pearson"}
        Coefficients of correlation.
    official : Official or function, optional
        Official scores to check ours against (`read_official`), or a function of a benchmark and models that
        returns them (`official_from_hub`). They need runs of one benchmark.
    bradley_terry_only : bool
        Leave out models that are known not to be on a Bradley-Terry scale.
    recipes : paths
        YAML files that describe more models.
    settings : Settings, optional
        Bins, resamples, level and seed.
    on_model : function, optional
        Called before each model with the number of models done, their total number and the name.

    Returns
    -------
    Leaderboard or Joint
        A `Leaderboard` if all runs are on one benchmark, otherwise a `Joint` with a leaderboard of each.

    Examples
    --------
    >>> report = report_from_runs(["rewardmath"], settings=Settings(resamples=20))
    >>> type(report).__name__, len(report.models)
    ('Leaderboard', 9)
    """
    settings, recipes = settings or Settings(), tuple(recipes)
    if metric is not None:
        check_sortable(metric)
    groups, notes = runs_by_benchmark(folders, benchmark)
    if official is not None and len(groups) > 1:
        have = ", ".join(f"{name} ({len(runs)})" for name, runs in groups.items())
        raise ValueError(
            f"official scores belong to one benchmark; choose one with --benchmark (have: {have})"
        )
    total, done = sum(map(len, groups.values())), 0
    boards: dict[str, Leaderboard] = {}
    for name, runs in groups.items():

        def on_one(i: int, _: int, model: str, before: int = done) -> None:
            if on_model is not None:
                on_model(before + i, total, model)

        boards[clean_line(name)] = leaderboard_of(
            runs,
            notes if len(groups) == 1 else [],
            metric=metric,
            methods=methods,
            official=official,
            bradley_terry_only=bradley_terry_only,
            recipes=recipes,
            settings=settings,
            on_model=on_one,
        )
        done += len(runs)
    if len(boards) == 1:
        return next(iter(boards.values()))
    return _join(groups, boards, registry(recipes), settings, notes)


def write_joint(joint: Joint, folder: str | Path) -> Path:
    """Write report.html, summary.md, benchmarks.csv, temperatures.csv, transfer.csv, and each leaderboard."""
    out = as_path(folder)
    document = joint_document(joint)
    page = to_html(document)
    for name, board in joint.boards.items():
        write_leaderboard(board, out / folder_name(name))
    for name, rows in (
        ("benchmarks", joint.values),
        ("temperatures", joint.temperatures),
        ("transfer", joint.effects),
    ):
        if rows:
            write_csv(out / f"{name}.csv", rows)
        else:
            (out / f"{name}.csv").unlink(missing_ok=True)
    write_json(out / "report.json", joint.content())
    write_text(out / "summary.md", to_markdown(document, sections=True))
    return write_text(out / "report.html", page)


def joint_document(joint: Joint) -> Document:
    """Return the document of several benchmarks: headline metrics side by side, then temperatures."""
    found = {(row["model"], row["benchmark"], row["metric"]): row for row in joint.values}
    names = [name for name in HEADLINE if any(row["metric"] == name for row in joint.values)]
    short = short_names(row["model"] for row in joint.models)
    own = {(row["model"], bench): row for bench, board in joint.boards.items() for row in board.models}
    ranks = {pair: row["rank"] for pair, row in own.items()}
    guesses = {pair for pair, row in own.items() if row["better_than_guess"] is False}
    pairs = [
        (row["model"], bench)
        for bench in joint.benchmarks
        for row in sorted(joint.models, key=lambda row: ranks.get((row["model"], bench)) or len(ranks))
        if any((row["model"], bench, name) in found for name in names)
    ]
    columns: Columns = {
        Column("model", text=True): lambda pair: _name_cell(pair[0], short[pair[0]], guess=pair in guesses),
        Column("benchmark", text=True): lambda pair: Cell(pair[1]),
    }
    if ranks:
        columns["rank"] = lambda pair: Cell(str(ranks.get(pair) or "–"), ranks.get(pair))
    for name in names:
        head = metric_column(
            name, HEADLINE[name], page_only=name in ("lost_information", "usable_information")
        )
        columns[head] = partial(_value_cell, found, name)
    tested = [row for row in joint.models if row["p_value"] is not None]
    caption = f"† {GUESS}: ranked last." if guesses else ""
    side_by_side = table_of("Benchmarks side by side", pairs, columns, caption, sortable=True)
    return Document(
        title="Calibration on several benchmarks",
        subtitle=f"{count(len(joint.models), 'model')} · {', '.join(joint.benchmarks)}",
        sentences=_sentences(joint),
        first=[side_by_side, *([_one_temperature(tested)] if tested else [])],
        sections=[_effects(joint.effects)] if tested else [],
        notes=joint.notes,
        links={f"Leaderboard of {name}": f"{folder_name(name)}/report.html" for name in joint.boards},
        footer=footer_of(joint.settings),
    )


def _name_cell(model: str, short: str, *, guess: bool) -> Cell:
    mark = "† " if guess else ""  # first, because a terminal cuts the end of long names
    return Cell(f"{mark}{model}", tone="soft" if guess else "", short=f"{mark}{short}")


def _value_cell(found: Mapping[tuple[str, str, str], Row], name: str, pair: tuple[str, str]) -> Cell:
    return metric_cell(found.get((*pair, name)), name, limits=name == "overconfidence")


def _one_temperature(models: Sequence[Row]) -> Table:
    return table_of(
        "One temperature for all benchmarks",
        models,
        {
            Column("model", text=True): lambda row: row["model"],
            Column("one temperature for all?", text=True): lambda row: row["words"],
            "p-value": lambda row: Cell(p_value(row["p_value"]), row["p_value"]),
        },
    )


def _effects(effects: Sequence[Row]) -> Section:
    """What a temperature that was fitted on one benchmark does on the others."""

    def lost(row: Row) -> Cell:
        return Cell(bracketed({**row, "value": row["lost_information"]}), row["lost_information"])

    def kept(row: Row) -> Cell:
        worse = row["information_high"] < 0
        return Cell(number(row["information"]), row["information"], "bad" if worse else "")

    columns: Columns = {
        Column("model", text=True): lambda row: row["model"],
        Column("fitted on", text=True): lambda row: row["fitted_on"],
        Column("used on", text=True): lambda row: row["used_on"],
        "T": lambda row: Cell(temperature_text(row["temperature"]), row["temperature"]),
        "lost information": lost,
        "kept information": kept,
    }
    table = table_of("Transfer", effects, columns, sortable=True)
    return Section("transfer", "A temperature of one benchmark on the others", [table])


def _join(
    groups: Mapping[str, Sequence[ScoredRun]],
    boards: dict[str, Leaderboard],
    known: Mapping[str, Recipe],
    settings: Settings,
    notes: Sequence[str],
) -> Joint:
    """Put the headline metrics of all boards together, and see whether one temperature serves all of them."""
    scores: dict[str, dict[str, Callable[[], Scores]]] = {}
    for bench, runs in groups.items():
        for run in runs:
            if why_no_calibration(recipe_of_run(run.model, run.manifest, known)) is None:
                scores.setdefault(clean_line(run.label), {})[clean_line(bench)] = run.scores
    keys = ("model", "benchmark", "metric", "value", "low", "high", "n", "note")
    values = [
        {key: row[key] for key in keys}
        for board in boards.values()
        for row in board.metrics
        if row["category"] == OVERALL and row["metric"] in HEADLINE
    ]
    models: list[Row] = []
    temperatures: list[Row] = []
    effects: list[Row] = []
    more: list[str] = []
    for name in dict.fromkeys(row["model"] for row in values):
        found = transfer(
            {bench: load() for bench, load in scores.get(name, {}).items()}, level=settings.level
        )
        temperatures += [{"model": name, **row} for row in found.temperatures]
        effects += [{"model": name, **row} for row in found.effects]
        test = found.equality
        models.append(
            {
                "model": name,
                "words": _transfer_sentence(found, settings.level),
                "temperature": None if test is None else test.temperature,
                "statistic": None if test is None else test.statistic,
                "p_value": None if test is None else test.p_value,
            }
        )
        more += [
            f"{name}: no temperature was fitted on {clean_line(bench)}: fewer than {FEWEST} prompts with one "
            "correct response."
            for bench in found.left_out
        ]
    more = [*source_notes(run for runs in groups.values() for run in runs), *notes, *more]
    return Joint(list(boards), models, values, temperatures, effects, more, settings, boards)


def _sentences(joint: Joint) -> list[str]:
    found = [f"{count(len(joint.models), 'model')} on {count(len(joint.benchmarks), 'benchmark')}."]
    best = [(bench, board.models[0]) for bench, board in joint.boards.items() if board.models[0]["rank"] == 1]
    if best:
        named = ", ".join(f"{row['model']} ({bench})" for bench, row in best)
        found = [f"{found[0]} Best by {metric_name(next(iter(joint.boards.values())).metric)}: {named}."]
    tested = [row for row in joint.models if row["p_value"] is not None]
    if len(tested) == 1:
        found.append(tested[0]["words"])
    elif tested:
        differ = sum(row["p_value"] < 1 - joint.settings.level for row in tested)
        found.append(
            f"{differ} of {count(len(tested), 'model')} shown to need different temperatures on them."
        )
    return found


def _transfer_sentence(found: Transfer, level: float) -> str:
    """Return whether one temperature is right for all benchmarks of a model, and the worst effect of one."""
    if not found.temperatures:
        return "There are too few prompts to fit a temperature."
    if found.equality is None:
        (own,) = found.temperatures
        return f"A temperature was fitted on one benchmark only: {temperature_text(own['temperature'])}."
    p = p_value(found.equality.p_value)
    p = f"p < {p[1:]}" if p.startswith("<") else f"p = {p}"
    if all(math.isinf(row["temperature"]) for row in found.temperatures):
        return "No temperature is shown to help on any benchmark."
    if found.equality.p_value >= 1 - level:
        together = temperature_text(found.equality.temperature)
        return f"The benchmarks are not shown to need different temperatures ({p}); together {together}."
    ends = sorted(found.temperatures, key=lambda row: float(row["temperature"]))
    shown = [f"{temperature_text(row['temperature'])} on {row['benchmark']}" for row in (ends[0], ends[-1])]
    return f"No single temperature is right for all benchmarks ({p}): it is {shown[0]} and {shown[1]}. {_worst(found)}"


def _worst(found: Transfer) -> str:
    """Return the temperature that makes another benchmark worst, if one is shown to."""
    own = {row["benchmark"] for row in found.temperatures}
    worse = [
        row
        for row in found.effects
        if row["fitted_on"] in own and row["fitted_on"] != row["used_on"] and row["change_low"] > 0
    ]
    if not worse:
        return "None of them is shown to make another benchmark worse."
    worst = max(worse, key=lambda row: float(row["change"]))
    before = next(
        row
        for row in found.effects
        if row["fitted_on"] == NO_TEMPERATURE and row["used_on"] == worst["used_on"]
    )
    uniform = " That is worse than a uniform guess." if worst["information_high"] < 0 else ""
    lost = bracketed({**worst, "value": worst["lost_information"]})
    return (
        f"The temperature of {worst['fitted_on']} makes {worst['used_on']} worse: the lost information is {lost}, "
        f"against {number(before['lost_information'])} without one.{uniform}"
    )


def _finite(row: Row) -> Row:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }
