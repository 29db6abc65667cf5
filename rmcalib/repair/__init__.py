"""What to do with a measured judge: fit a temperature, write it to a model, decide with probabilities."""

from rmcalib.repair._calibrate import SHOWN, Calibration, RefusedError, calibrate
from rmcalib.repair._calibrator import Calibrator, CalibratorCheck
from rmcalib.repair._checkpoint import Checkpoint, check_destination, push_checkpoint, write_checkpoint
from rmcalib.repair._combine import METHODS, Panel, combine
from rmcalib.repair._decide import Decisions, Regret, decide, decide_forecasts
from rmcalib.repair._thresholds import THRESHOLDS, Threshold, log_odds, safe_threshold

__all__ = [
    "METHODS",
    "SHOWN",
    "THRESHOLDS",
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
    "log_odds",
    "push_checkpoint",
    "safe_threshold",
    "write_checkpoint",
]
