"""Repair and use a judge: fit a temperature, apply it, write a calibrated model, decide, combine judges."""

from rmcalib.repair.calibration import Calibration, RefusedError, calibrate
from rmcalib.repair.calibrator import Applied, Calibrator, CalibratorCheck, apply
from rmcalib.repair.checkpoint import Checkpoint, push_checkpoint, write_checkpoint
from rmcalib.repair.decisions import Decisions, decide
from rmcalib.repair.panels import Panel, combine

__all__ = [
    "Applied",
    "Calibration",
    "Calibrator",
    "CalibratorCheck",
    "Checkpoint",
    "Decisions",
    "Panel",
    "RefusedError",
    "apply",
    "calibrate",
    "combine",
    "decide",
    "push_checkpoint",
    "write_checkpoint",
]
