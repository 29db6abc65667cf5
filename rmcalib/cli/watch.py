"""``rmcalib watch``: a training run, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from rmcalib.cli import options
from rmcalib.cli.options import MORE, Common, Name, Reading
from rmcalib.cli.screen import Screen, say, session
from rmcalib.metrics.conditions import Condition, holding, parse_condition

if TYPE_CHECKING:
    from rmcalib.integrations.trackers import Send
    from rmcalib.integrations.watcher import Watch

_Row = Mapping[str, Any]
_REWRITE = 5.0  # seconds between two versions of the page while following, at least
_SHARE = 0.02  # of the time that drawing it may take


def command(
    folder: Annotated[
        Name,
        Parameter(
            metavar="FOLDER",
            help="Rollouts of verl, TRL, ms-swift, NeMo-RL, SkyRL, AReaL, or a log of serve.",
        ),
    ],
    /,
    *,
    calibrator: Annotated[Name | None, Parameter(metavar="FILE")] = None,
    benchmark: Annotated[Name | None, Parameter(metavar="FILE")] = None,
    label_from: Annotated[Name | None, Parameter(metavar="FILE.py:FUNCTION")] = None,
    follow: bool = False,
    log_to: Annotated[tuple[Name, ...], Parameter(metavar="NAME", negative=())] = (),
    to: options.OutputFile | None = None,
    markdown: options.Markdown = None,
    output: options.Place = "runs/watch",
    fail_if: options.FailIf = (),
    margin: Annotated[float, Parameter(metavar="X", group=MORE)] = 0.03,
    both_sides: Annotated[bool, Parameter(group=MORE)] = False,
    window: Annotated[int, Parameter(metavar="N", group=MORE, validator=Number(gte=1))] = 10,
    horizon: Annotated[int, Parameter(metavar="N", group=MORE, validator=Number(gte=1))] = 100,
    start: Annotated[int | None, Parameter(metavar="N", group=MORE, validator=Number(gte=1))] = None,
    every: Annotated[float, Parameter(metavar="SECONDS", group=MORE, validator=Number(gte=0.1))] = 10.0,
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Measure every step; exit code 1 if there is an alarm, or if a condition holds at any step that was followed.

    Parameters
    ----------
    calibrator
        The calibrator of the rewards, or 'start' to fit one on the first prompts; default what --scale says.
    benchmark
        Scores of labelled responses to fit the probabilities on, instead of a calibrator.
    label_from
        Make labels by a function of your own Python file, which is run for that; it gets each sample as a dictionary.
    follow
        Wait for new steps, until there is an alarm, a condition holds, or Ctrl-C.
    log_to
        Also send each step to wandb, trackio, tensorboard, mlflow, or as JSON to a URL; several times for several.
    to
        Also write the steps as CSV; - is standard output.
    margin
        Gaps up to this size raise no alarm.
    both_sides
        Also raise an alarm if the reward says less than is right.
    window
        Also test the last N looks, and the last 4N, by themselves.
    horizon
        Looks over which half of the error budget is spent.
    start
        Labelled prompts to fit on with --calibrator start; default as many as the margin needs.
    every
        How often to look with --follow.
    """
    from rmcalib._util.files import write_csv, write_text
    from rmcalib._util.storage import as_path
    from rmcalib.integrations import watch
    from rmcalib.integrations.trackers import tracker
    from rmcalib.integrations.watch_page import WATCHED
    from rmcalib.report.card import markdown_summary

    reading.refuse("rollouts have rewards, by prompt", "columns", "scale", "labels", "labels_are")
    conditions = [parse_condition(text, WATCHED) for text in fail_if]
    page = as_path(output) / "report.html"
    inputs = [folder, *(file for file in (calibrator, benchmark) if file)]
    with session(common, inputs, to=to, markdown=markdown) as screen, ExitStack() as opened:
        trackers = [opened.enter_context(tracker(name, str(output))) for name in log_to]
        following = _Following(screen, page, conditions, trackers, follow)
        watched = watch(
            folder,
            columns=reading.columns,
            calibrator=calibrator,
            benchmark=benchmark,
            scale=reading.scale,
            labels_are=reading.labels_are,
            labels=reading.labels,
            label_from=label_from,
            follow=follow,
            margin=margin,
            window=window,
            start=start,
            both_sides=both_sides,
            horizon=horizon,
            every=every,
            on_look=following.look,
        )
        watched.to_html(page)
        met = following.met if follow else _met(conditions, watched.steps[-1:])
        if markdown is not None:
            write_text(markdown, markdown_summary([watched.document()], met))
        if to is not None:
            write_csv(to, watched.steps)
        screen.finish(
            watched.document(),
            {**watched.content(), "page": str(page)},
            written={"Steps": to, "Page": page},
        )
    for line in met:
        say(line)
    return int(watched.alarm is not None or bool(met) or following.lost)


