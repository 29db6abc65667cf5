"""Leaderboards of one benchmark, and of several side by side: their documents, sentences and files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rmcalib._util.display import (
    bracketed,
    interval,
    number,
    p_value,
    percent,
    points,
    short_names,
    temperature_text,
)
from rmcalib._util.files import write_bytes, write_csv, write_json, write_text
from rmcalib._util.hub import folder_name
from rmcalib._util.storage import as_path
from rmcalib._util.terminal import clean_line, count
from rmcalib.metrics.board import Board
from rmcalib.metrics.catalogue import TRAINING_METRICS
from rmcalib.metrics.table import OVERALL
from rmcalib.metrics.transfer import Transfer
from rmcalib.report import document as doc
from rmcalib.report import figures
from rmcalib.report.document import Cell, Column, Document, Drawing, Section, entry
from rmcalib.report.pages import footer_of, metric_cell, metric_column
from rmcalib.report.sentences import HEADLINE, PAIRS, Row, Rows, direction, metric_name, outside_zero, p_text

if TYPE_CHECKING:
    from rmcalib.report.leaderboards import Report

FEWEST_MODELS = 10
"""With fewer models, correlations over them are not shown."""
PROTOCOL = (
    "The paper's public code writes 1 − mean P(chosen) into a column ece_score. This is an error rate, not a "
    "calibration error, so it correlates with scores by construction."
)
"""What the paper's number is."""
_MOST_CATEGORIES = 12  # columns of the page; leaderboard.csv has all
_TABLES = ("training", "correlations", "split_correlations", "ranks", "reliability", "rejection", "check")
_BRIEF = ("mean_confidence", "accuracy", "overconfidence", *PAIRS)
_MODEL = Column("model", text=True)
_GUESS = "worse than a uniform guess, or not shown to be right more often than by chance"
_INFORMATION = (
    "Filled: information that the stated probabilities keep. Outline: what the rewards would give at their best "
    f"scale. † {_GUESS}."
)
_SAYS = (
    "Below the line: over-confident (▼). Above: under-confident (▲). Circles: not shown to be either. Numbers, if "
    "there are any, are places in the table."
)
_CORRELATED = (
    "Positive: models that are better by the error have better scores. In the first rows the error comes from one "
    "half of the prompts and the accuracy from the other, so that they share no noise."
)
_SETS = "Ranks that the model may have, at the level of the intervals, looking at all pairs of models"


# Files.


def write_report(report: Report, folder: str | Path) -> Path:
    """Write a report: a leaderboard, or several and what they say together. Return the path of its page."""
    out = as_path(folder)
    if report.board is not None:
        return _write_board(report.board, out)
    document = report_document(report)
    page = doc.to_html(document)
    for name, board in report.boards.items():
        _write_board(board, out / folder_name(name))
    tables = {"benchmarks": report.rows, "temperatures": report.temperatures, "transfer": report.effects}
    _write_tables(tables, out)
    write_json(out / "report.json", report.content())
    write_text(out / "summary.md", doc.to_markdown(document, sections=True))
    return write_text(out / "report.html", page)


def _write_board(board: Board, out: Path) -> Path:
    document = board_document(board)
    page = doc.to_html(document)
    metrics = [{"model": row["model"], "benchmark": board.benchmark, **row} for row in board.metrics]
    others = {name: getattr(board, name) for name in _TABLES}
    _write_tables({"leaderboard": board.wide_rows(), "metrics": metrics, **others}, out)
    drawn = {
        "says_right": figures.says_right_figure(_in_order(board)),
        "information": figures.worth_figure(board.models),
        "training": figures.training_figure(board.training),
    }
    for name, figure in drawn.items():
        for kind in ("png", "pdf"):
            target = out / "figures" / f"{name}.{kind}"
            if figure is None:
                target.unlink(missing_ok=True)
            else:
                write_bytes(target, figures.figure_bytes(figure, kind))
    write_text(out / "summary.md", doc.to_markdown(document, sections=len(board.models) >= FEWEST_MODELS))
    return write_text(out / "report.html", page)


