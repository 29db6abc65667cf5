"""Read tables from files (CSV, TSV, Parquet, JSONL, JSON) and frames; write scores as Parquet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.files import opened_parquet, read_csv_table, write_file
from rmcalib._util.storage import as_path, read_input
from rmcalib._util.texts import LONGEST_ID, brief, json_lines, parse_json
from rmcalib.scores._schema import Columns, Place, objects, row_place

ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl", ".json")
_METADATA = b"rmcalib.manifest"
_DIGEST = "scores_sha256"  # in the manifest: a digest of the columns and of the rest of the manifest
_EMPTY = {"", "NA", "N/A", "NaN", "nan", "null", "None"}  # cells of CSV files without a value


@dataclass(frozen=True)
class Table:
    """Columns as a source has them, with None for an empty value; only files of rmcalib have a manifest."""

    columns: Columns
    source: str
    place: Place = field(default=row_place)
    manifest: dict[str, Any] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def error(self, row: int, name: str, problem: str) -> ValueError:
        """Return an error about a value: its place, its column and what it is."""
        value = self.columns[name][row]
        return ValueError(f"{self.source}: {self.place(row)}: {name} is {brief(value)}: {problem}")


def read_table(path: str | Path, content: Any = None) -> Table:
    """Read a file as a table. `content` is that of a `.json` file which was already parsed."""
    source, ending = str(path), as_path(path).suffix.lower()
    if ending == ".parquet":
        columns, manifest = read_parquet(path)
        return Table(columns, source, manifest=manifest)
    if ending not in ENDINGS:
        raise ValueError(f"{source!r}: unknown file type; a file of scores ends in {', '.join(ENDINGS)}")
    if ending == ".json":
        content = parse_json(read_input(path), source) if content is None else content
        return Table(_columns_of_json(content, source), source, lambda row: f"entry {row}")
    if ending == ".jsonl":
        lines = [*json_lines(read_input(path), source)]
        return Table(columns_of([row for _, row in lines]), source, lambda row: lines[row][0])
    table = read_csv_table(path, "," if ending == ".csv" else "\t")
    columns = {}
    for number, name in enumerate(table.header):  # all cells are texts: an id such as 007 stays what it is
        cells = (row[number] for row in table.rows)
        columns[name] = objects(None if cell in _EMPTY else cell for cell in cells)
    return Table(columns, source, lambda row: f"line {table.lines[row]}")


def is_frame(value: object) -> bool:
    """Return whether a value is a pandas or Arrow table."""
    return hasattr(value, "columns") or hasattr(value, "column_names")


def read_frame(frame: Any, source: str = "table") -> Table:
    """Return a pandas or Arrow table as a `Table`."""
    if hasattr(frame, "column_names"):  # of Arrow
        return Table({str(name): _array(frame.column(name)) for name in frame.column_names}, source)
    columns = {}
    for name in frame.columns:
        array, missing = frame[name].to_numpy(), frame[name].isna().to_numpy()
        if array.dtype.kind not in "biuf" or (missing.any() and array.dtype.kind != "f"):
            # pandas has several kinds of empty values, and arrays as cells
            array = objects([one.tolist() if isinstance(one, np.ndarray) else one for one in array])
            array[missing] = None
        columns[str(name)] = array
    return Table(columns, source)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Turn rows into columns, with None where a row has no value."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {str(name): objects([row.get(name) for row in rows]) for name in names}


def _columns_of_json(content: Any, source: str) -> Columns:
    """Read a list of objects, or an object of lists of one length (or pandas' objects by row)."""
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        return columns_of(content)
    if isinstance(content, dict):
        columns = {
            name: objects(value.values() if isinstance(value, dict) else value)
            for name, value in content.items()
            if isinstance(value, (list, dict))
        }
        if columns and len({len(values) for values in columns.values()}) == 1:
            return columns
    raise ValueError(f"{source}: expected a list of objects, one per row, or an object of equally long lists")


def read_parquet(path: str | Path) -> tuple[Columns, dict[str, Any] | None]:
    """Return the columns of a Parquet file, and its manifest if it has one.

    A file that we wrote carries a digest of its content, and is refused if it changed.
    """
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
        why = (str(error) or type(error).__name__).splitlines()[0].removeprefix(f"{path}: ")
        raise ValueError(f"{path}: damaged, or not a Parquet file: {why}") from error
    return columns, manifest


def _manifest(metadata: Mapping[bytes, bytes]) -> dict[str, Any] | None:
    """Return the manifest that a Parquet file carries; None if other software wrote the file."""
    if _METADATA not in metadata:
        # One changed bit must not turn a file of ours into somebody else's.
        if any(key.startswith(b"rmcalib") or key.endswith(b".manifest") for key in metadata):
            raise ValueError("its metadata are damaged")
        return None
    manifest = parse_json(metadata[_METADATA], "its manifest")
    if not isinstance(manifest, dict):
        raise ValueError("its manifest is not a JSON object")
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
    from pyarrow import types

    if _is_text(column):
        texts, numbers = _distinct(column)
        # numpy's fixed-width texts drop a final NUL, and are large if one is long
        if not any("\0" in text or len(text) > LONGEST_ID for text in texts):
            return np.array(texts, dtype=np.str_)[numbers]
    if types.is_floating(column.type) or (types.is_primitive(column.type) and not column.null_count):
        array: npt.NDArray[Any] = column.to_numpy()
        return array
    return objects(column.to_pylist())


def _is_text(column: Any) -> bool:
    """Return whether a column has texts, and no empty value."""
    from pyarrow import types

    text = types.is_string(column.type) or types.is_large_string(column.type)
    return text and len(column) > 0 and not column.null_count


def _distinct(column: Any) -> tuple[list[str], npt.NDArray[Any]]:
    """Return the distinct texts of a column in order of appearance, and the number of each row's text."""
    import pyarrow

    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pyarrow.ChunkedArray):
        encoded = encoded.chunk(0)
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
