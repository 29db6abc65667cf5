"""Run folders that can be resumed, `score`, which fills one, and batches of many judges."""

# Names that other packages share, but users do not need, are not in `__all__`.
from rmcalib.runs._batch import BatchRequest, Evaluator, Plan, Published, Scoring, plan_batch, run_batch
from rmcalib.runs._engine import Cluster
from rmcalib.runs._folder import RunError
from rmcalib.runs._folder import RunFolder as RunFolder
from rmcalib.runs._folder import inputs_hash as inputs_hash
from rmcalib.runs._folder import locked as locked
from rmcalib.runs._plan import Listed, PlanEntry, Selection
from rmcalib.runs._run import Run as Run
from rmcalib.runs._run import content_hash as content_hash
from rmcalib.runs._run import finished_scores as finished_scores
from rmcalib.runs._run import is_own_run as is_own_run
from rmcalib.runs._run import keep_scores as keep_scores
from rmcalib.runs._run import read_run, run_folder
from rmcalib.runs._score import OnProgress as OnProgress
from rmcalib.runs._score import asked_for as asked_for
from rmcalib.runs._score import score
from rmcalib.runs._score import score_inputs as score_inputs
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
