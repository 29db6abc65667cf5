"""Scores: a table of rewards with one row per response, in memory and in files."""

from rmcalib.scores._built_in import REAL, load_board
from rmcalib.scores._kinds import MISSING, Missing, Reading
from rmcalib.scores._load import ALL_STEPS, find_model, is_built_in, load_all_scores, load_scores
from rmcalib.scores._published import RESULTS, published_figures, published_models, published_scores
from rmcalib.scores._scores import UNKNOWN_LENGTH, Scores
from rmcalib.scores._steps import STEPS

__all__ = [
    "ALL_STEPS",
    "MISSING",
    "REAL",
    "RESULTS",
    "STEPS",
    "UNKNOWN_LENGTH",
    "Missing",
    "Reading",
    "Scores",
    "find_model",
    "is_built_in",
    "load_all_scores",
    "load_board",
    "load_scores",
    "published_figures",
    "published_models",
    "published_scores",
]
