"""The command line. Each command is one thin file; bad input is one line and exit code 2."""

import sys
import time
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
app.command("eval", cls=Command)(evaluate_models)
app.command("score", cls=Command)(score_models)
app.command("batch", cls=Command)(batch_models)
app.command("report", cls=Command)(report_leaderboard)
app.command(cls=Command)(compare)
app.command("calibrate", cls=Command)(calibrate_model)
app.command("decide", cls=Command)(decide_scores)
app.command("combine", cls=Command)(combine_judges)
app.command("card", cls=Command)(write_model_card)
app.command("models", cls=Command)(list_models)
app.command("benchmarks", cls=Command)(list_benchmarks)
app.command("doctor", cls=Command)(examine)
app.command(cls=Command)(synthetic)
app.command(cls=Command)(prolr)


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
    """Run the command line; bad input ends in one line on standard error and exit code 2."""
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
        sys.stderr.write("rmcalib: interrupted; the same command goes on from here\n")
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
