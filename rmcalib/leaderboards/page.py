"""Leaderboards of one benchmark, and of several side by side: their documents, sentences and files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from rmcalib import __version__
from rmcalib._util import display
from rmcalib._util.display import bracketed, clean_line, count, number, p_value, percent, temperature_text
from rmcalib._util.files import read_object, write_bytes, write_csv, write_json, write_text
from rmcalib._util.hub import folder_name
from rmcalib._util.storage import as_path, remove_file
from rmcalib.leaderboards import figures as paper_figures
from rmcalib.leaderboards.figures import FEWEST_MODELS, MOST_CATEGORIES, marks_of
from rmcalib.leaderboards.measure import Board
from rmcalib.leaderboards.transfer import Transfer
from rmcalib.metrics.catalogue import TRAINING_METRICS
from rmcalib.report import document as doc
from rmcalib.report import figures, pages, sentences
from rmcalib.report.document import Cell, Column, Columns, Document, Drawing, Section, entry, ranged
from rmcalib.report.sentences import CLAIMS, HEADLINE, PAIRS, RESPONSES, Row, Rows, metric_name, outside_zero

if TYPE_CHECKING:
    from rmcalib.leaderboards.reports import Report

PROTOCOL = (
    "The paper's public code writes 1 − mean P(chosen) into a column ece_score. This is an error rate, not a "
    "calibration error, so it correlates with scores by construction."
)
"""What the paper's number is."""
_OF_BOARD = ("training", "correlations", "split_correlations", "ranks", "reliability", "rejection", "check")
_TABLES = ("leaderboard", "metrics", *_OF_BOARD, "benchmarks", "temperatures", "transfer")
_FIGURES = ("says_right", "training", "top_10", "correlations")
_FILES = [
    *(f"{table}.csv" for table in _TABLES),
    *(f"figures/{figure}.{kind}" for figure in _FIGURES for kind in figures.PRINTED),
    *("summary.md", "report.html", "report.json"),
]
"""Everything that a report may have written."""
_WRITERS = {".csv": write_csv, ".json": write_json, ".md": write_text, ".html": write_text}
_BRIEF = ("mean_confidence", "accuracy", "overconfidence", *PAIRS)
_GUESS = "worse than a uniform guess, or not significantly more often right than a random choice"
_MARKS = {
    "†": f"{_GUESS}: ranked last",
    "*": "not trained on a Bradley-Terry scale: its probabilities have little meaning",
}
_TAU = "1 if two orders of the models agree, 0 if they are unrelated, -1 if one is the other reversed"
_SAYS = (
    "Below the line: over-confident (▼). Above: under-confident (▲). Circles: neither was found, {}. Numbers, if "
    "there are any, are places in the table."
)
_CORRELATED = "Positive: models that are better by the error have better scores."
_HALVES = (
    "With split halves, the error comes from one half of the prompts and the accuracy from the other, so that they "
    "share no noise."
)
_SETS = "the ranks that a model may have, because differences between models may be chance"


# Files.


def write_report(report: Report, folder: str | Path) -> Path:
    """Write a report: a leaderboard, or several and what they say together. Return the path of its page.

    Files of an earlier report, which has a page and a summary, are removed if this one does not have them.
    """
    out = as_path(folder)
    replaced = (out / "report.html").is_file() and (out / "summary.md").is_file()
    if report.board is not None:
        files = _files_of(board_document(report.board), _tables_of(report.board))
    else:
        files = {"report.json": report.content()}
        for name, board in report.boards.items():
            of_board = _files_of(board_document(board), _tables_of(board))
            files |= {f"{folder_name(name)}/{file}": content for file, content in of_board.items()}
        tables = {"benchmarks": report.rows, "temperatures": report.temperatures, "transfer": report.effects}
        files |= _files_of(report_document(report), tables)
    earlier = read_object(out / "report.json").get("benchmarks")
    inner = [f"{folder_name(str(name))}/" for name in earlier if name] if isinstance(earlier, list) else []
    for name, content in files.items():
        _WRITERS.get(Path(name).suffix, write_bytes)(out / name, content)
    if replaced:
        for stale in {place + name for place in ("", *inner) for name in _FILES} - files.keys():
            remove_file(out / stale)
    return out / "report.html"


