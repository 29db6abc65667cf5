"""Publish an evaluation: a model-card section, a badge, results for the Hub and for Every Eval Ever."""

from rmcalib.publish._every_eval import Evaluator
from rmcalib.publish._publish import Card, make_card, push_card, write_card
from rmcalib.publish._summary import comparison_summary, evaluation_summary

__all__ = [
    "Card",
    "Evaluator",
    "comparison_summary",
    "evaluation_summary",
    "make_card",
    "push_card",
    "write_card",
]
