"""A folder in a remote store, through fsspec: list, read, write and remove files by their relative names."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

__all__ = ["RemoteError", "Store", "is_remote", "local_path", "open_store"]

# What is written there is seen whole or not at all. Elsewhere files are written under another name and moved.
_OBJECT_STORES = frozenset(
    ("abfs", "abfss", "adl", "az", "gcs", "gs", "hf", "memory", "oci", "oss", "r2", "s3", "s3a")
)
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+::)*[A-Za-z][A-Za-z0-9+.-]+://")
_HALF_WRITTEN = re.compile(r"\..+\.[0-9a-f]{8}")  # the other name
_DEPTH = 8  # folders below the top that are looked into


class RemoteError(ValueError):
    """A remote place cannot be used; the message is one line with the remedy."""


def is_remote(place: str | Path) -> bool:
    """Tell whether a place is somewhere else than on this machine's disk.

    >>> is_remote("s3://bucket/runs"), is_remote("runs"), is_remote("file:///tmp/runs"), is_remote("C:/runs")
    (True, False, False, False)
    """
    return bool(_URL.match(str(place))) and not str(place).startswith(("file://", "local://"))


def local_path(place: str | Path) -> Path:
    """Return the path of a place on this machine's disk.

    >>> local_path("file:///tmp/runs").as_posix(), local_path("runs").as_posix()
    ('/tmp/runs', 'runs')
    """
    text = str(place)
    for prefix in ("file://", "local://"):
        text = text.removeprefix(prefix)
    return Path(text)


@dataclass(frozen=True)
class Store:
    """A folder of a file system; `names` are relative to it, with slashes.

    >>> import fsspec
    >>> store = Store("memory://doctest", fsspec.filesystem("memory"), "/doctest")
    >>> store.write("a/b.txt", b"hello")
    >>> store.names(), store.read("a/b.txt"), store.read("c.txt")
    (['a/b.txt'], b'hello', None)
    """

    url: str
    fs: Any
    root: str

    @property
    def atomic(self) -> bool:
        """Whether a file that is written is seen whole or not at all."""
        protocol = self.fs.protocol
        return not _OBJECT_STORES.isdisjoint((protocol,) if isinstance(protocol, str) else protocol)

    def names(self) -> list[str]:
        """List all files; hidden ones, and names that would lead out of a folder, are passed over."""
        return [name for name in self._all() if _is_plain(name)]

    def leftovers(self) -> list[str]:
        """List what a process that was killed has half written, where files are written and then moved."""
        if self.atomic:
            return []
        found = ((name, name.rpartition("/")) for name in self._all())
        return [
            name
            for name, (folder, _, last) in found
            if _HALF_WRITTEN.fullmatch(last) and (not folder or _is_plain(folder))
        ]

    def _all(self) -> list[str]:
        self.fs.invalidate_cache()
        try:
            found = self.fs.find(self.root, maxdepth=_DEPTH)
        except FileNotFoundError:
            return []
        top = f"{self.root.rstrip('/')}/"
        return sorted(str(path).removeprefix(top) for path in found if str(path).startswith(top))

    def is_file(self) -> bool:
        """Tell whether the place is a file, not a folder."""
        return bool(self.fs.isfile(self.root))

    def read(self, name: str = "") -> bytes | None:
        """Return a file's content; None if there is no such file."""
        self.fs.invalidate_cache()
        try:
            return bytes(self.fs.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file: whoever looks sees the old content or the new one."""
        path = self._path(name)
        if self.atomic:
            self._put(path, content)
            return
        folder, _, last = path.rpartition("/")
        hidden = f"{folder}/.{last}.{uuid.uuid4().hex[:8]}"
        self._put(hidden, content)
        try:
            self.fs.mv(hidden, path)
        except FileExistsError:  # some systems do not move onto a file
            self.remove(name)
            self.fs.mv(hidden, path)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        try:
            self.fs.rm_file(self._path(name))
        except FileNotFoundError:
            return

    def _put(self, path: str, content: bytes) -> None:
        try:
            self.fs.pipe_file(path, content)
        except FileNotFoundError:
            if self.atomic:
                raise  # no such bucket; it is not for us to make one
            self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self.fs.pipe_file(path, content)

    def _path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}" if name else self.root


def open_store(place: str) -> Store:
    """Open a place by its URL; settings and credentials are those of the fsspec package for it.

    >>> open_store("nowhere://x")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    rmcalib._util.remote.store.RemoteError: nowhere://x: no such kind of storage: ...
    """
    import fsspec
    from fsspec.registry import known_implementations

    kind = re.split(r":", place, maxsplit=1)[0]
    try:
        fs, root = fsspec.url_to_fs(place.rstrip("/"))
    except ImportError as error:
        package = str(known_implementations.get(kind, {}).get("class", "fsspec.")).partition(".")[0]
        told = f"pip install {package}" if package != "fsspec" else " ".join(str(error).split())
        raise RemoteError(f"{place}: a package for {kind}:// is not installed ({told})") from None
    except ValueError as error:
        if "rotocol not known" in str(error):
            raise RemoteError(f"{place}: no such kind of storage: {kind!r} (such as s3, gs, abfs)") from None
        raise RemoteError(f"{place}: {why(error)}") from None
    except Exception as error:
        raise RemoteError(f"{place}: {why(error)}") from None
    return Store(place, fs, str(root))


def why(error: BaseException) -> str:
    """Say in one short line what went wrong.

    >>> why(PermissionError("Access Denied")), why(KeyError("x"))
    ('Access Denied', "KeyError: 'x'")
    """
    line = " ".join(str(error).split())[:300]
    return line if line and isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: {line}"


def _is_plain(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and "\\" not in name and not any(part.startswith((".", "/")) for part in parts)