def _tables_of(board: Board) -> dict[str, Rows]:
    metrics = [{"model": row["model"], "benchmark": board.benchmark, **row} for row in board.metrics]
    others = {name: getattr(board, name) for name in _OF_BOARD}
    return {"leaderboard": board.table_rows(), "metrics": metrics, **others}


def _files_of(document: Document, tables: Mapping[str, Rows]) -> dict[str, Any]:
    """Return the contents of files by name: tables, the figures of the first screen, the summary and the page."""
    files: dict[str, Any] = {f"{name}.csv": rows for name, rows in tables.items() if rows}
    for block in document.first:
        if isinstance(block, Drawing) and block.name in _FIGURES and (figure := block.draw()) is not None:
            for kind in figures.PRINTED:
                files[f"figures/{block.name}.{kind}"] = figures.figure_bytes(figure, kind)
    files["summary.md"] = doc.to_markdown(document, sections=True)
    files["report.html"] = doc.to_html(document)
    return files


# The document of one leaderboard.


def board_document(board: Board) -> Document:
    """Return the document of a leaderboard: the verdict, figures, the ranking, then folded details."""
    first: list[doc.Block] = [*_says_right(board), *_paper_figures(board), _ranking(board)]
    if board.training:
        label = (
            "Says and right, kept information, temperature and ECE (all responses) over the training steps"
        )
        steps = Drawing("training", partial(figures.curves_figure, board.training, figures.TRAINING), label)
        first = [steps, _training_table(board.training), *first]
    title = "Reward models by calibration"
    correlations = _correlations(board)
    words = _words([board], {"Kendall's tau": _TAU} if correlations else {})
    sections = (_categories(board), correlations, _check(board), _protocol(board), words)
    return Document(
        title=title if board.benchmark in ("", sentences.UNNAMED) else f"{title}: {board.benchmark}",
        subtitle=f"{count(len(board.models), 'model')} · sorted by {metric_name(board.metric)} · protocol: "
        f"{board.protocol}",
        sentences=board_sentences(board),
        first=first,
        steps=_steps([board]),
        sections=[section for section in sections if section is not None],
        notes=[
            *(f"{row['model']} is not ranked: {row['why']}." for row in board.models if row["why"]),
            *board.notes,
        ],
        footer=pages.footer_of(board.settings) if board.reliability else f"rmcalib {__version__}",
    )


def _steps(boards: Iterable[Board]) -> list[doc.Step]:
    """Return the command that compares the two best models, if their scores can be read again."""
    for board in boards:
        best = [board.sources.get(row["model"]) for row in board.models if row["rank"] is not None][:2]
        if len(best) == 2 and None not in best:
            words = "Compare the two best models: is the difference more than chance?"
            return [doc.Step(words, f"rmcalib compare {' '.join(quote(source or '') for source in best)}")]
    return []


def _says_right(board: Board) -> list[Drawing]:
    """What each model says against how often it is right, if the models say something."""
    if not any("mean_confidence" in row["values"] for row in board.models):
        return []
    place = {row["model"]: i for i, row in enumerate(board.models)}
    rows = sorted(board.metrics, key=lambda row: place[row["model"]])
    gaps = {row["model"]: row["gap"]["shown"] for row in board.models if row.get("gap")}
    label = "What each model says against how often it is right"
    how = "after a correction for looking at all of them" if gaps else "each by its own interval"
    draw = partial(figures.says_right_figure, rows, gaps or None)
    return [Drawing("says_right", draw, label, _SAYS.format(how))]


