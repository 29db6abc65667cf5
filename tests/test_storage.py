"""Paths in object storage: errors of one line, and names that lead out of a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rmcalib._util import storage
from rmcalib._util.files import write_json, write_text
from rmcalib._util.storage import StorageError, as_path, find_files, is_remote, read_file
from rmcalib.runs._lock import read_manifest
from rmcalib.scores import load_scores


def test_local_paths(tmp_path: Path) -> None:
    assert as_path(tmp_path) is tmp_path
    assert as_path(f"file://{tmp_path}") == as_path(str(tmp_path)) == tmp_path
    assert not is_remote(f"local://{tmp_path}")
    assert is_remote("simplecache::s3://bucket/runs")


def test_files_are_written_and_found() -> None:
    folder = as_path("memory://found/")
    assert find_files(folder, "*.json") == []
    write_json(folder / "a" / "run.json", {"status": "scoring"})
    write_text(folder / "b" / "run.json", "{}")
    write_text(folder / "b" / "other.txt", "x")
    found = find_files(folder, "run.json")
    assert [str(path) for path in found] == ["memory://found/a/run.json", "memory://found/b/run.json"]
    assert read_manifest(found[0]) == {"status": "scoring"}
    assert read_manifest(folder / "c" / "run.json") is None
    assert read_manifest(folder / "a") is None
    with pytest.raises(FileNotFoundError):
        read_file(folder / "a")


def test_names_that_lead_out_of_the_folder_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["/evil/../../x/run.json", "/evil/good/run.json", "/evil2/run.json"]
    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "find", lambda *_, **__: names)
    assert [str(path) for path in find_files(as_path("memory://evil"), "run.json")] == [
        "memory://evil/good/run.json"
    ]


def test_an_unknown_kind_of_storage_is_refused() -> None:
    with pytest.raises(StorageError, match="unknown kind of storage 'nowhere'") as error:
        as_path("nowhere://x")
    assert "\n" not in str(error.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(StorageError, match=r"gs://bucket/runs: .* is not installed \(pip install gcsfs\)"):
        as_path("gs://bucket/runs")


def test_failures_of_the_store_are_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: Any, **__: Any) -> None:
        raise PermissionError("the store\nis closed")

    folder = as_path("memory://closed")
    for name in ("pipe_file", "cat_file", "find"):
        monkeypatch.setattr(fsspec.get_filesystem_class("memory"), name, closed)
    with pytest.raises(
        StorageError, match=r"^memory://closed/a\.json: cannot be written: the store is closed$"
    ):
        write_json(folder / "a.json", {})
    for read in (read_file, read_manifest, load_scores):
        with pytest.raises(StorageError, match=r"scores\.parquet: cannot be read: the store is closed"):
            read(folder / "scores.parquet")
    with pytest.raises(StorageError, match="memory://closed: cannot be read: the store is closed"):
        find_files(folder, "*")


def test_folders_are_created_if_the_file_system_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_WITHOUT_FOLDERS", frozenset())
    made: list[str] = []
    kind = fsspec.get_filesystem_class("memory")
    monkeypatch.setattr(kind, "makedirs", lambda _, path, **__: made.append(path))
    write_text(as_path("memory://folders/a/b.txt"), "x")
    assert made == ["/folders/a"]
