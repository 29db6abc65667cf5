"""``rmcalib eval``: from a model's name to a calibration report."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli._shared.options import (
    REPORT,
    Config,
    Json,
    Markdown,
    Resamples,
    Seed,
    Verbose,
    refuse_options,
    with_options,
)
from rmcalib.cli._shared.places import output_folder
from rmcalib.cli._shared.progress import plain_warnings, say
from rmcalib.cli._shared.scoring_options import RUNNING_A_MODEL, WHAT, Export, Models, Scoring
from rmcalib.cli._shared.sources import (
    benchmark_for,
    check_export,
    for_each_model,
    given_scores,
    model_names,
    run_model,
    say_failures,
)

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.cli._shared.conditions import Condition
    from rmcalib.repair import Calibrator
    from rmcalib.report import Evaluation

__all__ = ["evaluate_models"]

FailIf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Exit with code 1 if this holds, such as 'abs(overconfidence).low>0.05', "
        "'lost_information.low>0.02' or 'ece[Math]>=0.2'; several allowed.",
        rich_help_panel=REPORT,
    ),
]
GroupBy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Report the gap by group: category, length, responses, or a column of the benchmark; several "
        "allowed.",
        rich_help_panel=REPORT,
    ),
]


@with_options()
def evaluate_models(
    *,
    context: typer.Context,
    model: Models = None,
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Use scores made elsewhere: a .parquet, .jsonl or .json (RewardBench's) file, or "
            "'published' for those that RewardBench has published.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    scoring: Scoring,
    fail_if: FailIf = None,
    group_by: GroupBy = None,
    calibrator: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Divide the rewards by the temperature that `rmcalib calibrate` wrote, and check that it "
            "holds here. The report goes to the subfolder calibrated/.",
            rich_help_panel=REPORT,
        ),
    ] = None,
    export_rewardbench: Export = None,
    markdown: Markdown = None,
    resamples: Resamples = 1000,
    examples: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of prompts on the page, those with the worst forecasts.",
            rich_help_panel=REPORT,
        ),
    ] = 10,
    seed: Seed = 0,
    json_: Json = False,
    verbose: Verbose = False,
    config: Config = None,  # noqa: ARG001 (its callback has done the work)
) -> None:
    """Score a benchmark with a reward model, and report how well its probabilities are calibrated.

    Without a model, the built-in demo model is run on the built-in demo
    benchmark. Scores and report go to a folder of their own under --output.
    A killed run continues where it stopped, and a finished one is not scored
    again. Under torchrun or accelerate launch, processes share the prompts.

    Exit codes: 0 done; 1 a --fail-if holds, or one of several models failed;
    2 bad usage or bad input.
    """
    from rmcalib._util.processes import is_main_process, joined
    from rmcalib._util.storage import shown
    from rmcalib.cli._shared.conditions import parse_condition
    from rmcalib.metrics import check_groupings

    conditions = [parse_condition(text) for text in fail_if or []]
    if scores is not None:
        refuse_options(context, RUNNING_A_MODEL, "--scores (no model is run)")
    names = model_names(model, scores)
    check_export(export_rewardbench, names, scoring.output)
    main = is_main_process()
    quiet = plain_warnings(quiet=scoring.quiet or not main, verbose=verbose)
    with quiet, joined() as team:
        with team.step():
            output_folder(scoring.output)
            bench = benchmark_for(names, scoring, scores)
            by = check_groupings(group_by or (), bench)
            repair = _load_calibrator(calibrator)
        job = _Job(
            scoring, scores, bench, conditions, export_rewardbench, resamples, examples, seed, by, repair
        )
        met: list[tuple[Condition, Evaluation]] = []

        def work(name: str | None) -> tuple[Evaluation, Path] | None:
            result = job.run(name)
            if result is not None:
                met.extend((c, result[0]) for c in conditions if c.met(result[0].metrics))
            return result

        results, failed = for_each_model(names, work)
        if not main:
            return
    done = [result for result in results if result is not None]
    if json_:
        typer.echo(json.dumps(_content(done, failed, met)))
    elif not scoring.quiet:
        from rmcalib.cli._shared.summary import print_evaluations

        print_evaluations([(one, shown(folder)) for one, folder in done])
    holding = [
        f"{one.model}: {condition.text} holds: {condition.subject} is {condition.value(one.metrics):.4g}"
        for condition, one in met
    ]
    if markdown is not None:
        _write_markdown(markdown, done, failed, holding)
    for line in holding:
        say(line)
    if not json_ and not scoring.quiet:
        say_failures(failed, len(names))
    if failed or met:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Job:
    """The settings that all models of one command share."""

    scoring: Scoring
    scores: str | None
    bench: Benchmark | None
    conditions: list[Condition]
    export: Path | None
    resamples: int
    examples: int
    seed: int
    group_by: list[str]
    calibrator: Calibrator | None

    def run(self, name: str | None) -> tuple[Evaluation, Path] | None:
        """Get one model's scores, evaluate them and write the report; return it and its folder.

        Of several processes, only the main one evaluates; the others return None.
        """
        from rmcalib._util.processes import is_main_process
        from rmcalib._util.terminal import clean_line
        from rmcalib.cli._shared.conditions import check_categories
        from rmcalib.judges import recipe_of_run, registry, remember_model
        from rmcalib.report import evaluate, write_evaluation
        from rmcalib.runs import keep_scores, run_folder

        bench = self.bench
        if self.scores is None:
            assert name is not None and bench is not None  # noqa: PT018 (both follow from having no scores)
            check_categories(self.conditions, bench.categories)
            scores = run_model(name, bench, self.scoring)
            folder = run_folder(self.scoring.output, name, bench.name)
        else:
            scores, name, label = given_scores(self.scores, name, bench)
            check_categories(self.conditions, dict.fromkeys(scores.category.tolist()))
            folder = run_folder(self.scoring.output, name, label)
        if not is_main_process():
            return None
        recipe = recipe_of_run(name, scores.manifest, registry(self.scoring.recipes or ()))
        result = evaluate(
            scores if self.calibrator is None else self.calibrator.apply(scores),
            benchmark=bench,
            model=name,
            recipe=recipe,
            resamples=self.resamples,
            seed=self.seed,
            n_examples=self.examples,
            group_by=self.group_by,
        )
        if self.export is not None:
            named = replace(scores, manifest={**scores.manifest, "model": name})
            named.to_rewardbench_json(self.export)
        if self.scores is not None:
            keep_scores(folder, remember_model(scores, recipe), fresh=self.scoring.fresh)
        if self.calibrator is not None:
            folder = folder / "calibrated"
            if not self.scoring.quiet:
                say(clean_line(f"{name}: {self.calibrator.check(scores).sentence}"))
        write_evaluation(result, folder)
        return result, folder


def _load_calibrator(path: Path | None) -> Calibrator | None:
    """Read a calibrator, if one was given."""
    if path is None:
        return None
    from rmcalib.repair import Calibrator

    return Calibrator.load(path)


def _write_markdown(
    path: Path, done: list[tuple[Evaluation, Path]], failed: list[dict[str, str]], holding: list[str]
) -> None:
    from rmcalib._util.files import write_text
    from rmcalib.publish import evaluation_summary

    errors = [f"{one['model']}: {one['error']}" for one in failed]
    write_text(path, evaluation_summary([result for result, _ in done], [*errors, *holding]))


def _content(
    done: list[tuple[Evaluation, Path]], failed: list[dict[str, str]], met: list[tuple[Condition, Evaluation]]
) -> dict[str, Any]:
    from rmcalib.report import evaluation_content

    return {
        "evaluations": [{**evaluation_content(result), "folder": str(folder)} for result, folder in done],
        "failed": failed,
        "conditions_met": [{"model": result.model, "condition": c.text} for c, result in met],
    }
