"""Writing files so that a reader never sees half of one: temporary name, flush to disk, rename."""

import csv
import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["write_bytes", "write_csv", "write_json", "write_text"]


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write ``content`` to ``path`` atomically, making the folder if need be, and return the path.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(Path(folder) / "a" / "b.txt", b"hello").read_bytes()
    b'hello'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; results are as readable as the umask allows.
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write ``text`` as UTF-8 atomically.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder) / "a.txt", "π").read_text(encoding="utf-8")
    'π'
    """
    return write_bytes(path, text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], content: Any) -> Path:
    """Write ``content`` as indented JSON atomically; NaN and infinity are refused.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     json.loads(write_json(Path(folder) / "a.json", {"ece": 0.1}).read_text())
    {'ece': 0.1}
    """
    return write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write ``rows`` of equal keys as CSV atomically; None becomes an empty cell.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv(Path(folder) / "a.csv", [{"metric": "ece", "value": 0.1}]).read_text().split()
    ['metric,value', 'ece,0.1']
    """
    if not rows:
        raise ValueError(f"rows: nothing to write to {path}")
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_text(path, buffer.getvalue())
