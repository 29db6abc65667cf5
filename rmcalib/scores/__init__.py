"""Scores: a table of rewards with one row per response, in memory and in files."""

from rmcalib.scores._built_in import REAL, is_built_in, load_board
from rmcalib.scores._load import find_model, load_all_scores, load_scores, load_with_rows
from rmcalib.scores._meaning import MISSING, SCALES, STEPS, Meaning, Missing, look
from rmcalib.scores._published import RESULTS, published_figures, published_models, published_scores
from rmcalib.scores._schema import UNKNOWN_LENGTH
from rmcalib.scores._scores import Scores
from rmcalib.scores._tables import parse_columns

__all__ = [
    "MISSING",
    "REAL",
    "RESULTS",
    "SCALES",
    "STEPS",
    "UNKNOWN_LENGTH",
    "Meaning",
    "Missing",
    "Scores",
    "find_model",
    "is_built_in",
    "load_all_scores",
    "load_board",
    "load_scores",
    "load_with_rows",
    "look",
    "parse_columns",
    "published_figures",
    "published_models",
    "published_scores",
]
