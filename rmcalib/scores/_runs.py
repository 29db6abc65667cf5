"""Folders of finished runs: find them, and read their scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmcalib._util.display import clean_line
from rmcalib._util.files import read_object
from rmcalib._util.storage import StorageError, find_files, is_remote, read_file, similar_file
from rmcalib._util.texts import parse_json
from rmcalib.scores._scores import Scores
from rmcalib.scores.scale import Scale, scale_of_manifest

TABLE = "scores.parquet"
REMEDY = "restore it from a copy, or score again with fresh=True"


class NoRunsError(ValueError):
    """A folder has no runs in it, not even unfinished ones."""


class RunError(ValueError):
    """A run folder cannot be used. The message is one line with the remedy."""


@dataclass(frozen=True)
class ScoredRun:
    """One finished run: its folder, its manifest, the names of model and benchmark, and its label.

    ``read`` are its scores if they are not in the folder, but from a file or built in.
    """

    folder: Path
    manifest: dict[str, Any]
    model: str
    benchmark: str
    label: str
    read: Scores | None = None

    @property
    def scale(self) -> Scale:
        """What its rewards are."""
        return scale_of_manifest({**self.manifest, "model": self.model})

    def scores(self) -> Scores:
        """Read the scores; their manifest names the model."""
        read = self.read or read_run(self.folder)
        if read is None:
            raise ValueError(f"{self.folder}: it has no scores.parquet any more; run its command again")
        return replace(read, manifest={"model": self.model, **read.manifest})


def read_run(folder: Path) -> Scores | None:
    """Read the scores of a run folder and check them against its manifest; None if it has no scores yet.

    Damaged scores are an error: whether to score again what is lost is the user's decision.
    """
    manifest = read_object(folder / "run.json")
    try:
        scores = Scores.from_parquet(folder / TABLE)
    except StorageError:
        raise
    except ValueError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise RunError(f"{error}; {REMEDY}") from error
    # Object storage has no locks: two processes may finish the same run there, each with its own timings.
    compared = (lambda facts: facts.get("hash")) if is_remote(folder) else dict
    written = {key: value for key, value in scores.manifest.items() if key in manifest or key != "labels"}
    if manifest.get("status") == "finished" and compared(written) != compared(manifest):
        raise RunError(f"{folder}: damaged: run.json and {TABLE} do not belong together; {REMEDY}")
    return scores


def find_runs(folder: Path) -> tuple[list[ScoredRun], list[str]]:
    """Find the finished runs in a folder, of all models and benchmarks; notes name those that are not finished."""
    if not is_remote(folder) and not folder.is_dir():
        raise ValueError(f"{folder}: no such folder or file{similar_file(folder)}")
    scored = {path.parent for path in find_files(folder, TABLE)}
    scored = {path for path in scored if not _is_hidden(path, folder)}
    begun = {path.parent for path in find_files(folder, "run.json")}
    if not scored | begun:
        raise NoRunsError(f"{folder}: no runs in it (folders with a {TABLE}, written by `rmcalib eval`)")
    runs, notes = [], []
    for path in sorted(scored | begun):
        run = _read_manifest(path)
        # A folder without a manifest counts as finished.
        if path in scored and run.manifest.get("status", "finished") == "finished":
            runs.append(run)
        else:
            notes.append(
                clean_line(f"The run of {run.model} on {run.benchmark} is not finished, and left out.")
            )
    return runs, notes


def single_run(folder: Path) -> ScoredRun:
    """Return the only finished run in a folder, or raise a ValueError that names some of them."""
    runs, _ = find_runs(folder)
    if not runs:
        raise ValueError("no finished run; run the same `rmcalib eval` command again to finish one")
    different = {str(run.manifest.get("hash") or run.folder): run for run in runs}
    if len(different) > 1:
        have = ", ".join(str(run.folder) for run in [*different.values()][:3])
        raise ValueError(f"{folder}: {len(different)} runs in it; name one of them, such as {have}")
    return runs[0]


def _read_manifest(folder: Path) -> ScoredRun:
    """Read the manifest of a run folder; without one, the names are taken from the folders."""
    path = folder / "run.json"
    try:
        manifest = parse_json(read_file(path), str(path))
    except FileNotFoundError:
        manifest = {}
    if not isinstance(manifest, dict):
        raise ValueError(f"{path}: not a readable manifest: expected an object")
    model = str(manifest.get("model") or folder.parent.name.replace("__", "/", 1))
    return ScoredRun(
        folder, manifest, model, str(manifest.get("benchmark") or folder.name), clean_line(model)
    )


def _is_hidden(path: Path, top: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(top).parts)
