"""What to do about a judge on the wrong scale: fit a temperature, and check that it holds."""

from rmcalib.repair._calibrate import Calibration, RefusedError, calibrate
from rmcalib.repair._calibrator import Calibrator, CalibratorCheck
from rmcalib.repair._combine import METHODS, Panel, combine

__all__ = [
    "METHODS",
    "Calibration",
    "Calibrator",
    "CalibratorCheck",
    "Panel",
    "RefusedError",
    "calibrate",
    "combine",
]
