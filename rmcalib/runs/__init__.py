"""Run folders that can be resumed, `score`, which fills one, and batches of many judges."""

from rmcalib.runs._batch import run_batch
from rmcalib.runs._folder import run_folder
from rmcalib.runs._plan import Batch, Cluster, plan_batch
from rmcalib.runs._run import score
from rmcalib.scores._runs import RunError, read_run

__all__ = ["Batch", "Cluster", "RunError", "plan_batch", "read_run", "run_batch", "run_folder", "score"]
