"""The folder of a run: its name, its lock, the manifest that says which run it is, and the scores at the end.

`<output>/<org>__<name>/<benchmark>/run.json` is written first, with a hash of everything that changes a score. At
the end, `scores.parquet` is written, and the manifest's status becomes `finished`. The same run resumes; a
different one is refused.

A folder may be in object storage (`s3://bucket/runs`), which has no locks. Two processes that do the same run
there do the work twice. The result is still correct, because they never write to the same journal.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmcalib._util.files import check_no_link, kind_on_disk, read_object, write_json
from rmcalib._util.hub import folder_name
from rmcalib._util.storage import as_path, find_files, is_remote, remove_file
from rmcalib.scores import Scores
from rmcalib.scores._runs import TABLE, RunError, read_run

JOURNAL = "scored-*.jsonl"
FACTS = ("labels", "scale", "score_kind", "meaning")  # of a manifest: what the scores themselves know
_FILES = (TABLE, "metrics.json", JOURNAL, "run.json")  # in the order in which a new run removes them


def run_folder(output: str | Path, model: str, benchmark: str) -> Path:
    """Return the folder of a run, `<output>/<org>__<name>/<benchmark>`. It is always inside `output`.

    >>> run_folder("runs", "org/rm", "allenai/reward-bench-2").as_posix()
    'runs/org__rm/allenai__reward-bench-2'
    """
    return as_path(output) / model_folder(model) / folder_name(benchmark)


def model_folder(name: str) -> str:
    """Return the name of the folder of a judge; a local model is named by its full path."""
    is_path = name != "demo" and kind_on_disk(name) == "folder"
    return folder_name(str(Path(name).resolve()) if is_path else name)


@contextlib.contextmanager
def locked(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Hold the lock of a folder for the length of the block, or raise a `RunError` if it is in use.

    The operating system releases the lock when the process ends, so a lock is never stale. Object storage has
    no locks: there, this does nothing.
    """
    if is_remote(folder):
        yield
        return
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_no_link(folder / name)
        lock = FileLock(folder / name, timeout=0)
        lock.acquire()
    except Timeout:
        raise RunError(
            f"{folder} is in use by another process: wait for it, or choose another output folder"
        ) from None
    except OSError as error:
        place = error.filename or folder
        raise RunError(f"{place}: cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


def claim(folder: Path, manifest: Mapping[str, Any], *, fresh: bool = False) -> None:
    """Make a locked folder that of the run of a manifest; raises if it has another run, unless `fresh` is set."""
    there = read_object(folder / "run.json")
    existing = [path for pattern in _FILES for path in files_of(folder, pattern)]
    same = there.get("hash") == manifest["hash"]
    if existing and not same and not fresh:
        raise RunError(
            f"{folder} holds another run ({_difference(manifest, there)}): choose another "
            "output folder, or fresh=True to replace it"
        )
    if fresh or not same:
        for path in existing:
            remove_file(path)
        write_json(folder / "run.json", manifest)
    if not is_remote(folder):
        for leftover in folder.glob(".*.tmp"):
            remove_file(leftover)


def files_of(folder: Path, pattern: str) -> list[Path]:
    """Return the files of a folder, not of those inside it, whose names match a pattern."""
    return [path for path in find_files(folder, pattern) if path.parent == folder]


def remove_journals(folder: Path) -> None:
    """Remove the journals of a finished run, also if it was killed before it could do so."""
    for file in files_of(folder, JOURNAL):
        remove_file(file)


def write_scores(folder: Path, scores: Scores, manifest: Mapping[str, Any]) -> Scores:
    """Write the table and then the manifest of a finished run, with the digest of the table."""
    facts = {key: scores.manifest[key] for key in FACTS if key in scores.manifest}
    finished = dataclasses.replace(scores, manifest={**manifest, **facts, "status": "finished"})
    written = finished.to_parquet(folder / TABLE)
    digest = {"scores_sha256": written["scores_sha256"]}
    write_json(folder / "run.json", {**finished.manifest, **digest})
    return dataclasses.replace(finished, manifest=written)


def is_finished(folder: Path, asked: str | None) -> bool:
    """Return whether the manifest of a run says that it is finished and answers a request (`asked_for`)."""
    manifest = read_object(folder / "run.json")
    return asked is not None and manifest.get("status") == "finished" and manifest.get("asked") == asked


def finished_scores(folder: Path, asked: str | None) -> Scores | None:
    """Return the scores of a finished run, if they answer a request (`asked_for`); otherwise None.

    All commands use this to find out whether a run is done. It needs neither the weights nor the texts.

    >>> finished_scores(Path("nowhere"), "e3b0c442") is None
    True
    """
    scores = read_run(folder) if is_finished(folder, asked) else None
    if scores is None or not _same_sources(scores.manifest):
        return None
    remove_journals(folder)
    return scores


def _same_sources(manifest: Mapping[str, Any]) -> bool:
    """Return whether an adapter's base model and code from other repositories are unchanged since the run.

    Only the files of the model name them, so `asked` does not include them.
    """
    from rmcalib.judges._files import identify

    sources = manifest.get("inputs", {}).get("model_sources", {})
    for kind in ("base", "code"):
        name, _, commit = sources.get(kind, "").rpartition("@")
        if name and identify(name, sources.get(f"{kind}_asked")) != commit:
            return False
    return True


def is_own_run(folder: Path, scores: Scores) -> bool:
    """Return whether scores were read from the finished run of a judge in this folder."""
    manifest, digest = read_object(folder / "run.json"), scores.content_hash()
    hash_of_run = manifest.get("hash")
    if manifest.get("status") != "finished" or not hash_of_run == scores.manifest.get("hash") != digest:
        return False
    there = read_run(folder)
    return there is not None and there.content_hash() == digest


def keep_scores(
    folder: Path, scores: Scores, *, asked: str | None = None, source: Path | None = None, fresh: bool = False
) -> None:
    """Write scores that were made elsewhere to a run folder, with a manifest.

    The hash of the run is that of the scores themselves, so they are never mistaken for a run of a judge.
    Writing a run's own scores to its folder changes nothing. `asked` is the hash of a request by which
    `finished_scores` finds them again. Another run in the folder is replaced only if `fresh` is set, or if it
    has earlier scores of the same file `source`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     keep_scores(Path(folder), Scores.from_arrays([[1.0, 0.0]]))
    ...     sorted(path.name for path in Path(folder).iterdir() if path.name != ".lock")
    ['run.json', 'scores.parquet']
    """
    if is_own_run(folder, scores):
        return
    digest, before = scores.content_hash(), read_object(folder / "run.json")
    about = {key: value for key, value in scores.manifest.items() if key not in ("asked", "scores_sha256")}
    if asked is None and before.get("hash") == digest:
        asked = before.get("asked")
    about |= {"asked": asked} if asked else {}
    model, here = before.get("model"), scores.manifest.get("model")
    if model and here and model != here and not fresh:
        raise RunError(
            f"{folder} holds the scores of {model!r}, and {here!r} has the same folder: choose another "
            "output folder, or fresh=True to replace them"
        )
    if source is not None:
        about["source_file"] = str(source.resolve())
        fresh = fresh or about["source_file"] == before.get("source_file")
    manifest = {**about, "status": "running", "hash": digest}
    with locked(folder):
        claim(folder, manifest, fresh=fresh)
        write_scores(folder, scores, manifest)


def _difference(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """Say in a few words how another run differs from this one."""
    if not then:
        return "its manifest run.json is missing or damaged"
    if "inputs" not in now or not isinstance(then.get("inputs"), dict):
        return "with results that were made elsewhere"
    ours, theirs = flattened(now["inputs"]), flattened(then["inputs"])
    changed = [
        f"{key}: {theirs.get(key, 'nothing')} there, {ours.get(key, 'nothing')} now"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    ]
    return "; ".join(changed) or "with other scores"


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the innermost values by their full names, joined by dots.

    >>> flattened({"model": "m", "recipe": {"sign": 1.0, "head": {"bias": False}}})
    {'model': 'm', 'recipe.sign': 1.0, 'recipe.head.bias': False}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat |= flattened(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat
