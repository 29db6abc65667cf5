"""``rmcalib watch``: a training run, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from rmcalib.cli.conditions import parse_condition
from rmcalib.cli.options import (
    MAIN,
    MORE,
    Common,
    FailIf,
    Name,
    OutputFile,
    Place,
    Reading,
    at_least,
    refuse,
    writes_stdout,
)
from rmcalib.cli.screen import messages, say, show

if TYPE_CHECKING:
    from rmcalib.integrations.watching import Watch


@Parameter(name="*", group=MAIN)
@dataclass(frozen=True)
class Wanted:
    """What probabilities are made of, and when there is an alarm."""

    calibrator: Annotated[Name | None, Parameter(metavar="FILE")] = None
    """The calibrator of the reward model, or 'start' to fit one on the first prompts; default rewards are log-odds."""
    benchmark: Annotated[Name | None, Parameter(metavar="FILE")] = None
    """Scores of labelled responses to fit the probabilities on, instead of a calibrator."""
    follow: bool = False
    """Wait for new steps, until there is an alarm or Ctrl-C."""
    to: OutputFile | None = None
    """Also write the steps as CSV; - is standard output."""
    output: Place = "runs/watch"
    fail_if: FailIf = ()
    margin: Annotated[float, Parameter(metavar="X", group=MORE)] = 0.03
    """Gaps up to this size raise no alarm."""
    window: Annotated[int, Parameter(metavar="N", group=MORE, validator=at_least(1))] = 10
    """How many of the last steps are also tested by themselves."""
    start: Annotated[int, Parameter(metavar="N", group=MORE, validator=at_least(1))] = 200
    """Labelled prompts to fit on with --calibrator start."""
    reward: Annotated[Name | None, Parameter(metavar="NAME", group=MORE)] = None
    """Which reward to watch, if the samples have several."""
    every: Annotated[float, Parameter(metavar="SECONDS", group=MORE, validator=at_least(0.1))] = 10.0
    """How often to look with --follow."""


def command(
    folder: Annotated[Name, Parameter(metavar="FOLDER", help="Rollouts of verl, TRL, ms-swift or NeMo-RL.")],
    /,
    *,
    wanted: Wanted = Wanted(),
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Measure every step; exit code 1 if there is an alarm, or if a condition holds at the last step."""
    from rmcalib._util.files import write_csv
    from rmcalib._util.storage import as_path
    from rmcalib.integrations import watch
    from rmcalib.report import write_page

    given = {"--scale": reading.scale, "--cluster": reading.cluster, "--missing": reading.missing}
    refuse(given, "rollouts have rewards, by prompt")
    conditions = [parse_condition(text, _SHOWN) for text in wanted.fail_if]
    silent = writes_stdout(common, to=wanted.to)
    page = as_path(wanted.output) / "report.html"

    def on_step(found: Watch) -> None:
        write_page(found, page)
        if not (common.quiet or common.json or silent):
            _say_step(found)

    with messages(quiet=common.quiet):
        found = watch(
            folder,
            columns=reading.columns,
            calibrator=wanted.calibrator,
            benchmark=wanted.benchmark,
            follow=wanted.follow,
            margin=wanted.margin,
            window=wanted.window,
            start=wanted.start,
            reward=wanted.reward,
            every=wanted.every,
            on_step=on_step if wanted.follow else None,
        )
        write_page(found, page)
        if wanted.to is not None:
            write_csv(wanted.to, found.steps)
    if not silent or common.json:
        ended = wanted.follow or found.alarm is not None
        follow = "" if ended else "the same command with --follow (wait for new steps)"
        written = {"Steps": wanted.to, "Page": page}
        show(found, common, {**found.content(), "page": str(page)}, written=written, follow=follow)
    failed = [one for one in conditions if one.met(_rows(found.steps[-1]))] if found.steps else []
    for one in failed:
        say(f"step {found.steps[-1]['step']:g}: {one.text} holds")
    return int(found.alarm is not None or bool(failed))


_SHOWN = {
    "n_prompts": "prompts",
    "mean_reward": "mean reward",
    "drift": "drift",
    "right": "right",
    "gap": "gap",
    "auroc": "AUROC",
    "length_correlation": "with length",
}


def _rows(step: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of a step as rows that conditions read."""
    return [
        {
            "category": "overall",
            "metric": name,
            "value": step.get(name) if _is_known(step.get(name)) else None,
            "low": step.get(f"{name}_low"),
            "high": step.get(f"{name}_high"),
            "note": "it is unknown at the last step",
        }
        for name in _SHOWN
    ]


def _say_step(found: Watch) -> None:
    row = found.steps[-1]
    numbers = ", ".join(
        f"{label} {_text(row[key])}" for key, label in _SHOWN.items() if _is_known(row.get(key))
    )
    say(f"step {row['step']:g}: {numbers}")


def _is_known(value: Any) -> bool:
    return value is not None and value == value


def _text(value: Any) -> str:
    if not _is_known(value):
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