def _write_tables(tables: Mapping[str, Sequence[Row]], out: Path) -> None:
    """Write tables as CSV; those without rows are removed, because an earlier report may have left them."""
    for name, rows in tables.items():
        if rows:
            write_csv(out / f"{name}.csv", rows)
        else:
            (out / f"{name}.csv").unlink(missing_ok=True)


# The document of one leaderboard.


def board_document(board: Board) -> Document:
    """Return the document of a leaderboard: the verdict, the ranking, then folded details."""
    first: list[doc.Block] = [_ranking(board)]
    if any("kept_information" in row["values"] for row in board.models):
        label = "Kept and usable information of each model"
        many = len(board.models) > figures.MOST_NAMED
        caption = f"The first {figures.MOST_NAMED} models. {_INFORMATION}" if many else _INFORMATION
        first.append(Drawing("information", partial(figures.worth_figure, board.models), label, caption))
    if board.training:
        label = "Says and right, kept information, temperature and ECE over the training steps"
        steps = Drawing("training", partial(figures.training_figure, board.training), label)
        first = [steps, _training_table(board.training), *first]
    title = "Reward models by calibration"
    sections = (_says(board), _categories(board), _correlations(board), _check(board), _protocol(board))
    return Document(
        title=f"{title}: {board.benchmark}" if board.benchmark else title,
        subtitle=f"{count(len(board.models), 'model')} · sorted by {metric_name(board.metric)} · protocol: "
        f"{board.protocol}",
        sentences=board_sentences(board),
        first=first,
        sections=[section for section in sections if section is not None],
        notes=[
            *(f"{row['model']} is not ranked: {row['why']}." for row in board.models if row["why"]),
            *board.notes,
        ],
        footer=footer_of(board.settings),
    )


def _ranking(board: Board) -> doc.Table:
    """The models, best first: rank, the ranks that each may have, and the headline metrics."""
    main, known = board.metric, {key for row in board.models for key in row["values"]}
    wanted = PAIRS if main.startswith("pairwise_") else HEADLINE
    short = short_names(row["model"] for row in board.models)
    columns: doc.Columns = {
        _MODEL: lambda row: _name_cell(row, short[row["model"]]),
        "rank": lambda row: Cell(str(row["rank"] or "–"), row["rank"]),
    }
    if any(row["rank_low"] is not None for row in board.models):
        columns[Column("may be", _SETS)] = _set_cell
    columns[metric_column(main)] = lambda row: metric_cell(row["values"].get(main), main)
    for key, label in {**wanted, "temperature": "best T", "ece": "ECE"}.items():
        if key in known and key != main:
            columns[metric_column(key, label, page_only=key not in _BRIEF)] = partial(_value_cell, key)
    if any(
        row["score"] not in (None, row["values"].get("accuracy", {}).get("value")) for row in board.models
    ):
        columns["score"] = entry("score", number)
    return doc.table_of("Models", board.models, columns, _marks(board.models), sortable=True)


def _marks(models: Rows) -> str:
    """Return what the signs beside names of models mean."""
    found = []
    if any(row["better_than_guess"] is False for row in models):
        found.append(f"† {_GUESS}: ranked last.")
    if any(row.get("scale") == "no" for row in models):
        found.append("* not trained on a Bradley-Terry scale: its probabilities have little meaning.")
    return " ".join(found)


def _name_cell(row: Row, short: str) -> Cell:
    guess = row["better_than_guess"] is False
    # Marks come first, because a terminal cuts the end of names.
    marks = f"{'† ' if guess else ''}{'* ' if row.get('scale') == 'no' else ''}"
    tips = [text for text in (_GUESS if guess else "", row.get("mark", "")) if text]
    tone = "soft" if guess else ""
    return Cell(f"{marks}{row['model']}", tone=tone, tip="; ".join(tips), short=f"{marks}{short}")


def _set_cell(row: Row) -> Cell:
    low, high = row["rank_low"], row["rank_high"]
    return Cell("–" if low is None else str(low) if low == high else f"{low}–{high}", low)


def _value_cell(metric: str, row: Row) -> Cell:
    return metric_cell(row["values"].get(metric), metric, limits=False)


