"""Calibration in other tools: metrics for training loops, and `rmcalib.integrations.trl` for TRL."""

from rmcalib.integrations._metrics import metric_values, preference_metrics

__all__ = ["metric_values", "preference_metrics"]
