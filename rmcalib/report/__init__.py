"""Reports: evaluations, and every result as a page, on the terminal, as Markdown or as a model card."""

from rmcalib.report.card import make_card
from rmcalib.report.evaluation import Evaluation, evaluate
from rmcalib.report.figures import reliability_figure, says_right_figure
from rmcalib.report.leaderboards import Report, report_from_runs, report_from_table
from rmcalib.report.paper_figures import correlations_figure, top_10_figure

__all__ = [
    "Evaluation",
    "Report",
    "correlations_figure",
    "evaluate",
    "make_card",
    "reliability_figure",
    "report_from_runs",
    "report_from_table",
    "says_right_figure",
    "top_10_figure",
]
