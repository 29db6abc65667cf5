"""Paths of files on this machine or in object storage.

A local path is a `pathlib.Path`. A URL such as `s3://bucket/runs` is a `upath.UPath`, which has the same
methods. An object is written in one request: readers see all of it or nothing.

Requests to object storage and to the Hub have a deadline (`within`): their libraries limit the time between
two bytes only, and a server that sends one byte per second would be waited for without end.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar, cast

from rmcalib._util.secrets import masked
from rmcalib._util.texts import nearest

T = TypeVar("T")

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+::)*[A-Za-z][A-Za-z0-9+.-]+://")
_KEY_IN_BUCKET = re.compile(r"(?:^|::)(?:s3a?|gs|gcs)://(?:[^/]*@|[^/]*:[^@]*@)")
_LOCAL = "file://"
_LARGEST = 8 * 2**30
LONGEST_PAUSE = 60.0
"""Most seconds between two attempts, whatever a server asks for."""
_PATIENCE = 300.0
_NAME = "rmcalib-request"  # of threads
_LOOK = 1.0  # seconds between two looks at the progress


class StorageError(ValueError):
    """An error of object storage. The message is one line, without keys that a URL may contain."""

    def __init__(self, message: str) -> None:
        """Mask keys."""
        super().__init__(masked(message))


def is_remote(place: str | Path) -> bool:
    """Return whether a path is in object storage, not on this machine.

    >>> [is_remote(place) for place in ("s3://bucket/runs", "runs", "file:///tmp/runs", "C:/runs")]
    [True, False, False, False]
    """
    text = str(place)
    return bool(_URL.match(text)) and not text.startswith(_LOCAL)


def as_path(place: str | Path) -> Path:
    """Return the path of a folder or file. For a URL, it is a `UPath`, which is used like a `Path`.

    >>> as_path("file:///tmp/runs").as_posix(), str(as_path("memory://runs") / "run.json")
    ('/tmp/runs', 'memory://runs/run.json')
    """
    if not isinstance(place, str):
        return place
    if not is_remote(place):
        return Path(place.removeprefix(_LOCAL))
    from upath import UPath

    if _KEY_IN_BUCKET.search(place):
        raise StorageError(
            f"{place}: keys in such a URL are not used: set AWS_ACCESS_KEY_ID or its like instead"
        )
    try:
        path = UPath(place.rstrip("/"))
        path.fs.invalidate_cache()  # imports the package for this kind of storage
    except Exception as error:  # fsspec names the kind that it does not know, or the package to install
        raise StorageError(f"{place}: {why(error)}") from None
    return cast("Path", path)


def shown(path: str | Path) -> str:
    """Return a path for messages to users: absolute, or a URL without keys.

    >>> shown("s3://key:secret@bucket/runs"), shown(".") == str(Path.cwd())
    ('s3://***@bucket/runs', True)
    """
    return masked(str(path)) if is_remote(path) else str(Path(path).resolve())


def find_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files below `folder` whose names match `pattern`, sorted. Caches are not used.

    >>> find_files(Path("nowhere"), "*.json")
    []
    """
    if not is_remote(folder):
        return sorted(path for path in folder.rglob(pattern) if path.is_file())
    import fnmatch

    remote: Any = folder
    try:
        remote.fs.invalidate_cache()
        names = within(lambda: remote.fs.find(remote.path))
    except FileNotFoundError:
        return []
    except Exception as error:
        raise _failure(folder, "read", error) from error
    top = remote.path.rstrip("/") + "/"
    inside = sorted(name.removeprefix(top) for name in map(str, names) if name.startswith(top))
    # A name with ".." could lead out of the folder.
    return [
        folder / name
        for name in inside
        if ".." not in name.split("/") and fnmatch.fnmatchcase(name.rpartition("/")[2], pattern)
    ]


def read_file(path: Path) -> bytes:
    """Return the content of a file. Like `Path.read_bytes`, it may raise `FileNotFoundError`.

    A local file must be a regular one, of at most 8 GB: a FIFO or a device may never end.

    >>> read_file(Path(__file__))[:3]
    b'\"\"\"'
    """
    if not is_remote(path):
        about = path.stat()
        if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
            raise ValueError(f"{path}: not a regular file; save it as one")
        if about.st_size > _LARGEST:
            raise ValueError(f"{path}: {about.st_size:,} bytes; files of at most {_LARGEST:,} are read")
        return path.read_bytes()
    remote: Any = path
    try:
        return bytes(within(lambda: remote.fs.cat_file(remote.path)))
    except (FileNotFoundError, IsADirectoryError):
        raise FileNotFoundError(2, "No such file or directory", str(path)) from None
    except Exception as error:
        raise _failure(path, "read", error) from error


class MissingFileError(ValueError, FileNotFoundError):
    """A file that a user has named is not there."""


def read_input(path: str | Path) -> bytes:
    """Return the content of a file that a user has named; a ValueError says why it cannot be read.

    >>> read_input("nowhere.csv")
    Traceback (most recent call last):
    rmcalib._util.storage.MissingFileError: nowhere.csv: No such file or directory
    """
    try:
        return read_file(as_path(path))
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise MissingFileError(f"{path}: {error.strerror or why(error)}{similar_file(path)}") from error
        raise ValueError(f"{path}: {error.strerror or why(error)}") from error