def _says(board: Board) -> Section | None:
    if not any(row["metric"] == "mean_confidence" and row["value"] is not None for row in board.metrics):
        return None
    label = "What each model says against how often it is right"
    draw = partial(figures.says_right_figure, _in_order(board))
    return Section("says-and-right", "Says and right", [Drawing("says-right", draw, label, _SAYS)])


def _categories(board: Board) -> Section | None:
    if len(board.categories) < 2:
        return None
    shown = list(board.categories)[:_MOST_CATEGORIES]
    columns: doc.Columns = {_MODEL: entry(OVERALL), **{name: entry(name, number) for name in shown}}
    rows = [{**row["category_scores"], OVERALL: row["model"]} for row in board.models]
    left = len(board.categories) - len(shown)
    caption = f"leaderboard.csv has {left:,} more categories." if left else ""
    table = doc.table_of("Scores by category", rows, columns, caption, sortable=True)
    return Section("categories", "Scores by category", [table])


def _correlations(board: Board) -> Section | None:
    """Correlations over models; with fewer than ten, their intervals are as wide as the scale."""
    ranked = sum(row["rank"] is not None for row in board.models)
    if ranked < FEWEST_MODELS or board.training:
        return None
    table = doc.table_of(
        "Correlations",
        [*board.split_correlations, *board.correlations],
        {
            Column("error", text=True): lambda row: metric_name(row["metric"]),
            Column("score", text=True): entry("target"),
            Column("coefficient", text=True): entry("method"),
            "value": lambda row: Cell(number(row["value"]), row["value"], tip=row["note"]),
            "interval": interval,
            "p-value": entry("p_value", p_value),
            "models": entry("n"),
        },
        _CORRELATED,
    )
    return Section("correlations", "Correlation with scores", [table])


def _check(board: Board) -> Section | None:
    if not board.check:
        return None

    def difference(row: Row) -> Cell:
        off = abs(row["difference"]) > 0.01
        return Cell(f"{row['difference']:+.4f}", row["difference"], "bad" if off else "")

    columns: doc.Columns = {
        _MODEL: entry("model"),
        Column("category", text=True): entry("category"),
        "ours": entry("ours", number),
        "official": entry("official", number),
        "difference": difference,
    }
    ordered = sorted(board.check, key=lambda row: -abs(row["difference"]))
    table = doc.table_of("Official scores", ordered, columns, sortable=True)
    return Section("check", "Check against official scores", [table])


def _protocol(board: Board) -> Section | None:
    """The paper's own number beside the calibration error."""
    known = [row for row in board.models if "reference_top_1" in row["values"]]
    if not known:
        return None
    columns: doc.Columns = {_MODEL: entry("model")}
    columns |= {
        metric_column(name): partial(_value_cell, name) for name in ("reference_top_1", "ece", "accuracy")
    }
    ordered = sorted(known, key=lambda row: float(row["values"]["reference_top_1"]["value"]))
    table = doc.table_of("The paper's protocol", ordered, columns, sortable=True)
    return Section("protocol", "The paper's protocol", [doc.Words([PROTOCOL]), table])


def _training_table(rows: Rows) -> doc.Table:
    columns: doc.Columns = {
        "step": lambda row: Cell(f"{row['step']}{' (best)' if row['best'] else ''}", row["step"])
    }
    for name in TRAINING_METRICS:
        if any(row[name] is not None for row in rows):
            columns[metric_column(name, HEADLINE.get(name, ""))] = partial(_step_cell, name)
    caption = "Best: the step that keeps the most information."
    return doc.table_of("Training steps", rows, columns, caption, newest=True)


def _step_cell(metric: str, row: Row) -> Cell:
    return metric_cell({"value": row[metric], "low": None, "high": None}, metric)


def _in_order(board: Board) -> list[Row]:
    """Return the rows of metrics in the order of the models."""
    place = {row["model"]: i for i, row in enumerate(board.models)}
    return sorted(board.metrics, key=lambda row: place[row["model"]])


# The document of several benchmarks.


