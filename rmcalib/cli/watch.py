"""``rmcalib watch``: a training run, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from rmcalib._util.terminal import add_row, open_console, print_table, table
from rmcalib.cli.options import MAIN, MORE, Common, Name, OutputFile, Reading, at_least, refuse, writes_stdout
from rmcalib.cli.screen import following, messages, print_json, print_lines, say

if TYPE_CHECKING:
    from rmcalib.integrations import Watch


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
    """Measure every step; exit code 1 if there is an alarm."""
    from rmcalib._util.files import write_csv
    from rmcalib.integrations import watch

    given = {"--scale": reading.scale, "--cluster": reading.cluster, "--missing": reading.missing}
    refuse(given, "rollouts have rewards, by prompt")
    silent = writes_stdout(common, to=wanted.to)
    loud = not (common.quiet or common.json or silent)
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
            on_step=_say_step if loud and wanted.follow else None,
        )
        if wanted.to is not None:
            write_csv(wanted.to, found.steps)
    if common.json:
        print_json(found.content())
    elif loud:
        _print(found)
        following({"Steps": wanted.to}, "" if wanted.follow else f"rmcalib watch {folder} --follow")
    return int(found.alarm is not None)


_SHOWN = {
    "n_prompts": "prompts",
    "mean_reward": "mean reward",
    "drift": "drift",
    "right": "right",
    "gap": "gap",
    "auroc": "AUROC",
    "length_correlation": "with length",
}


def _say_step(found: Watch) -> None:
    row = found.steps[-1]
    numbers = ", ".join(
        f"{label} {_text(row[key])}" for key, label in _SHOWN.items() if _is_known(row.get(key))
    )
    say(f"step {row['step']:g}: {numbers}")


def _print(found: Watch) -> None:
    columns = {
        key: label for key, label in _SHOWN.items() if any(_is_known(row.get(key)) for row in found.steps)
    }
    rows = table("step", *columns.values())
    for row in found.steps:
        add_row(rows, f"{row['step']:g}", *(_text(row.get(key)) for key in columns))
    print_table(open_console(), rows)
    if found.alarm is not None:
        one = found.alarm
        print_lines(
            f"Alarm at step {one['step']:g}: {one['what']} {one['value']:.3f}, above {one['limit']:.3f}."
        )
    elif found.waiting:
        print_lines(f"No alarm yet: {found.waiting:,} more labelled prompts are needed for the reference.")
    else:
        print_lines("No alarm.")
    if found.misses:
        print_lines(f"Not measured without labels or texts: {', '.join(found.misses)}.")


def _is_known(value: Any) -> bool:
    return value is not None and value == value


def _text(value: Any) -> str:
    if not _is_known(value):
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