def _paper_figures(board: Board) -> list[Drawing]:
    """The paper's two figures of reward models, if there are enough models."""
    error = paper_figures.calibration_error(board)
    best, correlated = paper_figures.top_10_rows(board), paper_figures.correlated_rows(board)
    drawings = []
    if best:
        draw = partial(paper_figures.top_10_figure, best, error=error, n_models=len(board.models))
        label = f"The most calibrated models by {metric_name(error)}"
        drawings.append(Drawing("top_10", draw, label, _top_10_caption(best)))
    if correlated:
        draw = partial(paper_figures.correlations_figure, correlated, error=error)
        label = f"Correlations of {metric_name(error)} with the scores of models"
        drawings.append(Drawing("correlations", draw, label, _correlated_caption(board)))
    return drawings


def _correlated_caption(board: Board) -> str:
    return f"{_CORRELATED} {_HALVES}" if board.split_correlations else _CORRELATED


def _top_10_caption(rows: Rows) -> str:
    """Explain what this figure of the most calibrated models shows."""
    parts = _mark_sentences(row["marks"] for row in rows)
    if any(row["null_mean"] is not None for row in rows):
        parts.insert(0, "A tick is the expected error of a calibrated model.")
    if any(row["low"] is not None for row in rows):
        parts.insert(0, "Lines are intervals.")
    return " ".join(parts)


def _mark_sentences(marks: Iterable[str]) -> list[str]:
    """Return what the marks of some models mean."""
    used = set("".join(marks))
    return [f"{mark} {meaning}." for mark, meaning in _MARKS.items() if mark in used]


def _ranking(board: Board) -> doc.Table:
    """The models, best first: rank, what they say and how often they are right, then everything else."""
    models, main = board.models, board.metric
    present = {main, *(key for row in models for key in row["values"])}
    labels = {"pairwise": PAIRS, "pointwise": RESPONSES}.get(main.partition("_")[0], HEADLINE)
    wanted = {name: labels[name] for name in _claims(board) if name in labels}
    wanted |= {main: ""} | labels | {"temperature": "best T", "ece": "ECE (all responses)"}
    short = display.short_names(row["model"] for row in models)
    columns: Columns = {
        "model": lambda row: _name_cell(row, short[row["model"]]),
        "rank": lambda row: Cell(str(row["rank"] or "–"), row["rank"]),
    }
    numbers = pages.metric_columns(
        {key: label for key, label in wanted.items() if key in present},
        _value,
        limits=(main,),
        page_only=present - {main, *_BRIEF},
    )
    for (column, cell), metric in zip(
        numbers.items(), (key for key in wanted if key in present), strict=True
    ):
        columns[column] = partial(_with_bar, cell, _claims(board), metric, main)
        if metric == main and any(row["rank_low"] is not None for row in models):
            columns[Column("rank may be", _SETS)] = _set_cell
    if any(row["score"] not in (None, row["values"].get("accuracy", {}).get("value")) for row in models):
        columns[Column("score", sentences.WORDS["score"])] = entry("score", number)
    bars = f"Bars show {metric_name(main)}, from 0 to 1."
    if any(row["values"].keys() >= set(_claims(board)) for row in models):
        bars = "Bars go from right (the dot) to says, on a scale from 0 to 100%."
    name = f"Models on {board.benchmark}" if board.benchmark else "Models"
    table = doc.table_of(name, models, columns, " ".join(_mark_sentences(map(marks_of, models))))
    return replace(table, legend=bars) if any(cell.ends for row in table.rows for cell in row) else table


def _claims(board: Board) -> tuple[str, ...]:
    """Return the metrics of what models say, how often they are right, and the gap, in the view of a leaderboard."""
    view = board.metric.partition("_")[0]
    return CLAIMS[{"pairwise": "pairs", "pointwise": "pointwise"}.get(view, "top_1")]


def _with_bar(
    cell: Callable[[Row], Cell | str], claims: Sequence[str], metric: str, main: str, row: Row
) -> Cell:
    """Return a cell with a bar from right to says under the gap, or from 0 to an error where that is all."""
    drawn, values = cell(row), row["values"]
    assert isinstance(drawn, Cell)
    if metric == claims[-1] and values.keys() >= set(claims):
        says, right = (values[name]["value"] for name in claims[:2])
        return replace(drawn, ends=(right, says))
    if metric == main and not values.keys() & set(claims) and 0 <= (drawn.value or 0) <= 1 and drawn.value:
        return replace(drawn, ends=(0.0, drawn.value))
    return drawn


def _name_cell(row: Row, short: str) -> Cell:
    marks = marks_of(row)  # they come first, because a terminal cuts the end of names
    is_guess = "†" in marks
    tips = [text for text in (_GUESS if is_guess else "", row.get("mark", "")) if text]
    tone = "soft" if is_guess else ""
    return Cell(f"{marks}{row['model']}", tone=tone, tip="; ".join(tips), short=f"{marks}{short}")


def _value(row: Row, metric: str) -> Row | None:
    return cast("Row | None", row["values"].get(metric))


def _set_cell(row: Row) -> Cell:
    low, high = row["rank_low"], row["rank_high"]
    return Cell("–" if low is None else str(low) if low == high else f"{low}–{high}", low)


def _categories(board: Board) -> Section | None:
    if len(board.categories) < 2:
        return None
    shown, left = pages.first_of(board.categories, lambda _: 0, MOST_CATEGORIES, "leaderboard.csv")
    columns: Columns = {"model": entry("model")}
    columns |= {Column(name): partial(_category_cell, name) for name in shown}
    return doc.section_of("categories", "Scores by category", board.models, columns, left.strip())


def _category_cell(category: str, row: Row) -> Cell:
    score = row["category_scores"][category]
    return Cell(number(score), score)


def _correlations(board: Board) -> Section | None:
    """Correlations over models; with fewer than ten, their intervals are as wide as the scale."""
    ranked = sum(row["rank"] is not None for row in board.models)
    if ranked < FEWEST_MODELS or board.training:
        return None
    columns: Columns = {
        "error": lambda row: metric_name(row["metric"]),
        "score": entry("target"),
        "from": entry("source"),
        "Kendall's tau": lambda row: Cell(bracketed(row), row["value"], tip=row["note"]),
        "p-value": entry("p_value", p_value),
        "models": entry("n"),
    }
    rows = [*board.split_correlations, *board.correlations]
    return doc.section_of(
        "correlations", "Correlation with scores", rows, columns, _correlated_caption(board)
    )


def _check(board: Board) -> Section | None:
    if not board.check:
        return None

    def difference(row: Row) -> Cell:
        off = abs(row["difference"]) > 0.01
        return Cell(f"{row['difference']:+.4f}", row["difference"], "bad" if off else "")

    columns: Columns = {
        "model": entry("model"),
        "category": entry("category"),
        "ours": entry("ours", number),
        "official": entry("official", number),
        "difference": difference,
    }
    ordered = sorted(board.check, key=lambda row: -abs(row["difference"]))
    return doc.section_of("check", "Check against official scores", ordered, columns)


def _protocol(board: Board) -> Section | None:
    """The paper's own number beside the calibration error."""
    measured = [row for row in board.models if "reference_top_1" in row["values"]]
    if not measured:
        return None
    names = dict.fromkeys(("reference_top_1", "ece", "accuracy"), "")
    columns: Columns = {
        "model": entry("model"),
        **pages.metric_columns(names, _value),
    }
    ordered = sorted(measured, key=lambda row: float(row["values"]["reference_top_1"]["value"]))
    return doc.section_of("protocol", "The paper's protocol", ordered, columns, PROTOCOL)


def _training_table(rows: Rows) -> doc.Table:
    columns: Columns = {
        "step": lambda row: Cell(f"{row['step']}{' (best)' if row['best'] else ''}", row["step"])
    }
    measured = [name for name in TRAINING_METRICS if any(row[name] is not None for row in rows)]
    labels = {name: (HEADLINE | RESPONSES).get(name, "") for name in measured}
    columns |= pages.metric_columns(labels, lambda row, metric: {"value": row[metric]})
    caption = "Best: the step that keeps the most information."
    return doc.table_of("Training steps", rows, columns, caption)


