"""Metrics: the catalogue (view × measure), comparisons, leaderboards."""

from rmcalib.metrics.board import Board, leaderboard
from rmcalib.metrics.catalogue import Metric, catalogue, metric
from rmcalib.metrics.comparison import Comparison, compare, prompts_needed
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.views import Part

__all__ = [
    "Board",
    "Comparison",
    "Metric",
    "Part",
    "Settings",
    "catalogue",
    "compare",
    "leaderboard",
    "metric",
    "prompts_needed",
]
