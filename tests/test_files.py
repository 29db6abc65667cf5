import csv
import io
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pandas
import pyarrow
import pyarrow.parquet
import pytest

import rmcalib
from rmcalib._util.files import write_csv, write_json, write_text
from rmcalib._util.secrets import masked
from rmcalib._util.storage import StorageError, shown
from rmcalib.repair import Calibrator
from rmcalib.scores import load_scores
from tests.cli.conftest import Invoke
from tests.cli.conftest import invoke as invoke
from tests.report.boards import synthetic


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

    def read_only(_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(ValueError, match="No space left on device"):
        write_json(target, {"value": 2})


def test_nan_is_refused_in_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a.json", {"value": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_lone_surrogates_can_be_written(tmp_path: Path) -> None:
    odd = {"text \ud83d": ["π", '\udc00"\\']}
    assert json.loads(write_json(tmp_path / "a.json", odd).read_text(encoding="utf-8")) == odd
    path = write_csv(tmp_path / "a.csv", [{"model": "a\ud83d", "value": 1}])
    assert path.read_text(encoding="utf-8") == "model,value\na\ufffd,1\n"
    assert write_text(tmp_path / "a.txt", "\ud83d\ude00").read_text(encoding="utf-8") == "\ufffd\ufffd"


@pytest.fixture
def special(tmp_path: Path) -> dict[str, Path]:
    """Return a FIFO, a socket, and links to them."""
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    for name in ("fifo", "socket"):
        (tmp_path / f"link-to-{name}").symlink_to(tmp_path / name)
    return {path.name: path for path in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["fifo", "link-to-socket"])
def test_special_files_are_never_replaced(special: dict[str, Path], name: str, invoke: Invoke) -> None:
    path = special[name]
    before = path.lstat()
    with pytest.raises(ValueError, match=name):
        write_text(path, "x")
    synthetic(1, n=20).to_parquet("a.parquet")
    for line in (
        ("compare", "a.parquet", "a.parquet", "--resamples", "20", "--markdown", str(path)),
        ("compare", "a.parquet", "a.parquet", "--resamples", "20", "--output", str(path)),
        ("calibrate", "a.parquet", "--to", str(path)),
    ):
        result = invoke(*line)
        assert result.code == 2
        assert name in result.err
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)


