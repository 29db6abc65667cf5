"""Repair and use a judge: fit a temperature, apply it, write a calibrated model, decide, combine judges."""

from typing import TYPE_CHECKING

from rmcalib._util.lazy import lazy
from rmcalib.repair.applying import apply
from rmcalib.repair.calibration import RefusedError, calibrate
from rmcalib.repair.calibrator import AcceptRule, Calibrator
from rmcalib.repair.decisions import decide
from rmcalib.repair.joining import all_hold
from rmcalib.repair.panels import combine

if TYPE_CHECKING:
    from rmcalib.repair.checkpoint import push_checkpoint, write_checkpoint

__all__ = [
    "AcceptRule",
    "Calibrator",
    "RefusedError",
    "all_hold",
    "apply",
    "calibrate",
    "combine",
    "decide",
    "push_checkpoint",
    "write_checkpoint",
]

# What writes models needs the judges.
__getattr__ = lazy(
    __name__, dict.fromkeys(("push_checkpoint", "write_checkpoint"), "rmcalib.repair.checkpoint")
)
