"""Reports: evaluations, and every result as a page, on the terminal, as Markdown or as a model card."""

from rmcalib.report.boards import write_leaderboard
from rmcalib.report.card import Card, make_card, markdown_summary, push_card, write_card
from rmcalib.report.document import print_document, to_html, to_markdown
from rmcalib.report.evaluation import UNNAMED, Evaluation, evaluate, made_from, write_evaluation
from rmcalib.report.figures import reliability_figure, says_right_figure
from rmcalib.report.joint import Joint, report_from_runs, write_joint
from rmcalib.report.leaderboards import Leaderboard, leaderboard_from_table
from rmcalib.report.official import official_from_hub, read_official
from rmcalib.report.pages import HEADLINE, document_of, first_screen, plot, verdict, write_page
from rmcalib.report.runs import open_scores

__all__ = [
    "HEADLINE",
    "UNNAMED",
    "Card",
    "Evaluation",
    "Joint",
    "Leaderboard",
    "document_of",
    "evaluate",
    "first_screen",
    "leaderboard_from_table",
    "made_from",
    "make_card",
    "markdown_summary",
    "official_from_hub",
    "open_scores",
    "plot",
    "print_document",
    "push_card",
    "read_official",
    "reliability_figure",
    "report_from_runs",
    "says_right_figure",
    "to_html",
    "to_markdown",
    "verdict",
    "write_card",
    "write_evaluation",
    "write_joint",
    "write_leaderboard",
    "write_page",
]
