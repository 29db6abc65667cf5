"""Publish an evaluation: a model-card section, a badge, results for the Hub and for Every Eval Ever."""

from rmcalib.publish._badge import badge_svg
from rmcalib.publish._card import card_section, insert_section
from rmcalib.publish._every_eval import RELATIONSHIPS, Evaluator, every_eval_ever
from rmcalib.publish._hub_results import eval_results
from rmcalib.publish._publish import Card, make_card, push_card, write_card
from rmcalib.publish._summary import better, comparison_summary, evaluation_summary

__all__ = [
    "RELATIONSHIPS",
    "Card",
    "Evaluator",
    "badge_svg",
    "better",
    "card_section",
    "comparison_summary",
    "eval_results",
    "evaluation_summary",
    "every_eval_ever",
    "insert_section",
    "make_card",
    "push_card",
    "write_card",
]
