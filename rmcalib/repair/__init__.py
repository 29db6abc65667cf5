"""What to do about a judge on the wrong scale: fit a temperature, check it, write it to a model."""

from rmcalib.repair._calibrate import SHOWN, Calibration, RefusedError, calibrate
from rmcalib.repair._calibrator import Calibrator, CalibratorCheck
from rmcalib.repair._checkpoint import Checkpoint, check_destination, push_checkpoint, write_checkpoint
from rmcalib.repair._combine import METHODS, Panel, combine

__all__ = [
    "METHODS",
    "SHOWN",
    "Calibration",
    "Calibrator",
    "CalibratorCheck",
    "Checkpoint",
    "Panel",
    "RefusedError",
    "calibrate",
    "check_destination",
    "combine",
    "push_checkpoint",
    "write_checkpoint",
]
