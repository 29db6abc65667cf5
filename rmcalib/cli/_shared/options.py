"""Options that all commands share, and how commands take options as objects."""

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from rmcalib.cli._shared.places import is_url, output_file

if TYPE_CHECKING:
    from rmcalib.metrics import Settings

__all__ = [
    "REPORT",
    "Command",
    "Common",
    "Markdown",
    "Measuring",
    "Resamples",
    "Seed",
    "load_config",
    "named_folder",
    "refuse_options",
    "results_folder",
    "with_options",
]

REPORT, OTHER = "What to report", "Other options"  # panels of the help, after those of scoring
MOST_RESAMPLES = 100_000  # more take hours, and memory that few machines have


class TieRule(StrEnum):
    """What to do with votes for "equally good"."""

    DROP = "drop"
    SPLIT = "split"
    DAVIDSON = "davidson"
    RAO_KUPPER = "rao-kupper"


FORMER_NAMES = {"card": {"--push": "--push-to-hub"}}
"""Former names of options, by command: they still work, but the help does not show them."""


class Command(TyperCommand):
    """A command whose help ends with the options that all commands share, --help among them."""

    def make_parser(self, ctx: Any) -> Any:
        """Return the parser of the options, which also knows their former names."""
        parser = super().make_parser(ctx)
        for former, name in FORMER_NAMES.get(str(self.name), {}).items():
            (option,) = (param for param in self.params if name in param.opts)
            parser.add_option(obj=option, opts=[former], dest=option.name)  # type: ignore[arg-type]
        return parser

    def get_help_option(self, ctx: Any) -> Any:
        """Return --help, in the panel of the shared options."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.rich_help_panel = OTHER
        return option


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults from a YAML file of option names and values; the command line wins."""
    if path is None or context.resilient_parsing:
        return path
    from rmcalib._util.storage import read_file
    from rmcalib._util.texts import parse_yaml

    try:
        content: Any = parse_yaml(read_file(path), str(path)) or {}
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise typer.BadParameter(f"cannot read {error}") from error
    if not isinstance(content, dict):
        raise typer.BadParameter(f"{path}: expected option names and values, such as 'seed: 1'")
    # By the names on the command line: some parameters carry an underscore more. Arguments have no dashes.
    known = {
        next((opt for opt in param.opts if opt.startswith("--")), str(param.name)).lstrip("-"): param.name
        for param in context.command.params
        if param.name not in ("config", "help")
    }
    former = FORMER_NAMES.get(str(context.command.name), {})
    named = {str(name).replace("_", "-"): value for name, value in content.items()}
    given = {former.get(f"--{name}", name).lstrip("-"): value for name, value in named.items()}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise typer.BadParameter(f"{path}: unknown option '{unknown[0]}' (have: {', '.join(sorted(known))})")
    parameters = {param.name: param for param in context.command.params}
    values = {
        str(known[name]): _config_value(parameters[known[name]], value, f"{path}: {name}")
        for name, value in given.items()
    }
    context.default_map = {**(context.default_map or {}), **values}
    return path


def _config_value(parameter: Any, value: Any, where: str) -> Any:
    """Return a value of a configuration file as the option parser takes it."""
    if value is None:  # nothing after the colon: not given
        return None
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise typer.BadParameter(f"{where}: {value!r} is neither true nor false")
        return value
    several = getattr(parameter, "multiple", False) or parameter.nargs == -1
    for one in value if several and isinstance(value, list) else [value]:
        if isinstance(one, bool):
            raise typer.BadParameter(f"{where}: takes a value, not true or false (put a text into quotes)")
        if not isinstance(one, (str, int, float)):
            raise typer.BadParameter(f"{where}: expected one number or text, got {type(one).__name__}")
    return [value] if several and not isinstance(value, list) else value


def refuse_options(context: typer.Context, names: Iterable[str], cause: str) -> None:
    """Raise a ValueError if one of the parameters ``names`` is on the command line: it would do nothing.

    What a configuration file says is a default, and defaults may go unused.
    """
    sources = {name: context.get_parameter_source(name) for name in names}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        options = ", ".join("--" + name.replace("_", "-") for name in given)
        raise ValueError(f"{options}: no effect with {cause}")


def with_options(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take several options as one frozen object.

    Typer turns a function's parameters into options. A parameter whose type is a dataclass becomes one option
    per field, except for those in ``without``, and the command gets the object.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        groups: dict[str, Any] = {}
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            group = parameter.annotation
            if not (isinstance(group, type) and is_dataclass(group)):
                parameters.append(parameter)
                continue
            groups[parameter.name] = group
            hints = get_type_hints(group, include_extras=True)
            parameters += [
                parameter.replace(name=field.name, default=field.default, annotation=hints[field.name])
                for field in fields(group)
                if field.name not in without
            ]

        @functools.wraps(command)
        def gather(**given: Any) -> None:
            for name, group in groups.items():
                known = [field.name for field in fields(group) if field.name not in without]
                given[name] = group(**{field: given.pop(field) for field in known})
            command(**given)

        gather.__dict__["__signature__"] = inspect.Signature(parameters)
        gather.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return gather

    return decorate


def named_folder(text: str) -> Path:
    """Return the folder that ``text`` names; an empty text, as of an unset variable, names none.

    >>> named_folder("runs").name
    'runs'
    """
    if not str(text).strip():
        raise typer.BadParameter("an empty name; '.' is the current folder")
    if is_url(str(text)):
        raise typer.BadParameter(f"{text}: a URL; give a folder of this machine")
    return Path(text)


def results_folder(default: str) -> Any:
    """Return the option ``--output`` of a command whose results go to ``default`` otherwise.

    >>> results_folder("runs/x").help
    'Folder for the results; default runs/x.'
    """
    text = f"Folder for the results; default {default}."
    return typer.Option("--output", "-o", metavar="DIR", parser=named_folder, help=text)


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=load_config,
        help="YAML file with defaults for these options. The command line takes precedence.",
        rich_help_panel=OTHER,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", help="Random seed; the same seed gives the same numbers.", rich_help_panel=REPORT
    ),
]
Resamples = Annotated[
    int,
    typer.Option(
        min=20,
        max=MOST_RESAMPLES,
        metavar="N",
        help="Number of resamples for intervals and p-values.",
        rich_help_panel=REPORT,
    ),
]
Markdown = Annotated[
    Path | None,
    typer.Option(
        "--markdown",
        metavar="FILE",
        parser=output_file,
        help="Also write a summary as Markdown, for a pull request or the page of a workflow; - is "
        "standard output.",
        rich_help_panel=REPORT,
    ),
]
Ties = Annotated[
    TieRule,
    typer.Option(
        metavar="RULE",
        help="How to count votes for 'equally good': drop (default), split (among the responses), or "
        "davidson or rao-kupper (models of ties).",
        rich_help_panel=REPORT,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as JSON on standard output.", rich_help_panel=OTHER),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print only errors, and the result with --json.", rich_help_panel=OTHER
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show tracebacks, and warnings of other packages.",
        rich_help_panel=OTHER,
    ),
]


@dataclass(frozen=True)
class Common:
    """The options that every command has."""

    json: Json = False
    quiet: Quiet = False
    verbose: Verbose = False
    config: Config = None


@dataclass(frozen=True)
class Measuring:
    """How the metrics are computed."""

    ties: Ties = TieRule.DROP
    resamples: Resamples = 1000
    seed: Seed = 0

    def settings(self) -> "Settings":
        """Return the options as the metrics take them."""
        from rmcalib.metrics import Settings

        rule: Any = self.ties.value
        return Settings(resamples=self.resamples, seed=self.seed, ties=rule)
