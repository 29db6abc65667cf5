"""Read tables from files (CSV, TSV, Parquet, JSONL, JSON) and frames; write scores as Parquet and JSONL."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.files import opened_parquet, write_file
from rmcalib._util.storage import as_path, read_input
from rmcalib._util.texts import LONGEST_ID, decoded, json_lines, parse_json
from rmcalib.scores._schema import Columns, Place, row_place

ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl", ".json")
_METADATA = b"rmcalib.manifest"
_DIGEST = "scores_sha256"  # in the manifest: a digest of the columns and of the rest of the manifest
_CHUNK = 100_000  # rows that are Python objects at the same time


@dataclass(frozen=True)
class Table:
    """Columns as a source has them; the manifest is None unless rmcalib wrote the file."""

    columns: dict[str, Any]
    source: str
    place: Place = field(default=row_place)
    manifest: dict[str, Any] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values()), ()))


def read_table(path: str | Path, content: Any = None) -> Table:
    """Read a file as a table. `content` is that of a `.json` file which was already parsed."""
    source, ending = str(path), as_path(path).suffix.lower()
    if ending == ".parquet":
        columns, manifest = _read_parquet(path)
        return Table(columns, source, manifest=manifest)
    if ending in (".csv", ".tsv"):
        return _read_csv(path, "," if ending == ".csv" else "\t")
    if ending == ".jsonl":
        places: list[str] = []
        rows: list[Any] = []
        for where, row in json_lines(read_input(path), source):
            if not isinstance(row, dict):
                raise ValueError(f"{source}, {where}: expected an object {{...}}")
            places.append(where)
            rows.append(row)
        return Table(columns_of(rows), source, places.__getitem__)
    if ending == ".json":
        content = parse_json(read_input(path), source) if content is None else content
        return Table(_columns_of_json(content, source), source, lambda row: f"entry {row}")
    raise ValueError(
        f"{source or repr('')}: unknown file type; a file of scores ends in {', '.join(ENDINGS)}"
    )


def is_frame(value: object) -> bool:
    """Return whether a value is a pandas or Arrow table."""
    return hasattr(value, "columns") or hasattr(value, "column_names")


def read_frame(frame: Any, source: str = "table") -> Table:
    """Return a pandas or Arrow table (or a mapping of names to values) as a `Table`."""
    if hasattr(frame, "column_names"):  # of Arrow
        return Table({str(name): _array(frame.column(name)) for name in frame.column_names}, source)
    columns = {}
    for name in frame.columns if hasattr(frame, "columns") else frame:
        values = frame[name]
        missing = values.isna().to_numpy() if hasattr(values, "isna") else None
        array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values, dtype=object)
        if missing is not None and missing.any() and array.dtype.kind not in "f":
            array = array.astype(object)
            array[missing] = None  # pandas has several kinds of empty values
        columns[str(name)] = array
    return Table(columns, source)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn rows into columns, with None where a row has no value."""
    names = dict.fromkeys(name for row in rows for name in row)
    shared: dict[str, str] = {}  # ids are repeated for every response; one copy in memory is enough

    def value_of(row: Mapping[str, Any], name: str) -> Any:
        value = row.get(name)
        return shared.setdefault(value, value) if isinstance(value, str) else value

    return {str(name): [value_of(row, name) for row in rows] for name in names}


def _columns_of_json(content: Any, source: str) -> dict[str, Any]:
    """Read a list of objects, or an object of lists of one length (or pandas' objects by row)."""
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        return columns_of(content)
    if isinstance(content, dict):
        lists = {
            name: [*value.values()] if isinstance(value, dict) else value for name, value in content.items()
        }
        lists = {name: values for name, values in lists.items() if isinstance(values, list)}
        if lists and len({len(values) for values in lists.values()}) == 1:
            return lists
    raise ValueError(f"{source}: expected a list of objects, one per row, or an object of equally long lists")


def _read_csv(path: str | Path, delimiter: str) -> Table:
    """Read all cells as texts (an id such as 007 stays what it is); empty cells become None."""
    import pyarrow
    import pyarrow.csv as arrow_csv

    content = decoded(read_input(path), str(path)).encode()
    options = {
        "parse_options": arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        "read_options": arrow_csv.ReadOptions(use_threads=False, block_size=max(1 << 20, len(content) + 1)),
    }
    try:
        names = arrow_csv.open_csv(io.BytesIO(content), **options).schema.names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{path}: two columns are called {twice!r}: rename one")
        texts = arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pyarrow.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            null_values=["", "NA", "N/A", "NaN", "nan", "null", "None"],
        )
        table = arrow_csv.read_csv(io.BytesIO(content), convert_options=texts, **options)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: not CSV: {_why(error)}") from error
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    return Table(columns, str(path), lambda row: f"row {row + 1} after the header")


def read_parquet(path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the columns of a Parquet file and its manifest, which is empty if it has none."""
    columns, manifest = _read_parquet(path)
    return columns, manifest or {}


def _read_parquet(path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any] | None]:
    """Read a Parquet file. One that we wrote carries a digest of its content, and is refused if it changed."""
    import pyarrow

    content = read_input(path)
    try:
        with opened_parquet(content, str(path)) as file:
            table = file.read()
        manifest = _manifest(table.schema.metadata or {})
        if manifest is not None and manifest.get(_DIGEST) != _digest(table, manifest):
            raise ValueError("its content does not match its digest")
        columns = {name: _array(table.column(name)) for name in table.column_names}
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as error:
        raise ValueError(
            f"{path}: damaged, or not a Parquet file: {_why(error).removeprefix(f'{path}: ')}"
        ) from error
    return columns, manifest


def _manifest(metadata: Mapping[bytes, bytes]) -> dict[str, Any] | None:
    """Return the manifest that a Parquet file carries; None if other software wrote the file."""
    if _METADATA not in metadata:
        # One changed bit must not turn a file of ours into somebody else's.
        if any(key.startswith(b"rmcalib") or key.endswith(b".manifest") for key in metadata):
            raise ValueError("its metadata are damaged")
        return None
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
        if _is_text(column) and not column.null_count:
            texts, numbers = _distinct(column)
            digest.update(json.dumps(texts).encode())
            digest.update(numbers.astype("<i8").tobytes())
        elif column.type.num_fields or column.null_count:
            digest.update(json.dumps(column.to_pylist()).encode())
        else:
            digest.update(column.to_numpy().tobytes())
    return digest.hexdigest()


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


def _array(column: Any) -> npt.NDArray[Any]:
    """Return a column of Arrow as an array. Texts are converted by their distinct values, which are few."""
    import pyarrow

    if not _is_text(column):
        if column.null_count and not pyarrow.types.is_floating(column.type):
            return np.array([*column.to_pylist(), None], dtype=object)[:-1]
        array: npt.NDArray[Any] = column.to_numpy()
        return array
    if not column.null_count:
        texts, numbers = _distinct(column)
        if not any("\0" in text or len(text) > LONGEST_ID for text in texts):
            return np.array(texts, dtype=np.str_)[numbers]
    # numpy's fixed-width texts hold no None, drop a final NUL, and are large if one is long
    return np.array([*column.to_pylist(), None], dtype=object)[:-1]


def _is_text(column: Any) -> bool:
    import pyarrow

    return len(column) > 0 and (
        pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)
    )


def _distinct(column: Any) -> tuple[list[str], npt.NDArray[Any]]:
    """Return the distinct texts of a column in order of appearance, and the number of each row's text."""
    import pyarrow

    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pyarrow.ChunkedArray):
        encoded = encoded.chunk(0)
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _why(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return text.splitlines()[0] if text else type(error).__name__
