"""The state of a batch on disk: `batch.json` and `events.jsonl`.

Other processes can read both while the batch runs. `batch.json` is the current state and is replaced
atomically. `events.jsonl` has one JSON object per line for each event, over all runs of the batch.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rmcalib._util.files import utc, write_bytes, write_json
from rmcalib._util.storage import is_remote, read_file

STATES = ("waiting", "downloading", "scoring", "scored", "evaluating", "done", "failed", "skipped")
_TIMED = ("downloading", "scoring", "evaluating")
_EVERY = 2.0  # seconds between two writes if only the progress has changed


@dataclass
class ModelStatus:
    """The state of one model of a batch.

    Attributes
    ----------
    model : str
        Id of the model.
    state : str
        `waiting`, `downloading`, `scoring`, `scored`, `evaluating`, `done`, `failed` or `skipped`.
    parameters : float, optional
        Size in billions of parameters; None if it is unknown.
    why : str
        The cause of a failure, or the reason why the model was skipped.
    responses_done, responses : int
        Number of scored responses, and of all responses.
    tokens : int
        Number of tokens read so far.
    tokens_per_second : float, optional
        Speed of scoring, without loading the model.
    seconds : float
        Time since the start of the download or, later, of scoring.
    seconds_left : float, optional
        Estimated time until the model is scored.
    fresh : bool
        Whether this run did the work, and not an earlier one.
    folder : str
        The run folder.
    warnings : list[str]
        Warnings about the model.

    Examples
    --------
    >>> ModelStatus("org/rm").state
    'waiting'
    """

    model: str
    state: str = "waiting"
    parameters: float | None = None
    why: str = ""
    responses_done: int = 0
    responses: int = 0
    tokens: int = 0
    tokens_per_second: float | None = None
    seconds: float = 0.0
    seconds_left: float | None = None
    fresh: bool = False
    folder: str = ""
    warnings: list[str] = field(default_factory=list)


class Status:
    """The states of the models of a batch, in memory and on disk. Methods are thread-safe.

    Parameters
    ----------
    output : Path
        Folder of the batch.
    models : Iterable[ModelStatus]
        The models, in the state `waiting`.
    on_change : Callable[[Status], None], optional
        Called, from any thread, when the state of a model has changed.
    **about
        Other entries of `batch.json`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     status = Status(Path(folder), [ModelStatus("org/rm")], engine="local")
    ...     status.change("org/rm", "failed", why="gated")
    ...     status.end()
    ...     content = json.loads((Path(folder) / "batch.json").read_text())
    ...     content["status"], content["models"][0]["why"]
    ('finished', 'gated')
    """

    def __init__(
        self,
        output: Path,
        models: Iterable[ModelStatus],
        *,
        on_change: Callable[[Status], None] | None = None,
        **about: Any,
    ) -> None:
        """Start a run of a batch: write the first `batch.json` and the event `start`."""
        self.output, self.about, self.on_change = output, about, on_change
        self.models = {status.model: status for status in models}
        self.state, self.started = "running", time.time()
        self._lock = threading.RLock()
        self._since: dict[str, float] = {}
        self._written = 0.0
        self._failing = False
        try:
            self._events = read_file(output / "events.jsonl")
        except FileNotFoundError:
            self._events = b""
        if not is_remote(output):
            output.mkdir(parents=True, exist_ok=True)
        if self._events and not self._events.endswith(b"\n"):
            self._append(b"\n")  # a killed process left an incomplete line
        self.event("start", models=len(self.models), pid=os.getpid(), **about)
        self._write()

    def change(self, model: str, state: str, **values: Any) -> None:
        """Change the state of a model (one of `STATES`), and other fields."""
        assert state in STATES, state
        with self._lock:
            entry = self.models[model]
            now = time.time()
            if state in ("downloading", "scoring"):
                self._since[model] = now
            entry.state, entry.seconds_left = state, None
            for name, value in values.items():
                setattr(entry, name, value)
            entry.seconds = round(now - self._since.get(model, now), 3)
            if state != "waiting":
                self.event(state, model=model, **values, seconds=entry.seconds)
            self._write()

    def progress(self, model: str, done: int, total: int, tokens: int) -> None:
        """Record the progress of a model."""
        with self._lock:
            entry, now = self.models[model], time.time()
            entry.responses_done, entry.responses, entry.tokens = done, total, tokens
            elapsed = now - self._since[model]
            if done and elapsed > 0:
                entry.tokens_per_second = round(tokens / elapsed, 1)
                entry.seconds_left = round(elapsed * (total - done) / done, 1)
            if time.time() - self._written > _EVERY:
                self._write()
            elif self.on_change is not None:
                self.on_change(self)

    def warn(self, model: str, text: str) -> None:
        """Record a warning about a model."""
        with self._lock:
            self.models[model].warnings.append(text)
            self.event("warning", model=model, text=text)

    def event(self, kind: str, **values: Any) -> None:
        """Append one line to `events.jsonl`."""
        line = json.dumps({"time": utc(time.time()), "event": kind, **values}, ensure_ascii=False)
        with self._lock:
            self._keep(lambda: self._append(f"{line}\n".encode("utf-8", "replace")))

    def end(self, state: str = "finished") -> None:
        """End the run of the batch, and write its final state."""
        with self._lock:
            self.state = state
            self.event("end", status=state, **self.counts())
            self._write()

    def counts(self) -> dict[str, int]:
        """Return the number of models in each state that occurs."""
        states = [entry.state for entry in self.models.values()]
        return {state: states.count(state) for state in STATES if state in states}

    def tick(self) -> None:
        """Update the times of the active models."""
        with self._lock:
            for name, entry in self.models.items():
                if entry.state in _TIMED and name in self._since:
                    entry.seconds = round(time.time() - self._since[name], 3)

    def content(self) -> dict[str, Any]:
        """Return the content of `batch.json`."""
        self.tick()
        return {
            "status": self.state,
            "started": utc(self.started),
            "updated": utc(time.time()),
            "pid": os.getpid(),
            "host": platform.node(),
            **self.about,
            "counts": self.counts(),
            "models": [asdict(entry) for entry in self.models.values()],
        }

    def _write(self) -> None:
        self._keep(lambda: write_json(self.output / "batch.json", self.content()))
        self._written = time.time()
        if self.on_change is not None:
            self.on_change(self)

    def _append(self, line: bytes) -> None:
        path = self.output / "events.jsonl"
        if is_remote(path):  # objects cannot be appended to
            self._events += line
            write_bytes(path, self._events)
            return
        with path.open("ab") as file:
            file.write(line)

    def _keep(self, write: Callable[[], object]) -> None:
        """Write a file. After the first one, a failure is only a warning, and the batch continues."""
        try:
            write()
            self._failing = False
        except (OSError, ValueError) as error:
            if not self._written:
                raise
            if not self._failing:
                warnings.warn(f"{error}; the batch continues", stacklevel=1)
            self._failing = True
