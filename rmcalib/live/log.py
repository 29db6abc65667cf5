"""The log of rewards: JSONL files, one row per sample, that `rmcalib watch` reads.

A row is written before its reward is answered, so every reward that a client has seen is in the log, or is
counted as not logged. A file that a killed process has left is never continued.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rmcalib._util.files import opened_to_append
from rmcalib.judges._templates import well_formed
from rmcalib.judges.apis.samples import Sample, Scored

ROTATE = 256 * 2**20  # bytes of a file, after which a new one begins
EVENTS = "events.jsonl"
_NAME = re.compile(r"rewards-(\d+)\.jsonl")


class RewardLog:
    """Appends rows to `rewards-00001.jsonl`, `rewards-00002.jsonl`, ... of a folder.

    A row has the time (seconds since 1970), step and label if they are known, prompt, response, reward (what
    was answered), raw, probability and outside.

    Parameters
    ----------
    folder : str or Path
        It is created if necessary.
    rotate : int
        Bytes after which a new file begins.
    """

    def __init__(self, folder: str | Path, rotate: int = ROTATE) -> None:
        """Begin a new file; a ValueError says why that is not possible."""
        self.folder, self.rotate = Path(folder), rotate
        self.lost = 0
        """Number of rows that could not be written."""
        self.lock = threading.Lock()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            numbers = [
                int(match[1]) for path in self.folder.iterdir() if (match := _NAME.fullmatch(path.name))
            ]
            self._number = max(numbers, default=0)
            self._file = self._next()
        except OSError as error:
            raise ValueError(f"log: {self.folder}: cannot be written: {error.strerror or error}") from error

    def write(self, rows: Iterable[tuple[Sample, Scored]]) -> None:
        """Append rows in one call of the system. What the disk does not take is counted, and taken back."""
        now = time.time()
        lines = [_line(now, sample, scored) for sample, scored in rows]
        if lines:
            self._append(b"".join(lines), len(lines))

    def event(self, what: str, **details: Any) -> None:
        """Append a row to `events.jsonl`, such as a change of the model behind."""
        row = {"time": time.time(), "event": what, **details}
        try:
            with opened_to_append(self.folder / EVENTS) as file:
                file.write(_encoded(row))
        except OSError:
            self.lost += 1

    def close(self) -> None:
        """Close the file."""
        with self.lock:
            os.close(self._file)

    def _append(self, content: bytes, n_rows: int) -> None:
        with self.lock:
            size = os.fstat(self._file).st_size
            try:
                if size and size + len(content) > self.rotate:
                    following = self._next()
                    os.close(self._file)
                    self._file, size = following, 0
                written = os.write(self._file, content)
                if written < len(content):  # the disk has become full in the middle of a row
                    os.ftruncate(self._file, size)
                    self.lost += n_rows
            except OSError:
                self.lost += n_rows

    def _next(self) -> int:
        """Create the next file. Another process may write into the same folder, so its name must be new."""
        while True:
            path = self.folder / f"rewards-{self._number + 1:05d}.jsonl"
            self._number += 1
            try:
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            except FileExistsError:
                continue


def _line(now: float, sample: Sample, scored: Scored) -> bytes:
    row = {
        "time": round(now, 3),
        "step": sample.step,
        "prompt": sample.prompt,
        "response": sample.response,
        "reward": scored.reward,
        "raw": scored.raw,
        "inputs": scored.inputs or None,
        "probability": scored.probability,
        "outside": scored.outside,
        "label": sample.label,
    }
    return _encoded({name: value for name, value in row.items() if value is not None})


def _encoded(row: dict[str, Any]) -> bytes:
    return well_formed(json.dumps(row, ensure_ascii=False, default=str)).encode() + b"\n"
