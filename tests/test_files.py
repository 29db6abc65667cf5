import json
import os
from pathlib import Path

import pytest

from rmcalib._util.files import write_bytes, write_csv, write_json, write_text


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.json"
    write_json(target, {"value": 1})

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(ValueError, match=r"a\.json: cannot be written: No space left on device"):
        write_json(target, {"value": 2})
    assert json.loads(target.read_text()) == {"value": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_files_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "a", b"")
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_nan_is_refused_in_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a.json", {"value": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to write"):
        write_csv(tmp_path / "a.csv", [])


def test_lone_surrogates_can_be_written(tmp_path: Path) -> None:
    odd = {"text \ud83d": ["π", '\udc00"\\']}
    assert json.loads(write_json(tmp_path / "a.json", odd).read_text(encoding="utf-8")) == odd
    path = write_csv(tmp_path / "a.csv", [{"model": "a\ud83d", "value": 1}])
    assert path.read_text(encoding="utf-8") == "model,value\na\ufffd,1\n"
    assert write_text(tmp_path / "a.txt", "\ud83d\ude00").read_text(encoding="utf-8") == "\ufffd\ufffd"


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file/a/b\.txt: cannot be written: Not a directory"):
        write_text(tmp_path / "file/a/b.txt", "x")
