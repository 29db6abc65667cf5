"""Run folders that can be resumed, `score`, which fills one, and batches of many judges."""

from typing import TYPE_CHECKING

from rmcalib._util.lazy import lazy
from rmcalib.runs._folder import run_folder
from rmcalib.scores._runs import RunError, read_run

if TYPE_CHECKING:
    from rmcalib.runs._batch import run_batch
    from rmcalib.runs._plan import Batch, Cluster, plan_batch
    from rmcalib.runs._run import score

__all__ = ["Batch", "Cluster", "RunError", "plan_batch", "read_run", "run_batch", "run_folder", "score"]

# Folders need no judges.
_HOMES = {
    "run_batch": "rmcalib.runs._batch",
    **dict.fromkeys(("Batch", "Cluster", "plan_batch"), "rmcalib.runs._plan"),
    "score": "rmcalib.runs._run",
}
__getattr__ = lazy(__name__, _HOMES)
