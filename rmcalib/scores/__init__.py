"""Scores: a table of rewards with one row per response, in memory and in files."""

from rmcalib.scores._known import load_board, published_models, published_scores
from rmcalib.scores._load import load_all_scores, load_scores
from rmcalib.scores._meaning import look
from rmcalib.scores._scores import Scores
from rmcalib.scores.drawing import LabelSheet, label
from rmcalib.scores.scale import Scale

__all__ = [
    "LabelSheet",
    "Scale",
    "Scores",
    "label",
    "load_all_scores",
    "load_board",
    "load_scores",
    "look",
    "published_models",
    "published_scores",
]
