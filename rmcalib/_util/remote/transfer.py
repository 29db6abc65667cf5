"""Copies of what a remote place has."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rmcalib._util.remote.store import RemoteError, Store, is_remote, local_path, open_store, why

__all__ = ["download", "each", "fetched", "named"]

_FINISHED = re.compile(r"(?:[^/]+/)*(?:run\.json|scores\.parquet)")
"""What a report is made from."""
_AT_ONCE = 8  # files on their way


@contextlib.contextmanager
def fetched(place: str | Path) -> Iterator[Path]:
    """Give a local path with what ``place`` has: itself, or a copy of a URL's finished runs, or of its file.

    >>> with fetched("runs") as path:
    ...     path.as_posix()
    'runs'
    """
    if not is_remote(place):
        yield local_path(place)
        return
    store = open_store(str(place))
    with tempfile.TemporaryDirectory(prefix="rmcalib-") as folder:
        try:
            found = _copy(store, Path(folder))
        except RemoteError:
            raise
        except Exception as error:
            raise RemoteError(f"{store.url}: cannot be read: {why(error)}") from error
        with named(Path(folder), store.url):
            yield found


@contextlib.contextmanager
def named(scratch: Path, url: str) -> Iterator[None]:
    """Put the URL into messages of errors that name the scratch folder, which means nothing to a reader."""
    try:
        yield
    except BaseException as error:
        error.args = tuple(
            arg.replace(str(scratch), url) if isinstance(arg, str) else arg for arg in error.args
        )
        raise


def download(store: Store, names: Iterable[str], scratch: Path) -> None:
    """Copy files into a folder."""

    def download(name: str) -> None:
        content = store.read(name)
        if content is not None:  # else it is gone meanwhile
            target = scratch / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    each(download, names, store)


def each(call: Callable[[str], None], names: Iterable[str], store: Store) -> None:
    """Call with every name, several at a time where the store is made for that."""
    names = sorted(names)
    if not store.atomic or len(names) < 2:
        for name in names:
            call(name)
        return
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        list(pool.map(call, names))


def _copy(store: Store, scratch: Path) -> Path:
    if store.is_file():
        last = re.sub(r"[^\w.-]+", "_", store.root.rpartition("/")[2]).lstrip(".")
        (scratch / (last or "file")).write_bytes(store.read() or b"")
        return scratch / (last or "file")
    names = [name for name in store.names() if _FINISHED.fullmatch(name)]
    if not names:
        raise RemoteError(
            f"{store.url}: no runs there (folders with scores.parquet, as `rmcalib eval` writes)"
        )
    download(store, names, scratch)
    return scratch
