"""Run folders that can be resumed, `score`, which fills one, and batches of many judges."""

from rmcalib.runs._batch import BatchRequest, Evaluator, Plan, Published, Scoring, plan_batch, run_batch
from rmcalib.runs._engine import Cluster
from rmcalib.runs._folder import RunError, RunFolder, inputs_hash, locked
from rmcalib.runs._plan import Listed, PlanEntry, Selection
from rmcalib.runs._run import (
    Run,
    content_hash,
    finished_scores,
    is_own_run,
    keep_scores,
    read_run,
    run_folder,
)
from rmcalib.runs._score import OnProgress, asked_for, score, score_inputs
from rmcalib.runs._status import ModelStatus, Status

__all__ = [
    "BatchRequest",
    "Cluster",
    "Evaluator",
    "Listed",
    "ModelStatus",
    "OnProgress",
    "Plan",
    "PlanEntry",
    "Published",
    "Run",
    "RunError",
    "RunFolder",
    "Scoring",
    "Selection",
    "Status",
    "asked_for",
    "content_hash",
    "finished_scores",
    "inputs_hash",
    "is_own_run",
    "keep_scores",
    "locked",
    "plan_batch",
    "read_run",
    "run_batch",
    "run_folder",
    "score",
    "score_inputs",
]
