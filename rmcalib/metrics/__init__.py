"""Numbers about scores: forecasts, metrics with intervals, comparisons, correlations."""

from rmcalib.metrics._compare import BETTER, compare_scores
from rmcalib.metrics._correlation import METHODS, Method, correlation_rows
from rmcalib.metrics._forecasts import Forecasts, forecast, select_prompts, set_forecasts, top_1_prompts
from rmcalib.metrics._leaderboard import CATEGORY_RESAMPLES, NULL_DRAWS, measure_model
from rmcalib.metrics._measures import Settings, margins
from rmcalib.metrics._resampling import SMOOTH_RESAMPLES
from rmcalib.metrics._rewardbench import category_scores, item_accuracy, leaderboard_score, ties_score
from rmcalib.metrics._table import (
    METRICS,
    OVERALL,
    category_names,
    disagreements,
    find_value,
    metric_rows,
    response_lengths,
)
from rmcalib.metrics._tables import Table, margin_table, reliability_table, summary_table

__all__ = [
    "BETTER",
    "CATEGORY_RESAMPLES",
    "METHODS",
    "METRICS",
    "NULL_DRAWS",
    "OVERALL",
    "SMOOTH_RESAMPLES",
    "Forecasts",
    "Method",
    "Settings",
    "Table",
    "category_names",
    "category_scores",
    "compare_scores",
    "correlation_rows",
    "disagreements",
    "find_value",
    "forecast",
    "item_accuracy",
    "leaderboard_score",
    "margin_table",
    "margins",
    "measure_model",
    "metric_rows",
    "reliability_table",
    "response_lengths",
    "select_prompts",
    "set_forecasts",
    "summary_table",
    "ties_score",
    "top_1_prompts",
]
