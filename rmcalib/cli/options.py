"""The options that commands share. Each is declared once; a command takes the groups that it needs.

The help of an option is in the docstring of its group or command, or is the `help` of its alias.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, Token
from cyclopts.validators import Number

from rmcalib._util.files import check_output

HELP_ALL = "--help-all"


def _folded(console: Any, options: Any, panel: Any) -> None:
    """Show the options that few people need with --help-all, and else only that there are some."""
    from cyclopts.help import DefaultFormatter

    if HELP_ALL in sys.argv:
        DefaultFormatter()(console, options, panel)
    else:
        console.print(f"{len(panel.entries)} more options: {HELP_ALL}\n")


MAIN = Group("Options", sort_key=1)
MORE = Group("More options", sort_key=2, help_formatter=_folded)
OUTPUT = Group("Output", sort_key=3)


def _commas(_: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Split values at commas, and drop repeats."""
    parts = [part.strip() for token in tokens for part in token.value.split(",")]
    if not all(parts):
        raise ValueError("an empty name")
    return tuple(dict.fromkeys(parts))


def _given(_: Any, tokens: Sequence[Token]) -> str:
    text = tokens[0].value
    if not text.strip():
        raise ValueError("an empty name")
    return text


def _path(_: Any, tokens: Sequence[Token]) -> Path:
    text = _given(None, tokens)
    if "://" in text:
        raise ValueError(f"{text}: a URL; give a file or folder of this machine")
    return Path(text)


def _output_file(_: Any, tokens: Sequence[Token]) -> Path:
    path = _path(None, tokens)
    if str(path) != "-" and str(path).startswith("-"):
        raise ValueError(f"{path}: an option, not a file; name a file (./{path} if that is its name)")
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; name a file")
    check_output(path)
    return path


Name = Annotated[str, Parameter(converter=_given, n_tokens=1)]
Names = Annotated[tuple[str, ...], Parameter(converter=_commas, n_tokens=1)]
InputFile = Annotated[Path, Parameter(converter=_path, n_tokens=1, metavar="FILE")]
OutputFile = Annotated[
    Path, Parameter(converter=_output_file, n_tokens=1, metavar="FILE", allow_leading_hyphen=True)
]
Folder = Annotated[Path, Parameter(converter=_path, n_tokens=1, metavar="DIR")]
Place = Annotated[
    Name,
    Parameter(alias="-o", metavar="DIR", help="Folder for the results, or a URL such as s3://bucket/runs."),
]
Source = Annotated[
    Name, Parameter(metavar="RUN", help="A run folder, or a file of scores (CSV, Parquet, JSONL, JSON).")
]
FailIf = Annotated[
    tuple[str, ...],
    Parameter(
        metavar="CONDITION",
        help="Exit with code 1 if this holds, such as 'gap.low>0.05', 'ece[Math]>=0.2' or "
        "'abs(gap).low>0.05'; several allowed.",
    ),
]


Markdown = Annotated[
    OutputFile | None, Parameter(help="Also write a summary as Markdown; - is standard output.", group=MORE)
]
CalibratorFile = Annotated[
    InputFile | None,
    Parameter(
        help="Divide the rewards by the temperature that `rmcalib calibrate` wrote; check that it holds here."
    ),
]
Seed = Annotated[
    int,
    Parameter(
        metavar="N",
        help="Random seed; the same seed gives the same numbers.",
        group=MORE,
        validator=Number(gte=0),
    ),
]


JudgeSettings = Annotated[
    tuple[str, ...],
    Parameter(
        alias="-J",
        metavar="KEY=VALUE",
        help="A setting of the judge (see `rmcalib list judges`), such as device=cuda; several allowed.",
    ),
]
Endpoint = Annotated[
    Name | None,
    Parameter(
        metavar="URL",
        help="Ask a server for the rewards, such as http://localhost:8000, instead of loading the model.",
    ),
]
Fresh = Annotated[
    bool,
    Parameter(help="Start over, and replace what an earlier run left in the folder.", group=MORE),
]


def _complete(what: str) -> Callable[[Any], list[str]]:
    """Return what completes the names of models, benchmarks, metrics or judges."""

    def names(_: Any) -> list[str]:
        from rmcalib.cli.list import known_names

        return known_names(what)

    return names


Models = Annotated[Names, Parameter(alias="-m", metavar="ID", completer=_complete("models"))]
Benchmarks = Annotated[Names, Parameter(alias="-b", metavar="NAME", completer=_complete("benchmarks"))]
MetricName = Annotated[Name, Parameter(metavar="NAME", completer=_complete("metrics"))]


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True)
class Common:
    """The options of every command.

    Parameters
    ----------
    json
        Print the result as JSON on standard output.
    quiet
        Print only errors, and the result with --json.
    config
        YAML file with values for these options; the command line takes precedence.
    """

    json: bool = False
    quiet: Annotated[bool, Parameter(alias="-q")] = False
    config: InputFile | None = None


