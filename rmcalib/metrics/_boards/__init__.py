"""Leaderboards: measure many models, rank them, and correlate their metrics."""

from rmcalib.metrics._boards._board import DEFAULT_METRIC, Entry, leaderboard, measure_entries
from rmcalib.metrics._boards._correlation import METHODS, Method
from rmcalib.metrics._boards._models import BOARD_DRAWS, check_sortable
from rmcalib.metrics._boards._ranking import SCORE, Board, rank_models
from rmcalib.metrics._boards._two_way import correlate_models

__all__ = [
    "BOARD_DRAWS",
    "DEFAULT_METRIC",
    "METHODS",
    "SCORE",
    "Board",
    "Entry",
    "Method",
    "check_sortable",
    "correlate_models",
    "leaderboard",
    "measure_entries",
    "rank_models",
]
