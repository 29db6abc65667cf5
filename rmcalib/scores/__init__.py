"""Scores: a table of rewards with one row per response, in memory and in files."""

from rmcalib.scores._built_in import load_board
from rmcalib.scores._load import load_all_scores, load_scores
from rmcalib.scores._meaning import MISSING, SCALES, STEPS, Meaning, Missing, look
from rmcalib.scores._published import published_figures, published_models, published_scores
from rmcalib.scores._scores import Scores

__all__ = [
    "MISSING",
    "SCALES",
    "STEPS",
    "Meaning",
    "Missing",
    "Scores",
    "load_all_scores",
    "load_board",
    "load_scores",
    "look",
    "published_figures",
    "published_models",
    "published_scores",
]
