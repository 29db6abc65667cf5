"""``rmcalib batch``: a whole leaderboard, scored overnight."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmcalib.cli._shared.batch_run import Show, run
from rmcalib.cli._shared.options import Common, Measuring, refuse_options, with_options
from rmcalib.cli._shared.places import input_file, output_folder
from rmcalib.cli._shared.progress import plain_warnings
from rmcalib.cli._shared.scoring_options import ONE_JUDGE, Scoring

if TYPE_CHECKING:
    from rmcalib.runs import Cluster, Selection

__all__ = ["batch_models"]

_WHICH, _ENGINE = "Which models", "Where to run"
_PUBLISHED = "published"


class Engine(StrEnum):
    """Where models run."""

    local = "local"
    ray = "ray"


Globs = list[str] | None


@dataclass(frozen=True)
class Which:
    """Which models are wanted."""

    models: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=input_file,
            help="YAML file with the models and their recipes; default the models of the RewardBench 2 "
            "leaderboard, or with --scores published all published ones.",
            rich_help_panel=_WHICH,
        ),
    ] = None
    include: Annotated[
        Globs,
        typer.Option(
            metavar="GLOB", help="Only models whose names match; several allowed.", rich_help_panel=_WHICH
        ),
    ] = None
    exclude: Annotated[
        Globs,
        typer.Option(
            metavar="GLOB",
            help="Leave out models whose names match; several allowed.",
            rich_help_panel=_WHICH,
        ),
    ] = None
    max_params: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Leave out larger models, such as 10B.", rich_help_panel=_WHICH),
    ] = None
    family: Annotated[
        Globs,
        typer.Option(
            metavar="NAME", help="Only this family, such as llama; several allowed.", rich_help_panel=_WHICH
        ),
    ] = None

    def selection(self) -> Selection:
        """Return the options as the batch takes them."""
        from rmcalib._util.sizes import parse_parameters
        from rmcalib.runs import Selection

        size = None if self.max_params is None else parse_parameters(self.max_params)
        return Selection(tuple(self.include or ()), tuple(self.exclude or ()), size, tuple(self.family or ()))


@dataclass(frozen=True)
class Where:
    """Where the models run."""

    engine: Annotated[
        Engine, typer.Option(help="Run on this machine or on a Ray cluster.", rich_help_panel=_ENGINE)
    ] = Engine.local
    address: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="Ray cluster: 'local' starts one on this machine, 'auto' finds a running one, or HOST:PORT.",
            rich_help_panel=_ENGINE,
        ),
    ] = "local"
    shards: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of Ray workers that share a model's prompts.",
            rich_help_panel=_ENGINE,
        ),
    ] = 1
    gpus: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="X",
            help="GPUs of one Ray worker; default what the model needs.",
            rich_help_panel=_ENGINE,
        ),
    ] = None
    gpu_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory of one GPU of the cluster.", rich_help_panel=_ENGINE)
    ] = "80GB"
    free_disk: Annotated[
        bool,
        typer.Option(
            "--free-disk",
            help="Remove a model from the Hub's cache when it is done.",
            rich_help_panel=_ENGINE,
        ),
    ] = False
    ignore_memory: Annotated[
        bool,
        typer.Option("--ignore-memory", help="Also try models that seem too large.", rich_help_panel=_ENGINE),
    ] = False

    def cluster(self) -> Cluster | None:
        """Return the Ray cluster; None for this machine."""
        from rmcalib._util.sizes import parse_bytes
        from rmcalib.runs import Cluster

        cluster = Cluster(self.address, self.shards, self.gpus, parse_bytes(self.gpu_memory))
        return cluster if self.engine is Engine.ray else None


_RAY = ("address", "shards", "gpus", "gpu_memory")
_RUNNING_MODELS = (
    *(field.name for field in fields(Scoring) if field.name not in ("output", "fresh")),
    *(field.name for field in fields(Where)),
)
"""Options that do nothing if no model is run."""


@with_options(without=("part", "revision", "recipes", *ONE_JUDGE))
def batch_models(
    *,
    context: typer.Context,
    which: Which,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the plan.", rich_help_panel=_WHICH)
    ] = False,
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="published",
            help="'published' takes the scores that RewardBench has published, instead of scoring.",
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Files to fetch at a time with --scores published.")
    ] = 4,
    where: Where,
    metrics: Annotated[bool, typer.Option(help="Also write each model's metrics and page.")] = True,
    measuring: Measuring,
    scoring: Scoring,
    common: Common,
) -> None:
    """Score every model of a list, small ones first. Models that fail are tried again next time.

    Models that are done are skipped, so the same command resumes a batch that
    was killed. In the output folder, batch.json has the state of every model,
    and events.jsonl lists what happened.

    Exit codes: 0 done; 1 a model failed; 2 bad usage or bad input.
    """
    from rmcalib.runs import BatchRequest, Published, plan_batch
    from rmcalib.runs import Scoring as HowToScore

    _refuse_clashes(context, scores, where, metrics=metrics)
    output_folder(scoring.output)
    how = HowToScore(
        scoring.benchmark or "reward-bench-2",
        scoring.benchmark_revision,
        scoring.limit,
        scoring.load_options(),
        where.cluster(),
        where.free_disk,
        where.ignore_memory,
        scoring.format,
    )
    request = BatchRequest(
        which.models,
        which.selection(),
        Published(jobs) if scores == _PUBLISHED else how,
        scoring.output,
        scoring.fresh,
    )
    show = Show(common.json, common.quiet)
    with plain_warnings(quiet=common.quiet, verbose=common.verbose):
        if dry_run:
            show.plan(plan_batch(request))
        else:
            run(request, measuring.settings() if metrics else None, show)


def _refuse_clashes(context: typer.Context, scores: str | None, where: Where, *, metrics: bool) -> None:
    """Refuse options that would do nothing."""
    if scores not in (None, _PUBLISHED):
        raise ValueError(f"--scores {scores}: a batch scores by itself, or takes 'published' scores")
    if scores == _PUBLISHED:
        refuse_options(context, _RUNNING_MODELS, "--scores published")
    else:
        refuse_options(context, ("jobs",), "a batch that scores by itself")
    if not metrics:
        refuse_options(context, [field.name for field in fields(Measuring)], "--no-metrics")
    if where.engine is Engine.local:
        refuse_options(context, _RAY, "--engine local")