def _words(boards: Iterable[Board], others: dict[str, str]) -> Section | None:
    """The words of the page, in one line each; nothing if it uses none of them."""
    words: dict[str, str] = {}
    for board in boards:
        shown = [{**value, "metric": key} for row in board.models for key, value in row["values"].items()]
        words = (
            sentences.glossary("pointwise" if board.metric.startswith("pointwise") else "top_1", shown)
            | words
        )
        used = {mark for row in board.models for mark in marks_of(row)}
        words |= {mark: meaning for mark, meaning in _MARKS.items() if mark in used}
        if any(row["rank_low"] is not None for row in board.models):
            words["rank may be"] = _SETS
    return pages.words_section(words | others) if words or others else None


# The document of several benchmarks.


def report_document(report: Report) -> Document:
    """Return the document of a report: its leaderboard, or headline metrics side by side, then temperatures."""
    if report.board is not None:
        return board_document(report.board)
    sections = [
        Section(
            f"board-{i}",
            name,
            [doc.Words(board_sentences(board)), _ranking(board)],
            brief=True,
            open=True,
        )
        for i, (name, board) in enumerate(report.boards.items())
    ]
    drawings = [
        replace(drawing, name=f"{drawing.name}-{i}", caption=f"{name}. {drawing.caption if i == 0 else ''}")
        for i, (name, board) in enumerate(report.boards.items())
        for drawing in _says_right(board)
    ]
    first: list[doc.Block] = list(drawings)
    tested = [row for row in report.models if row["p_value"] is not None]
    if tested:
        one_temperature: Columns = {
            "model": entry("model"),
            "one temperature for all?": entry("words"),
            "p-value": entry("p_value", p_value),
        }
        first.append(doc.table_of("One temperature for all benchmarks", tested, one_temperature))
        sections.append(_effects(report.effects))
    return Document(
        title="Calibration on several benchmarks",
        subtitle=f"{count(len(report.models), 'model')} · {', '.join(report.boards)}",
        sentences=report_sentences(report),
        first=first,
        steps=_steps(report.boards.values()),
        sections=[*sections, *([] if (words := _words(report.boards.values(), {})) is None else [words])],
        notes=report.notes,
        links={f"{name}: full leaderboard": f"{folder_name(name)}/report.html" for name in report.boards},
        footer=pages.footer_of(report.settings),
    )


def _effects(effects: Rows) -> Section:
    """What a temperature that was fitted on one benchmark does on the others."""

    def kept(row: Row) -> Cell:
        worse = row["information_high"] < 0
        return Cell(number(row["information"]), row["information"], "bad" if worse else "")

    columns: Columns = {
        "model": entry("model"),
        "fitted on": entry("fitted_on"),
        "used on": entry("used_on"),
        "T": entry("temperature", temperature_text),
        "lost information": ranged("lost_information"),
        "kept information": kept,
    }
    return doc.section_of("transfer", "A temperature of one benchmark on the others", effects, columns)


# Sentences.


def board_sentences(board: Board) -> list[str]:
    """Return the first model, which others may be as good, how many are over-confident, and the correlation."""
    ranked = [row for row in board.models if row["rank"] is not None]
    total = count(len(board.models), "model")
    if not ranked:
        return [f"{total}, none with a value for {metric_name(board.metric)}."]
    first = _first_sentence(ranked, board.metric, total, _claims(board), is_clear=board.best is not None)
    said = [first, _gaps_sentence(ranked)]
    guesses = sum(row["better_than_guess"] is False for row in ranked)
    if guesses:
        said.append(f"Ranked last: {count(guesses, 'model')} {_GUESS}.")
    return [sentence for sentence in [*said, _correlation_sentence(board)] if sentence]


