"""Calibration in other tools: watching a training run, and `rmcalib.integrations.trl` for TRL."""
