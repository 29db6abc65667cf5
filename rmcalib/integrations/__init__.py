"""Calibration in other tools: watching a training run, and `rmcalib.integrations.trl` for TRL."""

from rmcalib.integrations.training import preference_metrics
from rmcalib.integrations.watcher import Watcher
from rmcalib.integrations.watching import watch

__all__ = ["Watcher", "preference_metrics", "watch"]
