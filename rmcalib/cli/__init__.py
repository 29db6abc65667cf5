"""The command line: one file per command, which parses, calls one public function and shows the result.

Commands are imported when they are called, so that help is instant. Bad input is one line and exit code 2.
"""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from cyclopts import (
    App,
    CycloptsError,
    Group,
    MissingArgumentError,
    Parameter,
    UnknownOptionError,
    UnusedCliTokensError,
)

from rmcalib import __version__
from rmcalib._util.display import clean_line
from rmcalib._util.extras import missing_extra
from rmcalib._util.processes import INTERRUPTED, PeerError, end_now, process_rank
from rmcalib._util.secrets import masked
from rmcalib._util.storage import is_late
from rmcalib._util.texts import parse_yaml
from rmcalib.cli.options import HELP_ALL, MAIN, config_file
from rmcalib.cli.screen import with_options

__all__ = ["app", "main"]


def _shown_default(value: object) -> object:
    """Return the default that help shows: names with commas, none for flags and lists that are empty."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or None
    return None if value is False else value


class _Help:
    """Shows help as cyclopts does, without the line breaks of the source."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        """Show a panel of options."""
        from cyclopts.help import DefaultFormatter
        from rich.text import Text

        for entry in panel.entries:
            text = getattr(entry.description, "primary_renderable", None)
            if isinstance(text, Text):
                text.plain = " ".join(text.plain.split())
        DefaultFormatter()(console, options, panel)

    def render_usage(self, console: Any, options: Any, usage: Any) -> None:
        """Show the first line."""
        from cyclopts.help import DefaultFormatter

        DefaultFormatter().render_usage(console, options, usage)


app = App(
    name="rmcalib",
    help="Can a reward model's probabilities be believed? Calibration of reward models and of rankings.",
    help_epilogue="rmcalib COMMAND --help shows the usual options and examples, --help-all all options. Exit codes: "
    "0 done; 1 a condition holds, or something failed; 2 bad input.",
    help_format="plaintext",
    help_formatter=_Help(),
    help_flags=("--help", "-h", HELP_ALL),
    version=__version__,
    group_parameters=MAIN,
    default_parameter=Parameter(negative=(), show_default=_shown_default),
    config=[config_file],
    result_action="return_value",
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
)
# Help and examples are data, so that the list of commands needs no import.
_FILE = Path(__file__).with_name("commands.yaml")
_GROUPS = parse_yaml(_FILE.read_bytes(), _FILE.name)
COMMANDS: dict[str, dict[str, Any]] = {
    name: about for group in _GROUPS.values() for name, about in group.items()
}
for _place, (_heading, _names) in enumerate(_GROUPS.items()):
    _group = Group(_heading, sort_key=_place)
    for _name, _about in _names.items():
        app.command(
            f"rmcalib.cli.{_name.replace('-', '_')}:command",
            name=_name,
            group=_group,
            sort_key=list(COMMANDS).index(_name),
            help="\n\n".join(_about[part] for part in ("summary", "more") if part in _about),
            help_epilogue="\n".join(["Examples:", *(f"  {example}" for example in _about["examples"])]),
        )
app.register_install_completion_command(help="Install completion for your shell.", group=_group)

_BAD_INPUT = (ValueError, OSError, MemoryError, CycloptsError)
# Launchers end all processes when the first ends. So that they report only one error, those that are not the main
# process wait: the main one may be about to report the same. A process that has lost a peer leaves the report to it.
_OTHERS_WAIT = 5.0
_LEFT_WAIT = 30.0


def main() -> None:
    """Run the command line; bad input ends in one line on standard error and exit code 2.

    The installed command `rmcalib` and ``python -m rmcalib`` call it::

        python -m rmcalib eval --model demo
    """
    _prepare_streams()
    try:
        code = app(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # such as `| head`, which closes its input
        code = 1
        _end_output()
    except Exception as error:
        if os.environ.get("RMCALIB_DEBUG"):
            raise
        if isinstance(error, ModuleNotFoundError) and (remedy := missing_extra(error)) is not None:
            error = ValueError(remedy)
        time.sleep(_seconds_to_wait(error))
        sys.stderr.write(f"rmcalib: error: {_one_line(error)}\n")
        _end_output()
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


def _end_output() -> None:
    """Discard what standard output did not take; otherwise Python complains about it at the end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _seconds_to_wait(error: Exception) -> float:
    rank, world = process_rank()
    if world > 1 and isinstance(error, PeerError):
        return _LEFT_WAIT
    return _OTHERS_WAIT if rank else 0.0


def _usage_line(error: CycloptsError, line: str) -> str:
    """Return what is wrong with the words of a command, and the option that was meant."""
    command = f"rmcalib {' '.join(error.command_chain or ())}"
    if isinstance(error, UnusedCliTokensError):
        remedy = (
            "give scores with --scores FILE, a model with --model ID"
            if command == "rmcalib eval"
            else "see --help"
        )
        return f"{clean_line((error.unused_tokens or [''])[0])}: `{command}` does not take it here; {remedy}"
    if isinstance(error, UnknownOptionError):
        from rmcalib.cli.sources import setting_names

        option = error.token.keyword or ""
        name = option.removeprefix("--").replace("-", "_")
        if name in setting_names() and any("--judge" in each.names for each in error.argument_collection):
            return f"{option}: a setting of the judge: -J {name}=..."
    return f"{line} See: {command} --help" if isinstance(error, MissingArgumentError) else line


def _one_line(error: Exception) -> str:
    line = masked(clean_line(with_options(str(error)))) or type(error).__name__
    if isinstance(error, CycloptsError):
        return masked(_usage_line(error, line))
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        return f"standard output, or a file: {error.strerror}"
    if isinstance(error, (*_BAD_INPUT, PeerError)):
        return line
    return f"{type(error).__name__}: {line} (this should not happen; RMCALIB_DEBUG=1 shows where)"
