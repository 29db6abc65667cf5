"""The folder of one long job: a lock, and a manifest that says which job it is.

Scoring and the label-ranking experiments use it. The manifest `run.json` is written first, with a hash of
everything that changes a result. At the end, its status becomes `finished`. The same job resumes; a different
job is refused.

A folder may be in object storage (`s3://bucket/runs`), which has no locks. Two processes that run the same
job there do the work twice. The result is still correct, because they never write to the same journal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmcalib._util.files import write_json
from rmcalib._util.storage import StorageError, as_path, find_files, is_remote, read_file


class RunError(ValueError):
    """A run folder cannot be used. The message is one line with the remedy."""


def inputs_hash(inputs: Mapping[str, Any]) -> str:
    """Return a SHA-256 of values that can be written as JSON, in any order of their keys.

    >>> inputs_hash({"a": 1, "b": 2}) == inputs_hash({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


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
        lock = FileLock(folder / name, timeout=0)
        lock.acquire()
    except Timeout:
        raise RunError(
            f"{folder} is in use by another process: wait for it, or choose another --output"
        ) from None
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


class RunFolder:
    """The folder of one job; use it as a context manager, so that its lock is released.

    Parameters
    ----------
    folder : str | Path
        Path or URL of the folder.
    inputs : Mapping[str, Any]
        Everything that changes a result, as JSON. A hash of them identifies the job.
    files : Sequence[str]
        Patterns of the files that the job writes, such as ``"parts/*.csv"``. Another job that replaces this
        one removes them.
    about : Mapping[str, Any], optional
        Other entries of the manifest.
    fresh : bool
        Remove the files of an earlier job, even if its inputs differ.
    rank : int
        Number of this process, if several share the folder. Rank 0 takes the lock and must open the folder
        first.
    digest : str, optional
        The hash of the job; default the hash of `inputs`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with RunFolder(folder, {"seed": 0}) as run:
    ...         run.finish()
    ...     with RunFolder(folder, {"seed": 1}) as run:  # doctest: +ELLIPSIS
    ...         pass
    Traceback (most recent call last):
    rmcalib.runs._folder.RunError: ... holds another run (seed: 0 there, 1 now): choose another --output, ...
    """

    def __init__(
        self,
        folder: str | Path,
        inputs: Mapping[str, Any],
        files: Sequence[str] = (),
        *,
        about: Mapping[str, Any] | None = None,
        fresh: bool = False,
        rank: int = 0,
        digest: str | None = None,
    ) -> None:
        """Store the arguments; nothing is read or written before the folder is entered."""
        self.folder, self.files, self.fresh, self.rank = as_path(folder), files, fresh, rank
        # Through JSON and back, so that they can be compared with a stored manifest.
        self.inputs: dict[str, Any] = json.loads(json.dumps(dict(inputs)))
        self.hash = digest or inputs_hash(self.inputs)
        self.about = dict(about or {})
        self.before: dict[str, Any] | None = None  # manifest of the same job, if this run resumes it
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> RunFolder:
        """Take the lock, and check that existing files belong to the same inputs."""
        with contextlib.ExitStack() as opened:
            if self.rank == 0:
                opened.enter_context(locked(self.folder))
                self._begin()
            self._lock = opened.pop_all()  # keep the lock: there was no error
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self._lock.close()

    def find(self, pattern: str) -> list[Path]:
        """Return the files of the job whose names match a pattern."""
        place, _, name = pattern.rpartition("/")
        place_path = self.folder / place if place else self.folder
        return [path for path in find_files(place_path, name) if path.parent == place_path]

    def manifest(self, status: str, **more: Any) -> dict[str, Any]:
        """Return the manifest of the job with a status and other entries."""
        described = {"inputs": self.inputs} if self.inputs else {}
        return {**self.inputs, **self.about, **more, "status": status, "hash": self.hash, **described}

    def write_manifest(self, status: str = "running", **more: Any) -> None:
        """Write the manifest of the job."""
        write_json(self.folder / "run.json", self.manifest(status, **more))

    def finish(self, **more: Any) -> None:
        """Write the manifest with the status `finished`; all results must be written before."""
        self.write_manifest("finished", **more)

    def _begin(self) -> None:
        manifest = _read_manifest(self.folder / "run.json")
        same = manifest is not None and manifest.get("hash") == self.hash
        existing = [path for pattern in self.files for path in self.find(pattern)]
        if not same and not self.fresh and (manifest is not None or existing):
            raise RunError(
                f"{self.folder} holds another run ({_difference(self.inputs, manifest)}): choose another "
                "--output, or --fresh to replace it"
            )
        if self.fresh or not same:
            for path in existing:
                path.unlink(missing_ok=True)
            self.write_manifest()
        else:
            self.before = manifest
        if not is_remote(self.folder):
            for leftover in (*self.folder.glob(".*.tmp"), *self.folder.glob("*/.*.tmp")):
                leftover.unlink(missing_ok=True)


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """Read a manifest: None if there is no file, empty if it is not a JSON object."""
    try:
        content = json.loads(read_file(path))
    except FileNotFoundError:
        return None
    except StorageError:
        raise
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _difference(inputs: Mapping[str, Any], manifest: Mapping[str, Any] | None) -> str:
    """Say in a few words how another job differs from this one."""
    if not manifest:
        return "its manifest run.json is missing or damaged"
    if not inputs or not isinstance(manifest.get("inputs"), dict):
        return "with results that were made elsewhere"
    now, then = flattened(inputs), flattened(manifest["inputs"])
    changed = [
        f"{key}: {then.get(key, 'nothing')} there, {now.get(key, 'nothing')} now"
        for key in sorted({*now, *then})
        if now.get(key) != then.get(key)
        # A different number of prompts explains their different hash.
        and not (key == "items_sha256" and now.get("n_items") != then.get("n_items"))
    ]
    return "; ".join(changed) or "its manifest run.json is damaged"


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
