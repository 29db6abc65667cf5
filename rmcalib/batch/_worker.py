"""The process that scores the models of a local batch.

If a model crashes the process (out of memory, a fault in compiled code), only this model fails, and the next
one gets a new process. The output of libraries goes to a log file. The process always ends with the batch, so
that it never keeps a run folder locked.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.interrupts import end_with_parent, spared

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.judges import Judge

__all__ = ["Event", "Task", "Worker", "WorkerError", "cause", "is_for_users"]

_PACKAGE = Path(__file__).parents[1]
_EVERY = 0.5  # seconds between two reports of progress

Event = tuple[str, tuple[Any, ...]]
"""`("progress", (done, total, tokens))` or `("warning", (text,))`."""


class WorkerError(ValueError):
    """Scoring failed in the worker; the message is one line."""


@dataclass(frozen=True)
class Task:
    """What to score, and where to write the scores."""

    judge: Judge
    benchmark: Benchmark
    output: str
    fresh: bool = False


def cause(error: BaseException) -> str:
    """Return the cause of an error in one line.

    >>> cause(ValueError("two\\nlines")), cause(KeyError("x"))
    ('two lines', "KeyError: 'x'")
    """
    line = " ".join(str(error).split())
    plain = isinstance(error, (ValueError, OSError, MemoryError)) and line
    return line if plain else f"{type(error).__name__}: {line}".removesuffix(": ")


def is_for_users(category: type[Warning], filename: str) -> bool:
    """Return whether a warning comes from rmcalib. Those of libraries go to the log."""
    return filename.startswith(str(_PACKAGE)) and issubclass(category, UserWarning)


class Worker:
    """A process that scores models one after another. After a crash, a new process is started."""

    def __init__(self, log: Path) -> None:
        """Store the path of the log. The first task starts the process."""
        self.log = log
        self.process: BaseProcess | None = None
        self._pool: ProcessPoolExecutor | None = None
        self._future: Future[None] | None = None
        self._events: Connection | None = None

    def __enter__(self) -> Worker:
        """Return the worker; the first task starts its process."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, even while it scores; finished parts are on disk."""
        if self.process is not None and self._future is not None and not self._future.done():
            self.process.terminate()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._events is not None:
            self._events.close()
        self._pool = self._events = None

    def run(self, task: Task) -> Iterator[Event]:
        """Score a model and yield events meanwhile; raises `WorkerError` if scoring fails."""
        self._submit(task)
        assert self._future is not None
        assert self._events is not None
        try:
            while (event := self._events.recv()) is not None:
                yield event
        except EOFError:  # the process has ended; the future has the error
            pass
        try:
            self._future.result()
        except BrokenProcessPool:
            assert self.process is not None
            # The pool's own thread waits for the process. If this one did too, the exit code could be lost.
            self.__exit__()
            ending = _ending(self.process.exitcode or 0)
            raise WorkerError(f"the scoring process {ending} (its output is in {self.log})") from None

    def _submit(self, task: Task) -> None:
        if self._pool is not None:
            self._future = self._pool.submit(_score, task)
            return
        # Spawned, not forked: torch's threads do not survive a fork.
        spawn = multiprocessing.get_context("spawn")
        self._events, sender = spawn.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            1, mp_context=spawn, initializer=_begin, initargs=(str(self.log), sender)
        )
        before = set(multiprocessing.active_children())
        with spared():
            self._future = self._pool.submit(_score, task)
        (self.process,) = set(multiprocessing.active_children()) - before
        sender.close()  # only the worker keeps this end open, so that its end closes the stream


_send: Callable[[Event | None], object] = print  # `_begin` sets it in the worker


def _begin(log: str, events: Connection) -> None:
    """Prepare the worker: send its output to the log, and end it with the batch."""
    global _send
    _send = events.send
    end_with_parent()
    with Path(log).open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)


def _score(task: Task) -> None:
    from rmcalib.runs import score

    last = 0.0

    def on_progress(done: int, total: int, tokens: int) -> None:
        nonlocal last
        if time.time() - last > _EVERY or done == total:
            last = time.time()
            _send(("progress", (done, total, tokens)))

    def show(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
        line = " ".join(str(message).split())
        if is_for_users(category, filename):
            _send(("warning", (line,)))
        else:
            sys.stderr.write(f"{task.judge.name}: {category.__name__}: {line}\n")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = show
            score(task.judge, task.benchmark, output=task.output, fresh=task.fresh, on_progress=on_progress)
    except Exception as error:
        sys.stderr.write(f"{task.judge.name}:\n{traceback.format_exc()}\n")
        sys.stderr.flush()
        # Not the error itself, which may not be picklable.
        raise WorkerError(cause(error)) from None
    finally:
        _release()
        _send(None)


def _release() -> None:
    """Free the memory of the last model before the next one is loaded."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name
    return f"was killed ({name})" + ("; the machine probably ran out of memory" if code == -9 else "")
