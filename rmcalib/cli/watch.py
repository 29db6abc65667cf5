"""``rmcalib watch``: a training run, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
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
    log_to: Annotated[Name | None, Parameter(metavar="NAME")] = None,
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
        Also send each step to wandb, trackio, tensorboard, mlflow, or as JSON to a URL.
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
    from rmcalib.integrations.label_function import label_function
    from rmcalib.integrations.trackers import tracker
    from rmcalib.integrations.watch_page import WATCHED
    from rmcalib.report.card import markdown_summary

    reading.refuse("rollouts have rewards, by prompt", "columns", "scale", "labels", "labels_are")
    conditions = [parse_condition(text, WATCHED) for text in fail_if]
    page = as_path(output) / "report.html"
    logged = nullcontext() if log_to is None else tracker(log_to, str(output))
    with session(common, to=to, markdown=markdown) as screen, logged as send:
        labeller = None if label_from is None else label_function(label_from, folder)
        following = _Following(screen, page, conditions, send, follow)
        found = watch(
            folder,
            columns=reading.columns,
            calibrator=calibrator,
            benchmark=benchmark,
            scale=reading.scale,
            labels_are=reading.labels_are,
            labels=reading.labels,
            label_from=labeller,
            follow=follow,
            margin=margin,
            window=window,
            start=start,
            both_sides=both_sides,
            horizon=horizon,
            every=every,
            on_look=following.look,
        )
        found.to_html(page)
        met = following.met if follow else _met(conditions, found.steps[-1:])
        if markdown is not None:
            write_text(markdown, markdown_summary([found.document()], met))
        if to is not None:
            write_csv(to, found.steps)
        ended = follow or found.document().steps
        screen.finish(
            found.document(),
            {**found.content(), "page": str(page)},
            written={"Steps": to, "Page": page},
            then="" if ended else "the same command with --follow (wait for new steps)",
        )
    for line in met:
        say(line)
    return int(found.alarm is not None or bool(met))


@dataclass
class _Following:
    """What is done at every look: new steps are shown, logged and tested, and the page is written now and then."""

    screen: Screen
    page: Path
    conditions: Sequence[Condition]
    send: Send | None
    follow: bool
    met: list[str] = field(default_factory=list)
    _shown: dict[float, Mapping[str, Any]] = field(default_factory=dict)
    _told: set[tuple[str, float]] = field(default_factory=set)
    _next_page: float = 0.0
    _failed: set[str] = field(default_factory=set)

    def look(self, found: Watch) -> bool:
        """Show what is new; return whether watching ends, because a condition holds."""

        new = [row for row in found.steps if self._shown.get(row["step"]) is not row]
        self._shown = {row["step"]: row for row in found.steps}
        every = {(one["what"], one["look"]): one for one in (*found.alarms, *found.changes)}
        alarms = [one for key, one in every.items() if key not in self._told]
        self._told |= every.keys()
        if self.follow:
            kinds = ["change" if one in found.changes else "ALARM" for one in alarms]
            self._say(
                new,
                [(one["step"], f"{kind}: {one['reason']}") for kind, one in zip(kinds, alarms, strict=True)],
            )
            self.met += _met(self.conditions, new, unknown_ends=False)
            if time.monotonic() >= self._next_page:
                began = time.process_time()
                self._try(lambda: found.to_html(self.page))
                pause = max(_REWRITE, (time.process_time() - began) / _SHARE)
                self._next_page = time.monotonic() + pause
        if self.send is not None:
            for row in new:
                texts = [alarm["reason"] for alarm in alarms if alarm["step"] == row["step"]]
                self._try(lambda row=row, texts=texts: self.send(row, texts))  # type: ignore[misc]
        return self.follow and bool(self.met)

    def _say(self, rows: Sequence[Mapping[str, Any]], alarms: Sequence[tuple[float, str]]) -> None:
        """Show new steps by the columns that a terminal shows, and their alarms."""
        from rmcalib.integrations.watch_page import WATCHED, step_cell

        if not self.screen.prints:
            return
        for row in rows:
            cells = {
                one.label: step_cell(name, row).text for name, one in WATCHED.items() if not one.page_only
            }
            numbers = (f"{label} {text}" for label, text in cells.items() if text != "–")
            say(f"step {row['step']:g}: {', '.join(numbers)}")
            for step, text in alarms:
                if step == row["step"]:
                    say(f"step {step:g}: {text}")

    def _try(self, work: Callable[[], Any]) -> None:
        """Do something that may fail for a while, such as writing to a full disk; report each failure once."""
        try:
            work()
        except (OSError, ValueError) as error:
            if not self.follow:
                raise
            if str(error) not in self._failed:
                self._failed.add(str(error))
                say(str(error))


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
        lines += [f"step {step['step']:g}: {line}" for line in holding(values).values()]
    return lines


def _rows(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of a step as rows that conditions read."""
    return [
        {
            "category": "overall",
            "metric": name,
            "value": value if value == value else None,
            "low": step.get(f"{name}_low"),
            "high": step.get(f"{name}_high"),
            "note": "it is unknown at the last step",
        }
        for name, value in step.items()
    ]
