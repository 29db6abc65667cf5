"""``rmcalib eval``: from a model's name to a calibration report."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rmcalib.cli._shared.calibrators import CalibratorFile, calibrated, load_calibrator
from rmcalib.cli._shared.judge_options import DryRun, show_costs
from rmcalib.cli._shared.kinds import MissingScores, Steps
from rmcalib.cli._shared.options import (
    REPORT,
    Config,
    Json,
    Markdown,
    Resamples,
    Seed,
    TieRule,
    Ties,
    Verbose,
    metric_settings,
    refuse_options,
    with_options,
)
from rmcalib.cli._shared.places import output_folder, refuse_overwriting
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
    scores_of_file,
)

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.cli._shared.conditions import Condition
    from rmcalib.metrics import Settings
    from rmcalib.repair import Calibrator
    from rmcalib.report import Evaluation, Joint
    from rmcalib.scores import Scores

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
ReliabilityCurve = Annotated[
    Literal["bins", "isotonic"],
    typer.Option(
        help="isotonic: also draw the reliability curve that needs no bins (CORP).",
        rich_help_panel=REPORT,
    ),
]


Benchmarks = Annotated[
    list[str] | None,
    typer.Option(
        "--benchmark",
        "-b",
        metavar="NAME",
        help="A name that `rmcalib benchmarks` lists ('reward-bench-2' is the default, 'demo' for the demo "
        "model), a Hub data set, or a .jsonl, .json, .parquet or .csv file or a folder of them; several "
        "allowed.",
        rich_help_panel=WHAT,
    ),
]


@with_options(without=("benchmark",))
def evaluate_models(
    *,
    context: typer.Context,
    model: Models = None,
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Use scores made elsewhere: a .parquet, .jsonl or .json (RewardBench's, RewardMATH's) file, "
            "or 'published' for those that RewardBench has published.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    steps: Steps = None,
    missing: MissingScores = None,
    benchmark: Benchmarks = None,
    scoring: Scoring,
    dry_run: DryRun = False,
    fail_if: FailIf = None,
    group_by: GroupBy = None,
    curve: ReliabilityCurve = "bins",
    calibrator: CalibratorFile = None,
    export_rewardbench: Export = None,
    markdown: Markdown = None,
    ties: Ties = TieRule.SPLIT,
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
    Several benchmarks are also compared: does one temperature serve them all?

    Exit codes: 0 done; 1 a --fail-if holds, or one of several models failed;
    2 bad usage or bad input.
    """
    from rmcalib._util.processes import is_main_process, joined
    from rmcalib.cli._shared.conditions import parse_condition
    from rmcalib.cli._shared.joint import join_evaluations
    from rmcalib.metrics import check_groupings

    conditions = [parse_condition(text) for text in fail_if or []]
    if scores is not None:
        refuse_options(context, (*RUNNING_A_MODEL, "dry_run"), "--scores (no model is run)")
    several = list(dict.fromkeys(benchmark or []))
    _check_several(several, scores, export_rewardbench, scoring)
    found = scores_of_file(scores, steps, missing)
    names = model_names(model, scores, found)
    check_export(export_rewardbench, names, scoring.output)
    for option, target in (("--export-rewardbench", export_rewardbench), ("--markdown", markdown)):
        refuse_overwriting(option, target, (scores, calibrator, *several))
    main = is_main_process()
    quiet = plain_warnings(quiet=scoring.quiet or not main, verbose=verbose)
    with quiet, joined() as team:
        with team.step():
            if not dry_run:
                output_folder(scoring.output)
            repair = load_calibrator(calibrator)
            settings = metric_settings(resamples, seed, ties)
            jobs = []
            chosen: list[str | None] = [*several] or [None]
            for one in chosen:
                asked = replace(scoring, benchmark=one)
                bench = benchmark_for(names, asked, scores)
                if dry_run and bench is not None:
                    show_costs(names, bench, scoring.judge_options(), as_json=json_)
                    continue
                by = check_groupings(group_by or (), bench)
                jobs.append(
                    _Job(
                        *(asked, scores, found, bench, conditions, export_rewardbench),
                        *(settings, examples, by, repair, curve),
                    )
                )
            if dry_run:
                return
            _refuse_equal_names([job.bench.name for job in jobs if job.bench is not None])
        done, failed = _run_all(names, jobs)
        if not main:
            return
    met = [(condition, one.result) for one in done for condition in one.met]
    joint = None
    if len(several) > 1 and done:
        joint = join_evaluations([(one.result, one.scores) for one in done], scoring.recipes or ())
    if json_:
        typer.echo(json.dumps(_content(done, failed, met, joint)))
    elif not scoring.quiet:
        _print(done, joint, scoring.output)
    holding = [
        f"{one.model}: {condition.text} holds: {condition.subject} is {condition.value(one.metrics):.4g}"
        for condition, one in met
    ]
    if markdown is not None:
        _write_markdown(markdown, done, failed, holding)
    for line in holding:
        say(line)
    if not json_ and not scoring.quiet:
        say_failures(failed, len(names) * len(jobs), "model" if len(jobs) == 1 else "run")
    if failed or met:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Done:
    """One evaluated model: the result, its folder, the scores, and the conditions of --fail-if that hold."""

    result: Evaluation
    folder: Path
    scores: Scores
    met: tuple[Condition, ...]