def _first_sentence(ranked: Rows, metric: str, total: str, claims: tuple[str, ...], *, is_clear: bool) -> str:
    best = ranked[0]
    value = best["values"][metric]
    shown = display.points(value, unit=" points") if metric.endswith("overconfidence") else bracketed(value)
    rivals = sum(row.get("rank_low") == 1 for row in ranked[1:])
    if is_clear:
        start = f"Best by {metric_name(metric)}:"
    elif rivals:
        start = f"No model is clearly the best by {metric_name(metric)}. First is"
    else:  # the models are not tested against each other
        start = f"First by {metric_name(metric)}:"
    first = f"{total}. {start} {clean_line(best['model'])}, {shown}"
    if set(claims) <= best["values"].keys():
        says, right = (percent(best["values"][name]["value"]) for name in claims[:2])
        first += f"; it says {says} and is right {right} of the time"
    if not rivals:
        return f"{first}."
    return f"{first}. {count(rivals, 'other model')} may be as good: the difference could be chance."


def _gaps_sentence(ranked: Rows) -> str:
    gaps = [row["gap"] for row in ranked if row["gap"] is not None]
    if not gaps:
        return ""
    sure = [sentences.direction(gap["value"]) for gap in gaps if gap["shown"]]
    over, under = sure.count("over-confident"), sure.count("under-confident")
    corrected = ", after a correction for looking at all of them" if len(gaps) > 1 else ""
    kinds = {"over-confident": over, "under-confident": under, "neither": len(gaps) - over - under}
    counts = ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)
    return f"Of {count(len(gaps), 'model')}: {counts}{corrected}."


def _correlation_sentence(board: Board) -> str:
    error = "lost_information" if board.metric == "kept_information" else board.metric
    split = [row for row in board.split_correlations if (row["metric"], row["target"]) == (error, "accuracy")]
    whole = [row for row in board.correlations if row["target"] == "leaderboard"]
    largest = next(iter([*split, *whole]), None)
    if largest is None or largest["value"] is None or largest["note"] or largest["n"] < FEWEST_MODELS:
        return ""
    meaning = "the interval includes zero, so these models do not show a correlation"
    if outside_zero(largest):
        better = "better" if largest["value"] > 0 else "worse"
        meaning = f"models that are better by {metric_name(largest['metric'])} have {better} scores"
    what = "accuracy, from different halves of the prompts," if split else "the score"
    return (
        f"The rank correlation of {metric_name(largest['metric'])} and {what} is {bracketed(largest)} over "
        f"{largest['n']} models: {meaning}."
    )


def report_sentences(report: Report) -> list[str]:
    """Return the first model of each benchmark, and whether one temperature serves all benchmarks."""
    first = f"{count(len(report.models), 'model')} on {count(len(report.boards), 'benchmark')}."
    best = {name: board.models[0] for name, board in report.boards.items() if board.models[0]["rank"] == 1}
    if best:
        named = ", ".join(f"{row['model']} ({name})" for name, row in best.items())
        first += f" First by {metric_name(next(iter(report.boards.values())).metric)}: {named}."
    tested = [row for row in report.models if row["p_value"] is not None]
    if not tested:
        return [first]
    if len(tested) == 1:
        return [first, tested[0]["words"]]
    differ = sum(row["p_value"] < 1 - report.settings.level for row in tested)
    return [
        first,
        f"{differ} of {count(len(tested), 'model')} need different temperatures on different benchmarks.",
    ]


def transfer_sentence(worst: Transfer, level: float) -> str:
    """Return whether one temperature is right for all benchmarks of a model."""
    if not worst.temperatures:
        return "There are too few prompts to fit a temperature."
    shown = {row["benchmark"]: row["temperature"] for row in worst.temperatures}
    if worst.equality is None:
        return f"A temperature was fitted on one benchmark only: {temperature_text(*shown.values())}."
    if all(map(math.isinf, shown.values())):
        return "No temperature clearly helps on any benchmark."
    p, together = sentences.p_text(worst.equality.p_value), temperature_text(worst.equality.temperature)
    if worst.equality.p_value >= 1 - level:
        return f"No difference between the benchmarks' temperatures was found ({p}); together {together}."
    ordered = sorted(shown, key=lambda name: float(shown[name]))
    ends = [f"{temperature_text(shown[name])} on {name}" for name in (ordered[0], ordered[-1])]
    return f"No single temperature is right for all benchmarks ({p}): it is {' and '.join(ends)}."
