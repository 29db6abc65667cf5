"""What a person sees: the result and what to do next, progress while a job runs, warnings."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmcalib._util.display import clean_line, open_console
from rmcalib._util.processes import is_main_process, may_draw
from rmcalib._util.secrets import masked
from rmcalib.cli.options import Common

_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class Screen:
    """Where a command speaks: standard output for its result, standard error for messages unless --quiet."""

    json: bool
    quiet: bool
    taken: bool
    """Whether an option such as --to - writes to standard output, so that nothing else may."""

    @property
    def prints(self) -> bool:
        """Whether the result is printed as text."""
        return not (self.json or self.quiet or self.taken)

    def say(self, text: str) -> None:
        """Write one line to standard error, unless --quiet."""
        if not self.quiet:
            say(text)

    def finish(
        self,
        document: Any,
        content: Mapping[str, Any],
        *,
        written: Mapping[str, Any] | None = None,
        then: str = "",
    ) -> None:
        """Print a result as JSON, or as text; then what was written and the command that continues from there."""
        if self.json:
            print_json(content)
        elif self.prints:
            from rmcalib.report.document import print_document

            print_document(document)
            following(written or {}, then)

    @contextlib.contextmanager
    def progress(self, title: str) -> Iterator[Callable[..., None]]:
        """Show a bar on standard error, fed with (done, total, tokens); nothing if there is no terminal."""
        if self.quiet or not may_draw():
            yield lambda *_: None
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
            task = bar.add_task(clean_line(title)[-36:], total=None, start=False, speed="")

            def advance(done: int, total: int, tokens: int = 0) -> None:
                bar.start_task(task)  # by the first call: the model is loaded now
                elapsed = bar.tasks[0].elapsed
                speed = f"{tokens / elapsed:,.0f} tokens/s" if elapsed and tokens else ""
                bar.update(task, completed=done, total=total, speed=speed)

            yield advance


@contextlib.contextmanager
def session(common: Common, inputs: Iterable[str] = (), **targets: Path | None) -> Iterator[Screen]:
    """Open the screen of a command: our own warnings and messages become single lines, others are not shown.

    ``targets`` are the options that name a file to write, which may be ``-``, standard output, but none of the
    ``inputs`` and no file of a run folder among them.
    """
    read = [Path(os.path.realpath(file)) for file in inputs]  # unlike `resolve`, also of a link to itself
    for name, target in targets.items():
        place = None if target is None else Path(os.path.realpath(target))
        if place in read or (place is not None and place.parent in read and place.exists()):
            raise ValueError(f"--{name} {target}: this command reads that file; name another one")
    taken = [f"--{name} -" for name, target in targets.items() if str(target) == "-"]
    if len(taken) + common.json > 1:
        others = " and ".join([*taken[1:], *(["--json"] if common.json else [])])
        raise ValueError(f"{taken[0]}: {others} writes to standard output too; name a file")
    screen = Screen(common.json, common.quiet or not is_main_process(), bool(taken))

    def show_warning(
        message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any
    ) -> None:
        # `stacklevel` points a warning at its caller, which is our code, too.
        if filename.startswith(_PACKAGE) and issubclass(category, UserWarning):
            screen.say(f"warning: {message}")

    # Libraries read these when they are imported. What matters in their messages we report as errors.
    os.environ.setdefault("DATASETS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    log, handler = logging.getLogger("rmcalib"), logging.Handler()
    handler.emit = lambda record: screen.say(record.getMessage())  # type: ignore[method-assign]
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = show_warning
            yield screen
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def command_line(*words: object) -> str:
    """Return a command to copy. Words are quoted for the shell: a file may be called `$(...)`."""
    return masked(f"rmcalib {shlex.join(map(str, words))}")


def following(written: Mapping[str, Any], command: str) -> None:
    """Print what was written, and the command that continues from there."""
    from rmcalib._util.storage import shown

    lines = [f"{name}: {shown(place)}" for name, place in written.items() if place is not None]
    print_lines("", *lines, *([f"Next: {command}"] if command else []))


def print_lines(*lines: str) -> None:
    """Print lines as they are, however long, so that they can be copied."""
    from rich.text import Text

    console = open_console()
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def print_json(content: Any) -> None:
    """Print JSON on standard output; NaN becomes null."""
    from rmcalib._util.files import plain

    sys.stdout.write(f"{masked(json.dumps(plain(content), allow_nan=False))}\n")


def say(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"rmcalib: {masked(clean_line(with_options(text)))}\n")


_ARGUMENT = re.compile(r'\b([a-z_]+)=(?:"([^"]+)"|(\.\.\.)|True\b)')
_OPTIONS = {
    *("ask", "backend", "benchmark", "bradley_terry_only", "columns", "format", "fresh", "ignore_memory"),
    *("labels", "labels_are", "missing", "official", "scale"),
}
_OPTION = {"official": "leaderboard"}


def with_options(text: str) -> str:
    """Return a message with the arguments of functions as the options of commands.

    >>> with_options('no column of rewards; name it: columns="reward=NAME"')
    'no column of rewards; name it: --columns reward=NAME'
    >>> with_options('score again with fresh=True, or with dtype="float32"')
    'score again with --fresh, or with -J dtype=float32'
    """

    def option(match: re.Match[str]) -> str:
        name, value = match[1], match[2] or match[3]
        if name in _OPTIONS:
            return f"--{_OPTION.get(name, name).replace('_', '-')} {value or ''}".rstrip()
        from rmcalib.cli.sources import setting_names

        return f"-J {name}={value or 'yes'}" if name in setting_names() else match[0]

    return _ARGUMENT.sub(option, text)
