"""Many judges over one benchmark, on one machine or a Ray cluster."""

from rmcalib.batch._local import Batch, Evaluator, Job, open_batch, run_local
from rmcalib.batch._plan import (
    Machine,
    PlanEntry,
    Selection,
    choose_machine,
    estimated_tokens,
    make_plan,
    parse_bytes,
    parse_parameters,
    plan_problems,
    read_models,
    select,
)
from rmcalib.batch._published import published_plan, run_published
from rmcalib.batch._ray import Cluster, run_ray
from rmcalib.batch._status import ModelStatus, Status

__all__ = [
    "Batch",
    "Cluster",
    "Evaluator",
    "Job",
    "Machine",
    "ModelStatus",
    "PlanEntry",
    "Selection",
    "Status",
    "choose_machine",
    "estimated_tokens",
    "make_plan",
    "open_batch",
    "parse_bytes",
    "parse_parameters",
    "plan_problems",
    "published_plan",
    "read_models",
    "run_local",
    "run_published",
    "run_ray",
    "select",
]
