"""Metrics of scores: forecasts, the catalogue of metrics, comparisons, leaderboards, correlations."""

from rmcalib.metrics._answers import answer_rows
from rmcalib.metrics._audit import Audit, audit, check_groupings
from rmcalib.metrics._boards import (
    BOARD_DRAWS,
    DEFAULT_METRIC,
    METHODS,
    SCORE,
    Board,
    Entry,
    Method,
    check_sortable,
    correlate_models,
    leaderboard,
    measure_entries,
    rank_models,
)
from rmcalib.metrics._catalogue import (
    FEWEST,
    GROUPS,
    SMOOTH_RESAMPLES,
    TRAINING_METRICS,
    Metric,
    catalogue,
    chosen_metrics,
)
from rmcalib.metrics._common import named_scores, on_common_prompts
from rmcalib.metrics._compare import Comparison, compare, compare_scores
from rmcalib.metrics._diagrams import (
    Table,
    isotonic_panels,
    isotonic_table,
    margin_panels,
    reliability_panels,
    reliability_table,
)
from rmcalib.metrics._events import accuracy_of
from rmcalib.metrics._examples import Example, worst_examples
from rmcalib.metrics._forecasts import Forecasts, forecast, select_prompts, single_answers, top_1_prompts
from rmcalib.metrics._statistic import Settings, Statistic, Ties
from rmcalib.metrics._table import OVERALL, find_value, metric_rows
from rmcalib.metrics._texts import disagreements, response_lengths
from rmcalib.metrics._transfer import NO_TEMPERATURE, Transfer, transfer

__all__ = [
    "BOARD_DRAWS",
    "DEFAULT_METRIC",
    "FEWEST",
    "GROUPS",
    "METHODS",
    "NO_TEMPERATURE",
    "OVERALL",
    "SCORE",
    "SMOOTH_RESAMPLES",
    "TRAINING_METRICS",
    "Audit",
    "Board",
    "Comparison",
    "Entry",
    "Example",
    "Forecasts",
    "Method",
    "Metric",
    "Settings",
    "Statistic",
    "Table",
    "Ties",
    "Transfer",
    "accuracy_of",
    "answer_rows",
    "audit",
    "catalogue",
    "check_groupings",
    "check_sortable",
    "chosen_metrics",
    "compare",
    "compare_scores",
    "correlate_models",
    "disagreements",
    "find_value",
    "forecast",
    "isotonic_panels",
    "isotonic_table",
    "leaderboard",
    "margin_panels",
    "measure_entries",
    "metric_rows",
    "named_scores",
    "on_common_prompts",
    "rank_models",
    "reliability_panels",
    "reliability_table",
    "response_lengths",
    "select_prompts",
    "single_answers",
    "top_1_prompts",
    "transfer",
    "worst_examples",
]
