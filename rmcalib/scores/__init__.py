"""Scores: a table of rewards with one row per response, in memory and in files."""

# Names that other packages share, but users do not need, are not in `__all__`.
from rmcalib.scores._built_in import REAL as REAL
from rmcalib.scores._built_in import is_built_in as is_built_in
from rmcalib.scores._built_in import load_board
from rmcalib.scores._load import find_model as find_model
from rmcalib.scores._load import load_all_scores, load_scores
from rmcalib.scores._load import load_with_rows as load_with_rows
from rmcalib.scores._meaning import MISSING, SCALES, STEPS, Meaning, Missing, look
from rmcalib.scores._published import RESULTS as RESULTS
from rmcalib.scores._published import published_figures, published_models, published_scores
from rmcalib.scores._schema import UNKNOWN_LENGTH as UNKNOWN_LENGTH
from rmcalib.scores._scores import Scores
from rmcalib.scores._tables import parse_columns as parse_columns

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
