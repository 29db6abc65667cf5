"""Reports of evaluations and leaderboards: tables, figures and pages. The numbers come from `metrics`."""

from rmcalib.report._confidence import says_right_figure
from rmcalib.report._drawing import figure_png
from rmcalib.report._headline import HEADLINE, headline, headline_keys
from rmcalib.report._reliability import plot_reliability, reliability_figure
from rmcalib.report.evaluation._evaluation import (
    UNNAMED,
    Evaluation,
    evaluate,
    made_from,
    write_evaluation,
)
from rmcalib.report.leaderboard._board import Leaderboard, leaderboard_from_runs, leaderboard_from_table
from rmcalib.report.leaderboard._page import write_leaderboard
from rmcalib.report.leaderboard._runs import open_scores
from rmcalib.report.leaderboard._tables import official_from_hub, read_official
from rmcalib.report.leaderboard._words import metric_name
from rmcalib.report.rankings._forecast import ForecastReport, forecast_report, write_forecast_report
from rmcalib.report.several._evaluations import join_evaluations
from rmcalib.report.several._joint import Joint, report_from_runs
from rmcalib.report.several._page import write_joint

__all__ = [
    "HEADLINE",
    "UNNAMED",
    "Evaluation",
    "ForecastReport",
    "Joint",
    "Leaderboard",
    "evaluate",
    "figure_png",
    "forecast_report",
    "headline",
    "headline_keys",
    "join_evaluations",
    "leaderboard_from_runs",
    "leaderboard_from_table",
    "made_from",
    "metric_name",
    "official_from_hub",
    "open_scores",
    "plot_reliability",
    "read_official",
    "reliability_figure",
    "report_from_runs",
    "says_right_figure",
    "write_evaluation",
    "write_forecast_report",
    "write_joint",
    "write_leaderboard",
]
