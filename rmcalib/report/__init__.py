"""Tables, figures and pages, drawn from what `metrics` computed."""

from rmcalib.report._confidence import groups_figure, says_right_figure
from rmcalib.report._drawing import figure_bytes, figure_png, short_names
from rmcalib.report._headline import HEADLINE, headline, headline_keys
from rmcalib.report._numbers import bracketed, interval, number, p_value, percent, points, signed
from rmcalib.report._reliability import plot_reliability, reliability_figure
from rmcalib.report.evaluation._evaluation import (
    UNNAMED,
    Evaluation,
    evaluate,
    evaluation_content,
    made_from,
    write_evaluation,
)
from rmcalib.report.leaderboard._board import Leaderboard, leaderboard_from_runs, leaderboard_from_table
from rmcalib.report.leaderboard._page import leaderboard_content, write_leaderboard
from rmcalib.report.leaderboard._runs import open_scores
from rmcalib.report.leaderboard._tables import official_from_hub, read_official
from rmcalib.report.leaderboard._words import metric_name
from rmcalib.report.rankings._forecast import forecast_report, report_content, write_forecast_report
from rmcalib.report.several._evaluations import join_evaluations
from rmcalib.report.several._joint import Joint, report_from_runs
from rmcalib.report.several._page import joint_content, write_joint
from rmcalib.report.several._words import temperature_text

__all__ = [
    "HEADLINE",
    "UNNAMED",
    "Evaluation",
    "Joint",
    "Leaderboard",
    "bracketed",
    "evaluate",
    "evaluation_content",
    "figure_bytes",
    "figure_png",
    "forecast_report",
    "groups_figure",
    "headline",
    "headline_keys",
    "interval",
    "join_evaluations",
    "joint_content",
    "leaderboard_content",
    "leaderboard_from_runs",
    "leaderboard_from_table",
    "made_from",
    "metric_name",
    "number",
    "official_from_hub",
    "open_scores",
    "p_value",
    "percent",
    "plot_reliability",
    "points",
    "read_official",
    "reliability_figure",
    "report_content",
    "report_from_runs",
    "says_right_figure",
    "short_names",
    "signed",
    "temperature_text",
    "write_evaluation",
    "write_forecast_report",
    "write_joint",
    "write_leaderboard",
]
