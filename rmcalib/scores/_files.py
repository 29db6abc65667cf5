"""Read tables from files (CSV, TSV, Parquet, JSONL, JSON, Excel), frames and records; write scores as Parquet."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import FloatArray
from rmcalib._util.extras import missing_extra
from rmcalib._util.files import TOO_LITTLE_MEMORY, opened_parquet, read_csv_table, read_object, write_file
from rmcalib._util.storage import as_path, read_input
from rmcalib._util.texts import LONGEST_ID, brief, json_lines, parse_json, repeated
from rmcalib.scores._schema import Columns, Place, as_number, objects, row_place, starts_of

ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl", ".json", ".xlsx")
_METADATA = b"rmcalib.manifest"
_DATASET, _SPLITS = "state.json", "dataset_dict.json"  # in folders of `save_to_disk`
_DIGEST = "scores_sha256"  # in the manifest: a digest of the columns and of the rest of the manifest
_Coded = tuple[list[str], npt.NDArray[Any]]
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")  # 007 and +1 are texts
_EXACT = 2**53  # larger whole numbers are not exact in float64
_EMPTY = {"", "NA", "N/A", "NaN", "nan", "null", "None"}  # cells of CSV files without a value


@dataclass(frozen=True)
class Table:
    """Columns as a source has them, with None for an empty value; only files of rmcalib have a manifest.

    All cells of a CSV file are texts (``typed`` is false): an id such as 007 stays what it is.
    """

    columns: Columns
    source: str
    place: Place = field(default=row_place)
    manifest: dict[str, Any] | None = None
    typed: bool = True

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def numbers(self, name: str) -> FloatArray:
        """Return a column as numbers (N,), NaN where a cell has none."""
        return np.array([as_number(value) for value in self.columns[name]], dtype=np.float64)

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
    if ending == ".xlsx":
        return _read_excel(path)
    table = read_csv_table(path, "," if ending == ".csv" else "\t")
    columns = {}
    for number, name in enumerate(table.header):
        cells = [None if row[number] in _EMPTY else row[number] for row in table.rows]
        columns[name] = objects(_with_points(cells) if table.delimiter == ";" else cells)
    return Table(columns, source, lambda row: f"line {table.lines[row]}", typed=False)


def _with_points(cells: list[str | None]) -> list[str | None]:
    """Return a column of numbers with decimal commas with points; anything else as it is."""
    texts = [cell.replace(",", ".", 1) for cell in cells if cell is not None]
    if not all(_NUMBER.fullmatch(text) for text in texts):
        return cells
    return [None if cell is None else cell.replace(",", ".", 1) for cell in cells]


def as_numbers(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return texts as numbers if all of them are numbers, NaN where empty; anything else as it is.

    >>> as_numbers(objects(["1.5", None])), as_numbers(objects(["7", "12"])), as_numbers(objects(["007"]))
    (array([1.5, nan]), array([ 7, 12]), array(['007'], dtype=object))
    """
    cells = values.tolist() if values.dtype.kind in "OU" else []
    texts = [cell for cell in cells if cell is not None]
    if not texts or not all(isinstance(text, str) and _NUMBER.fullmatch(text) for text in texts):
        return values
    whole = all(text.lstrip("-").isdecimal() for text in texts)
    if whole and len(texts) == len(cells) and max(abs(int(text)) for text in texts) < 2**63:
        return np.array([int(text) for text in texts], dtype=np.int64)
    if whole and max(abs(int(text)) for text in texts) > _EXACT:
        return values  # ids
    return np.array([np.nan if cell is None else float(cell) for cell in cells])


def is_frame(value: object) -> bool:
    """Return whether a value is a table: of pandas, Arrow, polars or `datasets`, or a list of records."""
    return hasattr(value, "columns") or hasattr(value, "column_names") or _are_records(value)


def _are_records(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(row, Mapping) for row in value)


def read_frame(frame: Any, source: str = "table") -> Table:
    """Return a pandas or Arrow table, a data set or a list of records as a `Table`."""
    if _are_records(frame):
        return Table(columns_of(frame), source, lambda row: f"entry {row}")
    if hasattr(frame, "with_format"):  # of `datasets`
        return read_arrow(_only_split(frame).with_format("arrow")[:], source)
    if hasattr(frame, "column_names"):
        return read_arrow(frame, source)
    if not hasattr(frame, "index") and hasattr(frame, "__arrow_c_stream__"):  # polars and others
        import pyarrow

        return read_arrow(pyarrow.table(frame), source)
    return _read_pandas(frame, source)