@Parameter(name="*", group=MORE)
@dataclass(frozen=True)
class Reading:
    """How files of scores are read.

    Parameters
    ----------
    columns
        Which column is what, such as prompt=id,reward=score,label=best; also response, category, cluster, step, person.
    scale
        What numbers are: rewards of a Bradley-Terry model (utility), log-odds, ratings, ...; by default, what they
        look like, if that is certain.
    labels
        File of labels to join, such as a filled sheet of `rmcalib label`; in watch, it may come later.
    labels_are
        What labels mean: one response of a prompt is the best, or each is correct or not; default by their column.
    labels_by
        Column in whose groups prompts were drawn at random, for labels without inclusion probabilities.
    second
        Scores of a second judge of the same prompts: narrower intervals where few are labelled; best-of-n compares it.
    cluster
        Column that says which prompts belong together.
    missing
        Responses without a score: refuse the file, count them as the lowest, or drop their prompts.
    """

    columns: Annotated[str | None, Parameter(metavar="ROLE=COLUMN,...", group=MAIN)] = None
    scale: Annotated[
        Literal["reward", "utility", "log_odds", "probability", "logprob", "rating", "logit", "none"] | None,
        Parameter(group=MAIN),
    ] = None
    labels: Annotated[InputFile | None, Parameter(group=MAIN)] = None
    labels_are: Annotated[Literal["best", "correct"] | None, Parameter(group=MAIN)] = None
    labels_by: Annotated[str | None, Parameter(metavar="COLUMN")] = None
    second: Annotated[Name | None, Parameter(metavar="RUN")] = None
    cluster: Annotated[str | None, Parameter(metavar="COLUMN")] = None
    missing: Literal["refuse", "lowest", "drop"] | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The files that these options name."""
        return tuple(str(file) for file in (self.labels, self.second) if file is not None)

    def refuse(self, why: str, *allowed: str) -> None:
        """Refuse options that would do nothing."""
        given = {name: value for name, value in asdict(self).items() if name not in allowed}
        refuse({f"--{name.replace('_', '-')}": value for name, value in given.items()}, why)

    def open(self, source: str, *, second: bool = True) -> Any:
        """Read the `Scores` of one model from a run folder or a file; without use for a second judge, refuse one."""
        if not second:
            refuse({"--second": self.second}, "it narrows the intervals of eval and compare")
        from rmcalib.scores import load_scores

        return load_scores(source, **asdict(self))


@Parameter(name="*", group=MORE)
@dataclass(frozen=True)
class Measuring:
    """How the metrics are computed.

    Parameters
    ----------
    resamples
        Resamples for intervals and p-values.
    """

    resamples: Annotated[int, Parameter(metavar="N", validator=Number(gte=20, lte=100_000))] = 1000
    seed: Seed = 0


@Parameter(name="*", group=MORE)
@dataclass(frozen=True)
class Scoring:
    """What to score, and how.

    Parameters
    ----------
    benchmark
        A name that `rmcalib list benchmarks` shows, a Hub data set (@revision), or a file; default reward-bench-2.
    limit
        At most this many prompts, taken evenly from the whole benchmark.
    backend
        What runs the model: transformers (the default), or vllm, whose server is started and stopped for it.
    format
        How the benchmark's file is written, such as rm-bench or trl; default rmcalib's own schema.
    """

    benchmark: Annotated[Benchmarks, Parameter(group=MAIN)] = ()
    limit: Annotated[int | None, Parameter(metavar="N", group=MAIN, validator=Number(gte=1))] = None
    output: Annotated[Place, Parameter(group=MAIN)] = "runs"
    judge: JudgeSettings = ()
    backend: Literal["transformers", "vllm"] | None = None
    format: Annotated[Name | None, Parameter(metavar="NAME")] = None
    fresh: Fresh = False


Part = Annotated[
    Name | None,
    Parameter(
        metavar="K/N", help="Only part K of N of the prompts: calibrate on 1/2, evaluate or decide on 2/2."
    ),
]


@Parameter(name="*", group=MORE)
@dataclass(frozen=True)
class Judged(Scoring):
    """The judge that is run, and on which prompts.

    Parameters
    ----------
    model
        Hub id, local folder, registered judge, or demo (the default); several allowed in eval.
    """

    model: Annotated[Models, Parameter(group=MAIN)] = ()
    endpoint: Annotated[Endpoint, Parameter(group=MAIN)] = None
    part: Part = None

    def refuse_run(self, why: str, *allowed: str) -> None:
        """Refuse options of a run where there are scores already."""
        given = {"--endpoint": self.endpoint, "--backend": self.backend, "--limit": self.limit}
        settings = tuple(text for text in self.judge if not text.startswith("recipes="))
        refuse({name: value for name, value in {**given, "-J": settings}.items() if name not in allowed}, why)


def refuse(options: dict[str, Any], why: str) -> None:
    """Raise a ValueError if one of the options is given: it would do nothing."""
    for option, value in options.items():
        if value not in (None, (), False):
            raise ValueError(f"{option}: has no effect: {why}")


def config_file(app: Any, commands: Any, arguments: Any) -> None:
    """Take values from the YAML file that --config names. What the command line gives stays."""
    from cyclopts.config import Dict

    from rmcalib._util.storage import read_input
    from rmcalib._util.texts import parse_yaml

    given = next(
        (argument for argument in arguments if "--config" in argument.names and argument.tokens), None
    )
    if given is None:
        return
    path = given.tokens[0].value
    content = parse_yaml(read_input(path), f"--config {path}") or {}
    if not isinstance(content, dict):
        raise ValueError(f"--config {path}: expected names and values, such as 'seed: 1'")
    values = {str(name): value for name, value in content.items() if value is not None}
    if isinstance(values.get("judge"), dict):
        values["judge"] = [f"{key}={value}" for key, value in values["judge"].items()]
    Dict(values, source=path, use_commands_as_keys=False)(app, commands, arguments)
