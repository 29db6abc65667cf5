"""Call a function in several threads, with the results in order."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["in_parallel"]

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(call: Callable[[T], R], inputs: Iterable[T], *, workers: int) -> Iterator[R]:
    """Call a function for every input, `workers` at a time, and yield the results in order.

    Inputs are read a few ahead of the results. If a call fails, its error is raised when its result is due,
    and no more calls are started. The program does not wait for calls that are still running, because they
    run in daemon threads.

    >>> list(in_parallel(abs, [-1, 2, -3], workers=2))
    [1, 2, 3]
    """
    if workers < 1:
        raise ValueError(f"workers: must be at least 1, got {workers}")
    work: queue.SimpleQueue[tuple[Future[R], T] | None] = queue.SimpleQueue()
    stopped = threading.Event()

    def run() -> None:
        while (task := work.get()) is not None and not stopped.is_set():
            future, value = task
            try:
                future.set_result(call(value))
            except BaseException as error:
                future.set_exception(error)

    threads: list[threading.Thread] = []
    waiting: deque[Future[R]] = deque()
    try:
        for value in inputs:
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
            future: Future[R] = Future()
            waiting.append(future)
            work.put((future, value))
            if len(threads) < workers:
                threads.append(threading.Thread(target=run, daemon=True, name="rmcalib-request"))
                threads[-1].start()
        while waiting:
            yield waiting.popleft().result()
    finally:
        stopped.set()
        for _ in threads:
            work.put(None)
