"""Write files atomically, and read JSON and CSV.

On this machine, a file is written under a temporary name, flushed and renamed. In object storage, it is one
object, written in one request. A reader never sees an incomplete file.
"""

import contextlib
import csv
import errno
import hashlib
import io
import json
import os
import re
import stat
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Literal, NamedTuple

from rmcalib._util.display import count
from rmcalib._util.storage import StorageError, as_path, is_remote, read_file, read_input, write_object
from rmcalib._util.texts import LONE_SURROGATE, decoded, parse_json, repeated


def kind_on_disk(name: str | os.PathLike[str]) -> Literal["file", "folder"] | None:
    """Return whether a name is a file or a folder on this machine; None if it is neither.

    >>> kind_on_disk("."), kind_on_disk("x" * 400), kind_on_disk("")
    ('folder', None, None)
    """
    try:
        mode = Path(name).stat().st_mode if str(name) else 0
    except (OSError, ValueError):  # the name may be too long, or contain a NUL
        return None
    return "folder" if stat.S_ISDIR(mode) else "file" if mode else None


def check_output(path: Path) -> None:
    """Raise a ValueError unless ``path`` is a new name or a regular file, or a link to one.

    Renaming a file to ``/dev/null`` would replace the device for the whole machine, if root does it.
    """
    try:
        kind = path.stat().st_mode
    except (OSError, ValueError):  # nothing there, or a name that writing will refuse
        return
    # A link such as /dev/stdout must stay, even if it leads to a regular file.
    parts = path.parent.resolve().parts
    of_the_system = parts[1:2] in (("dev",), ("proc",), ("sys",)) and parts[2:3] != ("shm",)
    if of_the_system or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise ValueError(f"{path}: not a regular file; name another one ('-' is standard output)")


def write_file(path: str | Path, write: Callable[[IO[bytes]], object]) -> Path:
    """Let ``write(file)`` fill ``path`` atomically. The folder is created if necessary. Returns the path.

    ``-`` is standard output. A link to a file is replaced, not the file. The name of the temporary file
    begins with a dot and ends in ``.tmp``, so that files left by a killed process can be recognised.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_file(Path(folder) / "a" / "b.txt", lambda file: file.write(b"hello")).read_bytes()
    b'hello'
    """
    target = as_path(path)
    if str(target) == "-" or is_remote(target):
        buffer = io.BytesIO()
        write(buffer)
        if is_remote(target):
            write_object(target, buffer.getvalue())
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(buffer.getvalue())
            sys.stdout.buffer.flush()
        return target
    if not target.name:  # of "", "." or "/"
        raise ValueError(f"{target}: a folder; name a file")
    check_output(target)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):  # a read-only disk; the first error is the one to show
            temporary.unlink()
        if isinstance(error, OSError):
            raise ValueError(f"{target}: cannot be written: {error.strerror or error}") from error
        raise
    return target


