"""Numbers about scores: forecasts, the catalogue of metrics, comparisons, leaderboards, correlations."""

from rmcalib.metrics._answers import answer_rows
from rmcalib.metrics._audit import GROUPINGS, Audit, audit, check_groupings
from rmcalib.metrics._board import (
    DEFAULT_METRIC,
    SCORE,
    Board,
    Entry,
    check_sortable,
    leaderboard,
    measure_entries,
    rank_models,
    sortable_metrics,
    wide_rows,
)
from rmcalib.metrics._catalogue import (
    GROUPS,
    SMOOTH_RESAMPLES,
    Metric,
    added_metrics,
    catalogue,
    catalogue_markdown,
    chosen_metrics,
)
from rmcalib.metrics._common import on_common_prompts
from rmcalib.metrics._compare import Comparison, compare, compare_scores
from rmcalib.metrics._correlation import METHODS, Method, correlation_rows
from rmcalib.metrics._diagrams import Table, isotonic_table, margin_table, reliability_table, summary_table
from rmcalib.metrics._forecasts import (
    Forecasts,
    forecast,
    margins,
    picked_rows,
    select_prompts,
    set_forecasts,
    top_1_prompts,
)
from rmcalib.metrics._leaderboard import BOARD_DRAWS, measure_model, ranked_metrics
from rmcalib.metrics._rewardbench import category_scores, item_accuracy, leaderboard_score, ties_score
from rmcalib.metrics._statistic import TIES, Settings, Statistic, Ties, difference
from rmcalib.metrics._table import OVERALL, category_names, find_value, metric_rows
from rmcalib.metrics._texts import disagreements, response_lengths
from rmcalib.metrics._transfer import NO_TEMPERATURE, Transfer, transfer
from rmcalib.metrics._two_way import correlate_models

__all__ = [
    "BOARD_DRAWS",
    "DEFAULT_METRIC",
    "GROUPINGS",
    "GROUPS",
    "METHODS",
    "NO_TEMPERATURE",
    "OVERALL",
    "SCORE",
    "SMOOTH_RESAMPLES",
    "TIES",
    "Audit",
    "Board",
    "Comparison",
    "Entry",
    "Forecasts",
    "Method",
    "Metric",
    "Settings",
    "Statistic",
    "Table",
    "Ties",
    "Transfer",
    "added_metrics",
    "answer_rows",
    "audit",
    "catalogue",
    "catalogue_markdown",
    "category_names",
    "category_scores",
    "check_groupings",
    "check_sortable",
    "chosen_metrics",
    "compare",
    "compare_scores",
    "correlate_models",
    "correlation_rows",
    "difference",
    "disagreements",
    "find_value",
    "forecast",
    "isotonic_table",
    "item_accuracy",
    "leaderboard",
    "leaderboard_score",
    "margin_table",
    "margins",
    "measure_entries",
    "measure_model",
    "metric_rows",
    "on_common_prompts",
    "picked_rows",
    "rank_models",
    "ranked_metrics",
    "reliability_table",
    "response_lengths",
    "select_prompts",
    "set_forecasts",
    "sortable_metrics",
    "summary_table",
    "ties_score",
    "top_1_prompts",
    "transfer",
    "wide_rows",
]
