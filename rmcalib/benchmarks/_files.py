"""Benchmark files: JSON, JSONL, Parquet, CSV, and folders of them, as rows."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rmcalib._util.files import read_csv_table
from rmcalib._util.texts import decoded, json_lines, parse_json
from rmcalib.benchmarks._rows import Row

__all__ = ["SUFFIXES", "read_rows"]


def read_rows(path: Path, *, folder: str | None = None) -> tuple[Iterator[Row], str]:
    """Return the rows of a file, or of all files in a folder, and the SHA-256 of the content.

    If the path contains a subfolder named `folder`, only the files below it are read.
    """
    digest = hashlib.sha256()
    contents: list[tuple[Path, bytes]] = []
    for file in _files(path, folder):
        try:
            content = file.read_bytes()
        except OSError as error:
            raise ValueError(f"{file}: {error.strerror or error}") from error
        if path.is_dir():  # the hash depends on names and boundaries of files, too
            digest.update(f"{file.relative_to(path).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
        contents.append((file, content))
    rows = (
        Row(f"{file}, {where}", values)
        for file, content in contents
        for where, values in _READERS[file.suffix](file, content)
    )
    return rows, digest.hexdigest()


def _files(path: Path, folder: str | None) -> list[Path]:
    if not path.is_dir():
        if path.suffix not in _READERS:
            raise ValueError(f"{path}: unknown file type; a benchmark file ends in {', '.join(_READERS)}")
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in _READERS and file.is_file())
    below = [file for file in found if folder in file.relative_to(path.parent).parts[:-1]]
    if not found:
        raise ValueError(f"{path}: no benchmark file in this folder (its name ends in {', '.join(_READERS)})")
    return below or found


def _jsonl_rows(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for where, row in json_lines(content, str(path)):
        if not isinstance(row, dict):
            raise ValueError(f"{path}, {where}: expected an object {{...}}")
        yield where, row


def _json_rows(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = parse_json(content, str(path))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: expected a list of objects")
    return ((f"row {i}", row) for i, row in enumerate(rows))


def _parquet_rows(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content)) as file:
            for batch in file.iter_batches(1000):
                for row in batch.to_pylist():
                    yield f"row {number}", row
                    number += 1
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from error


def _csv_rows(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    decoded(content, str(path))
    limit = csv.field_size_limit(max(len(content), 1))  # responses may be longer than csv's limit
    try:
        table = read_csv_table(path)
    finally:
        csv.field_size_limit(limit)
    for line, cells in zip(table.lines, table.rows, strict=True):
        yield f"line {line}", dict(zip(table.header, cells, strict=True))


_READERS: dict[str, Callable[[Path, bytes], Iterator[tuple[str, Mapping[str, Any]]]]] = {
    ".jsonl": _jsonl_rows,
    ".json": _json_rows,
    ".parquet": _parquet_rows,
    ".csv": _csv_rows,
}
SUFFIXES = tuple(_READERS)
"""Endings of the names of benchmark files."""
