"""A batch from the command line: the live table, the metrics of each model, and the result."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rmcalib._util.storage import shown

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.judges import Recipe
    from rmcalib.metrics import Settings
    from rmcalib.runs import BatchRequest, Evaluator, Plan, Status
    from rmcalib.scores import Scores

__all__ = ["Show", "run"]


@dataclasses.dataclass(frozen=True)
class Show:
    """How plan and result are shown."""

    as_json: bool
    quiet: bool

    def plan(self, plan: Plan) -> None:
        """Print what would be done; exit code 1 if a model would fail."""
        if self.as_json:
            names = ("model", "family", "parameters", "memory", "device", "seconds", "skipped")
            rows = [{name: getattr(entry, name) for name in names} for entry in plan.entries]
            typer.echo(json.dumps([{**row, "problem": plan.problems.get(row["model"], "")} for row in rows]))
        elif not self.quiet:
            from rmcalib.cli._shared.batch_table import print_plan

            print_plan(plan, "a rough guess from sizes and usual speeds; nothing was looked up")
        if plan.problems:
            raise typer.Exit(1)

    def result(self, status: Status, place: str) -> None:
        """Print what was done; exit code 1 if a model has failed."""
        if self.as_json:
            typer.echo(json.dumps(status.content()))
        elif not self.quiet:
            from rmcalib.cli._shared.batch_table import print_summary

            print_summary(status, place)
        if "failed" in status.counts():
            raise typer.Exit(1)


def run(request: BatchRequest, settings: Settings | None, show: Show) -> None:
    """Run a batch behind a live table and print the result; ``settings`` are those of the metrics."""
    from rmcalib.cli._shared.batch_table import live_table
    from rmcalib.runs import run_batch

    evaluator = None if settings is None else evaluator_for(settings)
    with live_table(quiet=show.quiet or show.as_json) as table:
        status = run_batch(request, evaluator=evaluator, on_change=table)
    show.result(status, shown(request.output))


def evaluator_for(settings: Settings) -> Evaluator:
    """Return what writes a model's metrics and page, as ``eval`` does."""
    from rmcalib.runs import Evaluator

    def write(recipe: Recipe, scores: Scores, benchmark: Benchmark | None, folder: Path) -> None:
        from rmcalib.judges import recipe_of_run
        from rmcalib.report import evaluate, write_evaluation

        recipe = recipe_of_run(recipe.model, scores.manifest, {recipe.model: recipe})
        result = evaluate(
            scores,
            benchmark=benchmark,
            model=recipe.model,
            recipe=recipe,
            resamples=settings.resamples,
            seed=settings.seed,
            ties=settings.ties,
        )
        write_evaluation(result, folder)

    def made_from(recipe: Recipe, scores: Scores, benchmark: Benchmark | None) -> str:
        from rmcalib.report import made_from as hash_of

        return hash_of(scores, recipe, benchmark, settings)

    return Evaluator(write, made_from)
