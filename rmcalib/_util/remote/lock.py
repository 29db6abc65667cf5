"""One writer at a time for a remote place: an object that says who writes, with a heart that beats.

Stores have no locks that die with their owner. So the owner rewrites the lock every few seconds; whoever
finds a lock watches it, and takes it over only if it stops changing. No clocks of two machines are compared.
An owner that was cut off for so long finds another's lock when it is back, or none if that one has finished
meanwhile, and writes no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rmcalib._util.interrupts import outlast
from rmcalib._util.remote.store import RemoteError, Store, why

__all__ = ["Lock", "LockLostError"]

NAME = ".rmcalib-lock.json"
_HELD: set[str] = set()  # the tokens of this process: its number alone does not tell who of it has a lock


class LockLostError(RemoteError):
    """Another process has taken over."""


class Lock:
    """The lock of a store; `stale` seconds without a beat, and it is anybody's.

    >>> import fsspec
    >>> store = Store("memory://locked", fsspec.filesystem("memory"), "/locked")
    >>> lock = Lock(store, stale=0.2, settle=0.0)
    >>> lock.acquire()
    >>> lock.beat()
    >>> json.loads(store.read(NAME) or b"")["pid"] == os.getpid()
    True
    >>> lock.release()
    >>> store.read(NAME) is None
    True
    """

    def __init__(self, store: Store, *, stale: float = 30.0, settle: float = 1.0) -> None:
        """Remember whose lock it is; nothing is written yet."""
        self.store, self.stale, self.settle = store, stale, settle
        self.token = uuid.uuid4().hex
        self._beats = 0
        self._writing = threading.Lock()  # where a file is not replaced at one stroke, ours is gone meanwhile
        self._started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    @contextlib.contextmanager
    def held(self, every: float, on_lost: Callable[[LockLostError], None]) -> Iterator[None]:
        """Hold the lock while the block runs, with a beat ``every`` so many seconds."""
        try:
            self.acquire()
        except KeyboardInterrupt:
            with contextlib.suppress(Exception):
                self.release()
            raise
        ending, ended = threading.Event(), threading.Event()

        def beat() -> None:
            while not ending.wait(every):
                try:
                    self.beat()
                except LockLostError as error:
                    return on_lost(error)
                except Exception:  # the next beat may come through; uploads fail too, and that is told
                    continue
            return None

        def run() -> None:
            try:
                beat()
            finally:
                ended.set()

        threading.Thread(target=run, daemon=True).start()
        try:
            yield
        finally:
            ending.set()
            try:
                outlast(ended)  # or the last beat would bring the lock back
            finally:
                with contextlib.suppress(Exception):
                    self.release()

    def acquire(self) -> None:
        """Take the lock, or say in one line who has it."""
        try:
            seen = self._read()
            if seen and not _is_dead(seen):
                self._watch(seen)
            _HELD.add(self.token)
            self._write()
            time.sleep(self.settle)  # of two that come at once, the later one's lock stays
            found = self._read()
        except RemoteError:
            raise
        except Exception as error:
            raise RemoteError(f"{self.store.url}: cannot be written: {why(error)}") from error
        if found.get("token") != self.token:
            _HELD.discard(self.token)
            raise self._in_use(found)

    def beat(self) -> None:
        """Show that we live; an error if the lock is another's by now."""
        with self._writing:
            self._check()
            self._write()

    def check(self) -> None:
        """Raise an error if the lock, once acquired, is not ours any more."""
        with self._writing:
            self._check()

    def release(self) -> None:
        """Give the lock back, if it is ours."""
        _HELD.discard(self.token)
        if self._read().get("token") == self.token:
            self.store.remove(NAME)

    def _check(self) -> None:
        found = self._read()
        if not found:
            raise LockLostError(
                f"{self.store.url}: the lock is gone: another process has taken over and ended, or removed it"
            )
        if found.get("token") != self.token:
            raise LockLostError(
                f"{self.store.url}: was out of reach for so long that process {found.get('pid', '?')} on "
                f"{found.get('host', '?')} has taken over"
            )

    def _watch(self, seen: dict[str, Any]) -> None:
        end = time.monotonic() + self.stale
        while time.monotonic() < end:
            time.sleep(min(0.5, self.stale / 10))
            found = self._read()
            if not found:
                return
            if found != seen:
                raise self._in_use(found)

    def _in_use(self, found: dict[str, Any]) -> RemoteError:
        return RemoteError(
            f"{self.store.url} is in use by process {found.get('pid', '?')} on {found.get('host', '?')} "
            f"since {found.get('started', '?')}: wait for it, or choose another --output"
        )

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.store.read(NAME) or b"{}")
        except ValueError:
            return {"token": "unreadable"}
        return content if isinstance(content, dict) else {}

    def _write(self) -> None:
        self._beats += 1
        content = {**_self(), "token": self.token, "started": self._started, "beats": self._beats}
        self.store.write(NAME, json.dumps(content).encode())


def _self() -> dict[str, Any]:
    try:
        processes = str(Path("/proc/self/ns/pid").readlink())  # containers count processes each for itself
    except OSError:
        processes = ""
    return {"pid": os.getpid(), "host": platform.node(), "processes": processes}


def _is_dead(owner: dict[str, Any]) -> bool:
    """Tell whether the owner is known to have ended: only of a process of this machine."""
    ours = _self()
    pid = owner.get("pid")
    if any(owner.get(key) != ours[key] for key in ("host", "processes")) or not isinstance(pid, int):
        return False
    import psutil

    if pid == ours["pid"]:  # without us knowing of it, that was an earlier life of a container
        return owner.get("token") not in _HELD
    return not psutil.pid_exists(pid)
