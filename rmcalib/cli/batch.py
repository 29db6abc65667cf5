"""``rmcalib batch``: a whole leaderboard, scored overnight."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli import scoring_options as options
from rmcalib.cli.options import Config, Json, Output, Quiet, Seed, Verbose
from rmcalib.cli.progress import plain_warnings, say

if TYPE_CHECKING:
    from rmcalib.rewards.batch import Job, Judge
    from rmcalib.rewards.benchmarks import Benchmark
    from rmcalib.rewards.plan import Machine, PlanEntry, Selection

__all__ = ["batch_models"]

_WHICH, _ENGINE = "Which models", "Where to run"


class Engine(StrEnum):
    """Where models run."""

    local = "local"
    ray = "ray"


Globs = list[str] | None


def batch_models(
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
    resamples: Annotated[int, typer.Option(min=20, help="Resamples behind intervals.")] = 1000,
    benchmark: options.BenchmarkName = None,
    benchmark_revision: options.BenchmarkRevision = None,
    limit: options.Limit = None,
    output: Output = Path("runs"),
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    max_length: options.MaxLength = None,
    token_budget: options.TokenBudget = None,
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
    fresh: options.Fresh = False,
    seed: Seed = 0,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    config: Config = None,  # noqa: ARG001 (its callback has done the work)
) -> None:
    """Score every model of a list, small ones first; what fails is told at the end and tried again next time.

    Models that are done are passed over, so the same command takes up a batch that was killed. batch.json in
    the output folder always says how far it is, and events.jsonl what happened.
    """
    from rmcalib.cli.sources import PUBLISHED
    from rmcalib.rewards.plan import (
        Selection,
        estimated_tokens,
        make_plan,
        parse_bytes,
        parse_parameters,
        read_models,
        select,
    )

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("a batch is one process: start it without torchrun (--engine ray uses several GPUs)")
    if scores not in (None, PUBLISHED):
        raise ValueError(f"--scores {scores}: a batch scores by itself, or takes 'published' scores")
    size = None if max_params is None else parse_parameters(max_params)
    selection = Selection(tuple(include or ()), tuple(exclude or ()), size, tuple(family or ()))
    ask = _Show(dry_run, json_, quiet)
    with plain_warnings(quiet=quiet, verbose=verbose):
        recipes = None if scores and models is None else read_models(models)
        if scores == PUBLISHED:
            judging = {"resamples": resamples, "seed": seed, "metrics": metrics}
            return _published(recipes, selection, output, judging, jobs, fresh, ask)
        ray = engine is Engine.ray
        machine = _machine(device, ray)
        select(recipes or [], selection)  # a wish that leaves nothing is told before anything is fetched
        bench = _benchmark(benchmark, benchmark_revision, limit, load=not dry_run)
        plan = make_plan(
            recipes or [],
            selection,
            machine,
            dtype=dtype,
            tokens=estimated_tokens(bench),
            trust_remote_code=trust_remote_code,
            ignore_memory=ignore_memory,
        )
        if dry_run:
            return ask.plan(plan)
        assert bench is not None
        from rmcalib.rewards.batch import Job, run_local

        job = Job(
            bench,
            benchmark or "reward-bench-2",
            output,
            limit=limit,
            device=device,
            dtype=dtype,
            max_length=max_length,
            token_budget=token_budget,
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
            fresh=fresh,
            free_disk=free_disk,
            judging={"resamples": resamples, "seed": seed, "metrics": metrics},
        )
        if not ray:
            return _run(job, plan, ask, lambda batch: run_local(batch, job, plan), engine="local")
        from rmcalib.rewards.cluster import Cluster, run_ray

        cluster = Cluster(address, shards, gpus, parse_bytes(gpu_memory))
        return _run(job, plan, ask, lambda batch: run_ray(batch, job, plan, cluster), engine="ray")


class _Show:
    """How the result is shown."""

    def __init__(self, dry_run: bool, as_json: bool, quiet: bool) -> None:
        self.dry_run, self.as_json, self.quiet = dry_run, as_json, quiet

    def plan(self, plan: list[PlanEntry]) -> None:
        if self.as_json:
            shown = ("model", "family", "parameters", "memory", "device", "seconds", "skipped")
            typer.echo(json.dumps([{name: getattr(entry, name) for name in shown} for entry in plan]))
        else:
            from rmcalib.cli.batch_table import print_plan

            print_plan(plan, "a rough guess from sizes and usual speeds; nothing was looked up")

    def result(self, status: Any) -> None:
        if self.as_json:
            typer.echo(json.dumps(status.content()))
        elif not self.quiet:
            from rmcalib.cli.batch_table import print_summary

            print_summary(status)


def _run(job: Job, plan: list[PlanEntry], ask: _Show, engine_run: Any, *, engine: str) -> None:
    from rmcalib.cli.batch_table import live_table
    from rmcalib.rewards.batch import open_batch

    judge = _judge(job.benchmark, job.judging) if job.judging["metrics"] else None
    about = {"engine": engine, "benchmark": job.benchmark.name}
    with live_table(quiet=ask.quiet or ask.as_json) as table:
        opened = open_batch(job.output, plan, judge=judge, judging=job.judging, on_change=table, **about)
        with opened as batch:
            engine_run(batch)
    _end(batch.status, ask)


def _published(
    recipes: Any,
    selection: Selection,
    output: Path,
    judging: dict[str, Any],
    jobs: int,
    fresh: bool,
    ask: _Show,
) -> None:
    from rmcalib.cli.batch_table import live_table
    from rmcalib.rewards.batch import open_batch
    from rmcalib.rewards.batch_published import published_plan, run_published

    plan, commit = published_plan(recipes, selection)
    if ask.dry_run:
        return ask.plan(plan)
    judge = _judge(_texts(ask.quiet), judging) if judging["metrics"] else None
    with live_table(quiet=ask.quiet or ask.as_json) as table:
        opened = open_batch(output, plan, judge=judge, judging=judging, on_change=table, scores="published")
        with opened as batch:
            run_published(batch, plan, commit, jobs=jobs, fresh=fresh)
    _end(batch.status, ask)
    return None


def _texts(quiet: bool) -> Benchmark | None:
    """Load the texts that published scores are about; reports can do without them."""
    from rmcalib.rewards.benchmarks import load_benchmark
    from rmcalib.rewards.hub import HubError

    try:
        return load_benchmark("reward-bench-2")
    except HubError as error:
        if not quiet:
            say(f"warning: the reports have no texts to read ({error})")
        return None


def _end(status: Any, ask: _Show) -> None:
    ask.result(status)
    if "failed" in status.counts():
        raise typer.Exit(1)


def _judge(benchmark: Benchmark | None, judging: Any) -> Judge:
    """Return what writes a model's metrics and page: the same as ``eval`` does."""

    def judge(entry: PlanEntry, scores: Any, folder: Path) -> None:
        from rmcalib.report.evaluation import evaluate, write_evaluation

        result = evaluate(
            scores,
            benchmark=benchmark,
            model=entry.model,
            recipe=entry.recipe,
            resamples=judging["resamples"],
            seed=judging["seed"],
        )
        write_evaluation(result, folder)

    return judge


def _machine(device: str, ray: bool) -> Machine:
    from rmcalib.rewards.plan import Machine, choose_machine

    # A cluster's nodes are not this machine: their memory is not known here.
    return Machine("cpu" if device == "cpu" else "cuda") if ray else choose_machine(device)


def _benchmark(name: str | None, revision: str | None, limit: int | None, *, load: bool) -> Benchmark | None:
    """Load the benchmark; a plan only needs one that is on this machine anyway."""
    from rmcalib.rewards.benchmarks import load_benchmark

    if not load and not (name == "demo" or (name and Path(name).is_file())):
        return None
    return load_benchmark(name or "reward-bench-2", revision=revision, limit=limit)
