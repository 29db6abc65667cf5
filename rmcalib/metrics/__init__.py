"""Metrics: the catalogue (view × measure), comparisons, best of n."""

from rmcalib.metrics.best_of import best_of_n
from rmcalib.metrics.catalogue import Metric, catalogue, metric
from rmcalib.metrics.comparison import compare, prompts_needed
from rmcalib.metrics.measures import Settings

__all__ = [
    "Metric",
    "Settings",
    "best_of_n",
    "catalogue",
    "compare",
    "metric",
    "prompts_needed",
]
