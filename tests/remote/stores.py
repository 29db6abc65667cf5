"""Stores for tests: one in memory that fails on request, one on disk that other processes reach by URL."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from rmcalib._util.remote import Pace
from rmcalib._util.remote.store import Store

QUICK = Pace(every=0.05, log=0.0, beat=0.1, stale=0.6, settle=0.05, last_tries=(0.05, 0.05))
HASTY = replace(QUICK, patience=0.5)  # gives up on a store that has failed for half a second


class Flaky:
    """A file system that notes what is done to it, and fails when `fails(operation, path)` says so."""

    def __init__(self, fs: Any) -> None:
        self.fs, self.protocol = fs, fs.protocol
        self.done: list[tuple[str, str]] = []
        self.fails: Any = lambda *_: False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.fs, name)
        if name not in ("pipe_file", "rm_file", "cat_file"):
            return call

        def noted(path: str, *args: Any, **kwargs: Any) -> Any:
            if self.fails(name, path):
                raise OSError(f"no answer for {name}")
            found = call(path, *args, **kwargs)
            self.done.append((name, path))
            return found

        return noted


def memory_store(name: str) -> tuple[Store, Flaky]:
    fs = fsspec.filesystem("memory")
    if fs.exists(f"/{name}"):
        fs.rm(f"/{name}", recursive=True)
    flaky = Flaky(fs)
    return Store(f"memory://{name}", flaky, f"/{name}"), flaky


class DiskStore(LocalFileSystem):  # type: ignore[misc]
    """`disk://bucket/name`: a store that is in the folder `DISK_STORE`, and is no folder of this machine.

    As long as the folder has a file `refuses`, nothing can be written.
    """

    protocol = "disk"

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        text = str(path).removeprefix("disk://").rstrip("/")
        root = os.environ["DISK_STORE"]
        return text if text.startswith(root) else f"{root}/{text}"

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        if (Path(os.environ["DISK_STORE"]) / "refuses").exists():
            raise PermissionError("the store is closed")
        super().pipe_file(path, value, **kwargs)


def install_disk_store(folder: Path) -> Path:
    """Make a folder for PYTHONPATH by which fsspec finds `disk://`, as it finds any installed package."""
    info = folder / "diskstore-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: diskstore\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fsspec.specs]\ndisk = tests.remote.stores:DiskStore\n")
    return folder
