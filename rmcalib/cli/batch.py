"""``rmcalib batch``: a whole leaderboard, scored overnight."""

from __future__ import annotations

import os
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli._shared.batch_run import Show, run_batch, texts
from rmcalib.cli._shared.options import Config, Json, Resamples, Seed, Verbose, refuse_options
from rmcalib.cli._shared.progress import plain_warnings
from rmcalib.cli._shared.scoring_options import Scoring, with_scoring

if TYPE_CHECKING:
    from rmcalib.batch import Machine
    from rmcalib.benchmarks import Benchmark

__all__ = ["batch_models"]

_WHICH, _ENGINE = "Which models", "Where to run"
_RAY = ("address", "shards", "gpus", "gpu_memory")
_RUNNING_MODELS = (
    *(field.name for field in fields(Scoring) if field.name not in ("output", "fresh", "quiet")),
    *("engine", *_RAY, "free_disk", "ignore_memory"),
)
"""Options that mean nothing where no model is run."""


class Engine(StrEnum):
    """Where models run."""

    local = "local"
    ray = "ray"


Globs = list[str] | None


@with_scoring(without=("revision", "recipes"))
def batch_models(
    *,
    context: typer.Context,
    models: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML file with the models and their recipes; default the leaderboard, or with --scores "
            "published all that are published.",
            rich_help_panel=_WHICH,
        ),
    ] = None,
    include: Annotated[
        Globs, typer.Option(metavar="GLOB", help="Only models like this.", rich_help_panel=_WHICH)
    ] = None,
    exclude: Annotated[
        Globs, typer.Option(metavar="GLOB", help="No models like this.", rich_help_panel=_WHICH)
    ] = None,
    max_params: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="No larger ones, such as 10B.", rich_help_panel=_WHICH),
    ] = None,
    family: Annotated[
        Globs, typer.Option(metavar="NAME", help="Only this family, such as llama.", rich_help_panel=_WHICH)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, and do nothing.", rich_help_panel=_WHICH)
    ] = False,
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="published",
            help="'published' takes the scores that RewardBench has published instead of scoring.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Files fetched at a time with --scores published.")] = 4,
    engine: Annotated[
        Engine, typer.Option(help="This machine, or a Ray cluster.", rich_help_panel=_ENGINE)
    ] = Engine.local,
    address: Annotated[
        str,
        typer.Option(
            help="Ray cluster: 'local' starts one on this machine, 'auto' finds one that runs, or HOST:PORT.",
            rich_help_panel=_ENGINE,
        ),
    ] = "local",
    shards: Annotated[
        int, typer.Option(min=1, help="Ray workers that share a model's prompts.", rich_help_panel=_ENGINE)
    ] = 1,
    gpus: Annotated[
        float | None,
        typer.Option(
            min=0, help="GPUs of one Ray worker; default what the model needs.", rich_help_panel=_ENGINE
        ),
    ] = None,
    gpu_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory of one GPU of the cluster.", rich_help_panel=_ENGINE)
    ] = "80GB",
    free_disk: Annotated[
        bool,
        typer.Option(
            "--free-disk", help="Drop a model from the Hub's cache when it is done.", rich_help_panel=_ENGINE
        ),
    ] = False,
    ignore_memory: Annotated[
        bool,
        typer.Option("--ignore-memory", help="Also try models that seem too large.", rich_help_panel=_ENGINE),
    ] = False,
    metrics: Annotated[bool, typer.Option(help="Also write each model's metrics and page.")] = True,
    resamples: Resamples = 1000,
    scoring: Scoring,
    seed: Seed = 0,
    json_: Json = False,
    verbose: Verbose = False,
    config: Config = None,  # noqa: ARG001 (its callback has done the work)
) -> None:
    """Score every model of a list, small ones first; what fails is told at the end and tried again next time.

    Models that are done are passed over, so the same command takes up a batch that was killed. batch.json in
    the output folder always says how far it is, and events.jsonl what happened.
    """
    from rmcalib.batch import (
        Selection,
        estimated_tokens,
        make_plan,
        parse_bytes,
        parse_parameters,
        plan_problems,
        read_models,
        select,
    )
    from rmcalib.cli._shared.sources import PUBLISHED

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("a batch is one process: start it without torchrun (--engine ray uses several GPUs)")
    if scores not in (None, PUBLISHED):
        raise ValueError(f"--scores {scores}: a batch scores by itself, or takes 'published' scores")
    if scores == PUBLISHED:
        refuse_options(context, _RUNNING_MODELS, "--scores published")
    else:
        refuse_options(context, ("jobs",), "a batch that scores by itself")
    if not metrics:
        refuse_options(context, ("resamples", "seed"), "--no-metrics")
    if engine is Engine.local:
        refuse_options(context, _RAY, "--engine local")
    size = None if max_params is None else parse_parameters(max_params)
    one_gpu = parse_bytes(gpu_memory)
    selection = Selection(tuple(include or ()), tuple(exclude or ()), size, tuple(family or ()))
    show = Show(json_, scoring.quiet)
    evaluating = {"resamples": resamples, "seed": seed} if metrics else None
    about: Any = {"output": scoring.output, "evaluating": evaluating, "show": show}
    with plain_warnings(quiet=scoring.quiet, verbose=verbose):
        recipes = None if scores and models is None else read_models(models)
        if scores == PUBLISHED:
            from rmcalib.batch import published_plan, run_published

            plan, commit = published_plan(recipes, selection)
            if dry_run:
                return show.plan(plan)
            return run_batch(
                plan,
                lambda batch: run_published(batch, plan, commit, jobs=jobs, fresh=scoring.fresh),
                benchmark=texts(quiet=scoring.quiet) if metrics else None,
                scores=PUBLISHED,
                **about,
            )
        ray = engine is Engine.ray
        machine = _machine(scoring.device, ray)
        select(recipes or [], selection)  # a wish that leaves nothing is told before anything is fetched
        bench = _benchmark(scoring, load=not dry_run)
        plan = make_plan(
            recipes or [],
            selection,
            machine,
            dtype=scoring.dtype,
            tokens=estimated_tokens(bench),
            trust_remote_code=scoring.trust_remote_code,
            ignore_memory=ignore_memory,
        )
        if dry_run:
            # A cluster's nodes may have folders that this machine does not have.
            return show.plan(plan, {} if ray else plan_problems(plan))
        assert bench is not None
        from rmcalib.batch import Cluster, Job, run_local, run_ray

        job = Job(
            bench,
            scoring.benchmark or "reward-bench-2",
            limit=scoring.limit,
            options=scoring.load_options(),
            fresh=scoring.fresh,
            free_disk=free_disk,
        )
        cluster = Cluster(address, shards, gpus, one_gpu)
        return run_batch(
            plan,
            lambda batch: run_ray(batch, job, plan, cluster) if ray else run_local(batch, job, plan),
            benchmark=bench,
            engine=engine.value,
            **about,
        )


def _machine(device: str, ray: bool) -> Machine:
    from rmcalib.batch import Machine, choose_machine

    # A cluster's nodes are not this machine: their memory is not known here.
    return Machine("cpu" if device == "cpu" else "cuda") if ray else choose_machine(device)


def _benchmark(scoring: Scoring, *, load: bool) -> Benchmark | None:
    """Load the benchmark; a plan only needs one that is on this machine anyway."""
    from rmcalib.benchmarks import load_benchmark

    name = scoring.benchmark
    here = name is not None and (
        name == "demo" or Path(name).is_file() or Path(name).suffix in (".jsonl", ".json", ".parquet")
    )
    if not load and not here:
        return None
    return load_benchmark(name or "reward-bench-2", revision=scoring.benchmark_revision, limit=scoring.limit)