def similar_file(path: str | Path) -> str:
    """Return a hint at the file or folder beside a missing one that its name resembles; empty if there is none."""
    if is_remote(path):
        return ""
    try:
        # A link to nowhere is there, and is not its own remedy.
        beside = {entry.name: entry for entry in Path(path).parent.iterdir() if entry.exists()}
    except (OSError, ValueError):
        return ""
    near = nearest(Path(path).name, beside, cutoff=0.75)
    return f" (did you mean '{beside[near[0]]}'?)" if near else ""


def write_object(path: Path, content: bytes) -> None:
    """Write a file to object storage in one request.

    >>> write_object(as_path("memory://doctest/a.txt"), b"hello")
    >>> read_file(as_path("memory://doctest/a.txt"))
    b'hello'
    """
    remote: Any = path
    try:
        within(lambda: remote.fs.pipe_file(remote.path, content))
    except Exception as error:
        raise _failure(path, "written", error) from error


def remove_file(path: Path) -> None:
    """Delete a file if it is there.

    >>> remove_file(as_path("memory://doctest/none.txt"))
    """
    remote: Any = path
    try:
        if is_remote(path):
            within(lambda: remote.fs.rm_file(remote.path))
        else:
            path.unlink()
    except FileNotFoundError:
        return
    except Exception as error:
        raise _failure(path, "deleted", error) from error


def _failure(path: Path, done: str, error: Exception) -> StorageError:
    return StorageError(f"{path}: cannot be {done}: {why(error)}")


def why(error: BaseException) -> str:
    """Return the cause of an error in one short line.

    >>> why(PermissionError("Access Denied")), why(KeyError("x"))
    ('Access Denied', "KeyError: 'x'")
    """
    line = masked(" ".join(str(error).split()))[:300]
    return line if line and isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: {line}"


# Deadlines


def patience() -> float:
    """Return the seconds for a request, or without any progress of a download: `RMCALIB_TIMEOUT`, or 300."""
    given = os.environ.get("RMCALIB_TIMEOUT", "")
    try:
        seconds = float(given or _PATIENCE)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"RMCALIB_TIMEOUT: {given!r} is not a number of seconds")
    return seconds


def started(call: Callable[[], T], name: str | None = None) -> Future[T]:
    """Start a call in a thread that does not keep the process alive."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name=name).start()
    return future


def within(
    call: Callable[[], T], seconds: float | None = None, progress: Callable[[], object] = lambda: None
) -> T:
    """Return what `call()` returns; raise a `TimeoutError` if it takes longer than `seconds` (`patience`).

    The time starts again whenever `progress()` has another value. A call that is late goes on in a thread
    that does not keep the process alive.

    >>> within(lambda: 1 + 1)
    2
    >>> within(lambda: time.sleep(9), seconds=0.01)
    Traceback (most recent call last):
    TimeoutError: no complete answer within 0.01 seconds (RMCALIB_TIMEOUT sets another limit)
    """
    limit = patience() if seconds is None else min(seconds, patience())
    future = started(call, _NAME)
    state, since = progress(), time.monotonic()
    while not wait([future], min(limit, _LOOK)).done:
        before, state = state, progress()
        if state != before:
            since = time.monotonic()
        elif time.monotonic() - since >= limit:
            raise TimeoutError(
                f"no complete answer within {limit:g} seconds (RMCALIB_TIMEOUT sets another limit)"
            )
    return future.result()


def is_late() -> bool:
    """Return whether a request that was given up still runs. The end of the process must not wait for it."""
    return any(thread.name == _NAME for thread in threading.enumerate())


def retried(
    ask: Callable[[], T],
    pauses: Iterable[float],
    is_temporary: Callable[[Exception], bool],
    *,
    asked: Callable[[Exception], float | None],
    say: Callable[[Exception, float | None, float], str],
) -> T:
    """Return what `ask()` returns; ask again after each pause if it fails and that may be temporary.

    A server may ask for a longer pause (`asked`) and gets it, within limits. `say` returns a warning about an
    error, the seconds that the server asked for, and those of the pause; none if it is empty.

    >>> answers = iter([0, 2])
    >>> retried(lambda: 1 / next(answers), [0.01], lambda _: True, asked=lambda _: None, say=lambda *_: "")
    0.5
    """
    for pause in pauses:
        try:
            return ask()
        except Exception as error:
            if not is_temporary(error):
                raise
            wanted = asked(error)
            seconds = pause if wanted is None else min(max(wanted, pause), LONGEST_PAUSE)
            note = say(error, wanted, seconds)
        if note:
            warnings.warn(note, stacklevel=3)
        time.sleep(seconds)
    return ask()


def retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header: a number, or a date.

    >>> retry_after("120"), retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), retry_after("soon")
    (120.0, 0.0, None)
    """
    if value is None:
        return None
    from email.utils import parsedate_to_datetime

    try:
        date = None if value.strip().isdecimal() else parsedate_to_datetime(value).timestamp()
        return float(value) if date is None else max(0.0, date - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
