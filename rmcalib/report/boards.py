"""The document of a leaderboard, and its files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rmcalib._util.display import interval, number, p_value, short_names
from rmcalib._util.files import write_bytes, write_csv, write_text
from rmcalib._util.storage import as_path
from rmcalib._util.terminal import count
from rmcalib.metrics import Board
from rmcalib.metrics.catalogue import TRAINING_METRICS
from rmcalib.metrics.table import Row
from rmcalib.report import figures
from rmcalib.report.document import (
    Block,
    Cell,
    Column,
    Columns,
    Document,
    Drawing,
    Section,
    Table,
    Words,
    table_of,
    to_html,
    to_markdown,
)
from rmcalib.report.leaderboards import PROTOCOL, Leaderboard, named
from rmcalib.report.pages import HEADLINE, PAIRS, footer_of, metric_cell, metric_column
from rmcalib.report.sentences import board_sentences, metric_name

FEWEST_MODELS = 10
"""With fewer models, correlations over them are not shown."""
_MOST_CATEGORIES = 12  # columns of the page; leaderboard.csv has all
_TABLES = (
    *("training", "metrics", "correlations", "split_correlations"),
    *("ranks", "reliability", "rejection", "check"),
)
_BRIEF = ("mean_confidence", "accuracy", "overconfidence", *PAIRS)
_MODEL = Column("model", text=True)
GUESS = "worse than a uniform guess, or not shown to be right more often than by chance"
_INFORMATION = (
    "Filled: information that the stated probabilities keep. Outline: what the rewards would give at their best "
    f"scale. † {GUESS}."
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


def write_leaderboard(board: Leaderboard, folder: str | Path) -> Path:
    """Write report.html, summary.md, tidy CSVs and figures/ (PNG and PDF).

    Parameters
    ----------
    board : Leaderboard
        The result of `report_from_runs` or `leaderboard_from_table`.
    folder : path
        A folder or URL. Files of an earlier report that this one does not have are removed.

    Returns
    -------
    Path
        The path of the page.

    Examples
    --------
    Write the report of the built-in models::

        write_leaderboard(report_from_runs(["rewardmath"]), "report")
    """
    out = as_path(folder)
    document = board_document(board)
    page = to_html(document)
    tables: dict[str, list[Row]] = {"leaderboard": board.wide_rows()}
    tables |= {name: getattr(board, name) for name in _TABLES}
    for name, rows in tables.items():
        if rows:
            write_csv(out / f"{name}.csv", rows)
        else:
            (out / f"{name}.csv").unlink(missing_ok=True)
    drawn = {
        "says_right": figures.says_right_figure(_in_order(board.metrics, board.models)),
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
    write_text(out / "summary.md", to_markdown(document, sections=len(board.models) >= FEWEST_MODELS))
    return write_text(out / "report.html", page)


def board_document(board: Board) -> Document:
    """Return the document of a leaderboard: the verdict, the ranking, then folded details."""
    own = board if isinstance(board, Leaderboard) else named(board, {})
    first: list[Block] = [_ranking(own)]
    if any("kept_information" in row["values"] for row in own.models):
        label = "Kept and usable information of each model"
        many = len(own.models) > figures.MOST_NAMED
        caption = f"The first {figures.MOST_NAMED} models. {_INFORMATION}" if many else _INFORMATION
        first.append(Drawing("information", partial(figures.worth_figure, own.models), label, caption))
    if own.training:
        label = "Says and right, kept information, temperature and ECE over the training steps"
        steps = Drawing("training", partial(figures.training_figure, own.training), label)
        first = [steps, _training_table(own.training), *first]
    title = "Reward models by calibration"
    sections = (_says(own), _categories(own), _correlations(own), _check(own), _protocol(own))
    return Document(
        title=f"{title}: {own.benchmark}" if own.benchmark else title,
        subtitle=f"{count(len(own.models), 'model')} · sorted by {metric_name(own.metric)} · protocol: {own.protocol}",
        sentences=board_sentences(own),
        first=first,
        sections=[section for section in sections if section is not None],
        notes=[
            *(f"{row['model']} is not ranked: {row['why']}." for row in own.models if row["why"]),
            *own.notes,
        ],
        footer=footer_of(own.settings),
    )


def _ranking(board: Leaderboard) -> Table:
    """The models, best first: rank, the ranks that each may have, and the headline metrics."""
    main, known = board.metric, {key for row in board.models for key in row["values"]}
    wanted = PAIRS if main.startswith("pairwise_") else HEADLINE
    others = {
        key: label
        for key, label in {**wanted, "temperature": "best T", "ece": "ECE"}.items()
        if key in known and key != main
    }
    sets = any(row["rank_low"] is not None for row in board.models)
    scored = board.score_name != "accuracy" and any(row["score"] is not None for row in board.models)
    head = [_MODEL, Column("rank"), *([Column("may be", _SETS)] if sets else []), metric_column(main)]
    head += [metric_column(key, label, page_only=key not in _BRIEF) for key, label in others.items()]
    head += [Column(board.score_name)] if scored else []
    rows, short = [], short_names(row["model"] for row in board.models)
    for row in board.models:
        cells = [_name_cell(row, short[row["model"]]), Cell(str(row["rank"] or "–"), row["rank"])]
        cells += [_set_cell(row)] if sets else []
        cells.append(metric_cell(row["values"].get(main), main))
        cells += [metric_cell(row["values"].get(key), key, limits=False) for key in others]
        rows.append([*cells, Cell(number(row["score"]), row["score"])] if scored else cells)
    marks = []
    if any(row["better_than_guess"] is False for row in board.models):
        marks.append(f"† {GUESS}: ranked last.")
    if any(row["scale"] == "no" for row in board.models):
        marks.append("* not trained on a Bradley-Terry scale: its probabilities have little meaning.")
    return Table("Models", head, rows, " ".join(marks), sortable=True)


def _name_cell(row: Row, short: str) -> Cell:
    guess = row["better_than_guess"] is False
    marks = (
        f"{'† ' if guess else ''}{'* ' if row['scale'] == 'no' else ''}"  # a terminal cuts the end of names
    )
    tips = [text for text in (GUESS if guess else "", row["mark"]) if text]
    tone = "soft" if guess else ""
    return Cell(f"{marks}{row['model']}", tone=tone, tip="; ".join(tips), short=f"{marks}{short}")


def _set_cell(row: Row) -> Cell:
    low, high = row["rank_low"], row["rank_high"]
    return Cell("–" if low is None else str(low) if low == high else f"{low}–{high}", low)


def _says(board: Leaderboard) -> Section | None:
    if not any(row["metric"] == "mean_confidence" and row["value"] is not None for row in board.metrics):
        return None
    table = _in_order(board.metrics, board.models)
    label = "What each model says against how often it is right"
    drawing = Drawing("says-right", partial(figures.says_right_figure, table), label, _SAYS)
    return Section("says-and-right", "Says and right", [drawing])


def _categories(board: Leaderboard) -> Section | None:
    if len(board.categories) < 2:
        return None
    shown = list(board.categories)[:_MOST_CATEGORIES]
    rows = [
        [
            Cell(row["model"]),
            *(Cell(number(row["category_scores"][name]), row["category_scores"][name]) for name in shown),
        ]
        for row in board.models
    ]
    head = [_MODEL, *(Column(name) for name in shown)]
    left = len(board.categories) - len(shown)
    caption = f"leaderboard.csv has {left:,} more categories." if left else ""
    table = Table("Scores by category", head, rows, caption, sortable=True)
    return Section("categories", "Scores by category", [table])


def _correlations(board: Leaderboard) -> Section | None:
    """Correlations over models; with fewer than ten, their intervals are as wide as the scale."""
    ranked = sum(row["rank"] is not None for row in board.models)
    if ranked < FEWEST_MODELS or board.training:
        return None

    def target(row: Row) -> str:
        return board.score_name if row["target"] == "leaderboard" else str(row["target"])

    table = table_of(
        "Correlations",
        [*board.split_correlations, *board.correlations],
        {
            Column("error", text=True): lambda row: metric_name(row["metric"]),
            Column("score", text=True): target,
            Column("coefficient", text=True): lambda row: row["method"],
            "value": lambda row: Cell(number(row["value"]), row["value"], tip=row["note"]),
            "interval": interval,
            "p-value": lambda row: Cell(p_value(row["p_value"]), row["p_value"]),
            "models": lambda row: str(row["n"]),
        },
        _CORRELATED,
    )
    return Section("correlations", "Correlation with scores", [table])


def _check(board: Leaderboard) -> Section | None:
    if not board.check:
        return None

    def difference(row: Row) -> Cell:
        off = abs(row["difference"]) > 0.01
        return Cell(f"{row['difference']:+.4f}", row["difference"], "bad" if off else "")

    columns: Columns = {
        _MODEL: lambda row: row["model"],
        Column("category", text=True): lambda row: row["category"],
        "ours": lambda row: Cell(number(row["ours"]), row["ours"]),
        "official": lambda row: Cell(number(row["official"]), row["official"]),
        "difference": difference,
    }
    ordered = sorted(board.check, key=lambda row: -abs(row["difference"]))
    table = table_of("Official scores", ordered, columns, sortable=True)
    return Section("check", "Check against official scores", [table])


def _protocol(board: Leaderboard) -> Section | None:
    """The paper's own number beside the calibration error."""
    known = [row for row in board.models if "reference_top_1" in row["values"]]
    if not known:
        return None
    names = ("reference_top_1", "ece", "accuracy")
    rows = [
        [Cell(row["model"]), *(metric_cell(row["values"].get(name), name, limits=False) for name in names)]
        for row in sorted(known, key=lambda row: float(row["values"]["reference_top_1"]["value"]))
    ]
    table = Table("The paper's protocol", [_MODEL, *map(metric_column, names)], rows, sortable=True)
    return Section("protocol", "The paper's protocol", [Words([PROTOCOL]), table])


def _training_table(rows: Sequence[Row]) -> Table:
    names = [name for name in TRAINING_METRICS if any(row.get(name) is not None for row in rows)]
    body = []
    for row in rows:
        step = Cell(f"{row['step']}{' (best)' if row['best'] else ''}", row["step"])
        found = [{"value": row[name], "low": None, "high": None} for name in names]
        body.append([step, *(metric_cell(one, name) for one, name in zip(found, names, strict=True))])
    head = [Column("step"), *(metric_column(name, HEADLINE.get(name, "")) for name in names)]
    return Table("Training steps", head, body, "Best: the step that keeps the most information.", newest=True)


def _in_order(metrics: Sequence[Row], models: Sequence[Row]) -> list[Row]:
    """Return rows of metrics in the order of the models."""
    place = {row["model"]: i for i, row in enumerate(models)}
    return sorted(metrics, key=lambda row: place[row["model"]])
