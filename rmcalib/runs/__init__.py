"""Run folders that can be resumed, `score`, which fills one, and batches of many judges."""

from rmcalib.runs._batch import BatchRequest, Evaluator, Plan, Published, Scoring, plan_batch, run_batch
from rmcalib.runs._engine import Cluster
from rmcalib.runs._folder import RunError
from rmcalib.runs._plan import Listed, PlanEntry, Selection
from rmcalib.runs._run import read_run, run_folder
from rmcalib.runs._score import score
from rmcalib.runs._status import ModelStatus, Status

__all__ = [
    "BatchRequest",
    "Cluster",
    "Evaluator",
    "Listed",
    "ModelStatus",
    "Plan",
    "PlanEntry",
    "Published",
    "RunError",
    "Scoring",
    "Selection",
    "Status",
    "plan_batch",
    "read_run",
    "run_batch",
    "run_folder",
    "score",
]
