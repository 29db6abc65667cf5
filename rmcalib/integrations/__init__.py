"""Calibration in other tools: watching a training run, and `rmcalib.integrations.trl` for TRL."""

from rmcalib.integrations.watching import Watcher, preference_metrics, watch

__all__ = ["Watcher", "preference_metrics", "watch"]
