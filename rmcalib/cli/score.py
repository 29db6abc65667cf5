"""``rmcalib score``: the scoring half of ``eval``."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import typer

from rmcalib._util.terminal import clean_line, count
from rmcalib.cli._shared.calibrators import CalibratorFile, calibrated, load_calibrator
from rmcalib.cli._shared.judge_options import DryRun, show_costs
from rmcalib.cli._shared.options import Common, with_options
from rmcalib.cli._shared.places import output_folder, writes_stdout
from rmcalib.cli._shared.progress import plain_warnings
from rmcalib.cli._shared.scoring_options import Export, Models, Scoring
from rmcalib.cli._shared.sources import (
    benchmark_for,
    check_export,
    for_each_model,
    model_names,
    run_model,
    say_failures,
)

__all__ = ["score_models"]


@with_options()
def score_models(
    *,
    model: Models = None,
    scoring: Scoring,
    dry_run: DryRun = False,
    calibrator: CalibratorFile = None,
    export_rewardbench: Export = None,
    common: Common,
) -> None:
    """Score a benchmark with a reward model, and keep the scores: the first half of eval.

    A killed run continues where it stopped, and a finished one is not scored
    again. Under torchrun or accelerate launch, processes share the prompts.
    """
    from rmcalib._util.processes import is_main_process, joined
    from rmcalib._util.storage import shown
    from rmcalib.runs import keep_scores, run_folder

    names = model_names(model)
    check_export(export_rewardbench, names, scoring.output)
    silent = writes_stdout({"--export-rewardbench": export_rewardbench}, as_json=common.json)
    quiet, main = common.quiet, is_main_process()
    with plain_warnings(quiet=quiet or not main, verbose=common.verbose), joined() as team:
        with team.step():
            if not dry_run:
                output_folder(scoring.output)
            bench = benchmark_for(names, scoring, quiet=quiet)
            if dry_run and bench is not None:
                show_costs(names, bench, scoring.judge_options(), as_json=common.json)
                return
            repair = load_calibrator(calibrator)

        def work(name: str | None) -> dict[str, Any]:
            assert name is not None and bench is not None  # noqa: PT018 (both follow from having no scores)
            scores = run_model(name, bench, scoring, quiet=quiet)
            folder = run_folder(scoring.output, name, bench.name)
            if repair is not None:
                folder = folder / "calibrated"
                if main:
                    scores = calibrated(scores, repair, name, quiet=quiet)
                    named = {**scores.manifest, "model": f"{name} (calibrated)"}
                    scores = replace(scores, manifest=named)
                    keep_scores(folder, scores, fresh=True)
            if export_rewardbench is not None and main:
                scores.to_rewardbench_json(export_rewardbench)
            return {"model": name, "scores": str(folder / "scores.parquet"), "manifest": scores.manifest}

        done, failed = for_each_model(names, work)
    if not main:
        return
    if common.json:
        typer.echo(json.dumps({"scored": done, "failed": failed}))
    elif not (quiet or silent):
        for entry in done:
            counts = entry["manifest"]["counts"]
            line = (
                f"{entry['model']}: {count(counts['responses'], 'response')} of "
                f"{count(counts['items'], 'prompt')}: {shown(entry['scores'])}"
            )
            typer.echo(clean_line(line))
            if common.verbose and "work" in entry["manifest"]:
                typer.echo(_about_work(entry["manifest"]["work"]))
        say_failures(failed, len(names))
    if failed:
        raise typer.Exit(1)


def _about_work(work: dict[str, int]) -> str:
    """Say what the forward passes of a run have computed, or what a language model was asked.

    >>> print(_about_work({"passes": 2, "tokens": 1_000, "shared": 400, "padding": 60}))
      2 forward passes; of 1,000 tokens 400 (40.0%) were shared; 60 more (9.1% of those computed) were padding
    >>> print(_about_work({"requests": 8, "tokens": 1_000, "unread": 1, "floored": 0}))
      8 requests, 1,000 tokens; 1 answer could not be read
    """
    if "requests" in work:
        unread = work.get("unread", 0)
        asked = f"{count(work['requests'], 'request')}, {count(work['tokens'], 'token')}"
        return f"  {asked}; {count(unread, 'answer')} could not be read"
    if "passes" not in work:  # a judge of another package
        return "  " + ", ".join(f"{name} {count:,}" for name, count in work.items())
    computed = work["tokens"] - work["shared"] + work["padding"]
    return (
        f"  {count(work['passes'], 'forward pass', 'forward passes')}; of {work['tokens']:,} tokens "
        f"{work['shared']:,} ({work['shared'] / max(1, work['tokens']):.1%}) were shared; "
        f"{work['padding']:,} more ({work['padding'] / max(1, computed):.1%} of those computed) were padding"
    )