def report_document(report: Report) -> Document:
    """Return the document of a report: its leaderboard, or headline metrics side by side, then temperatures."""
    if report.board is not None:
        return board_document(report.board)
    rows = [
        row | {"benchmark": name}
        for name, board in report.boards.items()
        for row in board.models
        if any(key in row["values"] for key in HEADLINE)
    ]
    short = short_names(dict.fromkeys(row["model"] for row in rows))
    columns: doc.Columns = {
        _MODEL: lambda row: _name_cell(row, short[row["model"]]),
        Column("benchmark", text=True): entry("benchmark"),
        "rank": lambda row: Cell(str(row["rank"] or "–"), row["rank"]),
    }
    for name, label in HEADLINE.items():
        if any(name in row["values"] for row in rows):
            wide = name in ("lost_information", "usable_information")
            columns[metric_column(name, label, page_only=wide)] = partial(_headline_cell, name)
    first = [doc.table_of("Benchmarks side by side", rows, columns, _marks(rows), sortable=True)]
    tested = [row for row in report.models if row["p_value"] is not None]
    if tested:
        one_temperature: doc.Columns = {
            _MODEL: entry("model"),
            Column("one temperature for all?", text=True): entry("words"),
            "p-value": entry("p_value", p_value),
        }
        first.append(doc.table_of("One temperature for all benchmarks", tested, one_temperature))
    return Document(
        title="Calibration on several benchmarks",
        subtitle=f"{count(len(short), 'model')} · {', '.join(report.boards)}",
        sentences=report_sentences(report),
        first=first,
        sections=[_effects(report.effects)] if tested else [],
        notes=report.notes,
        links={f"Leaderboard of {name}": f"{folder_name(name)}/report.html" for name in report.boards},
        footer=footer_of(report.settings),
    )


def _headline_cell(metric: str, row: Row) -> Cell:
    return metric_cell(row["values"].get(metric), metric, limits=metric == "overconfidence")


def _effects(effects: Rows) -> Section:
    """What a temperature that was fitted on one benchmark does on the others."""

    def lost(row: Row) -> Cell:
        return Cell(bracketed({**row, "value": row["lost_information"]}), row["lost_information"])

    def kept(row: Row) -> Cell:
        worse = row["information_high"] < 0
        return Cell(number(row["information"]), row["information"], "bad" if worse else "")

    columns: doc.Columns = {
        _MODEL: entry("model"),
        Column("fitted on", text=True): entry("fitted_on"),
        Column("used on", text=True): entry("used_on"),
        "T": entry("temperature", temperature_text),
        "lost information": lost,
        "kept information": kept,
    }
    table = doc.table_of("Transfer", effects, columns, sortable=True)
    return Section("transfer", "A temperature of one benchmark on the others", [table])


# Sentences.


def board_sentences(board: Board) -> list[str]:
    """Return the best model, which others may be as good, how many are over-confident, and the correlation."""
    ranked = [row for row in board.models if row["rank"] is not None]
    total = count(len(board.models), "model")
    if not ranked:
        return [f"{total}, none with a value for {metric_name(board.metric)}."]
    found = [_best_sentence(board, ranked, total), _gaps_sentence(ranked, board.metric)]
    guesses = [row for row in ranked if row["better_than_guess"] is False]
    if guesses:
        found.append(
            f"Ranked last: {count(len(guesses), 'model')} worse than a uniform guess, or not shown to be right more "
            "often than by chance."
        )
    return [sentence for sentence in [*found, _correlation_sentence(board)] if sentence]


def _best_sentence(board: Board, ranked: Rows, total: str) -> str:
    best, metric = ranked[0], board.metric
    value = best["values"][metric]
    if len(ranked) > 1 and all(row["rank"] == best["rank"] for row in ranked):
        return f"{total}; all have the same {metric_name(metric)}, {number(value['value'])}."
    shown = points(value, unit=" points") if metric.endswith("overconfidence") else bracketed(value)
    pair = "pairwise_" if metric.startswith("pairwise_") else ""
    names = (f"{pair}confidence", "pairwise_accuracy") if pair else ("mean_confidence", "accuracy")
    says, right = (best["values"].get(name) for name in names)
    more = (
        ""
        if says is None or right is None
        else f"; it says {percent(says['value'])} and is right {percent(right['value'])} of the time"
    )
    first = f"{total}. Best by {metric_name(metric)}: {clean_line(best['model'])}, {shown}{more}."
    rivals = [row for row in ranked[1:] if row.get("rank_low") == 1]
    if rivals:
        first += f" {count(len(rivals), 'other')} may be as good."
    return first


