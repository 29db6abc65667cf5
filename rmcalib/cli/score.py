"""``rmcalib score``: the scoring half of ``eval``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from rmcalib.cli import scoring_options as options
from rmcalib.cli.options import Config, Json, Output, Quiet, Verbose
from rmcalib.cli.progress import plain_warnings, say
from rmcalib.cli.sources import Request, benchmark_for, is_main_process, model_names, run_model

__all__ = ["score_models"]


def score_models(
    model: options.Models = None,
    benchmark: options.BenchmarkName = None,
    output: Output = Path("runs"),
    export_rewardbench: options.Export = None,
    benchmark_revision: options.BenchmarkRevision = None,
    limit: options.Limit = None,
    revision: options.Revision = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    max_length: options.MaxLength = None,
    token_budget: options.TokenBudget = None,
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
    recipes: options.Recipes = None,
    fresh: options.Fresh = False,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    config: Config = None,  # noqa: ARG001 (its callback has done the work)
) -> None:
    """Score a benchmark with a reward model, and keep the scores; a killed run goes on where it stopped."""
    from rmcalib.rewards.runs import run_folder

    request = Request(
        benchmark=benchmark,
        benchmark_revision=benchmark_revision,
        limit=limit,
        revision=revision,
        device=device,
        dtype=dtype,
        max_length=max_length,
        token_budget=token_budget,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        recipes=tuple(recipes or ()),
        fresh=fresh,
        output=output,
        quiet=quiet,
    )
    names = [name for name in model_names(model) if name is not None]
    if export_rewardbench is not None and len(names) > 1:
        raise ValueError("--export-rewardbench: one file holds the scores of one model, so give one --model")
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    with plain_warnings(quiet=quiet, verbose=verbose):
        bench = benchmark_for([*names], request)
        assert bench is not None
        for name in names:
            try:
                scores = run_model(name, bench, request)
                if export_rewardbench is not None and is_main_process():
                    scores.to_rewardbench_json(export_rewardbench)
            except (ValueError, OSError, MemoryError) as error:
                if len(names) == 1:
                    raise
                failed.append({"model": name, "error": " ".join(str(error).split())})
                say(f"error: {failed[-1]['error']}")
                continue
            file = run_folder(output, name, bench.name) / "scores.parquet"
            done.append({"model": name, "scores": str(file), "manifest": scores.manifest})
    if not is_main_process():
        return
    if json_:
        typer.echo(json.dumps({"scored": done, "failed": failed}))
    elif not quiet:
        for entry in done:
            counts = entry["manifest"]["counts"]
            typer.echo(
                f"{entry['model']}: {counts['responses']:,} responses of {counts['items']:,} prompts: "
                f"{Path(entry['scores']).resolve()}"
            )
    if failed:
        raise typer.Exit(1)
