"""Run folders that can be resumed, `score`, which fills one, and batches of many judges."""

from rmcalib.runs._batch import Batch, plan_batch, run_batch
from rmcalib.runs._engine import Cluster
from rmcalib.runs._folder import RunError
from rmcalib.runs._plan import Selection
from rmcalib.runs._run import read_run, run_folder
from rmcalib.runs._score import score

__all__ = [
    "Batch",
    "Cluster",
    "RunError",
    "Selection",
    "plan_batch",
    "read_run",
    "run_batch",
    "run_folder",
    "score",
]
