"""Which process works in a run folder, and the manifest of the folder."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmcalib._util.files import write_json
from rmcalib._util.storage import StorageError, is_remote, read_file

__all__ = ["RunError", "locked", "read_manifest", "utc"]


class RunError(ValueError):
    """A run folder cannot be used; the message is one line with the remedy."""


@contextlib.contextmanager
def locked(folder: Path, name: str = ".lock", owner: str = "lock.json") -> Iterator[None]:
    """Hold the lock of a folder, which is created if necessary; the file `owner` names the process.

    The operating system releases the lock when the process ends, so no lock is ever stale. Object storage
    has no locks: there, nothing happens.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, locked(Path(folder)):
    ...     (read_manifest(Path(folder) / "lock.json") or {})["pid"] == os.getpid()
    True
    """
    if is_remote(folder):
        yield
        return
    from filelock import FileLock, Timeout

    path = folder / owner
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / name, timeout=0)
        lock.acquire()
    except Timeout:
        who = read_manifest(path) or {}
        process = f"process {who.get('pid', '?')} on {who.get('host', '?')} since {who.get('started', '?')}"
        raise RunError(f"{folder} is in use by {process}: wait for it, or choose another --output") from None
    except OSError as error:
        why = error.strerror or error
        if isinstance(error, FileExistsError):
            why = "is a file, not a folder" if folder.is_file() else "a broken link or a file is in the way"
        raise RunError(f"{folder}: cannot be written: {why}") from error
    try:
        if owner == "lock.json":
            started = {"pid": os.getpid(), "host": platform.node(), "started": utc(time.time())}
            write_json(path, {**started, "command": " ".join(sys.argv[:1])})
        yield
    finally:
        if owner == "lock.json":
            path.unlink(missing_ok=True)
        lock.release()


def read_manifest(path: Path) -> dict[str, Any] | None:
    """Read a manifest: None if there is none, empty if it is not a JSON object."""
    try:
        content = json.loads(read_file(path))
    except FileNotFoundError:
        return None
    except StorageError:
        raise
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def utc(seconds: float) -> str:
    """Write a time in ISO 8601.

    >>> utc(0)
    '1970-01-01T00:00:00Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
