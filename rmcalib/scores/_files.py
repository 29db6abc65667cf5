"""Read and write files of scores: Parquet, JSONL, JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.files import write_file, write_text
from rmcalib._util.storage import as_path, read_file
from rmcalib._util.texts import LONGEST_ID, json_lines, parse_json
from rmcalib.scores._columns import NEEDED, OTHER_KINDS, is_known
from rmcalib.scores._rewardmath import SCORE_COLUMNS, VERDICT_COLUMNS

__all__ = [
    "read_json",
    "read_jsonl",
    "read_parquet",
    "read_scores_hash",
    "read_tidy",
    "write_json",
    "write_jsonl",
    "write_parquet",
]

Columns = Mapping[str, npt.NDArray[Any]]
_METADATA = b"rmcalib.manifest"
_CHUNK = 100_000  # rows that are Python objects at the same time


def read_parquet(path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the columns of scores and the manifest; all columns if a required one is missing."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(io.BytesIO(read_file(as_path(path)))) as file:
            names = file.schema_arrow.names
            table = file.read([name for name in names if is_known(name) or name in OTHER_KINDS])
            stored = (file.schema_arrow.metadata or {}).get(_METADATA, b"{}")
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: {_why(error)}") from error
    columns = {name: _array(table.column(name)) for name in table.column_names}
    absent = {*NEEDED} - {*columns}
    replaced = absent == {"reward"} and {*OTHER_KINDS, "beats"} & {*columns}
    if absent and not replaced:  # the error lists the others, which may show a misspelling
        columns |= {name: np.empty(0) for name in names if name not in columns}
    return columns, _manifest(stored, path)


def _manifest(stored: bytes, path: str | Path) -> dict[str, Any]:
    """Return the manifest that a Parquet file carries."""
    try:
        manifest = json.loads(stored)
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict):
        raise ValueError(f"{path}: its metadata {_METADATA.decode()!r} is not a JSON object; write it again")
    return manifest


def read_tidy(path: str | Path) -> dict[str, list[Any]] | None:
    """Return the columns of RewardMATH's tidy table of many models; None if the file is not one."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(io.BytesIO(read_file(as_path(path)))) as file:
            names = {*file.schema_arrow.names}
            for wanted in (SCORE_COLUMNS, VERDICT_COLUMNS):
                if {*wanted} <= names:
                    found: dict[str, list[Any]] = file.read(list(wanted)).to_pydict()
                    return found
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: {_why(error)}") from error
    return None


def write_parquet(path: str | Path, columns: Columns, manifest: Mapping[str, Any]) -> None:
    """Write columns and the manifest to a Parquet file."""

    def write(file: IO[bytes]) -> None:
        import pyarrow
        import pyarrow.parquet

        # As objects: pyarrow would read numpy's fixed-width texts as bytes.
        arrays = {
            name: pyarrow.array(array.astype(object) if array.dtype.kind == "U" else array)
            for name, array in columns.items()
        }
        metadata = {_METADATA: json.dumps(dict(manifest)).encode()}
        pyarrow.parquet.write_table(pyarrow.table(arrays).replace_schema_metadata(metadata), file)

    write_file(path, write)


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


def read_scores_hash(path: str | Path) -> str | None:
    """Return the hash of the run that made a file of scores, without reading the scores.

    Parameters
    ----------
    path : str | Path
        Path or URL of a Parquet file.

    Returns
    -------
    str or None
        None if the file cannot be read or has no hash.

    Examples
    --------
    >>> read_scores_hash("missing.parquet") is None
    True
    """
    import pyarrow.parquet as pq

    try:
        with as_path(path).open("rb") as file:
            stored = (pq.read_schema(file).metadata or {}).get(_METADATA, b"{}")
        found = json.loads(stored).get("hash")
    except (OSError, ValueError, AttributeError):  # reading the scores reports the error
        return None
    return found if isinstance(found, str) else None


def _array(column: Any) -> npt.NDArray[Any]:
    """Return a column as an array. Texts are converted by their distinct values, which are few."""
    import pyarrow

    is_text = pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)
    if not is_text or column.null_count or not len(column):
        array: npt.NDArray[Any] = column.to_numpy()
        return array
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pyarrow.ChunkedArray):
        encoded = encoded.chunk(0)
    texts = encoded.dictionary.to_pylist()
    # numpy's fixed-width texts would drop a NUL, and take the memory of the longest for every row.
    if any("\0" in text or len(text) > LONGEST_ID for text in texts):
        return np.array(column.to_pylist(), dtype=object)
    return np.array(texts, dtype=np.str_)[encoded.indices.to_numpy()]


def _read(path: str | Path) -> bytes:
    try:
        return read_file(as_path(path))
    except OSError as error:
        raise ValueError(f"{path}: {_why(error)}") from error


def _why(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return text.splitlines()[0] if text else type(error).__name__
