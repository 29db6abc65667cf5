"""Leaderboards of many models: measure, rank, correlate."""

from rmcalib.metrics._boards._board import DEFAULT_METRIC, Entry, leaderboard, measure_entries
from rmcalib.metrics._boards._correlation import METHODS, Method, correlation_rows
from rmcalib.metrics._boards._models import (
    BOARD_DRAWS,
    check_sortable,
    measure_model,
)
from rmcalib.metrics._boards._ranking import SCORE, Board, rank_models, wide_rows
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
    "correlation_rows",
    "leaderboard",
    "measure_entries",
    "measure_model",
    "rank_models",
    "wide_rows",
]
