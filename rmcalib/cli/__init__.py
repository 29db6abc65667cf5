"""The command line: one file per command, which parses, calls one public function and shows the result.

Commands are imported when they are called, so that help is instant. Bad input is one line and exit code 2.
"""

import os
import sys
import time
from pathlib import Path

from cyclopts import App, CycloptsError, Group, Parameter

from rmcalib import __version__
from rmcalib._util.interrupts import INTERRUPTED, end_now
from rmcalib._util.terminal import clean_line
from rmcalib._util.waiting import is_late
from rmcalib.cli.options import HELP_ALL, config_file

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
    help_epilogue="rmcalib COMMAND --help shows the usual options and examples, --help-all all options. Exit codes: "
    "0 done; 1 a condition holds, or something failed; 2 bad input.",
    help_format="plaintext",
    help_flags=("--help", "-h", HELP_ALL),
    version=__version__,
    default_parameter=Parameter(negative=(), show_default=_shown_default),
    config=[config_file],
    result_action="return_value",
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
)
# Help and examples are here, so that the list of commands needs no import.
COMMANDS: dict[str, tuple[Group, str, tuple[str, ...]]] = {
    "eval": (
        _MEASURE,
        "Score a benchmark with a reward model, or take scores, and report their calibration.\n\n"
        "Without a model, the built-in demo is evaluated. A killed run continues where it stopped. Under torchrun "
        "or accelerate launch, processes share the prompts.",
        (
            "rmcalib eval --model org/name --benchmark reward-bench-2 --limit 200",
            "rmcalib eval --scores mine.csv --columns prompt=id,reward=score,label=best",
            "rmcalib eval --model org/name --endpoint http://localhost:8000",
            "rmcalib eval --scores mine.csv --fail-if 'abs(overconfidence).low>0.05'",
        ),
    ),
    "report": (
        _MEASURE,
        "Rank all scored models by what their probabilities are worth.\n\n"
        "Without folders, the page shows real reward models, whose scores are built in. No network is needed.",
        ("rmcalib report", "rmcalib report runs --metric overconfidence"),
    ),
    "compare": (
        _MEASURE,
        "Compare two models on the same prompts: the difference of every metric, with intervals.",
        (
            "rmcalib compare runs/org__a runs/org__b",
            "rmcalib compare a.csv b.csv --fail-if 'accuracy.high<0'",
        ),
    ),
    "batch": (
        _MEASURE,
        "Score every model of a list, small ones first.\n\n"
        "Models that are done are skipped, so the same command continues a batch that was killed, and tries models "
        "that failed again.",
        (
            "rmcalib batch --max-params 10B --dry-run",
            "rmcalib batch --scores published --include 'allenai/*'",
        ),
    ),
    "watch": (
        _MEASURE,
        "Follow a training run: do its rewards still mean the same, and does its policy exploit the judge?",
        ("rmcalib watch rollouts", "rmcalib watch rollouts --follow"),
    ),
    "prolr": (
        _MEASURE,
        "Train learners of label rankings by cross-validation, and measure the calibration of their forecasts.",
        (
            "rmcalib prolr --dataset iris,wine --learner pl,rpc",
            "rmcalib prolr --data mine.csv --labels rank_ --k all",
        ),
    ),
    "calibrate": (
        _USE,
        "Fit the temperature of a judge's rewards, and report what it improves on held-out prompts.\n\n"
        "Takes labelled prompts of the kind that you will use the judge on: a run, a file of scores, or --model with "
        "--benchmark.",
        (
            "rmcalib calibrate runs/org__name/mine --to name.json",
            "rmcalib calibrate --model org/name --benchmark mine.jsonl --part 1/2 --checkpoint calibrated",
        ),
    ),
    "apply": (
        _USE,
        "Turn rewards into probabilities with a calibrator. Labels are not needed.",
        ("rmcalib apply new.csv --calibrator name.json --to new-with-probabilities.csv",),
    ),
    "decide": (
        _USE,
        "Find when a judge's first choice can be accepted without asking a person, and what that costs.",
        ("rmcalib decide runs/org__name/mine --wrong-at-most 0.05",),
    ),
    "combine": (
        _USE,
        "Combine judges of the same prompts, and report what the panel gains over its best member.",
        ("rmcalib combine runs/org__a/mine runs/org__b/mine --to panel.parquet",),
    ),
    "card": (
        _USE,
        "Write a model-card section and results for the Hub.",
        ("rmcalib card runs/org__name/reward-bench-2 --push-to-hub org/name",),
    ),
    "list": (
        _LOOK,
        "List the known models, benchmarks, metrics, or judges and their settings.",
        (
            "rmcalib list models 'Skywork/*'",
            "rmcalib list benchmarks rm-bench",
            "rmcalib list judges generative",
        ),
    ),
    "doctor": (
        _LOOK,
        "Check whether this machine scores correctly, or whether a server gives a model's rewards.",
        ("rmcalib doctor", "rmcalib doctor --model org/name --endpoint http://localhost:8000"),
    ),
}
for _number, (_name, (_group, _about, _examples)) in enumerate(COMMANDS.items()):
    app.command(
        f"rmcalib.cli.{_name}:command",
        name=_name,
        group=_group,
        sort_key=_number,
        help=_about,
        help_epilogue="\n".join(["Examples:", *(f"  {one}" for one in _examples)]),
    )
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
    _prepare_streams()
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
    code = code if isinstance(code, int) else 0
    if is_late():
        end_now(code)
    sys.exit(code)


def _prepare_streams() -> None:
    """Replace characters that a terminal cannot show, and discard the output to a closed stream."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (until the end)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _is_reported_here(error: Exception) -> bool:
    """Return whether this process prints the error: the main one does, and any that fails unexpectedly."""
    from rmcalib._util.processes import PeerError, is_main_process

    return is_main_process() or not isinstance(error, (*_BAD_INPUT, PeerError))


def _one_line(error: Exception) -> str:
    line = clean_line(error) or type(error).__name__
    if isinstance(error, _BAD_INPUT):
        return line
    return f"{type(error).__name__}: {line} (this should not happen; RMCALIB_DEBUG=1 shows where)"
