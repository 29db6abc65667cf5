"""Many judges over one benchmark, on one machine or a Ray cluster."""

from rmcalib.batch._batch import Evaluator
from rmcalib.batch._plan import Listed, PlanEntry, Selection, parse_bytes, parse_parameters
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
    "parse_bytes",
    "parse_parameters",
    "plan_batch",
    "run_batch",
]