def _gaps_sentence(ranked: Rows, by: str) -> str:
    name = "pairwise_overconfidence" if by.startswith("pairwise_") else "overconfidence"
    gaps = [gap for row in ranked if (gap := row["values"].get(name)) is not None]
    if not gaps:
        return ""
    sure = [direction(gap["value"]) for gap in gaps if outside_zero(gap)]
    over, under = sure.count("over-confident"), sure.count("under-confident")
    return (
        f"{over} of {count(len(gaps), 'model')} over-confident, {under} under-confident, "
        f"{len(gaps) - over - under} not shown to be either."
    )


def _correlation_sentence(board: Board) -> str:
    error = "lost_information" if board.metric == "kept_information" else board.metric
    split = next(
        (row for row in board.split_correlations if (row["metric"], row["target"]) == (error, "accuracy")),
        None,
    )
    found = split or next((row for row in board.correlations if row["target"] == "leaderboard"), None)
    if found is None or found["value"] is None or found["note"] or found["n"] < 10:
        return ""
    meaning = "the interval includes zero, so these models do not show a correlation"
    if found["low"] > 0:
        meaning = f"models that are better by {metric_name(found['metric'])} have better scores"
    elif found["high"] < 0:
        meaning = f"models that are better by {metric_name(found['metric'])} have worse scores"
    what = "accuracy, from different halves of the prompts," if split else "the score"
    return (
        f"The rank correlation of {metric_name(found['metric'])} and {what} is {found['value']:.2f} "
        f"[{found['low']:.2f}, {found['high']:.2f}] over {found['n']} models: {meaning}."
    )


def report_sentences(report: Report) -> list[str]:
    """Return the best model of each benchmark, and whether one temperature serves all benchmarks."""
    models = dict.fromkeys(row["model"] for board in report.boards.values() for row in board.models)
    found = [f"{count(len(models), 'model')} on {count(len(report.boards), 'benchmark')}."]
    best = [
        (bench, board.models[0]) for bench, board in report.boards.items() if board.models[0]["rank"] == 1
    ]
    if best:
        named = ", ".join(f"{row['model']} ({bench})" for bench, row in best)
        found = [f"{found[0]} Best by {metric_name(next(iter(report.boards.values())).metric)}: {named}."]
    tested = [row for row in report.models if row["p_value"] is not None]
    if len(tested) == 1:
        found.append(tested[0]["words"])
    elif tested:
        differ = sum(row["p_value"] < 1 - report.settings.level for row in tested)
        found.append(
            f"{differ} of {count(len(tested), 'model')} shown to need different temperatures on them."
        )
    return found


def transfer_sentence(found: Transfer, level: float) -> str:
    """Return whether one temperature is right for all benchmarks of a model."""
    if not found.temperatures:
        return "There are too few prompts to fit a temperature."
    if found.equality is None:
        (own,) = found.temperatures
        return f"A temperature was fitted on one benchmark only: {temperature_text(own['temperature'])}."
    p = p_text(found.equality.p_value)
    if all(math.isinf(row["temperature"]) for row in found.temperatures):
        return "No temperature is shown to help on any benchmark."
    if found.equality.p_value >= 1 - level:
        together = temperature_text(found.equality.temperature)
        return f"The benchmarks are not shown to need different temperatures ({p}); together {together}."
    ends = sorted(found.temperatures, key=lambda row: float(row["temperature"]))
    shown = [f"{temperature_text(row['temperature'])} on {row['benchmark']}" for row in (ends[0], ends[-1])]
    return f"No single temperature is right for all benchmarks ({p}): it is {shown[0]} and {shown[1]}."
