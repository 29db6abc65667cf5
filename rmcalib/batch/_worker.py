"""The process that scores for a local batch, and the door to it.

The two talk in JSON lines: tasks go in by standard input, events come out by standard output. Whatever
libraries print goes to a log file. When the batch dies, however it dies, the worker's input ends, and so does
the worker: no process is left behind that holds a run folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

__all__ = ["Worker", "WorkerError", "is_for_users", "main", "told"]

_PACKAGE = Path(__file__).parents[1]
_EVERY = 0.5  # seconds between two reports of progress


class WorkerError(ValueError):
    """Scoring failed in the worker; the message is one line."""


def told(error: BaseException) -> str:
    """Say in one line what went wrong.

    >>> told(ValueError("two\\nlines")), told(KeyError("x"))
    ('two lines', "KeyError: 'x'")
    """
    line = " ".join(str(error).split())
    plain = isinstance(error, (ValueError, OSError, MemoryError)) and line
    return line if plain else f"{type(error).__name__}: {line}".removesuffix(": ")


def is_for_users(category: type[Warning], filename: str) -> bool:
    """Tell whether a warning is one of ours about a model; those of libraries go to a log."""
    return filename.startswith(str(_PACKAGE)) and issubclass(category, UserWarning)


class Worker:
    """A process that scores models one after another; it is started anew when a model took it down."""

    def __init__(self, log: Path) -> None:
        """Remember where the worker's own output goes; it is started by its first task."""
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Worker:
        """Do nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._stop()

    def run(self, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Give the worker a task and yield its events until it has ended; a bad one ends with `failed`."""
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # then it died, which is seen below
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "scored":
                return
            yield event
            if event["event"] == "failed":
                return
        code = process.wait()
        self._stop()
        raise WorkerError(f"the scoring process {_ending(code)} (what it printed is in {self.log})")

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
            paths = [str(_PACKAGE.parent), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
            code = "from rmcalib.batch._worker import main; main()"
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", code],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment,
                )
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if process.poll() is None:
            process.terminate()
        process.wait()


def main() -> None:
    """Score what standard input asks for, until it ends."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes to the log
    tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    while True:
        task = tasks.get()
        _send(channel, **_score(task, channel))
        _release()


def _listen(tasks: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin.buffer:
        tasks.put(json.loads(line))
    os._exit(0)  # the batch has ended, in the middle of a model or not; finished parts are on disk


def _score(task: dict[str, Any], channel: IO[str]) -> dict[str, Any]:
    from rmcalib.benchmarks import load_benchmark
    from rmcalib.judges import Recipe
    from rmcalib.runs import score

    last = 0.0

    def on_progress(done: int, total: int, tokens: int) -> None:
        nonlocal last
        if time.time() - last > _EVERY or done == total:
            last = time.time()
            _send(channel, event="progress", done=done, total=total, tokens=tokens)

    def show(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
        line = " ".join(str(message).split())
        if is_for_users(category, filename):
            _send(channel, event="warning", text=line)
        else:
            sys.stderr.write(f"{task['model']}: {category.__name__}: {line}\n")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = show
            there = Path(task["source"]).is_file() or task["source"] == "demo"
            revision = None if there else task["benchmark_revision"]
            benchmark = load_benchmark(task["source"], revision=revision, limit=task["limit"])
            if benchmark.revision != task["benchmark_revision"]:
                raise ValueError(f"{task['source']}: has changed since the batch began")
            score(
                task["model"],
                benchmark,
                output=task["output"],
                fresh=task["fresh"],
                on_progress=on_progress,
                **{**task["options"], "recipe": Recipe(**task["recipe"])},
            )
    except Exception as error:
        sys.stderr.write(f"{task['model']}:\n{traceback.format_exc()}\n")
        sys.stderr.flush()
        return {"event": "failed", "error": told(error)}
    return {"event": "scored"}


def _send(channel: IO[str], **event: Any) -> None:
    channel.write(json.dumps(event) + "\n")
    channel.flush()


def _release() -> None:
    """Give back the memory of the last model before the next one is loaded."""
    import gc

    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    name = signal.Signals(-code).name
    return f"was ended by {name}" + (", which is how a system short of memory does it" if code == -9 else "")
