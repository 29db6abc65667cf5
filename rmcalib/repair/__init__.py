"""Repair and use a judge: fit a temperature, apply it, write a calibrated model, decide, combine judges."""

from rmcalib.repair.calibration import RefusedError, calibrate
from rmcalib.repair.calibrator import Calibrator, apply
from rmcalib.repair.checkpoint import push_checkpoint, write_checkpoint
from rmcalib.repair.decisions import decide
from rmcalib.repair.panels import combine

__all__ = [
    "Calibrator",
    "RefusedError",
    "apply",
    "calibrate",
    "combine",
    "decide",
    "push_checkpoint",
    "write_checkpoint",
]
