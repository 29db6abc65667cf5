"""A batch on the terminal: the plan, a live table, the summary."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rmcalib._util.terminal import open_console

if TYPE_CHECKING:
    from rmcalib.runs import ModelStatus, Plan, Status

__all__ = ["live_table", "print_plan", "print_summary"]

_STYLES = {"done": "green", "failed": "bold red", "scoring": "bold cyan", "skipped": "dim", "waiting": "dim"}
_ORDER = ("scoring", "evaluating", "scored", "downloading", "failed", "waiting", "done", "skipped")
_ROWS = 20  # of the live table; models that are being worked on come first


@contextlib.contextmanager
def live_table(*, quiet: bool) -> Iterator[Callable[[Status], None] | None]:
    """Show the states of a batch on standard error; nothing if it is not a terminal, or if ``quiet``."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from rich.live import Live

    disable_progress_bars()  # they would write into the table
    seen: list[Status] = []
    console = open_console(stderr=True)

    def draw() -> Any:  # again each time, because clocks run
        return status_table(seen[0]) if seen else ""

    with Live(console=console, refresh_per_second=2, transient=True, get_renderable=draw):
        yield lambda status: seen.append(status) if not seen else None


def status_table(status: Status) -> Any:
    """Draw the states as a table: what is being worked on, failures, what waits, what is done."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    status.tick()
    counts = ", ".join(f"{count} {state}" for state, count in status.counts().items())
    left = status.seconds_left()
    more = f"; about {_duration(left)} left" if left and left >= 1 else ""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("model", overflow="ellipsis")  # shortened if there is little room
    for name in ("size", "state", "progress", "tokens/s", "time", "left"):
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    entries = sorted(status.models.values(), key=lambda entry: _ORDER.index(entry.state))
    for entry in entries[:_ROWS]:
        speed = f"{entry.tokens_per_second:,.0f}" if entry.tokens_per_second else ""
        share = f"{entry.responses_done / entry.responses:.0%}" if entry.responses else ""
        time = _duration(entry.seconds) if entry.seconds else ""
        rest = _duration(entry.seconds_left) if entry.seconds_left else ""
        cells = (entry.model, _size(entry.parameters), entry.state, share, speed, time, rest)
        table.add_row(*map(Text, cells), style=_STYLES.get(entry.state))
    if len(entries) > _ROWS:
        table.add_row(Text(f"and {len(entries) - _ROWS} more"))
    return Group(Text(f"{counts}{more}", style="bold"), table)


def print_plan(plan: Plan, assumptions: str) -> None:
    """Print what would be run, in order, and what would fail or be skipped and why."""
    from rich.table import Table
    from rich.text import Text

    console = open_console()
    run = [entry for entry in plan.entries if not entry.skipped and entry.model not in plan.problems]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("model", overflow="fold")
    for name in ("size", "memory", "device", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for entry in run:
        memory = "?" if entry.memory is None else f"{entry.memory / 1e9:.3g} GB"
        time = "?" if entry.seconds is None else _duration(entry.seconds)
        table.add_row(*map(Text, (entry.model, _size(entry.parameters), memory, entry.device, time)))
    if run:
        console.print(table)
    known = [entry.seconds for entry in run if entry.seconds is not None]
    about = f"about {_duration(sum(known))} ({assumptions})" if known else "of unknown size"
    more = f", and {len(run) - len(known)} of unknown size" if known and len(known) < len(run) else ""
    count = "1 model" if len(run) == 1 else f"{len(run)} models"
    console.print(Text(f"\n{count} to run, {about}{more}." if run else "No model to run."))
    if plan.problems:
        console.print(Text(f"\n{len(plan.problems)} would fail:"))
        for model, problem in plan.problems.items():
            console.print(Text(f"  {model}: {problem}"), soft_wrap=True)
    left_out = [entry for entry in plan.entries if entry.skipped]
    if left_out:
        console.print(Text(f"\n{len(left_out)} skipped:"))
        for entry in left_out:
            console.print(Text(f"  {entry.model}: {entry.skipped}"), soft_wrap=True)


def print_summary(status: Status, place: str) -> None:
    """Print what was done, what failed and why, and what was skipped."""
    from rich.text import Text

    console = open_console()
    entries = list(status.models.values())

    def of(state: str) -> list[ModelStatus]:
        return [entry for entry in entries if entry.state == state]

    done = of("done")
    new = sum(entry.fresh for entry in done)
    console.print(Text(f"{len(done)} done ({new} now, {len(done) - new} before): {place}"), soft_wrap=True)
    for title, state in (("failed, to be tried again by the next run", "failed"), ("skipped", "skipped")):
        if of(state):
            console.print(Text(f"{len(of(state))} {title}:"))
        for entry in of(state):
            console.print(Text(f"  {entry.model}: {entry.why}"), soft_wrap=True)
    if done:
        console.print(Text(f"One page for all: rmcalib report {shlex.quote(place)}"), soft_wrap=True)


def _size(billions: float | None) -> str:
    if billions is None:
        return "?"
    return f"{billions:g}B" if billions >= 0.1 else f"{billions * 1000:.3g}M"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} d"
