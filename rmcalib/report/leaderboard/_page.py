"""The files of a leaderboard: the HTML page, the Markdown summary, tidy CSVs and figures."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib import __version__
from rmcalib._util.display import interval, number, p_value, percent, points
from rmcalib._util.files import write_bytes, write_csv, write_text
from rmcalib._util.storage import as_path
from rmcalib._util.terminal import count
from rmcalib.metrics import BOARD_DRAWS, catalogue
from rmcalib.report._confidence import says_right_points
from rmcalib.report._drawing import figure_bytes, figure_svg
from rmcalib.report._page import render
from rmcalib.report.leaderboard._board import Leaderboard
from rmcalib.report.leaderboard._figures import FIGURES, draw_figures, drawn_correlations
from rmcalib.report.leaderboard._lists import heat_words, rank_words
from rmcalib.report.leaderboard._scatter import scatter_tips
from rmcalib.report.leaderboard._words import metric_name, target_name, to_markdown, too_few_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["leaderboard_page", "write_leaderboard"]

_SOFT = "\u00ad"  # where a heading may be hyphenated: long ones would make the table too wide
_COLUMNS = (
    ("vote_confidence", "says to people", percent),
    ("vote_agreement", "people agree", percent),
    ("vote_gap", "gap to people in points", None),
    ("vote_log_loss_excess", "log loss above noise", number),
    ("mean_confidence", "says", percent),
    ("accuracy", "right", percent),
    ("overconfidence", "gap in points", None),
    ("kept_information", f"kept infor{_SOFT}mation", number),
    ("lost_information", f"lost infor{_SOFT}mation", number),
    ("usable_information", f"usable infor{_SOFT}mation", number),
    ("ece", "ECE", number),
    ("ece_p_value", "ECE p-value", None),
    ("temperature", f"best temper{_SOFT}ature", number),
)
_PAIR_COLUMNS = (
    ("pairwise_confidence", "says in pairs", percent),
    ("pairwise_accuracy", "right in pairs", percent),
    ("pairwise_overconfidence", "gap in points", None),
    ("pairwise_lost_information", f"lost infor{_SOFT}mation in pairs", number),
)
_GAPS = ("overconfidence", "pairwise_overconfidence", "vote_gap")
_SCATTERS = ("scores", "categories", "protocols")
_LARGE = 0.01  # differences to official scores above this are marked
_TABLES = (
    *("training", "metrics", "correlations", "split_correlations"),
    *("ranks", "reliability", "rejection", "check"),
)


def write_leaderboard(board: Leaderboard, folder: str | Path) -> Path:
    """Write report.html, summary.md, CSVs and figures/ (PNG and PDF).

    The figure `says_right` is written as SVG, too. Files of an earlier report in the same folder that this
    one does not have are removed.

    Parameters
    ----------
    board : Leaderboard
        The result of :func:`leaderboard_from_runs` or :func:`leaderboard_from_table`.
    folder : str | Path
        A folder or URL.

    Returns
    -------
    Path
        The path of the page.

    Examples
    --------
    Write the report of the built-in models, which draws ten figures::

        write_leaderboard(leaderboard_from_runs(["real"]), "report")
    """
    out = as_path(folder)
    figures = draw_figures(board)
    page = leaderboard_page(board, figures)
    files = {
        f"figures/{name}.{kind}": figure_bytes(figure, kind)
        for name, figure in figures.items()
        for kind in _kinds(name)
    }
    tables: dict[str, list[dict[str, Any]]] = {"leaderboard": board.wide_rows()}
    tables |= {name: getattr(board, name) for name in _TABLES}
    for name, content in files.items():
        write_bytes(out / name, content)
    for name, rows in tables.items():
        if rows:
            write_csv(out / f"{name}.csv", rows)
        else:
            (out / f"{name}.csv").unlink(missing_ok=True)
    for name in FIGURES:
        for kind in _kinds(name):
            if name not in figures:
                (out / "figures" / f"{name}.{kind}").unlink(missing_ok=True)
    write_text(out / "summary.md", to_markdown(board))
    return write_text(out / "report.html", page)


def leaderboard_page(board: Leaderboard, figures: dict[str, Figure] | None = None) -> str:
    """Return the page as HTML: self-contained, with every text escaped."""
    figures = draw_figures(board) if figures is None else figures
    labels, tips = _labels(board), dict.fromkeys(_SCATTERS, scatter_tips(board))
    tips["says_right"] = {i: point["model"] for i, point in enumerate(says_right_points(board.metrics))}
    drawings = {
        name: figure_svg(figure, name, label=labels[name], tips=tips.get(name))
        for name, figure in figures.items()
    }
    main, level = board.metric, f"{board.settings.level:.0%}"
    intervals = any(row["values"][main]["low"] is not None for row in board.ranked)
    columns = [
        {"key": key, "name": name, "meaning": catalogue()[key].meaning}
        for key, name in [*((key, name) for key, name, _ in _columns(main)), *_more_columns()]
        if key != main and any(key in row["values"] for row in board.models)
    ]
    protocols = _protocols(board)
    check = [{**row, "large": abs(row["difference"]) > _LARGE} for row in board.check]
    check.sort(key=lambda row: -abs(row["difference"]))
    return render(
        "leaderboard.html",
        title="Reward models by calibration",
        subtitle=f"{board.benchmark} · {count(len(board.models), 'model')} · protocol: {board.protocol}",
        summary=board.summary,
        contents=_sections(board, figures, protocols=bool(protocols)),
        training=board.training,
        p_floor=_p_floor(board),
        models=_models(board, [column["key"] for column in columns]),
        without=[row for row in board.models if row["rank"] is None],
        any_off_scale=any(row["scale"] == "no" for row in board.models),
        metric_name=metric_name(main),
        intervals=intervals,
        interval_words=f", with {level} intervals." if intervals else ".",
        metric_words=_metric_words(board),
        pairs_only=any(
            "pairwise_overconfidence" in row["values"] and "overconfidence" not in row["values"]
            for row in board.models
        ),
        level=level,
        columns=columns,
        categories=board.categories if len(board.categories) > 1 else [],
        other=board.other,
        score_name=board.score_name,
        rank_words=rank_words(board),
        heat_words=heat_words(board),
        reading=_reading(board),
        correlations=[
            {**row, "metric_name": metric_name(row["metric"]), "target": target_name(board, row["target"])}
            for row in board.correlations
        ],
        split=[{**row, "metric_name": metric_name(row["metric"])} for row in board.split_correlations],
        too_few=too_few_words(board.split_correlations),
        split_floor=2 / (board.settings.resamples + 1),
        figures=drawings,
        protocols=protocols,
        check=check,
        large=_LARGE,
        notes=board.notes,
        footer=_footer(board, intervals=intervals),
    )


def _sections(board: Leaderboard, figures: dict[str, Figure], *, protocols: bool) -> list[tuple[str, str]]:
    """Anchors and names of the sections that the page has."""
    sections = {
        "steps": "Training steps" if board.training else "",
        "says-right": "Says against right" if "says_right" in figures else "",
        "leaderboard": "Models",
        "correlations": "Correlations",
        "categories-ece": "Categories" if "heatmap" in figures else "",
        "diagrams": "Reliability" if "reliability" in figures else "",
        "changes": "Rank changes" if "ranks" in figures else "",
        "curves": "Rejection" if "rejection" in figures else "",
        "both": "Both protocols" if protocols else "",
        "check": "Check" if board.check else "",
        "notes": "Notes" if board.notes else "",
    }
    return [(anchor, name) for anchor, name in sections.items() if name]


def _models(board: Leaderboard, keys: list[str]) -> list[dict[str, Any]]:
    """The rows of the first table, with a cell for each of the metrics ``keys``."""
    main, p_floor = board.metric, _p_floor(board)
    return [
        {
            **row,
            "cells": [_shown(row["values"].get(key), key, p_floor) for key in keys],
            "main": row["values"].get(main),
            **_main(row["values"].get(main), main),
            "other": row["ranks"].get(board.other),
        }
        for row in board.models
    ]


def _p_floor(board: Leaderboard) -> float:
    """The smallest p-value of an ECE that the simulated data sets allow."""
    return 1 / (min(BOARD_DRAWS, board.settings.resamples) + 1)


def _footer(board: Leaderboard, *, intervals: bool) -> str:
    settings, level = board.settings, f"{board.settings.level:.0%}"
    if not intervals:
        return f"rmcalib {__version__}, {level} intervals from resampling models, seed {settings.seed}."
    return (
        f"rmcalib {__version__}, protocol {board.protocol}, {settings.bins} equal-width bins, {level} "
        "intervals over prompts, those of calibration errors and p-values from "
        f"{min(BOARD_DRAWS, settings.resamples)} simulated data sets, seed {settings.seed}."
    )


def _protocols(board: Leaderboard) -> list[dict[str, Any]]:
    rows = []
    for row in board.ranked:
        exact, reference = row["ranks"].get("ece"), row["ranks"].get("reference_top_1")
        if exact is not None and reference is not None:
            rows.append(
                {
                    "model": row["model"],
                    "exact": row["values"]["ece"]["value"],
                    "exact_rank": exact,
                    "reference": row["values"]["reference_top_1"]["value"],
                    "reference_rank": reference,
                    "gained": exact - reference,
                }
            )
    return sorted(rows, key=itemgetter("exact_rank"))  # the page marks this column as the sorted one


def _kinds(figure: str) -> tuple[str, ...]:
    return ("png", "pdf", "svg") if figure == "says_right" else ("png", "pdf")


def _shown(row: dict[str, Any] | None, key: str, p_floor: float) -> dict[str, Any]:
    """A cell of the first table: its text, the number to sort by, and its interval as a tooltip."""
    if row is None:
        return {"text": "–", "value": None, "interval": ""}
    around = "" if row["low"] is None else interval(row)
    if key in _GAPS:
        return {"text": points(row), "value": row["value"], "interval": ""}
    if key == "ece_p_value":
        return {"text": p_value(row["value"], p_floor), "value": row["value"], "interval": ""}
    forms = {name: form for name, _, form in (*_COLUMNS, *_PAIR_COLUMNS)}
    form = forms.get(key) or number
    return {"text": form(row["value"]), "value": row["value"], "interval": around}


def _columns(metric: str) -> tuple[tuple[str, str, Any], ...]:
    """The columns of the first table: metrics of pairs if it is sorted by one of them."""
    return _PAIR_COLUMNS if metric.startswith("pairwise_") else _COLUMNS


def _more_columns() -> list[tuple[str, str]]:
    """The metrics with a heading besides those above: all of other packages unless they have an empty one."""
    listed = {key for key, _, _ in (*_COLUMNS, *_PAIR_COLUMNS)}
    more = [one for one in catalogue().values() if one.name not in listed and one.ranked != "nowhere"]
    default = {one.name: one.label if one.source else "" for one in more}
    headings = {one.name: default[one.name] if one.heading is None else one.heading for one in more}
    return [(name, heading) for name, heading in headings.items() if heading]


def _main(row: dict[str, Any] | None, metric: str) -> dict[str, str]:
    """The value and the interval of the metric that models are sorted by."""
    if row is None:
        return {"main_text": "–", "main_interval": ""}
    if metric in _GAPS:
        text, gap, around = points(row).partition(" ")
        return {"main_text": text, "main_interval": gap + around}
    around = "" if row["low"] is None else f" [{number(row['low'])}, {number(row['high'])}]"
    return {"main_text": number(row["value"]), "main_interval": around}


def _metric_words(board: Leaderboard) -> str:
    """The meaning of the metric that models are sorted by."""
    if board.metric == "kept_information":
        return (
            "Kept information is the fraction of a uniform guess's uncertainty that the stated probabilities "
            "remove: what the order of the responses is worth (usable) minus what the wrong scale of the "
            "rewards loses. 1 is best; below 0, a uniform guess is better. It means the same for any number "
            "of responses. Models that are not shown to be better than a uniform guess come last."
        )
    if board.metric == "lost_information":
        return (
            "Lost information is the fraction of a uniform guess's uncertainty that is lost because the "
            "rewards have the wrong scale. 0 is best. It means the same for any number of responses."
        )
    if board.metric == "pairwise_overconfidence":
        return (
            "Each judge compares the correct response of a prompt with each wrong one. The gap in pairs is "
            "the mean probability of the preferred response minus how often it is the correct one. Models "
            "are sorted by the size of the gap."
        )
    if board.metric == "overconfidence":
        return "The gap is mean confidence (says) minus accuracy (right). Models are sorted by its size."
    return ""


def _reading(board: Leaderboard) -> str:
    if board.protocol != "exact":
        return "The error is a column of the table; it was not measured here. Scores are from 0 to 1."
    if board.metric.startswith("pairwise_"):
        return (
            "All numbers are about pairs of a correct and a wrong response. Says: the mean probability of "
            "the preferred response. Right: how often it is the correct one. Gap: the difference in points; "
            f"positive is over-confident. Score: {board.score_name}. leaderboard.csv has all numbers."
        )
    by_category = "; the last columns show it for each category" if len(board.categories) > 1 else ""
    return (
        "Says: the mean probability of the first choice. Right: how often it is correct. Gap: the "
        "difference in points, with its interval; positive is over-confident. ECE p-value: the probability "
        "that the ECE of a calibrated model is at least as large. Best temperature: dividing the rewards by "
        f"it maximises the likelihood. Score: {board.score_name}{by_category}. Errors and scores "
        "are from 0 to 1. Point at a number to see its interval; leaderboard.csv has all numbers."
    )


def _labels(board: Leaderboard) -> dict[str, str]:
    """A description of each figure for screen readers; the tables have the same numbers."""
    error = metric_name(board.metric)
    ten = ", ".join(
        f"{row['model']} {number(row['values'][board.metric]['value'])}" for row in board.ranked[:10]
    )
    found = ", ".join(
        f"{metric_name(row['metric'])} and {target_name(board, row['target'])} {row['value']:.2f}"
        for row in drawn_correlations(board)
    )
    said = ", ".join(
        f"{point['model']} says {percent(point['x'])} and is right {percent(point['y'])}"
        for point in says_right_points(board.metrics)[:20]
    )
    return {
        "training": _training_label(board),
        "says_right": f"Scatter plot: what each model says against how often it is right: {said}",
        "best": f"The ten best models by {error}, with intervals: {ten}",
        "calibration": f"All models by {error}, with intervals",
        "correlation": f"Correlation of errors with scores, with intervals: {found}",
        "scores": f"Scatter plot: {error} against {board.score_name}, one point per model",
        "categories": f"Scatter plots: {error} against the score of each category, one point per model",
        "heatmap": "Heat map: ECE of each model by category",
        "reliability": "Reliability diagrams of all models, the best first",
        "ranks": "Lines that join the ranks of each model by accuracy or score and by calibration",
        "rejection": "Lines: accuracy of each model against the fraction of prompts dropped",
        "protocols": "Scatter plot: exact protocol against reference protocol, one point per model",
    }


def _training_label(board: Leaderboard) -> str:
    kept = ", ".join(f"step {row['step']}: {number(row['kept_information'])}" for row in board.training)
    return f"Four panels over the training steps; kept information at {kept}"
