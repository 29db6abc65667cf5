"""Ctrl-C: the first one ends a command cleanly, a later second one ends it at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

INTERRUPTED = 130  # the exit code that shells expect
_AGAIN = 1.0  # seconds; launchers forward a Ctrl-C to processes that already got it from the terminal


def answer_interrupts() -> None:
    """Let the first Ctrl-C raise KeyboardInterrupt. A second one, over a second later, ends the process.

    So the cleanup is never interrupted halfway. It finishes, or the process ends as with ``kill -9``, after
    which every command can be resumed. If Ctrl-C is ignored (``nohup``), it stays ignored.
    """
    first: float | None = None

    def answer(*_: object) -> None:
        nonlocal first
        if first is None:
            first = time.monotonic()
            raise KeyboardInterrupt
        if time.monotonic() - first > _AGAIN:
            end_now()

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, answer)


def end_now(code: int = INTERRUPTED) -> NoReturn:
    """End the process without waiting for threads, which may hang in a download."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the reader has closed it
            continue
    os._exit(code)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Delay a Ctrl-C until the end of the block.

    >>> try:
    ...     with deferred():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("to the end")
    ... except KeyboardInterrupt:
    ...     print("and then")
    to the end
    and then
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets it
        yield
        return
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def spared() -> Iterator[None]:
    """Block Ctrl-C for processes that are started in the block; their parent handles it.

    >>> with spared():
    ...     signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    True
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # child processes inherit the mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """End this process, which `multiprocessing` has started, when its parent ends for any reason."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
