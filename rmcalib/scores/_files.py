"""Read and write files of scores: Parquet, JSONL, JSON."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.files import write_file, write_text
from rmcalib._util.storage import as_path, read_file
from rmcalib._util.texts import json_lines, parse_json
from rmcalib.scores._columns import NEEDED, OTHER_KINDS, is_known
from rmcalib.scores._rewardmath import SCORE_COLUMNS, VERDICT_COLUMNS

__all__ = [
    "read_json",
    "read_jsonl",
    "read_parquet",
    "read_tidy",
    "write_json",
    "write_jsonl",
    "write_parquet",
]

Columns = Mapping[str, npt.NDArray[Any]]
_METADATA = b"rmcalib.manifest"
_DIGEST = "scores_sha256"  # in the manifest: a digest of the columns and of the rest of the manifest
_CHUNK = 100_000  # rows that are Python objects at the same time


def read_parquet(path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the columns of scores and the manifest; all columns if a required one is missing.

    A file that we wrote carries a digest of its content. If the content has changed, the file is refused.
    """
    import pyarrow
    import pyarrow.parquet

    content = _read(path)
    try:
        with pyarrow.parquet.ParquetFile(io.BytesIO(content), page_checksum_verification=True) as file:
            names = file.schema_arrow.names
            table = file.read([name for name in names if is_known(name) or name in OTHER_KINDS])
            metadata = file.schema_arrow.metadata or {}
        manifest = _manifest(metadata)
        if manifest and manifest.get(_DIGEST) != _digest(table, manifest):
            raise ValueError("its content does not match its digest")
        columns = {name: _array(table.column(name)) for name in table.column_names}
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as error:
        raise ValueError(f"{path}: damaged, or not a Parquet file of scores: {_why(error)}") from error
    absent = {*NEEDED} - {*columns}
    replaced = absent == {"reward"} and {*OTHER_KINDS, "beats"} & {*columns}
    if absent and not replaced:  # the error lists the others, which may show a misspelling
        columns |= {name: np.empty(0) for name in names if name not in columns}
    return columns, manifest


def _manifest(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the manifest that a Parquet file carries; empty if other software wrote the file."""
    if _METADATA not in metadata:
        # One changed bit must not turn a file of ours into somebody else's.
        if any(key.startswith(b"rmcalib") or key.endswith(b".manifest") for key in metadata):
            raise ValueError("its metadata are damaged")
        return {}
    manifest = json.loads(metadata[_METADATA])
    if not isinstance(manifest, dict):
        raise ValueError(f"its metadata {_METADATA.decode()!r} is not a JSON object")
    return manifest


def _digest(table: Any, manifest: Mapping[str, Any]) -> str:
    """Return a SHA-256 of all columns and of the manifest without its own digest."""
    about = {key: value for key, value in manifest.items() if key != _DIGEST}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(table.column_names):
        digest.update(f"\n{name}\n".encode())
        column = table.column(name)
        if _is_text(column):
            texts, numbers = _distinct(column)
            digest.update(json.dumps(texts).encode())
            digest.update(numbers.astype("<i8").tobytes())
        elif column.type.num_fields or column.null_count:
            digest.update(json.dumps(column.to_pylist()).encode())
        else:
            digest.update(column.to_numpy().tobytes())
    return digest.hexdigest()


def read_tidy(path: str | Path) -> dict[str, list[Any]] | None:
    """Return the columns of RewardMATH's tidy table of many models; None if the file is not one."""
    import pyarrow
    import pyarrow.parquet

    content = _read(path)
    try:
        with pyarrow.parquet.ParquetFile(io.BytesIO(content)) as file:
            names = {*file.schema_arrow.names}
            for wanted in (SCORE_COLUMNS, VERDICT_COLUMNS):
                if {*wanted} <= names:
                    found: dict[str, list[Any]] = file.read(list(wanted)).to_pydict()
                    return found
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as error:
        raise ValueError(f"{path}: damaged, or not a Parquet file: {_why(error)}") from error
    return None


def write_parquet(path: str | Path, columns: Columns, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Write columns and the manifest to a Parquet file; return the manifest with its digest."""
    import pyarrow
    import pyarrow.parquet

    # As objects: pyarrow would read numpy's fixed-width texts as bytes.
    table = pyarrow.table(
        {
            name: pyarrow.array(array.astype(object) if array.dtype.kind == "U" else array)
            for name, array in columns.items()
        }
    )
    signed = {**manifest, _DIGEST: _digest(table, manifest)}
    table = table.replace_schema_metadata({_METADATA: json.dumps(signed).encode()})
    write_file(path, lambda file: pyarrow.parquet.write_table(table, file, write_page_checksum=True))
    return signed


def read_jsonl(path: str | Path, places: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSONL file, and add the place of each to `places`."""
    for where, row in json_lines(_read(path), str(path)):
        if not isinstance(row, dict):
            raise ValueError(f"{path}, {where}: expected an object {{...}} with {', '.join(NEEDED)}")
        places.append(where)
        yield row


def write_jsonl(path: str | Path, columns: Columns) -> None:
    """Write columns as one JSON object per row."""

    def write(file: IO[bytes]) -> None:
        n = len(next(iter(columns.values())))
        for start in range(0, n, _CHUNK):
            parts = [array[start : start + _CHUNK].tolist() for array in columns.values()]
            # JSON has no NaN: unknown details are left out.
            rows = (
                {name: value for name, value in zip(columns, row, strict=True) if value == value}
                for row in zip(*parts, strict=True)
            )
            file.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())

    write_file(path, write)


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file."""
    return parse_json(_read(path), str(path))


def write_json(path: str | Path, content: Any) -> None:
    """Write JSON with one value per line."""
    write_text(path, json.dumps(content, indent=1))


def _array(column: Any) -> npt.NDArray[Any]:
    """Return a column as an array. Texts are converted by their distinct values, which are few."""
    if not _is_text(column):
        array: npt.NDArray[Any] = column.to_numpy()
        return array
    texts, numbers = _distinct(column)
    if any("\0" in text for text in texts):  # numpy's fixed-width texts would drop it
        return np.array(column.to_pylist(), dtype=object)
    return np.array(texts, dtype=np.str_)[numbers]


def _is_text(column: Any) -> bool:
    """Return whether a column has texts in all its rows, and at least one."""
    import pyarrow

    is_text = pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)
    return is_text and not column.null_count and len(column) > 0


def _distinct(column: Any) -> tuple[list[str], npt.NDArray[Any]]:
    """Return the distinct texts of a column in order of appearance, and the number of each row's text."""
    import pyarrow

    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pyarrow.ChunkedArray):
        encoded = encoded.chunk(0)
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _read(path: str | Path) -> bytes:
    try:
        return read_file(as_path(path))
    except OSError as error:
        raise ValueError(f"{path}: {_why(error)}") from error


def _why(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return text.splitlines()[0] if text else type(error).__name__
