"""Reports: evaluations, and every result as a page, on the terminal, as Markdown or as a model card."""

from rmcalib.report.card import make_card
from rmcalib.report.evaluation import Evaluation, evaluate
from rmcalib.report.figures import reliability_figure, says_right_figure
from rmcalib.report.leaderboards import Report, report_from_runs, report_from_table

__all__ = [
    "Evaluation",
    "Report",
    "evaluate",
    "make_card",
    "reliability_figure",
    "report_from_runs",
    "report_from_table",
    "says_right_figure",
]
