"""The command line. Each command is one thin file; bad input is one line and exit code 2."""

import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from rmcalib import __version__
from rmcalib._util.interrupts import INTERRUPTED
from rmcalib._util.terminal import clean_line
from rmcalib.cli._shared.options import Command
from rmcalib.cli.batch import batch_models
from rmcalib.cli.benchmarks import list_benchmarks
from rmcalib.cli.calibrate import calibrate_model
from rmcalib.cli.card import write_model_card
from rmcalib.cli.combine import combine_judges
from rmcalib.cli.compare import compare
from rmcalib.cli.decide import decide_scores
from rmcalib.cli.doctor import examine
from rmcalib.cli.eval import evaluate_models
from rmcalib.cli.models import list_models
from rmcalib.cli.prolr import prolr
from rmcalib.cli.report import report_leaderboard
from rmcalib.cli.score import score_models
from rmcalib.cli.synthetic import synthetic

__all__ = ["app", "main"]

app = typer.Typer(
    name="rmcalib",
    help="Can a reward model's probabilities be believed? Calibration of reward models and of rankings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Each command with examples for the end of its help.
COMMANDS: dict[str, tuple[Callable[..., None], list[str]]] = {
    "eval": (
        evaluate_models,
        [
            "rmcalib eval",
            "rmcalib eval --model org/name --benchmark reward-bench-2 --limit 200",
            "rmcalib eval --scores mine.jsonl --fail-if 'abs(overconfidence).low>0.05'",
            "rmcalib eval --model org/name --endpoint http://localhost:8000",
        ],
    ),
    "score": (score_models, ["rmcalib score --model org/name --benchmark mine.jsonl --device cuda"]),
    "batch": (
        batch_models,
        [
            "rmcalib batch --max-params 10B --dry-run",
            "rmcalib batch --models models.yaml --benchmark rm-bench",
            "rmcalib batch --scores published --include 'allenai/*'",
        ],
    ),
    "report": (
        report_leaderboard,
        ["rmcalib report", "rmcalib report runs", "rmcalib report runs --metric ece --output page"],
    ),
    "compare": (
        compare,
        ["rmcalib compare runs/org__a runs/org__b", "rmcalib compare a.parquet b.parquet --category all"],
    ),
    "calibrate": (
        calibrate_model,
        [
            "rmcalib calibrate runs/org__name --to name.json",
            "rmcalib calibrate --model org/name --part 1/2 --checkpoint org-name-calibrated",
        ],
    ),
    "decide": (decide_scores, ["rmcalib decide runs/org__name --wrong-at-most 0.05"]),
    "combine": (combine_judges, ["rmcalib combine runs/org__a runs/org__b --to panel.parquet"]),
    "card": (write_model_card, ["rmcalib card runs/org__name --push-to-hub org/name"]),
    "models": (list_models, ["rmcalib models --include 'Skywork/*'"]),
    "benchmarks": (list_benchmarks, ["rmcalib benchmarks rm-bench"]),
    "doctor": (
        examine,
        [
            "rmcalib doctor",
            "rmcalib doctor --model org/name --endpoint http://localhost:8000",
        ],
    ),
    "synthetic": (synthetic, ["rmcalib synthetic --model mallows --confidence 1"]),
    "prolr": (
        prolr,
        [
            "rmcalib prolr --dataset iris,wine --learner pl,rpc",
            "rmcalib prolr --data mine.csv --labels rank_ --k all",
        ],
    ),
}
for _name, (_command, _examples) in COMMANDS.items():
    # Blank lines, because the help joins lines that follow each other.
    app.command(_name, cls=Command, epilog="\n\n".join(["Examples:", *_examples]))(_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rmcalib {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Can a reward model's probabilities be believed? Calibration of reward models and of rankings."""


def main() -> None:
    """Run the command line; bad input ends in one line on standard error and exit code 2.

    The installed command `rmcalib` and ``python -m rmcalib`` call it::

        python -m rmcalib eval --model demo
    """
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        if "--verbose" in sys.argv or "-v" in sys.argv:
            raise
        if not _is_reported_here(error):
            time.sleep(_MAIN_REPORTS)
        elif type(error).__name__ != "NoArgsIsHelpError":  # the help is printed then
            sys.stderr.write(f"rmcalib: error: {_one_line(error)}\n")
        sys.exit(2 if isinstance(error, _BAD_INPUT) or hasattr(error, "format_message") else 1)
    if code == INTERRUPTED:  # raised, or returned by the option parser after Ctrl-C
        sys.stderr.write("rmcalib: interrupted; run the same command again to continue\n")
    sys.exit(code if isinstance(code, int) else 0)


def _is_reported_here(error: Exception) -> bool:
    """Return whether this process prints the error: the main one does, and any that fails unexpectedly."""
    from rmcalib._util.processes import PeerError, is_main_process

    alike = isinstance(error, (*_BAD_INPUT, PeerError)) or hasattr(error, "format_message")
    return is_main_process() or not alike


_BAD_INPUT = (ValueError, OSError, MemoryError)
# Seconds in which the main process reports why all fail. Launchers end all processes when the first ends:
# if that were another one, the reason might be lost. The launcher also ends this wait.
_MAIN_REPORTS = 30.0


def _one_line(error: Exception) -> str:
    """Return the error as one line; an unexpected one says so."""
    # Errors of the option parser carry their message in a method.
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    given: list[Any] = getattr(
        error.__cause__, "errors", list
    )()  # those of pydantic, with which typer checks values
    if given and "input" in given[0]:
        text = text.replace("Value error, ", "")
        value = repr(given[0]["input"])
        text += "" if value in text else f" (got {value})"
    line = clean_line(text) or type(error).__name__
    if isinstance(error, _BAD_INPUT) or hasattr(error, "format_message"):
        return line
    return f"{type(error).__name__}: {line} (this should not happen; --verbose shows where)"
