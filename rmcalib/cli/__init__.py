"""The command line: a door, not a room. Each command is one thin file; bad input is one line, exit code 2."""

import sys
from typing import Annotated

import typer

from rmcalib import __version__
from rmcalib.cli.prolr import prolr
from rmcalib.cli.synthetic import synthetic

__all__ = ["app", "main"]

app = typer.Typer(
    name="rmcalib",
    help="Can a reward model's probabilities be believed? Calibration of reward models and of rankings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(synthetic)
app.command()(prolr)


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
        app()
    except KeyboardInterrupt:
        sys.stderr.write("rmcalib: interrupted\n")
        sys.exit(130)
    except (ValueError, OSError) as error:
        if "--verbose" in sys.argv or "-v" in sys.argv:
            raise
        sys.stderr.write(f"rmcalib: error: {' '.join(str(error).split())}\n")
        sys.exit(2)