@dataclass(frozen=True)
class _Job:
    """The settings that all models of one command share."""

    scoring: Scoring
    scores: str | None
    found: dict[str, Scores]
    bench: Benchmark | None
    conditions: list[Condition]
    export: Path | None
    settings: Settings
    examples: int
    group_by: list[str]
    calibrator: Calibrator | None
    curve: Literal["bins", "isotonic"]

    def run(self, name: str | None) -> _Done | None:
        """Get one model's scores, evaluate them and write the report.

        Of several processes, only the main one evaluates; the others return None.
        """
        from rmcalib._util.processes import is_main_process
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
            scores, name, label = given_scores(self.scores, name, bench, self.found)
            check_categories(self.conditions, dict.fromkeys(scores.category.tolist()))
            folder = run_folder(self.scoring.output, name, label)
        if not is_main_process():
            return None
        recipe = recipe_of_run(name, scores.manifest, registry(self.scoring.recipes or ()))
        used = calibrated(scores, self.calibrator, name, quiet=self.scoring.quiet)
        result = evaluate(
            used,
            benchmark=bench,
            model=name,
            recipe=recipe,
            resamples=self.settings.resamples,
            seed=self.settings.seed,
            ties=self.settings.ties,
            n_examples=self.examples,
            group_by=self.group_by,
            curve=self.curve,
        )
        if self.export is not None:
            named = replace(scores, manifest={**scores.manifest, "model": name})
            named.to_rewardbench_json(self.export)
        if self.scores is not None:
            keep_scores(folder, remember_model(scores, recipe), fresh=self.scoring.fresh)
        if self.calibrator is not None:
            folder = folder / "calibrated"
        write_evaluation(result, folder)
        met = tuple(one for one in self.conditions if one.met(result.metrics))
        return _Done(result, folder, used, met)


def _run_all(names: list[str | None], jobs: list[_Job]) -> tuple[list[_Done], list[dict[str, str]]]:
    """Run every model on every benchmark; return what was evaluated, and the models that failed."""
    done: list[_Done] = []

    def work(name: str | None, job: _Job) -> None:
        one = job.run(name)
        if one is not None:
            done.append(one)

    failed: list[dict[str, str]] = []
    alone = len(names) * len(jobs) == 1
    for name in names:
        for job in jobs:
            failed += for_each_model([name], partial(work, job=job), alone=alone)[1]
    return done, failed


def _print(done: list[_Done], joint: Joint | None, output: object) -> None:
    from rmcalib._util.storage import shown
    from rmcalib.cli._shared.joint import print_joint
    from rmcalib.cli._shared.summary import print_evaluations

    print_evaluations([(one.result, shown(one.folder)) for one in done], together=joint is None)
    if joint is not None:
        print_joint(joint)
        say(f"One page of all: rmcalib report {output}")


def _check_several(several: list[str], scores: str | None, export: Path | None, scoring: Scoring) -> None:
    """Refuse options that belong to one benchmark if there are several."""
    if len(several) < 2:
        return
    given = {
        "--scores": scores,
        "--export-rewardbench": export,
        "--benchmark-revision": scoring.benchmark_revision,
    }
    for option, value in given.items():
        if value is not None:
            raise ValueError(f"{option}: belongs to one benchmark, so give one --benchmark")


def _refuse_equal_names(names: list[str]) -> None:
    """Refuse benchmarks that would share a folder."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--benchmark: {names.count(name)} of them are called {name!r}: rename a file")


def _write_markdown(path: Path, done: list[_Done], failed: list[dict[str, str]], holding: list[str]) -> None:
    from rmcalib._util.files import write_text
    from rmcalib.publish import evaluation_summary

    errors = [f"{one['model']}: {one['error']}" for one in failed]
    write_text(path, evaluation_summary([one.result for one in done], [*errors, *holding]))


def _content(
    done: list[_Done],
    failed: list[dict[str, str]],
    met: list[tuple[Condition, Evaluation]],
    joint: Joint | None,
) -> dict[str, Any]:
    from rmcalib.report import evaluation_content, joint_content

    return {
        "evaluations": [{**evaluation_content(one.result), "folder": str(one.folder)} for one in done],
        "failed": failed,
        "conditions_met": [{"model": result.model, "condition": c.text} for c, result in met],
        **({} if joint is None else {"benchmarks": joint_content(joint)}),
    }
