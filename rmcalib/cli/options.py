"""Options that all commands share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["Config", "Json", "Quiet", "Seed", "Verbose", "load_config", "refuse_options"]


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults from a YAML file of option names and values; the command line wins."""
    if path is None or context.resilient_parsing:
        return path
    import yaml

    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise typer.BadParameter(f"cannot read {path}: {problem}") from error
    if not isinstance(content, dict):
        raise typer.BadParameter(f"{path}: expected option names and values, such as 'seed: 1'")
    known = {param.name for param in context.command.params}
    given = {str(name).replace("-", "_"): value for name, value in content.items()}
    unknown = sorted(set(given) - known)
    if unknown:
        have = ", ".join(
            sorted(name.replace("_", "-") for name in known if name not in (None, "config", "help"))
        )
        raise typer.BadParameter(f"{path}: unknown option '{unknown[0]}' (have: {have})")
    context.default_map = {**(context.default_map or {}), **given}
    return path


def refuse_options(context: typer.Context, names: Iterable[str], cause: str) -> None:
    """Raise a ValueError if one of the parameters ``names`` is on the command line: it would do nothing.

    What a configuration file says is a default, and defaults may go unused.
    """
    sources = {name: context.get_parameter_source(name) for name in names}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        raise ValueError(
            f"{cause}: goes without {', '.join('--' + name.replace('_', '-') for name in given)}"
        )


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=load_config,
        help="YAML file with defaults for these options; the command line wins.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random; same seed, same numbers.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors (and --json).")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show tracebacks, and what other packages warn of.")
]