# A file system of its own, seen by no other process, with a device node and a link like /dev/stdout.
IN_A_NAMESPACE = """
mount -t tmpfs tmpfs "$1" && mkdir "$1/dev" && mknod "$1/dev/null" c 1 3 || exit 77
ln -s null "$1/dev/link"
for name in null link; do
  "$2" -c "import sys, rmcalib._util.files as f; f.write_text(sys.argv[1], 'x')" "$1/dev/$name"
done
stat -c '%F' "$1/dev/null" "$1/dev/link"
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="mount namespaces exist on Linux only")
def test_devices_are_never_replaced(tmp_path: Path) -> None:
    script = ["unshare", "--mount", "sh", "-c", IN_A_NAMESPACE, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("device nodes need root and a mount namespace")
    assert done.stdout.split("\n")[:2] == ["character special file", "symbolic link"]
    assert done.stderr.count("\nValueError: ") == 2


def test_links_of_the_system_stay(tmp_path: Path) -> None:
    """/proc/self/fd/N leads to a regular file, but is no name for a new one."""
    with (tmp_path / "out.txt").open("w") as file, pytest.raises(ValueError, match="regular file"):
        write_text(f"/proc/self/fd/{file.fileno()}", "x")


def test_a_link_to_itself_is_replaced(tmp_path: Path, invoke: Invoke) -> None:
    synthetic(1, n=20).to_parquet("a.parquet")
    (tmp_path / "loop").symlink_to("loop")
    result = invoke(
        "compare", "a.parquet", "a.parquet", "--resamples", "20", "--markdown", str(tmp_path / "loop")
    )
    assert result.code == 0, result.err
    assert (tmp_path / "loop").is_file()


def test_a_link_to_a_file_is_replaced_and_the_file_stays(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    assert stat.S_ISREG(write_text(tmp_path / "link", "new").lstat().st_mode)
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_dash_is_standard_output(tmp_path: Path, invoke: Invoke) -> None:
    synthetic(1, n=20).to_parquet("a.parquet")
    pair = ("compare", "a.parquet", "a.parquet", "--resamples", "20")
    assert invoke(*pair, "--to", "-").out.startswith("category,metric,")
    assert invoke(*pair, "--markdown", "-").out.startswith("<!-- rmcalib -->")
    synthetic(1, n=200).to_parquet("b.parquet")
    assert json.loads(invoke("calibrate", "b.parquet", "--to", "-").out)["temperature"] > 0
    result = invoke(*pair, "--markdown", "-", "--json")
    assert result.code == 2
    assert "--markdown" in result.err
    assert not (tmp_path / "-").exists()


def test_texts_are_no_formulas_in_csv_files(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"model": "=1+1", "value": -1.5},
        {"model": "@org", "value": "-2"},
        {"model": "-x", "value": None},
    ]
    lines = write_csv(tmp_path / "a.csv", rows).read_text().splitlines()
    assert lines == ["model,value", "'=1+1,-1.5", "'@org,-2", "'-x,"]
    assert write_csv(tmp_path / "b.csv", pandas.DataFrame(rows)).read_text().splitlines() == lines


HOSTILE = (
    *("Math\r=1+cmd|calc!A0", "two\r\nlines", '"quoted", and\ttab', "a\n@x", "\r"),
    *("=1", "\uff1d1", "-3", "", " x "),
)


def cells(path: Path, delimiter: str = ",") -> list[list[str]]:
    """Return all rows; each must have as many cells as the header."""
    rows = list(
        csv.reader(io.StringIO(path.read_bytes().decode(), newline=""), delimiter=delimiter, strict=True)
    )
    assert {len(row) for row in rows} == {len(rows[0])}
    return rows


def test_cells_with_line_ends_are_read_back(tmp_path: Path) -> None:
    rows = [{"name": text, "value": i} for i, text in enumerate(HOSTILE)]
    read = [row[0] for row in cells(write_csv(tmp_path / "a.csv", rows))[1:]]
    assert [text.replace("'", "") for text in read] == list(HOSTILE)
    lines = [line for text in read for line in re.split("[\r\n]", text)]
    assert [line for line in lines if line.startswith(("=", "+", "-", "@", "\t", "\uff1d"))] == ["-3"]
    assert (
        write_csv(tmp_path / "b.csv", pandas.DataFrame(rows)).read_bytes()
        == (tmp_path / "a.csv").read_bytes()
    )


def test_every_csv_file_of_the_commands_is_read_back(tmp_path: Path, invoke: Invoke) -> None:
    """Categories are foreign text, and appear in most tables."""
    for name, number in (("a", 1), ("b", 2)):
        hostile = synthetic(
            number, n=60, categories=(HOSTILE[0], "two\r\nlines", "-x"), manifest={"model": name}
        )
        hostile.to_parquet(f"{name}.parquet")
    fast = ("--resamples", "20")
    for line in (
        ("eval", "--scores", "a.parquet", "-o", "out", *fast),
        ("compare", "a.parquet", "b.parquet", "--to", "compare.csv", *fast),
        ("report", "a.parquet", "b.parquet", "-o", "board", *fast),
        ("best-of-n", "a.parquet", "--to", "best.csv"),
    ):
        result = invoke(*line)
        assert result.code == 0, result.err
    tables = sorted(tmp_path.rglob("*.csv"))
    assert {"metrics.csv", "compare.csv", "leaderboard.csv", "best.csv"} <= {path.name for path in tables}
    texts = [text for path in tables for row in cells(path) for text in row]
    assert "Math\r'=1+cmd|calc!A0" in texts
    assert HOSTILE[0] not in texts


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_apply_returns_the_texts_of_its_rows_unchanged(tmp_path: Path, ending: str, delimiter: str) -> None:
    rows = [
        {"prompt": f"p{i}", "reward": float(j), "text": text}
        for i, text in enumerate(HOSTILE)
        for j in (0, 1)
    ]
    found = rmcalib.apply(pandas.DataFrame(rows), Calibrator(2.0, 1.8, 2.3))
    read = cells(found.save(tmp_path / f"out.{ending}"), delimiter)
    assert [row[read[0].index("text")] for row in read[1:]] == [row["text"] for row in rows]


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:secret@bucket/x",
        "s3://key:se/secret@bucket/x",
        "s3://key:a@secret@bucket",
        "s3://key:sec%2Fsecret+x'y@bucket/x",
        "s3://secret@bucket/x",
        "az://container/x?sv=1&sig=secret%3D",
        "https://host/x?secret",
        "simplecache::s3://key:secret@bucket/x",
    ],
)
def test_keys_in_urls_are_not_shown(url: str, invoke: Invoke) -> None:
    for text in (str(StorageError(f"{url}: cannot be read")), shown(url), masked(f"'{url}', twice: {url}")):
        assert "secret" not in text
    repeated = f'{url}: Invalid bucket name "{url.partition("://")[2]}"'  # as botocore says it
    assert "secret" not in str(StorageError(repeated))
    for line in (
        ("eval", "--scores", url),
        ("eval", "--scores", "a.parquet", "-o", url, "--resamples", "20"),
        ("report", url),
        ("batch", "--models", "m.yaml", "-o", url),
        ("apply", url, "--calibrator", url),
        ("serve", "--model", url),
        ("doctor", url),
        ("eval", "--scores", "a.parquet", url),
    ):
        result = invoke(*line)
        assert result.code == 2, result.err
        assert "secret" not in result.out + result.err, line


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_reader_that_has_gone_and_a_full_disk(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    synthetic(1, n=20).to_parquet("a.parquet")
    line = [sys.executable, "-m", "rmcalib", "compare", "a.parquet", "a.parquet", "--resamples", "20", *more]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        done = subprocess.run(line, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full exists on Linux only")
    with Path("/dev/full").open("wb", buffering=0) as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("rmcalib: error: standard output")
    assert done.stderr.count("\n") == 1


def test_a_healthy_parquet_file_is_not_called_damaged_when_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = synthetic(1, n=20)
    scores.to_parquet(tmp_path / "a.parquet")
    datasets.Dataset.from_pandas(scores.to_pandas()).save_to_disk(tmp_path / "saved")

    def short(*_: object) -> None:
        raise pyarrow.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "read", short)
    monkeypatch.setattr(pyarrow, "concat_tables", short)
    for name in ("a.parquet", "saved"):
        with pytest.raises(MemoryError, match=name):
            load_scores(tmp_path / name)
