"""Scores: one row per response, in memory and in files."""

from rmcalib.scores._published import RESULTS, published_figures, published_models, published_scores
from rmcalib.scores._scores import COLUMNS, UNKNOWN_LENGTH, Scores, load_scores, read_scores_hash

__all__ = [
    "COLUMNS",
    "RESULTS",
    "UNKNOWN_LENGTH",
    "Scores",
    "load_scores",
    "published_figures",
    "published_models",
    "published_scores",
    "read_scores_hash",
]
