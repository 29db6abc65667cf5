"""Evaluations, and every result as a page, on the terminal, as Markdown or as a model card."""

from rmcalib.report.card import make_card
from rmcalib.report.evaluation import Evaluation, evaluate
from rmcalib.report.figures import reliability_figure, says_right_figure

__all__ = [
    "Evaluation",
    "evaluate",
    "make_card",
    "reliability_figure",
    "says_right_figure",
]