def opened_to_append(path: Path) -> IO[bytes]:
    """Open a regular file to append to it, and create it if necessary; an OSError says why that is not possible.

    A link is not followed: it could lead out of the output folder.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # a FIFO without a reader would wait without end
        flags |= getattr(os, flag, 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise OSError(error.errno, _NO_LINK, str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "a+b")


_NO_LINK = "it is a link, which may lead out of the folder: remove it"


def check_no_link(path: Path) -> None:
    """Raise an OSError if a name is a link, for libraries that would follow it."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, _NO_LINK, str(path))


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a crash of the machine, where the file system can."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write ``content`` to ``path`` atomically.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_bytes(Path(folder) / "a.txt", b"hello").read_bytes()
    b'hello'
    """
    return write_file(path, lambda file: file.write(content))


def write_text(path: str | Path, text: str) -> Path:
    """Write ``text`` as UTF-8 atomically; lone surrogates, which UTF-8 cannot encode, become �.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_text(Path(folder) / "a.txt", "π\\ud800").read_text(encoding="utf-8")
    'π�'
    """
    return write_bytes(path, _encoded(text))


def _encoded(text: str) -> bytes:
    return LONE_SURROGATE.sub("\ufffd", text).encode()


def write_json(path: str | Path, content: Any) -> Path:
    """Write ``content`` as indented JSON atomically; NaN and infinity are refused.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     json.loads(write_json(Path(folder) / "a.json", {"ece": 0.1}).read_text())
    {'ece': 0.1}
    """
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    # Lone surrogates are only in strings, where their escape is valid JSON and is read back unchanged.
    return write_bytes(path, text.encode("utf-8", "backslashreplace"))


def plain(value: Any) -> Any:
    """Return what JSON can hold: NaN and infinity become None, and other objects their texts.

    >>> plain({"low": float("-inf"), "file": Path("a.csv"), "n": (1, 2)})
    {'low': None, 'file': 'a.csv', 'n': [1, 2]}
    """
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and value - value != 0:  # NaN or infinite
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


class CsvTable(NamedTuple):
    """The cells of a CSV file as text, and the number of the line on which each row begins (from 1)."""

    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    delimiter: str = ","


def read_csv_table(path: str | Path, delimiter: str = ",", content: bytes | None = None) -> CsvTable:
    """Read a CSV file with a header, or its `content`. All rows must have as many cells as the header.

    Blank lines and rows of empty cells are skipped. Cells are separated by semicolons or tabs if the header is, and has
    no comma: spreadsheets of many countries do so. A quoted cell may hold line breaks. No two columns may have the
    same name.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "a.csv"
    ...     _ = file.write_text('model,note\\na,"two\\nlines"\\n\\nb,one\\n')
    ...     read_csv_table(file)
    CsvTable(header=['model', 'note'], rows=[['a', 'two\\nlines'], ['b', 'one']], lines=[2, 5], delimiter=',')
    """
    text = decoded(read_input(path) if content is None else content, str(path))
    rows: list[list[str]] = []
    lines: list[int] = []
    line = 1
    limit = csv.field_size_limit(max(len(text), 1))  # responses may be longer than csv's limit
    first = text.lstrip().partition("\n")[0]
    if delimiter == "," and "," not in first:
        delimiter = next((other for other in ";\t" if other in first), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if any(cell and not cell.isspace() for cell in row) or (len(row) == 1 and row[0] == ""):
                rows.append(row)
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: not CSV ({error})") from error
    finally:
        csv.field_size_limit(limit)
    header = rows[0] if rows else []
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            cells = count(len(row), "cell")
            raise ValueError(f"{path}, line {line}: {cells}, but the header has {len(header)}")
    twice = repeated(name for name in header if name.strip())
    if twice is not None:
        raise ValueError(f"{path}, line {lines[0]}: {header.count(twice)} columns are called {twice[:60]!r}")
    return CsvTable(header, rows[1:], lines[1:], delimiter)


def json_hash(content: Any) -> str:
    """Return a SHA-256 of values that can be written as JSON, in any order of their keys.

    >>> json_hash({"a": 1, "b": 2}) == json_hash({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_object(path: str | Path) -> dict[str, Any]:
    """Read a JSON object; empty if there is no such file, or if it is not a JSON object.

    >>> read_object("nowhere.json")
    {}
    """
    try:
        content = parse_json(read_file(as_path(path)), str(path))
    except StorageError:
        raise
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def utc(seconds: float) -> str:
    """Return a time (seconds since 1970) in ISO 8601.

    >>> utc(0)
    '1970-01-01T00:00:00Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def write_csv(path: str | Path, rows: Any) -> Path:
    """Write rows (mappings with the same keys, or a pandas table) as CSV atomically; None becomes an empty cell.

    Lines of texts that a spreadsheet would take for a formula get an apostrophe.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_csv(Path(folder) / "a.csv", [{"metric": "ece", "value": 0.1}]).read_text().split()
    ['metric,value', 'ece,0.1']
    """
    if not len(rows):
        raise ValueError(f"rows: nothing to write to {path}")
    return write_bytes(path, csv_bytes(rows))


def csv_bytes(rows: Any, delimiter: str = ",", *, guarded: bool = True) -> bytes:
    r"""Return rows (mappings with the same keys, or a pandas table) as CSV; None becomes an empty cell.

    With ``guarded=False``, lines that a spreadsheet would take for a formula stay as they are.

    >>> csv_bytes([{"name": "Math\r=1+1"}]), csv_bytes([{"name": "-x"}], guarded=False)
    (b'name\n"Math\r\'=1+1"\n', b'name\n-x\n')
    """
    if hasattr(rows, "to_dict"):
        header = list(rows.columns)
        rows = rows.astype(object).where(rows.notna(), None).to_dict("records")
    else:
        header = list(rows[0])
    lines: list[str] = []
    # Python before 3.13 quotes \r only if lines end in it.
    file = SimpleNamespace(write=lines.append)
    writer = csv.DictWriter(file, header, delimiter=delimiter, lineterminator="\r\n")
    change = _no_formula if guarded else lambda value: value
    writer.writer.writerow([change(name) for name in header])
    writer.writerows({name: change(value) for name, value in row.items()} for row in rows)
    return _encoded("".join(line.removesuffix("\r\n") + "\n" for line in lines))


# Some spreadsheets take the wide forms of these signs, too.
_SIGNS = r"[=+\-@\t\uff1d\uff0b\uff0d\uff20]"
_FORMULA = re.compile(rf"^(?=\r|{_SIGNS})|(?<=[\r\n])(?={_SIGNS})")


def _no_formula(value: Any) -> Any:
    if not isinstance(value, str) or not _FORMULA.search(value):
        return value
    try:
        float(value)
    except ValueError:
        return _FORMULA.sub("'", value)
    return value


_ROWS, _ROWS_PER_BYTE = 1_000_000, 20
_BYTES, _BYTES_PER_BYTE = 2**30, 100
TOO_LITTLE_MEMORY = "this machine has too little memory to read it, or it is damaged and claims to be larger"


@contextlib.contextmanager
def opened_parquet(content: bytes, where: str) -> Iterator[Any]:
    """Yield the `pyarrow.parquet.ParquetFile` of a content that does not grow beyond reason when it is read.

    Allowed are a million rows and 20 more for each byte of the file, and one gigabyte and 100 times the file.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(
            pyarrow.BufferReader(content), page_checksum_verification=True
        ) as file:
            about = file.metadata
            size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
            too_many = about.num_rows > _ROWS + _ROWS_PER_BYTE * len(content)
            if too_many or size > _BYTES + _BYTES_PER_BYTE * len(content):
                raise ValueError(
                    f"{where}: {len(content):,} bytes would become {about.num_rows:,} rows of {size:,} bytes; not "
                    "read, because memory would not suffice: save it again, in several files"
                )
            yield file
    except MemoryError as error:  # Arrow's is an ArrowException, too
        raise MemoryError(f"{where}: {TOO_LITTLE_MEMORY}") from error
    except (pyarrow.ArrowException, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{where}: not a readable Parquet file: {first}") from error
