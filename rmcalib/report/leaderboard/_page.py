"""The leaderboard's files: the HTML page, the Markdown summary, tidy CSVs and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib import __version__
from rmcalib._util.files import write_bytes, write_csv, write_text
from rmcalib._util.storage import as_path
from rmcalib.metrics import CATEGORY_RESAMPLES, METRICS, NULL_DRAWS
from rmcalib.report._drawing import figure_bytes, figure_svg
from rmcalib.report._page import render
from rmcalib.report.leaderboard._board import Leaderboard
from rmcalib.report.leaderboard._figures import FIGURES, draw_figures
from rmcalib.report.leaderboard._lists import heat_words, rank_words
from rmcalib.report.leaderboard._scatter import scatter_tips
from rmcalib.report.leaderboard._words import metric_name, target_name, to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["leaderboard_page", "wide_rows", "write_leaderboard"]

_COLUMNS = (
    ("ece", "ECE", 3),
    ("ece_p_value", "p", 3),
    ("ece_at_temperature", "ECE at T", 3),
    ("temperature", "T", 2),
    ("accuracy", "accuracy", 3),
    ("overconfidence", "over-conf.", 3),
    ("brier", "Brier", 3),
    ("nll", "NLL", 3),
)
_SCATTERS = ("scores", "categories", "protocols")
_LARGE = 0.01  # between our score and the official one: deserves a look
_TABLES = ("metrics", "correlations", "ranks", "reliability", "rejection", "check")


def write_leaderboard(board: Leaderboard, folder: str | Path) -> Path:
    """Write report.html, summary.md, CSVs and figures/ (PNG and PDF); return the path of the page.

    Files of an earlier report in the same folder that this one does not have are removed.
    """
    out = as_path(folder)
    figures = draw_figures(board)
    page = leaderboard_page(board, figures)
    files = {
        f"figures/{name}.{kind}": figure_bytes(figure, kind)
        for name, figure in figures.items()
        for kind in ("png", "pdf")
    }
    tables: dict[str, list[dict[str, Any]]] = {"leaderboard": wide_rows(board)}
    tables |= {name: getattr(board, name) for name in _TABLES}
    for name, content in files.items():
        write_bytes(out / name, content)
    for name, rows in tables.items():
        if rows:
            write_csv(out / f"{name}.csv", rows)
        else:
            (out / f"{name}.csv").unlink(missing_ok=True)
    for name in FIGURES:
        for kind in ("png", "pdf"):
            if name not in figures:
                (out / "figures" / f"{name}.{kind}").unlink(missing_ok=True)
    write_text(out / "summary.md", to_markdown(board))
    return write_text(out / "report.html", page)


def leaderboard_page(board: Leaderboard, figures: dict[str, Figure] | None = None) -> str:
    """Return the page as HTML: self-contained, and every text in it escaped."""
    figures = draw_figures(board) if figures is None else figures
    tips, labels = scatter_tips(board), _labels(board)
    drawings = {
        name: figure_svg(figure, name, label=labels[name], tips=tips if name in _SCATTERS else None)
        for name, figure in figures.items()
    }
    main, level = board.metric, f"{board.settings.level:.0%}"
    intervals = any(row["values"][main]["low"] is not None for row in board.ranked)
    columns = [
        {"key": key, "name": name, "digits": digits, "meaning": METRICS[key]}
        for key, name, digits in _COLUMNS
        if key != main and any(key in row["values"] for row in board.models)
    ]
    protocols = _protocols(board)
    check = [{**row, "large": abs(row["difference"]) > _LARGE} for row in board.check]
    check.sort(key=lambda row: -abs(row["difference"]))
    sections = {
        "leaderboard": "Models",
        "correlations": "Correlations",
        "categories-ece": "Categories" if "heatmap" in figures else "",
        "diagrams": "Reliability" if "reliability" in figures else "",
        "changes": "Rank changes" if "ranks" in figures else "",
        "curves": "Rejection" if "rejection" in figures else "",
        "both": "Both protocols" if protocols else "",
        "check": "Check" if check else "",
        "notes": "Notes" if board.notes else "",
    }
    settings = board.settings
    return render(
        "leaderboard.html",
        title="Reward models by calibration",
        subtitle=f"{board.benchmark} · {len(board.models)} models · protocol: {board.protocol}",
        summary=board.summary,
        contents=[(anchor, name) for anchor, name in sections.items() if name],
        models=[
            {
                **row,
                "values": {**{key: None for key, _, _ in _COLUMNS}, **row["values"]},
                "main": row["values"].get(main),
                "other": row["ranks"].get(board.other),
            }
            for row in board.models
        ],
        without=[row for row in board.models if row["rank"] is None],
        any_off_scale=any(row["scale"] == "no" for row in board.models),
        metric_name=metric_name(main),
        intervals=intervals,
        interval_words=f", with {level} intervals from resampling prompts." if intervals else ".",
        level=level,
        columns=columns,
        categories=board.categories,
        other=board.other,
        score_name=board.score_name,
        rank_words=rank_words(board),
        heat_words=heat_words(board),
        reading=_reading(board),
        correlations=[
            {**row, "metric_name": metric_name(row["metric"]), "target": target_name(board, row["target"])}
            for row in board.correlations
        ],
        figures=drawings,
        protocols=protocols,
        check=check,
        notes=board.notes,
        footer=(
            f"rmcalib {__version__}, protocol {board.protocol}, {settings.bins} equal-width bins, {level} "
            f"intervals from {settings.resamples:,} resamples of prompts (the ECE of categories: "
            f"{min(CATEGORY_RESAMPLES, settings.resamples)}), p-values from "
            f"{min(NULL_DRAWS, settings.resamples)} draws of a calibrated forecast, seed {settings.seed}."
            if intervals
            else f"rmcalib {__version__}, {level} intervals from resampling models, seed {settings.seed}."
        ),
    )


def wide_rows(board: Leaderboard) -> list[dict[str, Any]]:
    """Return one row a model with everything the page's table shows, for leaderboard.csv."""
    keys = list(dict.fromkeys([board.metric, *(key for row in board.models for key in row["values"])]))
    rows = []
    for row in board.models:
        flat: dict[str, Any] = {"rank": row["rank"], "model": row["model"], "score": row["score"]}
        for key in keys:
            found = row["values"].get(key)
            flat[key] = found and found["value"]
            if any((other["values"].get(key) or {}).get("low") is not None for other in board.models):
                flat[f"{key}_low"] = found and found["low"]
                flat[f"{key}_high"] = found and found["high"]
        flat |= {f"score[{name}]": row["category_scores"][name] for name in board.categories}
        flat |= {f"rank_by[{by}]": rank for by, rank in row["ranks"].items()}
        rows.append(flat | {"bradley_terry": row["scale"], "note": row["why"] or row["mark"]})
    return rows


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
    return rows


