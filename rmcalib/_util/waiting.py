"""How long to wait for servers: whole requests have a deadline, and pauses that a server asks for a limit.

The libraries for the Hub and for object storage limit the time between two bytes. A server that sends one byte
per second, or asks to come back tomorrow, would be waited for without end.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import TypeVar

T = TypeVar("T")

LONGEST_PAUSE = 60.0
"""Most seconds between two attempts, whatever a server asks for."""
_PATIENCE = 300.0
_NAME = "rmcalib-request"  # of threads
_LOOK = 1.0  # seconds between two looks at the progress


def patience() -> float:
    """Return the seconds for a request, or without any progress of a download: `RMCALIB_TIMEOUT`, or 300."""
    given = os.environ.get("RMCALIB_TIMEOUT", "")
    try:
        seconds = float(given or _PATIENCE)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"RMCALIB_TIMEOUT: {given!r} is not a number of seconds")
    return seconds


def within(
    call: Callable[[], T], seconds: float | None = None, progress: Callable[[], object] = lambda: None
) -> T:
    """Return what `call()` returns; raise a `TimeoutError` if it takes longer than `seconds` (`patience`).

    The time starts again whenever `progress()` has another value. A call that is late goes on in a thread
    that does not keep the process alive.

    >>> within(lambda: 1 + 1)
    2
    >>> within(lambda: time.sleep(9), seconds=0.01)
    Traceback (most recent call last):
    TimeoutError: no complete answer within 0.01 seconds (RMCALIB_TIMEOUT sets another limit)
    """
    limit = patience() if seconds is None else min(seconds, patience())
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name=_NAME).start()
    state, since = progress(), time.monotonic()
    while True:
        try:
            return future.result(min(limit, _LOOK))
        except NotYet:
            if future.done():  # the call itself has raised it
                raise
        now, known = time.monotonic(), state
        state = progress()
        since = now if state != known else since
        if now - since >= limit:
            raise TimeoutError(
                f"no complete answer within {limit:g} seconds (RMCALIB_TIMEOUT sets another limit)"
            )


def is_late() -> bool:
    """Return whether a request that was given up still runs. The end of the process must not wait for it."""
    return any(thread.name == _NAME for thread in threading.enumerate())


def retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header: a number, or a date.

    >>> retry_after("120"), retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), retry_after("soon")
    (120.0, 0.0, None)
    """
    if value is None:
        return None
    from email.utils import parsedate_to_datetime

    try:
        date = None if value.strip().isdecimal() else parsedate_to_datetime(value).timestamp()
        return float(value) if date is None else max(0.0, date - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
