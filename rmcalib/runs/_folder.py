"""The folder of one long job: a manifest, a lock, and parts that survive a crash.

Every long job uses it: scoring, label-ranking experiments, reports on synthetic data. The manifest `run.json`
is written first. It contains a hash of everything that changes a result. Each part is written atomically when
it is finished. At the end, the status in the manifest becomes `finished`. Running the same job again resumes
it; a different job is refused.

A folder may be in object storage (`s3://bucket/runs`), which has no locks. Two processes that run the same
job there do the work twice. The result is still correct, because they never use the same name for a part.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmcalib._util.files import write_json
from rmcalib._util.nested import flattened
from rmcalib._util.storage import as_path, find_files, is_remote
from rmcalib.runs._lock import RunError, locked, read_manifest
from rmcalib.runs._manifest import inputs_hash

__all__ = ["Layout", "RunFolder"]

_REMEDY = "choose another --output, or --fresh to replace it"


@dataclass(frozen=True)
class Layout:
    """The files that a kind of job writes into its folder.

    Parameters
    ----------
    results : tuple[str, ...]
        Names of the result files. They are removed when another job replaces this one.
    parts : str
        Pattern of the names of the parts.
    status : str
        Status in the manifest while the job runs.

    Examples
    --------
    >>> Layout(("scores.parquet",), "part-*.parquet", "scoring").status
    'scoring'
    """

    results: tuple[str, ...] = ()
    parts: str = "part-*"
    status: str = "running"


class RunFolder:
    """The folder of one job; use it as a context manager, so that its lock is released.

    Parameters
    ----------
    folder : str | Path
        Path or URL of the folder.
    inputs : Mapping[str, Any]
        Everything that changes a result, as JSON. A hash of them identifies the job.
    layout : Layout, optional
        The files that this kind of job writes.
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
    ...     for number in range(2):
    ...         with RunFolder(folder, {"seed": 0}) as run:
    ...             before = len(run.part_files())
    ...             _ = write_json(run.new_part(".json"), {"value": number})
    ...     with RunFolder(folder, {"seed": 1}) as run:  # doctest: +ELLIPSIS
    ...         pass
    Traceback (most recent call last):
    rmcalib.runs._lock.RunError: ... holds another run (seed: 0 there, 1 now): choose another --output, ...
    >>> before
    1
    """

    def __init__(
        self,
        folder: str | Path,
        inputs: Mapping[str, Any],
        layout: Layout | None = None,
        *,
        about: Mapping[str, Any] | None = None,
        fresh: bool = False,
        rank: int = 0,
        digest: str | None = None,
    ) -> None:
        """Store the arguments; nothing is read or written before the folder is entered."""
        self.folder, self.layout, self.fresh, self.rank = as_path(folder), layout or Layout(), fresh, rank
        # Through JSON and back, so that they can be compared with a stored manifest.
        self.inputs: dict[str, Any] = json.loads(json.dumps(dict(inputs)))
        self.hash = digest or inputs_hash(self.inputs)
        self.about = dict(about or {})
        self.before: dict[str, Any] | None = None  # manifest of the same job, if this run resumes it
        self._writer = uuid.uuid4().hex[:8]
        self._next: int | None = None
        self._lock = contextlib.ExitStack()

    @property
    def parts(self) -> Path:
        """Folder of the finished parts."""
        return self.folder / "parts"

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

    def part_files(self) -> list[Path]:
        """List the finished parts of all processes."""
        return find_files(self.parts, self.layout.parts)

    def new_part(self, suffix: str) -> Path:
        """Return the path of a new part. No other process uses the same name."""
        mark = "" if self.rank == 0 else f"r{self.rank}-"
        if is_remote(self.folder):  # there is no lock: another process may write here, too
            mark = f"{self._writer}-"
        if self._next is None:
            stems = [file.stem.removeprefix(f"part-{mark}") for file in self.part_files()]
            self._next = 1 + max((int(stem) for stem in stems if stem.isdigit()), default=-1)
        self._next += 1
        return self.parts / f"part-{mark}{self._next - 1:05d}{suffix}"

    def remove_parts(self, files: Iterable[Path]) -> None:
        """Remove parts whose content is stored elsewhere, and their folder if it is empty."""
        for file in files:
            file.unlink(missing_ok=True)
        if not is_remote(self.folder):
            with contextlib.suppress(OSError):
                self.parts.rmdir()

    def manifest(self, status: str, **more: Any) -> dict[str, Any]:
        """Return the manifest of the job with a status and other entries."""
        described = {"inputs": self.inputs} if self.inputs else {}
        return {**self.inputs, **self.about, **more, "status": status, "hash": self.hash, **described}

    def write_manifest(self, **more: Any) -> None:
        """Write the manifest of the job while it runs."""
        write_json(self.folder / "run.json", self.manifest(self.layout.status, **more))

    def finish(self, **more: Any) -> None:
        """Write the manifest with the status `finished`; all results must be written before."""
        write_json(self.folder / "run.json", self.manifest("finished", **more))

    def _begin(self) -> None:
        manifest = read_manifest(self.folder / "run.json")
        same = manifest is not None and self._is_same(manifest)
        if not same and not self.fresh and (manifest is not None or any(self._left())):
            raise RunError(f"{self.folder} holds another run ({self._difference(manifest or {})}): {_REMEDY}")
        if self.fresh or not same:
            for name in self.layout.results:
                (self.folder / name).unlink(missing_ok=True)
            self.remove_parts(self.part_files())
            self.write_manifest()
        else:
            self.before = manifest
        if not is_remote(self.folder):
            for leftover in (*self.folder.glob(".*.tmp"), *self.parts.glob(".*.tmp")):
                leftover.unlink(missing_ok=True)

    def _left(self) -> Iterator[Path]:
        """Yield the existing files of a job."""
        yield from self.part_files()
        yield from (self.folder / name for name in self.layout.results if (self.folder / name).exists())

    def _is_same(self, manifest: Mapping[str, Any]) -> bool:
        if manifest.get("hash") == self.hash:
            return True
        # Manifests of earlier versions of prolr and synthetic are the inputs themselves.
        return "inputs" not in manifest and bool(self.inputs) and _inputs_of(manifest) == self.inputs

    def _difference(self, manifest: Mapping[str, Any]) -> str:
        now, then = flattened(self.inputs), flattened(_inputs_of(manifest))
        if not manifest:
            return "its manifest run.json is missing or damaged"
        if not self.inputs:
            return "with other scores than these"
        if "inputs" not in manifest and not {*now} & {*then}:
            return "with results that were made elsewhere"
        changed = [
            f"{key}: {then.get(key, 'nothing')} there, {now.get(key, 'nothing')} now"
            for key in sorted({*now, *then})
            if now.get(key) != then.get(key)
            # A different number of prompts explains their different hash.
            and not (key == "items_sha256" and now.get("n_items") != then.get("n_items"))
        ]
        return "; ".join(changed) or "with results that were made elsewhere"


def _inputs_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(manifest.get("inputs"), dict):
        return dict(manifest["inputs"])
    return {name: value for name, value in manifest.items() if name != "hash"}