def read_arrow(table: Any, source: str) -> Table:
    """Return an Arrow table as a `Table`."""
    coded = _coded(table)
    return Table(
        {str(name): _array(table.column(name), coded.get(name)) for name in table.column_names}, source
    )


def _only_split(data: Any) -> Any:
    """Return a data set, or the only split of a `DatasetDict`."""
    if not isinstance(data, Mapping):
        return data
    if len(data) != 1:
        names = [*data]
        raise ValueError(
            f"table: {len(names)} splits ({', '.join(names)}), and one is needed: give data[{names[0]!r}]"
        )
    return next(iter(data.values()))


def _read_pandas(frame: Any, source: str) -> Table:
    """Return a pandas table. An index with a name, or of several levels, is columns."""
    if frame.index.nlevels > 1 or frame.index.name is not None:
        names = [name if name is not None else f"level_{i}" for i, name in enumerate(frame.index.names)]
        new = [name for name in names if name not in frame.columns]
        old = [name for name in names if name in frame.columns]
        frame = frame.rename_axis(index=names if len(names) > 1 else names[0])
        frame = frame.reset_index(level=old, drop=True) if old else frame
        frame = frame.reset_index() if new else frame
    columns = {}
    for name in frame.columns:
        array, missing = frame[name].to_numpy(), frame[name].isna().to_numpy()
        if array.dtype.kind not in "biuf" or (missing.any() and array.dtype.kind != "f"):
            # pandas has several kinds of empty values, and arrays as cells
            array = objects([cell.tolist() if isinstance(cell, np.ndarray) else cell for cell in array])
            array[missing] = None
        columns[str(name)] = array
    return Table(columns, source)


def _read_excel(path: str | Path) -> Table:
    """Read the only sheet with cells of an Excel file; its first row has the names of columns."""
    try:
        import openpyxl
    except ModuleNotFoundError as error:
        raise ValueError(f"{path}: {missing_extra(error)}") from None
    content = io.BytesIO(read_input(path))
    try:
        book = openpyxl.load_workbook(content, read_only=True, data_only=True)
        sheets = {sheet.title: [*sheet.iter_rows(values_only=True)] for sheet in book.worksheets}
    except Exception as error:  # openpyxl raises whatever a damaged archive or its XML leads to
        raise ValueError(f"{path}: damaged, or not an Excel file ({type(error).__name__})") from error
    full = {
        name: rows for name, rows in sheets.items() if any(cell is not None for row in rows for cell in row)
    }
    if len(full) != 1:
        have = f"{len(full)} sheets with cells ({', '.join(full)})" if full else "no cells"
        raise ValueError(f"{path}: {have}, and one sheet is needed")
    ((sheet, rows),) = full.items()
    header, *cells = rows
    names = {number: str(name) for number, name in enumerate(header) if name is not None}
    if (twice := repeated(names.values())) is not None:
        raise ValueError(f"{path}: sheet {sheet}: two columns are called {twice[:60]!r}")
    kept = [(n, row) for n, row in enumerate(cells, start=2) if any(cell is not None for cell in row)]
    columns = {
        name: objects([_excel_cell(row[number] if number < len(row) else None) for _, row in kept])
        for number, name in names.items()
    }
    return Table(columns, str(path), lambda row: f"row {kept[row][0]} of sheet {sheet}")


def _excel_cell(value: Any) -> Any:
    """Return a cell: numbers, truth values and texts as they are, dates as texts."""
    if isinstance(value, str):
        return None if value in _EMPTY else value
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def is_saved_dataset(folder: Path) -> bool:
    """Return whether a folder was written by `Dataset.save_to_disk`, or by that of a `DatasetDict`."""
    return any((folder / name).is_file() for name in (_DATASET, _SPLITS))


def read_saved_dataset(folder: Path) -> Table:
    """Read what `save_to_disk` wrote. The library `datasets` is not needed."""
    import pyarrow

    if (folder / _SPLITS).is_file():
        splits = read_object(folder / _SPLITS).get("splits") or []
        if len(splits) != 1:
            have = ", ".join(map(str, splits))
            raise ValueError(f"{folder}: {len(splits)} splits ({have}); name one of its folders")
        folder = folder / Path(str(splits[0])).name
    listed = read_object(folder / _DATASET).get("_data_files") or []
    names = [file.get("filename") if isinstance(file, dict) else None for file in listed]
    if not names or None in names:
        raise ValueError(f"{folder}: damaged: its {_DATASET} names no Arrow files")
    try:
        paths = [folder / Path(str(name)).name for name in names]  # nothing outside the folder is read
        tables = [pyarrow.ipc.open_stream(read_input(path)).read_all() for path in paths]
        for table in tables:
            table.validate(full=True)  # damaged offsets would crash the process
        return read_arrow(pyarrow.concat_tables(tables), str(folder))
    except MemoryError as error:
        raise MemoryError(f"{folder}: {TOO_LITTLE_MEMORY}") from error
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{folder}: damaged: {why}") from error


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
            coded = _coded(table)
            if manifest is not None and manifest.get(_DIGEST) != _digest(table, coded, manifest):
                raise ValueError("its content does not match its digest")
            columns = {name: _array(table.column(name), coded.get(name)) for name in table.column_names}
        del table, coded
        pyarrow.default_memory_pool().release_unused()  # it would keep a few times the size of the arrays
    except ValueError as error:
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


