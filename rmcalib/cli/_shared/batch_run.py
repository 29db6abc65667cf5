"""A batch from the command line: an engine behind a live table, and what is told at the end."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rmcalib.cli._shared.places import Places
from rmcalib.cli._shared.progress import say

if TYPE_CHECKING:
    from rmcalib.batch import Batch, Evaluator, PlanEntry, Status
    from rmcalib.benchmarks import Benchmark
    from rmcalib.scores import Scores

__all__ = ["Show", "run_batch", "texts"]


@dataclasses.dataclass(frozen=True)
class Show:
    """How plan and result are shown."""

    as_json: bool
    quiet: bool

    def plan(self, plan: list[PlanEntry], problems: Mapping[str, str] | None = None) -> None:
        """Print what would be done; exit code 1 if a model would fail, as it would be without --dry-run."""
        problems = problems or {}
        if self.as_json:
            shown = ("model", "family", "parameters", "memory", "device", "seconds", "skipped")
            rows = [{name: getattr(entry, name) for name in shown} for entry in plan]
            typer.echo(json.dumps([{**row, "problem": problems.get(row["model"], "")} for row in rows]))
        elif not self.quiet:
            from rmcalib.cli._shared.batch_table import print_plan

            print_plan(plan, problems, "a rough guess from sizes and usual speeds; nothing was looked up")
        if problems:
            raise typer.Exit(1)

    def result(self, status: Status, place: str) -> None:
        """Print what was done."""
        if self.as_json:
            typer.echo(json.dumps(status.content()))
        elif not self.quiet:
            from rmcalib.cli._shared.batch_table import print_summary

            print_summary(status, place)


def run_batch(
    plan: list[PlanEntry],
    work: Callable[[Batch], None],
    *,
    output: str,
    benchmark: Benchmark | None,
    evaluating: Mapping[str, Any] | None,
    show: Show,
    **about: Any,
) -> None:
    """Work off a plan by one of the engines, and tell how it went; exit code 1 if a model has failed."""
    from rmcalib.batch import open_batch
    from rmcalib.cli._shared.batch_table import live_table

    evaluator = None if evaluating is None else _evaluator(benchmark, evaluating)
    with Places() as places:
        folder = places.folder(output)
        with live_table(quiet=show.quiet or show.as_json) as table:
            opened = open_batch(
                folder,
                plan,
                evaluator=evaluator,
                on_change=table,
                place=places.shown(folder),
                **about,
            )
            with opened as batch:
                work(batch)
        place = places.shown(folder.resolve())
    show.result(batch.status, place)
    if "failed" in batch.status.counts():
        raise typer.Exit(1)


def texts(*, quiet: bool) -> Benchmark | None:
    """Load the texts that published scores are about; reports can do without them."""
    from rmcalib._util.hub import HubError
    from rmcalib.benchmarks import load_benchmark

    try:
        return load_benchmark("reward-bench-2")
    except HubError as error:
        if not quiet:
            say(f"warning: the reports have no texts to read ({error})")
        return None


def _evaluator(benchmark: Benchmark | None, evaluating: Mapping[str, Any]) -> Evaluator:
    """Return what writes a model's metrics and page, as ``eval`` does."""
    from rmcalib.batch import Evaluator

    def write(entry: PlanEntry, scores: Any, folder: Path) -> None:
        from rmcalib.report import evaluate, write_evaluation

        result = evaluate(
            scores,
            benchmark=benchmark,
            model=entry.model,
            recipe=entry.recipe,
            resamples=evaluating["resamples"],
            seed=evaluating["seed"],
        )
        write_evaluation(result, folder)

    def made_from(entry: PlanEntry, scores: Scores) -> str:
        from rmcalib.metrics import Settings
        from rmcalib.report import made_from as hash_of

        settings = Settings(resamples=evaluating["resamples"], seed=evaluating["seed"])
        return hash_of(scores, entry.recipe, benchmark, settings)

    return Evaluator(write, made_from)
