"""``rmcalib watch``: a training run, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from rmcalib.cli import options
from rmcalib.cli.conditions import holding, parse_condition
from rmcalib.cli.options import MORE, Common, Name, Reading
from rmcalib.cli.screen import say, session

if TYPE_CHECKING:
    from rmcalib.integrations.watching import Watch


def command(
    folder: Annotated[Name, Parameter(metavar="FOLDER", help="Rollouts of verl, TRL, ms-swift or NeMo-RL.")],
    /,
    *,
    calibrator: Annotated[Name | None, Parameter(metavar="FILE")] = None,
    benchmark: Annotated[Name | None, Parameter(metavar="FILE")] = None,
    follow: bool = False,
    to: options.OutputFile | None = None,
    output: options.Place = "runs/watch",
    fail_if: options.FailIf = (),
    margin: Annotated[float, Parameter(metavar="X", group=MORE)] = 0.03,
    window: Annotated[int, Parameter(metavar="N", group=MORE, validator=Number(gte=1))] = 10,
    start: Annotated[int, Parameter(metavar="N", group=MORE, validator=Number(gte=1))] = 200,
    every: Annotated[float, Parameter(metavar="SECONDS", group=MORE, validator=Number(gte=0.1))] = 10.0,
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Measure every step; exit code 1 if there is an alarm, or if a condition holds at the last step.

    Parameters
    ----------
    calibrator
        The calibrator of the rewards, or 'start' to fit one on the first prompts; default they are log-odds.
    benchmark
        Scores of labelled responses to fit the probabilities on, instead of a calibrator.
    follow
        Wait for new steps, until there is an alarm or Ctrl-C.
    to
        Also write the steps as CSV; - is standard output.
    margin
        Gaps up to this size raise no alarm.
    window
        How many of the last steps are also tested by themselves.
    start
        Labelled prompts to fit on with --calibrator start.
    every
        How often to look with --follow.
    """
    from rmcalib._util.files import write_csv
    from rmcalib._util.storage import as_path
    from rmcalib.integrations import watch
    from rmcalib.report.pages import write_page
    from rmcalib.report.repairs import WATCHED, step_cell

    reading.refuse("rollouts have rewards, by prompt", "columns")
    conditions = [parse_condition(text, WATCHED) for text in fail_if]
    page = as_path(output) / "report.html"
    with session(common, to=to) as screen:

        def on_step(found: Watch) -> None:
            write_page(found, page)
            if screen.prints:
                numbers = (
                    f"{one.label} {step_cell(name, found.steps[-1]).text}" for name, one in WATCHED.items()
                )
                say(f"step {found.steps[-1]['step']:g}: {', '.join(numbers)}")

        found = watch(
            folder,
            columns=reading.columns,
            calibrator=calibrator,
            benchmark=benchmark,
            follow=follow,
            margin=margin,
            window=window,
            start=start,
            every=every,
            on_step=on_step if follow else None,
        )
        write_page(found, page)
        if to is not None:
            write_csv(to, found.steps)
        ended = follow or found.alarm is not None
        screen.finish(
            found,
            {**found.content(), "page": str(page)},
            written={"Steps": to, "Page": page},
            then="" if ended else "the same command with --follow (wait for new steps)",
        )
    met = holding({one: one.value(_rows(found.steps[-1])) for one in conditions if found.steps})
    for line in met.values():
        say(f"step {found.steps[-1]['step']:g}: {line}")
    return int(found.alarm is not None or bool(met))


def _rows(step: dict[str, Any]) -> list[dict[str, Any]]:
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
