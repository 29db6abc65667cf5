"""``rmcalib score``: the scoring half of ``eval``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from rmcalib.cli._shared.options import Config, Json, Verbose
from rmcalib.cli._shared.places import Places
from rmcalib.cli._shared.progress import plain_warnings
from rmcalib.cli._shared.scoring_options import Export, Models, Scoring, with_scoring
from rmcalib.cli._shared.sources import (
    benchmark_for,
    check_export,
    for_each_model,
    model_names,
    own_runs,
    run_model,
    say_failures,
)

__all__ = ["score_models"]


@with_scoring()
def score_models(
    *,
    model: Models = None,
    scoring: Scoring,
    export_rewardbench: Export = None,
    json_: Json = False,
    verbose: Verbose = False,
    config: Config = None,  # noqa: ARG001 (its callback has done the work)
) -> None:
    """Score a benchmark with a reward model, and keep the scores: the first half of eval.

    A killed run continues where it stopped, and a finished one is not scored
    again. Under torchrun or accelerate launch, processes share the prompts.
    """
    from rmcalib._util.processes import is_main_process, joined
    from rmcalib.runs import run_folder

    names = model_names(model)
    check_export(export_rewardbench, names, scoring.output)
    main = is_main_process()
    with (
        plain_warnings(quiet=scoring.quiet or not main, verbose=verbose),
        joined() as team,
        Places() as places,
    ):
        with team.step():
            bench = benchmark_for(names, scoring)
            own = own_runs(names, bench)
            scoring = replace(scoring, output=str(places.folder(scoring.output, needed=own)))

        def work(name: str | None) -> dict[str, Any]:
            assert name is not None and bench is not None  # noqa: PT018 (both follow from having no scores)
            scores = run_model(name, bench, scoring)
            if export_rewardbench is not None and main:
                scores.to_rewardbench_json(export_rewardbench)
            file = run_folder(scoring.output, name, bench.name) / "scores.parquet"
            return {"model": name, "scores": places.shown(file), "manifest": scores.manifest}

        done, failed = for_each_model(names, work)
    if not main:
        return
    if json_:
        typer.echo(json.dumps({"scored": done, "failed": failed}))
    elif not scoring.quiet:
        for entry in done:
            counts = entry["manifest"]["counts"]
            typer.echo(
                f"{entry['model']}: {counts['responses']:,} responses of {counts['items']:,} prompts: "
                f"{entry['scores'] if '://' in entry['scores'] else Path(entry['scores']).resolve()}"
            )
        say_failures(failed, len(names))
    if failed:
        raise typer.Exit(1)
