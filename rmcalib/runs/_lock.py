"""The lock of a run folder, and its manifest."""

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

from rmcalib._util.files import read_object, utc, write_json
from rmcalib._util.storage import StorageError, is_remote, read_file

__all__ = ["RunError", "locked", "read_manifest"]


class RunError(ValueError):
    """A run folder cannot be used. The message is one line with the remedy."""


@contextlib.contextmanager
def locked(folder: Path, name: str = ".lock", owner: str = "lock.json") -> Iterator[None]:
    """Hold the lock of a folder for the length of the block, or raise a `RunError` if it is in use.

    The operating system releases the lock when the process ends, so a lock is never stale. Object storage has
    no locks: there, this does nothing.

    Parameters
    ----------
    folder : Path
        The folder, which is created if necessary.
    name : str
        File name of the lock.
    owner : str
        File that describes the process that holds the lock. The default `lock.json` is written here and
        removed at the end; any other file belongs to the caller.

    Yields
    ------
    None

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, locked(Path(folder)):
    ...     read_object(Path(folder) / "lock.json")["pid"] == os.getpid()
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
        who = read_object(path)
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
