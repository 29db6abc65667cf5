"""Run folders that can be resumed, and `score`, which fills one."""

from rmcalib.runs._folder import Layout, RunFolder
from rmcalib.runs._lock import RunError, locked
from rmcalib.runs._manifest import (
    asked_for,
    content_hash,
    inputs_hash,
    package_versions,
    score_inputs,
)
from rmcalib.runs._run import Run, finished_scores, read_run, remove_leftover_parts, run_folder
from rmcalib.runs._score import OnProgress, keep_scores, score

__all__ = [
    "Layout",
    "OnProgress",
    "Run",
    "RunError",
    "RunFolder",
    "asked_for",
    "content_hash",
    "finished_scores",
    "inputs_hash",
    "keep_scores",
    "locked",
    "package_versions",
    "read_run",
    "remove_leftover_parts",
    "run_folder",
    "score",
    "score_inputs",
]
