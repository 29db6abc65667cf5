"""Score many judges on one benchmark, on one machine or a Ray cluster."""

from rmcalib.batch._batch import Evaluator
from rmcalib.batch._models import Listed, Selection
from rmcalib.batch._plan import PlanEntry
from rmcalib.batch._ray_cluster import Cluster
from rmcalib.batch._run import BatchRequest, Plan, Published, Scoring, plan_batch, run_batch
from rmcalib.batch._status import ModelStatus, Status

__all__ = [
    "BatchRequest",
    "Cluster",
    "Evaluator",
    "Listed",
    "ModelStatus",
    "Plan",
    "PlanEntry",
    "Published",
    "Scoring",
    "Selection",
    "Status",
    "plan_batch",
    "run_batch",
]
