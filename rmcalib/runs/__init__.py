"""One resumable run folder: manifest, lock, parts, and `score`, which fills it."""

from rmcalib.runs._folder import Run, RunError, finished_scores, run_folder
from rmcalib.runs._lock import read_manifest, utc
from rmcalib.runs._manifest import (
    asked_for,
    content_hash,
    inputs_hash,
    package_versions,
    score_inputs,
)
from rmcalib.runs._score import OnProgress, keep_scores, score

__all__ = [
    "OnProgress",
    "Run",
    "RunError",
    "asked_for",
    "content_hash",
    "finished_scores",
    "inputs_hash",
    "keep_scores",
    "package_versions",
    "read_manifest",
    "run_folder",
    "score",
    "score_inputs",
    "utc",
]