def _reading(board: Leaderboard) -> str:
    if board.protocol != "exact":
        return (
            "The calibration error is the table's own column; nothing was measured here. Scores are shares "
            "from 0 to 1."
        )
    return (
        "Errors, accuracies and scores are shares from 0 to 1, on all of this page. p: the chance that a "
        "calibrated model shows an ECE at least as large. T: the best temperature; ECE at T: after dividing "
        "the rewards by a T fitted on other prompts. Over-conf.: mean confidence less accuracy. Score: "
        f"{board.score_name}; the last columns have each category's."
    )


def _labels(board: Leaderboard) -> dict[str, str]:
    """What each figure shows, for those who cannot see it: the tables have the same numbers."""
    error = metric_name(board.metric)
    ten = ", ".join(f"{row['model']} {row['values'][board.metric]['value']:.3f}" for row in board.ranked[:10])
    found = ", ".join(
        f"{target_name(board, row['target'])} {row['value']:.2f}"
        for row in board.correlations
        if row["metric"] == board.metric
        and row["value"] is not None
        and row["method"] == board.correlations[0]["method"]
    )
    return {
        "best": f"The best calibrated models by {error}, with intervals: {ten}",
        "calibration": f"All models by {error}, with intervals",
        "correlation": f"Correlation of {error} with scores, with intervals: {found}",
        "scores": f"Scatter plot: {error} against {board.score_name}, one point a model",
        "categories": f"Scatter plots: {error} against the score of each category, one point a model",
        "heatmap": "Heat map: ECE of each model by category",
        "reliability": "Reliability diagrams of all models, the best calibrated first",
        "ranks": "Lines that join the ranks of each model by accuracy or score and by calibration",
        "rejection": "Lines: accuracy of each model against the share of prompts dropped",
        "protocols": "Scatter plot: exact protocol against reference protocol, one point a model",
    }
