"""Leaderboards: many models on the same benchmark, ranked by the information that their probabilities keep."""

from rmcalib.leaderboards.figures import correlations_figure, top_10_figure
from rmcalib.leaderboards.measure import leaderboard
from rmcalib.leaderboards.reports import Report, report_from_runs, report_from_table

__all__ = [
    "Report",
    "correlations_figure",
    "leaderboard",
    "report_from_runs",
    "report_from_table",
    "top_10_figure",
]