def _digest(table: Any, coded: Mapping[str, _Coded], manifest: Mapping[str, Any]) -> str:
    """Return a SHA-256 of all columns and of the manifest without its own digest."""
    about = {key: value for key, value in manifest.items() if key != _DIGEST}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(table.column_names):
        digest.update(f"\n{name}\n".encode())
        column = table.column(name)
        if name in coded:
            texts, numbers = coded[name]
            digest.update(json.dumps(texts).encode())
            digest.update(numbers.astype("<i8").tobytes())
        elif column.type.num_fields or column.null_count:
            digest.update(json.dumps(column.to_pylist()).encode())
        else:
            digest.update(_numbers(column).tobytes())
    return digest.hexdigest()


def write_parquet(path: str | Path, columns: Columns, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Write columns and the manifest to a Parquet file; return the manifest with its digest."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: _arrow(array) for name, array in columns.items()})
    signed = {**manifest, _DIGEST: _digest(table, _coded(table), manifest)}
    table = table.replace_schema_metadata({_METADATA: json.dumps(signed).encode()})
    write_file(path, lambda file: pyarrow.parquet.write_table(table, file, write_page_checksum=True))
    return signed


def _arrow(array: npt.NDArray[Any]) -> Any:
    """Return a column as Arrow has it. Texts are converted once for all neighbours that are equal."""
    import pyarrow

    if array.dtype.kind in "iuf":  # `pyarrow.array` would import pandas
        values = pyarrow.py_buffer(np.ascontiguousarray(array))
        return pyarrow.Array.from_buffers(pyarrow.from_numpy_dtype(array.dtype), len(array), [None, values])
    if array.dtype.kind == "b":
        return _arrow(array.view(np.uint8)).cast("bool")
    if array.dtype.kind != "U":
        return pyarrow.array(array)
    starts = starts_of(array)
    texts = [text.encode() for text in array[starts].tolist()]
    ends = np.cumsum([0, *map(len, texts)])
    buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(texts))]
    distinct = pyarrow.Array.from_buffers(pyarrow.large_string(), len(texts), buffers).cast(pyarrow.string())
    sizes = np.diff(starts, append=len(array))
    return distinct.take(_arrow(np.repeat(np.arange(len(starts)), sizes)))


def _array(column: Any, coded: _Coded | None) -> npt.NDArray[Any]:
    """Return a column of Arrow as an array. Texts are converted by their distinct values, which are few."""
    from pyarrow import types

    if coded is not None:
        texts, numbers = coded
        # numpy's fixed-width texts drop a final NUL, and are large if one is long
        if max(map(len, texts)) <= LONGEST_ID and "\0" not in "".join(texts):
            return np.array(texts, dtype=np.str_)[numbers]
    if types.is_primitive(column.type) and not column.null_count:
        return _numbers(column)
    if types.is_floating(column.type):
        array: npt.NDArray[Any] = column.to_numpy()
        return array
    return objects(column.to_pylist())


def _coded(table: Any) -> dict[str, _Coded]:
    """Return the distinct texts of columns of texts without empty values, and the number of each row's text."""
    import pyarrow
    from pyarrow import types

    coded = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        is_text = types.is_string(column.type) or types.is_large_string(column.type)
        if is_text and len(column) and not column.null_count:
            encoded = column.combine_chunks().dictionary_encode()
            if isinstance(encoded, pyarrow.ChunkedArray):
                encoded = encoded.chunk(0)
            coded[name] = encoded.dictionary.to_pylist(), _numbers(encoded.indices)
    return coded


def _numbers(column: Any) -> npt.NDArray[Any]:
    """Return an Arrow column without empty values as an array."""
    from pyarrow import types

    array = column.combine_chunks() if hasattr(column, "chunks") else column
    if types.is_boolean(array.type):
        return _numbers(array.cast("uint8")).astype(np.bool_)
    if types.is_integer(array.type) or types.is_floating(array.type):
        return np.from_dlpack(array)  # `to_numpy` would import pandas
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values
