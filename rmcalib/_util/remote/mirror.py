"""A local folder that follows a remote one: what is written here is there a moment later.

The remote place is the truth. A scratch folder gets what is needed to go on from there; a thread looks for
new and changed files every few seconds and uploads them, in an order in which a reader of the remote place,
or a run that takes up after a crash at any moment, never trusts a file that it should not: scores before the
manifest that calls them finished, but no scores without a manifest; and of a run that is replaced the old
files go before the new manifest comes.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmcalib._util.remote.lock import Lock, LockLostError
from rmcalib._util.remote.store import RemoteError, Store, is_remote, local_path, open_store, why
from rmcalib._util.remote.transfer import download, each, named

__all__ = ["RUNS", "Mirror", "Pace", "mirrored", "runs_in"]

_MANIFEST, _MARK, _OWNER = "run.json", "metrics.json", "lock.json"
_STATUS = ("batch.json", "events.jsonl", "batch.log")
_OF_A_RUN = r"(?:run\.json|skipped\.json|scores\.parquet|metrics\.json|parts/part-[^/]+\.parquet)"
RUNS = re.compile(rf"(?:[^/]+/)*{_OF_A_RUN}|batch\.json|events\.jsonl|batch\.log")
"""What a run goes on from. Pages and pictures are not brought back."""
Signature = tuple[int, int, int]


def runs_in(folders: Iterable[str]) -> re.Pattern[str]:
    """Match what the runs in these folders, and no others, go on from.

    >>> needed = runs_in(["org__rm/demo"])
    >>> [bool(needed.fullmatch(f"{folder}/run.json")) for folder in ("org__rm/demo", "org__rm/other")]
    [True, False]
    """
    return re.compile(rf"(?:{'|'.join(map(re.escape, folders))})/{_OF_A_RUN}")


@dataclass(frozen=True)
class Pace:
    """How often, and for how long, in seconds."""

    every: float = 2.0  # between looks for changes
    log: float = 60.0  # between uploads of a growing log
    beat: float = 5.0  # between beats of the lock
    stale: float = 30.0  # until a lock that does not change is anybody's
    settle: float = 1.0  # until a lock counts as taken
    patience: float = 600.0  # for which uploads may fail before the run is ended
    last_tries: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)  # between the tries of the last upload


@contextlib.contextmanager
def mirrored(
    place: str | Path,
    *,
    needed: re.Pattern[str] | None = None,
    on_failure: Callable[[], None] | None = None,
    pace: Pace | None = None,
) -> Iterator[Path]:
    """Give a local folder that stands for ``place`` while the block runs.

    A path is itself that folder. For a URL it is a scratch folder that has what an earlier run left there, as
    far as it is ``needed`` (by name; default what a run goes on from). Everything written to it is uploaded
    while the block runs and when it ends, however it ends. ``on_failure`` is called, from another thread,
    when uploads have failed for too long: the block should end then. What could not be uploaded is kept, and
    the error says where.
    """
    if not is_remote(place):
        yield local_path(place)
        return
    pace = pace or Pace()
    store = open_store(str(place))
    lock = Lock(store, stale=pace.stale, settle=pace.settle)
    scratch = Path(tempfile.mkdtemp(prefix="rmcalib-")).resolve()
    mirror = Mirror(store, scratch, lock, pace, on_failure)
    keep = False
    try:
        with lock.held(pace.beat, mirror.fail):
            mirror.pull(needed or RUNS)
            keep = True  # from here on it may have what the store has not
            mirror.start()
            try:
                with named(scratch, store.url):
                    yield scratch
            finally:
                try:
                    mirror.stop()
                finally:
                    keep = not mirror.is_uploaded
    finally:
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)


class Mirror:
    """A scratch folder and the store that it is uploaded to; see `mirrored`."""

    def __init__(
        self,
        store: Store,
        scratch: Path,
        lock: Lock,
        pace: Pace,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        """Begin with an empty scratch folder."""
        self.store, self.scratch, self.lock, self.pace = store, scratch, lock, pace
        self.failure: RemoteError | None = None
        self._on_failure = on_failure
        self._known: dict[str, Signature] = {}  # what the store has, as it was here when it was uploaded
        self._generations: dict[str, Any] = {}  # by folder: the hash in the manifest that the store has
        self._sent: dict[str, float] = {}
        self._stop, self._ended = threading.Event(), threading.Event()

    def pull(self, needed: re.Pattern[str] = RUNS) -> None:
        """Bring what a run goes on from."""
        try:
            names = [name for name in self.store.names() if needed.fullmatch(name)]
            download(self.store, names, self.scratch)
            each(
                self.store.remove, self.store.leftovers(), self.store
            )  # nobody else writes: the lock is ours
        except Exception as error:
            raise RemoteError(f"{self.store.url}: cannot be read: {why(error)}") from error
        self._known = self._scan()
        for name in names:
            if _last(name) == _MANIFEST:
                self._generations[_folder(name)] = _generation((self.scratch / name).read_bytes())

    def start(self) -> None:
        """Follow changes from now on."""

        def run() -> None:
            try:
                self._follow()
                self._finish()
            finally:
                self._ended.set()

        threading.Thread(target=run, daemon=True).start()

    def stop(self) -> None:
        """Upload what is left and end, also if interrupted; an error says where it is kept if that failed."""
        interrupted: KeyboardInterrupt | None = None
        while not self._ended.is_set():
            try:
                self._stop.set()
                self._ended.wait()
            except KeyboardInterrupt as error:
                interrupted = error
        if self.failure is not None:
            raise self.failure from None
        if interrupted is not None:
            raise interrupted

    @property
    def is_uploaded(self) -> bool:
        """Whether it has ended, and the store has everything."""
        return self._ended.is_set() and self.failure is None

    def fail(self, error: Exception) -> None:
        """Remember that nothing can be uploaded any more, and say so."""
        if self.failure is not None:
            return
        told = (
            str(error)
            if isinstance(error, RemoteError)
            else f"{self.store.url}: cannot be written: {why(error)}"
        )
        self.failure = RemoteError(f"{told}; what could not be uploaded is in {self.scratch}")
        if self._on_failure is not None and not self._stop.is_set():
            self._on_failure()

    def push(self, *, last: bool = False) -> None:
        """Upload what has changed since the last time, and remove what is gone."""
        marks, found = self._look()
        changed = {name for name, signature in found.items() if self._known.get(name) != signature}
        gone = {name for name in self._known if name not in found}
        if not last:
            changed -= {name for name in changed if self._is_early(name)}
        if not changed and not gone:
            return
        self.lock.check()
        manifests = {name for name in changed if _last(name) == _MANIFEST}
        new = {
            _folder(name)
            for name in manifests
            if self._generations.get(_folder(name)) != _generation(marks[name])
        }
        told = {name for name in changed if _last(name) == _MARK}
        status = {name for name in changed if name in _STATUS}
        data = changed - manifests - told - status

        def of_new(names: Iterable[str]) -> set[str]:
            return {name for name in names if any(name.startswith(folder) for folder in new)}

        # Of a run that is new there: what was another's goes first, and the manifest comes before the data.
        self._remove(of_new(gone | (data & self._known.keys())))
        self._upload(of_new(manifests), found, marks)
        self._upload(data, found, marks)
        self._upload(manifests - of_new(manifests), found, marks)
        self._upload(told, found, marks)
        self._remove({name for name in gone if name in self._known})
        self._upload(status, found, marks)

    def _look(self) -> tuple[dict[str, bytes], dict[str, Signature]]:
        """Read manifests and marks, then look at everything: data is never older than what speaks of it."""
        while True:
            first = {n: s for n, s in self._scan().items() if _last(n) in (_MANIFEST, _MARK)}
            marks = {}
            for name, signature in first.items():
                if self._known.get(name) != signature:
                    with contextlib.suppress(FileNotFoundError):
                        marks[name] = (self.scratch / name).read_bytes()
            found = self._scan()
            if any(found.get(name) != first[name] for name in marks):
                continue
            for name in [name for name in found if _last(name) in (_MANIFEST, _MARK) and name not in marks]:
                if name in self._known:
                    found[name] = self._known[name]  # if it has changed just now, that is for the next time
                else:
                    del found[name]
            return marks, found

    def _scan(self) -> dict[str, Signature]:
        found: dict[str, Signature] = {}
        for path in self.scratch.rglob("*"):
            name = path.relative_to(self.scratch).as_posix()
            if path.name == _OWNER or any(part.startswith(".") for part in name.split("/")):
                continue
            with contextlib.suppress(FileNotFoundError):
                told = path.stat()
                if path.is_file():
                    found[name] = (told.st_mtime_ns, told.st_size, told.st_ino)
        return found

    def _is_early(self, name: str) -> bool:
        """A log is uploaded as a whole each time it has grown: not too often."""
        return name.endswith(".log") and time.monotonic() - self._sent.get(name, -1e9) < self.pace.log

    def _upload(self, names: Iterable[str], found: dict[str, Signature], marks: dict[str, bytes]) -> None:
        def upload(name: str) -> None:
            try:
                content = marks[name] if name in marks else (self.scratch / name).read_bytes()
            except FileNotFoundError:  # gone meanwhile
                return
            self.store.write(name, content)
            self._known[name] = found[name]
            self._sent[name] = time.monotonic()
            if _last(name) == _MANIFEST:
                self._generations[_folder(name)] = _generation(content)

        each(upload, names, self.store)

    def _remove(self, names: Iterable[str]) -> None:
        def remove(name: str) -> None:
            self.store.remove(name)
            self._known.pop(name, None)

        each(remove, names, self.store)

    def _finish(self) -> None:
        """Upload what is left, in some tries."""
        for pause in (*self.pace.last_tries, None):
            if self.failure is not None:
                break
            try:
                self.push(last=True)
                break
            except Exception as error:
                if pause is None or isinstance(error, LockLostError):
                    self.fail(error)
                    break
            time.sleep(pause)

    def _follow(self) -> None:
        failing_since: float | None = None
        while not self._stop.wait(self.pace.every):
            try:
                self.push()
                failing_since = None
            except LockLostError as error:
                return self.fail(error)
            except Exception as error:
                now = time.monotonic()
                if failing_since is None:
                    failing_since = now
                    warnings.warn(f"{self.store.url}: {why(error)}; trying again", stacklevel=1)
                if now - failing_since > self.pace.patience:
                    return self.fail(error)
        return None


def _generation(manifest: bytes) -> Any:
    """What tells one run in a folder from another that replaces it."""
    try:
        content = json.loads(manifest)
    except ValueError:
        return None
    return content.get("hash") if isinstance(content, dict) else None


def _folder(name: str) -> str:
    return name.rpartition("/")[0] + "/"


def _last(name: str) -> str:
    return name.rpartition("/")[2]
