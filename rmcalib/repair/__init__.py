"""Repair and use a judge: fit a temperature, write a calibrated model, decide, combine judges."""

from rmcalib.repair._calibrate import METRIC_LABELS, Calibration, RefusedError, calibrate
from rmcalib.repair._calibrator import Calibrator, CalibratorCheck
from rmcalib.repair._checkpoint import Checkpoint, check_destination, push_checkpoint, write_checkpoint
from rmcalib.repair._combine import METHODS, Panel, combine
from rmcalib.repair._decide import Decisions, Regret, decide, decide_forecasts
from rmcalib.repair._earlier import replaces_calibrator, replaces_panel
from rmcalib.repair._thresholds import Threshold

__all__ = [
    "METHODS",
    "METRIC_LABELS",
    "Calibration",
    "Calibrator",
    "CalibratorCheck",
    "Checkpoint",
    "Decisions",
    "Panel",
    "RefusedError",
    "Regret",
    "Threshold",
    "calibrate",
    "check_destination",
    "combine",
    "decide",
    "decide_forecasts",
    "push_checkpoint",
    "replaces_calibrator",
    "replaces_panel",
    "write_checkpoint",
]
