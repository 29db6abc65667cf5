"""Calibration in other tools: watching a training run, and `rmcalib.integrations.trl` for TRL."""

from rmcalib.integrations.pairs import metric_values, preference_metrics
from rmcalib.integrations.watching import Watch, Watcher, watch

__all__ = ["Watch", "Watcher", "metric_values", "preference_metrics", "watch"]
