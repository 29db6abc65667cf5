"""The command line: one file per command, which parses, calls one public function and shows the result.

Commands are imported when they are called, so that help is instant. Bad input is one line and exit code 2.
"""

import os
import sys
import time

from cyclopts import App, CycloptsError, Group, Parameter

from rmcalib import __version__
from rmcalib._util.interrupts import INTERRUPTED
from rmcalib._util.terminal import clean_line
from rmcalib.cli.options import config_file

__all__ = ["app", "main"]

_MEASURE = Group("Measure", sort_key=1)
_USE = Group("Repair and use", sort_key=2)
_LOOK = Group("Look up", sort_key=3)


def _shown_default(value: object) -> object:
    """Return the default that help shows: none for flags and lists that are empty."""
    return None if value is False or value == () else value


app = App(
    name="rmcalib",
    help="Can a reward model's probabilities be believed? Calibration of reward models and of rankings.",
    help_epilogue="rmcalib COMMAND --help shows the options of a command, with examples.",
    help_format="plaintext",
    help_formatter="plain",
    version=__version__,
    default_parameter=Parameter(negative=(), show_default=_shown_default),
    config=[config_file],
    result_action="return_value",
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
)
for _name, _group, _about in (
    ("eval", _MEASURE, "Score a benchmark with a reward model, or take scores, and report their calibration."),
    ("report", _MEASURE, "Rank all scored models by what their probabilities are worth."),
    ("compare", _MEASURE, "Compare two models on the same prompts."),
    ("batch", _MEASURE, "Score every model of a list."),
    ("watch", _MEASURE, "Follow the calibration of a training run."),
    ("prolr", _MEASURE, "Measure learners of label rankings by cross-validation."),
    ("calibrate", _USE, "Fit the temperature of a judge's rewards."),
    ("apply", _USE, "Turn rewards into probabilities with a calibrator."),
    ("decide", _USE, "Find when a judge's first choice can be accepted without asking a person."),
    ("combine", _USE, "Combine judges of the same prompts into a panel."),
    ("card", _USE, "Write a model-card section and results for the Hub."),
    ("list", _LOOK, "List the known models, benchmarks, metrics or judges."),
    ("doctor", _LOOK, "Check whether this machine, or a server, scores correctly."),
):
    app.command(f"rmcalib.cli.{_name}:command", name=_name, group=_group, help=_about)
app.register_install_completion_command(help="Install completion for your shell.", group=_LOOK)

_BAD_INPUT = (ValueError, OSError, MemoryError, CycloptsError)
# Seconds in which the main process reports why all fail. Launchers end all processes when the first ends:
# if that were another one, the reason might be lost. The launcher also ends this wait.
_MAIN_REPORTS = 30.0


def main() -> None:
    """Run the command line; bad input ends in one line on standard error and exit code 2.

    The installed command `rmcalib` and ``python -m rmcalib`` call it::

        python -m rmcalib eval --model demo
    """
    try:
        code = app(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        if os.environ.get("RMCALIB_DEBUG"):
            raise
        if _is_reported_here(error):
            sys.stderr.write(f"rmcalib: error: {_one_line(error)}\n")
        else:
            time.sleep(_MAIN_REPORTS)
        code = 2 if isinstance(error, _BAD_INPUT) else 1
    if code == INTERRUPTED:
        sys.stderr.write("rmcalib: interrupted; run the same command again to continue\n")
    sys.exit(code if isinstance(code, int) else 0)


def _is_reported_here(error: Exception) -> bool:
    """Return whether this process prints the error: the main one does, and any that fails unexpectedly."""
    from rmcalib._util.processes import PeerError, is_main_process

    return is_main_process() or not isinstance(error, (*_BAD_INPUT, PeerError))


def _one_line(error: Exception) -> str:
    line = clean_line(error) or type(error).__name__
    if isinstance(error, _BAD_INPUT):
        return line
    return f"{type(error).__name__}: {line} (this should not happen; RMCALIB_DEBUG=1 shows where)"