@dataclass
class _Following:
    """What is done at every look: new steps are shown, logged and tested, and the page is written now and then."""

    screen: Screen
    page: Path
    conditions: Sequence[Condition]
    trackers: Sequence[Send]
    follow: bool
    met: list[str] = field(default_factory=list)
    _shown: dict[float, Mapping[str, Any]] = field(default_factory=dict)
    _said: set[tuple[str, float]] = field(default_factory=set)
    _next_page: float = 0.0
    _failed: set[str] = field(default_factory=set)

    @property
    def lost(self) -> bool:
        """Whether something could not be sent at the only look."""
        return bool(self._failed) and not self.follow

    def look(self, now: Watch) -> bool:
        """Show what is new; return whether watching ends, because a condition holds."""

        new = [row for row in now.steps if self._shown.get(row["step"]) is not row]
        self._shown = {row["step"]: row for row in now.steps}
        every = {(alarm["what"], alarm["look"]): alarm for alarm in (*now.alarms, *now.changes)}
        alarms = [alarm for key, alarm in every.items() if key not in self._said]
        self._said |= every.keys()
        if self.follow:
            if self.screen.prints:
                self._say(new, alarms, now.changes)
            self.met += _met(self.conditions, new, unknown_ends=False)
            if time.monotonic() >= self._next_page:
                began = time.process_time()
                self._try(lambda: now.to_html(self.page))
                pause = max(_REWRITE, (time.process_time() - began) / _SHARE)
                self._next_page = time.monotonic() + pause
        at = {alarm["step"] for alarm in alarms}  # late labels may raise an alarm at a step that is not new
        fresh = {row["step"] for row in new}
        rows = [row for row in now.steps if row["step"] in fresh | at]
        for send in self.trackers:
            for row in rows:
                texts = [alarm["reason"] for alarm in alarms if alarm["step"] == row["step"]]
                if not self._try(partial(send, row, texts)):
                    break  # its server may be slow to fail
        return self.follow and bool(self.met)

    def _say(self, rows: Sequence[_Row], alarms: Sequence[_Row], changes: Sequence[_Row]) -> None:
        """Show steps by the columns that a terminal shows, and alarms."""
        from rmcalib.integrations.watch_page import WATCHED, step_cell

        for row in rows:
            cells = {
                column.label: step_cell(name, row).text
                for name, column in WATCHED.items()
                if not column.page_only
            }
            numbers = (f"{label} {text}" for label, text in cells.items() if text != "–")
            say(f"step {row['step']:.15g}: {', '.join(numbers)}")
        for alarm in alarms:
            kind = "change" if alarm in changes else "ALARM"
            say(f"step {alarm['step']:.15g}: {kind}: {alarm['reason']}")

    def _try(self, work: Callable[[], Any]) -> bool:
        """Do something that may fail for a while, such as writing to a full disk; report each failure once."""
        try:
            work()
        except (OSError, ValueError) as error:
            if str(error) not in self._failed:
                self._failed.add(str(error))
                say(str(error))
            return False
        return True


def _met(
    conditions: Sequence[Condition], steps: Sequence[Mapping[str, Any]], *, unknown_ends: bool = True
) -> list[str]:
    """Return the conditions that hold at some of the steps, in words."""
    lines = []
    for step in steps:
        rows = _rows(step)
        values = {}
        for condition in conditions:
            try:
                values[condition] = condition.value(rows, "watch")  # its metrics are those of steps
            except ValueError:
                if unknown_ends:
                    raise
        lines += [f"step {step['step']:.15g}: {line}" for line in holding(values).values()]
    return lines


def _rows(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of a step as rows that conditions read; None is unknown."""
    numbers = {name: None if value != value else value for name, value in step.items()}
    return [
        {
            "category": "overall",
            "metric": name,
            "value": value,
            "low": numbers.get(f"{name}_low"),
            "high": numbers.get(f"{name}_high"),
            "note": "it is unknown at the last step",
        }
        for name, value in numbers.items()
    ]
