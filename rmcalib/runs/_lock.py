"""Who works in a run folder: one process at a time, and its manifest."""

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

__all__ = ["RunError", "locked", "read_manifest", "utc"]


class RunError(ValueError):
    """A run folder cannot be used; the message is one line with the remedy."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, which is made if need be; `lock.json` says who does.

    The system gives the lock back when its owner dies, so that no lock is ever stale.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, locked(Path(folder)):
    ...     (read_manifest(Path(folder) / "lock.json") or {})["pid"] == os.getpid()
    True
    """
    from filelock import FileLock, Timeout

    owner = folder / "lock.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", timeout=0)
        lock.acquire()
    except Timeout:
        who = read_manifest(owner) or {}
        told = f"process {who.get('pid', '?')} on {who.get('host', '?')} since {who.get('started', '?')}"
        raise RunError(f"{folder} is in use by {told}: wait for it, or choose another --output") from None
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error.strerror or error}") from error
    try:
        started = {"pid": os.getpid(), "host": platform.node(), "started": utc(time.time())}
        write_json(owner, {**started, "command": " ".join(sys.argv[:1])})
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def read_manifest(path: Path) -> dict[str, Any] | None:
    """Read a manifest: None if there is none, empty if it is unreadable."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def utc(seconds: float) -> str:
    """Write a time as others read it.

    >>> utc(0)
    '1970-01-01T00:00:00Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
