"""What a person sees while a job runs: a bar with tokens per second and time left, a status, and warnings."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.terminal import clean_line, open_console

if TYPE_CHECKING:
    from rmcalib.runs import OnProgress

_PACKAGE = str(Path(__file__).parents[2])

__all__ = ["plain_warnings", "progress_bar", "say", "working"]


@contextlib.contextmanager
def progress_bar(title: str, *, quiet: bool) -> Iterator[OnProgress | None]:
    """Show a bar on standard error; nothing if it is not a terminal, or if ``quiet``."""
    from rmcalib._util.processes import may_draw

    if quiet or not may_draw():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=open_console(stderr=True), transient=True) as bar:
        task = bar.add_task(title[-24:], total=None, speed="")
        began: float | None = None  # when scoring began, after the model was loaded

        def on_progress(done: int, total: int, tokens: int) -> None:
            nonlocal began
            began = began or time.monotonic()
            elapsed = time.monotonic() - began
            speed = f"{tokens / elapsed:,.0f} tokens/s" if elapsed > 0 else ""
            bar.update(task, completed=done, total=total, speed=speed)

        yield on_progress


@contextlib.contextmanager
def working(what: str, *, quiet: bool) -> Iterator[None]:
    """Show a line such as "evaluating org/rm ..." on standard error until the work is done.

    Nothing is shown if standard error is not a terminal, or if ``quiet``.
    """
    from rmcalib._util.processes import may_draw

    if quiet or not may_draw():
        yield
        return
    with open_console(stderr=True).status(clean_line(f"{what} ...")):
        yield


@contextlib.contextmanager
def plain_warnings(*, quiet: bool, verbose: bool) -> Iterator[None]:
    """Print our own warnings as single lines; those of other packages only with ``verbose``."""

    def show(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
        # `stacklevel` points a warning at its caller, which is our code, too.
        ours = filename.startswith(_PACKAGE) and issubclass(category, UserWarning)
        if verbose or (ours and not quiet):
            say(f"warning: {' '.join(str(message).split())}")

    if not verbose:
        # Libraries read these when they are imported. What matters in their messages we report as errors.
        os.environ.setdefault("DATASETS_VERBOSITY", "error")
        os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show
        yield


def say(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"rmcalib: {clean_line(text)}\n")
