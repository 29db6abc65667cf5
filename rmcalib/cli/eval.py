"""``rmcalib eval``: from a model's name to a calibration report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli import scoring_options as options
from rmcalib.cli.options import Config, Json, Output, Quiet, Seed, Verbose
from rmcalib.cli.progress import plain_warnings, say
from rmcalib.cli.sources import Request, benchmark_for, given_scores, is_main_process, model_names, run_model

if TYPE_CHECKING:
    from rmcalib.cli.conditions import Condition
    from rmcalib.report.evaluation import Evaluation
    from rmcalib.rewards.benchmarks import Benchmark

    Done = list[tuple[Evaluation, Path]]

__all__ = ["evaluate_models"]

FailIf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Exit with code 1 if it holds, such as 'ece>0.1' or 'ece[Math]>=0.2'; several allowed.",
    ),
]


def evaluate_models(
    model: options.Models = None,
    benchmark: options.BenchmarkName = None,
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Take scores made elsewhere: a .parquet, .jsonl or .json (RewardBench's) file, or "
            "'published' for those that RewardBench has published.",
        ),
    ] = None,
    output: Output = Path("runs"),
    fail_if: FailIf = None,
    export_rewardbench: options.Export = None,
    resamples: Annotated[int, typer.Option(min=20, help="Resamples behind intervals.")] = 1000,
    examples: Annotated[int, typer.Option(min=0, help="How many of the worst prompts to show.")] = 10,
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
    seed: Seed = 0,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    config: Config = None,  # noqa: ARG001 (its callback has done the work)
) -> None:
    """Score a benchmark with a reward model, and report how well its probabilities are calibrated.

    Without a model, the built-in demo model is run on the built-in demo benchmark.
    """
    from rmcalib.cli.conditions import parse_condition

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
    conditions = [parse_condition(text) for text in fail_if or []]
    names = model_names(model, scores)
    if export_rewardbench is not None and len(names) > 1:
        raise ValueError("--export-rewardbench: one file holds the scores of one model, so give one --model")
    job = _Job(request, scores, conditions, export_rewardbench, resamples, examples, seed)
    with plain_warnings(quiet=quiet, verbose=verbose):
        bench = benchmark_for(names, request, scores)
        done: Done = []
        failed: list[tuple[str, str]] = []
        for name in names:
            try:
                result = job.run(name, bench)
                if result is not None:
                    done.append(result)
            except (ValueError, OSError, MemoryError) as error:
                if len(names) == 1:
                    raise
                failed.append((str(name), " ".join(str(error).split())))
                say(f"error: {failed[-1][1]}")
        if not is_main_process():
            return
        met = [(c, one) for one, _ in done for c in conditions if c.met(one.metrics)]
    if json_:
        typer.echo(json.dumps(_content(done, failed, met)))
    elif not quiet:
        from rmcalib.cli.summary import print_evaluations

        print_evaluations(done)
    for condition, evaluation in met:
        value = condition.value(evaluation.metrics)
        say(f"{evaluation.model}: {condition.text} holds: {condition.metric} is {value:.4g}")
    if failed or met:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Job:
    """What is the same for all models of one command."""

    request: Request
    scores: str | None
    conditions: list[Condition]
    export: Path | None
    resamples: int
    examples: int
    seed: int

    def run(self, name: str | None, bench: Benchmark | None) -> tuple[Evaluation, Path] | None:
        """Get one model's scores, evaluate them and write the report; return it and its folder.

        Of several processes only the main one evaluates; the others have done their part, and get None.
        """
        from rmcalib.cli.conditions import check_categories
        from rmcalib.report.evaluation import evaluate, write_evaluation
        from rmcalib.rewards.jobs import keep_scores
        from rmcalib.rewards.runs import run_folder

        if self.scores is None:
            assert name is not None and bench is not None  # noqa: PT018 (both follow from having no scores)
            check_categories(self.conditions, bench.categories)
            scores = run_model(name, bench, self.request)
            folder = run_folder(self.request.output, name, bench.name)
        else:
            scores, name, label = given_scores(self.scores, name, bench)
            check_categories(self.conditions, dict.fromkeys(scores.category.tolist()))
            folder = run_folder(self.request.output, name, label)
        if not is_main_process():
            return None
        result = evaluate(
            scores,
            benchmark=bench,
            model=name,
            recipes=self.request.recipes,
            resamples=self.resamples,
            seed=self.seed,
            n_examples=self.examples,
        )
        if self.export is not None:
            scores.to_rewardbench_json(self.export)
        if self.scores is not None:
            keep_scores(folder, scores, fresh=self.request.fresh)
        write_evaluation(result, folder)
        return result, folder


def _content(
    done: Done, failed: list[tuple[str, str]], met: list[tuple[Condition, Evaluation]]
) -> dict[str, Any]:
    from rmcalib.report.evaluation import evaluation_content

    return {
        "evaluations": [{**evaluation_content(result), "folder": str(folder)} for result, folder in done],
        "failed": [{"model": name, "error": error} for name, error in failed],
        "conditions_met": [{"model": result.model, "condition": c.text} for c, result in met],
    }
