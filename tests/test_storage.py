"""Paths in object storage: errors of one line, and names that lead out of a folder."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

import fsspec
import pytest

from rmcalib._util.files import read_object, write_json, write_text
from rmcalib._util.storage import StorageError, as_path, find_files, read_file, remove_file
from rmcalib.scores import load_scores


def test_files_are_written_and_found(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = as_path("memory://found/")
    assert find_files(folder, "*.json") == []
    write_json(folder / "a" / "run.json", {"status": "running"})
    write_text(folder / "b" / "run.json", "{}")
    write_text(folder / "b" / "other.txt", "x")
    found = find_files(folder, "run.json")
    assert [str(path) for path in found] == ["memory://found/a/run.json", "memory://found/b/run.json"]
    assert read_object(found[0]) == {"status": "running"}
    with pytest.raises(FileNotFoundError):
        read_file(folder / "a")
    names = ["/found/../../x/run.json", "/found/good/run.json", "/found2/run.json"]  # two lead out of it
    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "find", lambda *_, **__: names)
    assert [str(path) for path in find_files(folder, "run.json")] == ["memory://found/good/run.json"]


def test_unknown_storage_and_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    for place, words in (("nowhere://x", "nowhere"), ("gs://bucket/runs", "gcsfs")):
        with pytest.raises(StorageError, match=words) as error:
            as_path(place)
        assert "\n" not in str(error.value)


def test_a_store_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends a byte from time to time keeps s3fs waiting."""
    monkeypatch.setenv("RMCALIB_TIMEOUT", "0.1")
    end = threading.Event()
    folder = as_path("memory://slow")
    for name in ("pipe_file", "cat_file", "find", "rm_file"):
        monkeypatch.setattr(fsspec.get_filesystem_class("memory"), name, lambda *_, **__: end.wait())
    for use in (read_file, remove_file, partial(write_json, content={}), partial(find_files, pattern="*")):
        with pytest.raises(StorageError, match=r"slow/a\.json: .*RMCALIB_TIMEOUT"):
            use(folder / "a.json")
    end.set()


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan", "inf"])
def test_a_wrong_limit_is_named(seconds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMCALIB_TIMEOUT", seconds)
    with pytest.raises(ValueError, match=f"RMCALIB_TIMEOUT: '{seconds}'"):
        read_file(as_path("memory://x/a.json"))


def test_failures_of_the_store_are_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: Any, **__: Any) -> None:
        raise PermissionError("the store\nis closed")

    folder = as_path("memory://closed")
    for name in ("pipe_file", "cat_file", "find", "rm_file"):
        monkeypatch.setattr(fsspec.get_filesystem_class("memory"), name, closed)
    file = folder / "scores.parquet"
    for use in (read_file, read_object, remove_file, load_scores, partial(write_json, content={})):
        with pytest.raises(StorageError, match=r"closed/scores\.parquet: .*the store is closed$"):
            use(file)
    with pytest.raises(StorageError, match=r"memory://closed: .*the store is closed"):
        find_files(folder, "*")
