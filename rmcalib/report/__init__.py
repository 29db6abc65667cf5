"""Tables, figures and pages, drawn from what `metrics` computed."""

from rmcalib.report._figures import figure_png
from rmcalib.report.evaluation._evaluation import (
    UNNAMED,
    Evaluation,
    evaluate,
    evaluation_content,
    made_from,
    write_evaluation,
)
from rmcalib.report.evaluation._examples import clean_text
from rmcalib.report.leaderboard._board import Leaderboard, leaderboard_from_runs, leaderboard_from_table
from rmcalib.report.leaderboard._page import wide_rows, write_leaderboard
from rmcalib.report.leaderboard._runs import open_scores
from rmcalib.report.leaderboard._tables import official_from_hub, read_official
from rmcalib.report.leaderboard._words import metric_name
from rmcalib.report.rankings._forecast import forecast_report, report_content, write_forecast_report

__all__ = [
    "UNNAMED",
    "Evaluation",
    "Leaderboard",
    "clean_text",
    "evaluate",
    "evaluation_content",
    "figure_png",
    "forecast_report",
    "leaderboard_from_runs",
    "leaderboard_from_table",
    "made_from",
    "metric_name",
    "official_from_hub",
    "open_scores",
    "read_official",
    "report_content",
    "wide_rows",
    "write_evaluation",
    "write_forecast_report",
    "write_leaderboard",
]
