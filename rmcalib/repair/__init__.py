"""Repair and use a judge: fit a temperature, apply it, write a calibrated model, decide, combine judges."""

from typing import TYPE_CHECKING, Any

from rmcalib.repair.applying import apply
from rmcalib.repair.calibration import RefusedError, calibrate
from rmcalib.repair.calibrator import AcceptRule, Calibrator
from rmcalib.repair.decisions import decide
from rmcalib.repair.panels import combine

if TYPE_CHECKING:
    from rmcalib.repair.checkpoint import push_checkpoint, write_checkpoint

__all__ = [
    "AcceptRule",
    "Calibrator",
    "RefusedError",
    "apply",
    "calibrate",
    "combine",
    "decide",
    "push_checkpoint",
    "write_checkpoint",
]


def __getattr__(name: str) -> Any:
    """Import what writes models only when it is asked for: it needs the judges."""
    if name in ("push_checkpoint", "write_checkpoint"):
        from rmcalib.repair import checkpoint

        return getattr(checkpoint, name)
    raise AttributeError(f"module 'rmcalib.repair' has no attribute {name!r}")
