"""``rmcalib eval``: from a model's name to a calibration report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rmcalib.cli._shared.calibrators import CalibratorFile, load_calibrator
from rmcalib.cli._shared.judge_options import DryRun, show_costs
from rmcalib.cli._shared.kinds import MissingScores, Steps
from rmcalib.cli._shared.options import REPORT, Common, Markdown, Measuring, refuse_options, with_options
from rmcalib.cli._shared.places import output_folder, refuse_overwriting, writes_stdout
from rmcalib.cli._shared.progress import plain_warnings, say
from rmcalib.cli._shared.scoring_options import RUNNING_A_MODEL, WHAT, Export, Models, Scoring
from rmcalib.cli._shared.sources import (
    Failure,
    benchmark_for,
    check_export,
    model_names,
    say_failures,
    scores_of_file,
)

if TYPE_CHECKING:
    from rmcalib.cli._shared.evaluating import Done
    from rmcalib.report import Joint

__all__ = ["evaluate_models"]

FailIf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Exit with code 1 if this holds, such as 'overconfidence.low>0.05', "
        "'lost_information.low>0.02' or 'ece[Math]>=0.2'; several allowed.",
        rich_help_panel=REPORT,
    ),
]
GroupBy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Report the gap for each group: category, length, responses, or a column of the benchmark; "
        "several allowed.",
        rich_help_panel=REPORT,
    ),
]
ReliabilityCurve = Annotated[
    Literal["bins", "isotonic"],
    typer.Option(
        metavar="NAME",
        help="bins, or isotonic to also draw a reliability curve that needs no bins (CORP).",
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
Scores = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Use scores made elsewhere: a .parquet, .jsonl or .json (RewardBench's, RewardMATH's) file, "
        "or 'published' for those that RewardBench has published.",
        rich_help_panel=WHAT,
    ),
]
Examples = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Number of prompts to show on the page: those with the worst forecasts.",
        rich_help_panel=REPORT,
    ),
]


@dataclass(frozen=True)
class What:
    """Models to run, or scores that were made elsewhere."""

    model: Models = None
    scores: Scores = None
    steps: Steps = None
    missing: MissingScores = None


@dataclass(frozen=True)
class Report:
    """What the report contains, and what else is written."""

    fail_if: FailIf = None
    group_by: GroupBy = None
    curve: ReliabilityCurve = "bins"
    calibrator: CalibratorFile = None
    export_rewardbench: Export = None
    markdown: Markdown = None
    examples: Examples = 10


@with_options(without=("benchmark",))  # of scoring: there may be several here
def evaluate_models(
    *,
    context: typer.Context,
    what: What,
    benchmark: Benchmarks = None,
    scoring: Scoring,
    dry_run: DryRun = False,
    report: Report,
    measuring: Measuring,
    common: Common,
) -> None:
    """Score a benchmark with a reward model, and report how well its probabilities are calibrated.

    Without a model, the built-in demo model is run on the built-in demo
    benchmark. Scores and report are written to a separate folder under --output.
    A killed run continues where it stopped, and a finished one is not scored
    again. Under torchrun or accelerate launch, processes share the prompts.
    Several benchmarks are also compared: does one temperature serve them all?

    Exit codes: 0 done; 1 a --fail-if holds, or one of several models failed;
    2 bad usage or bad input.
    """
    from rmcalib._util.processes import is_main_process, joined
    from rmcalib.cli._shared.conditions import parse_condition
    from rmcalib.cli._shared.evaluating import Given, Job, Reporting, run_jobs
    from rmcalib.metrics import check_groupings

    conditions = [parse_condition(text) for text in report.fail_if or []]
    if what.scores is not None:
        refuse_options(context, (*RUNNING_A_MODEL, "dry_run"), "--scores (no model is run)")
    several = list(dict.fromkeys(benchmark or []))
    _check_several(several, what, report, scoring)
    found = scores_of_file(what.scores, what.steps, what.missing)
    names = model_names(what.model, what.scores, found)
    check_export(report.export_rewardbench, names, scoring.output)
    written = {"--export-rewardbench": report.export_rewardbench, "--markdown": report.markdown}
    for option, target in written.items():
        refuse_overwriting(option, target, (what.scores, report.calibrator, *several))
    silent = writes_stdout(written, as_json=common.json)
    quiet, main = common.quiet, is_main_process()
    with plain_warnings(quiet=quiet or not main, verbose=common.verbose), joined() as team:
        with team.step():
            if not dry_run:
                output_folder(scoring.output)
            shared = Reporting(
                measuring.settings(),
                conditions,
                report.examples,
                report.curve,
                load_calibrator(report.calibrator),
                report.export_rewardbench,
                quiet,
            )
            given = None if what.scores is None else Given(what.scores, found)
            jobs = []
            for chosen in several or (None,):
                asked = replace(scoring, benchmark=chosen)
                bench = benchmark_for(names, asked, what.scores, quiet=quiet)
                if dry_run and bench is not None:
                    show_costs(names, bench, scoring.judge_options(), as_json=common.json)
                else:
                    groups = check_groupings(report.group_by or (), bench)
                    jobs.append(Job(asked, given, bench, groups, shared))
            if dry_run:
                return
            _refuse_equal_names([job.benchmark.name for job in jobs if job.benchmark is not None])
        done, failed = run_jobs(names, jobs)
    if main:
        joint = _joint(done, scoring) if len(several) > 1 and done else None
        shown = replace(common, quiet=True) if silent else common
        _show(done, failed, joint, scoring.output, report.markdown, shown)
        if failed and not common.json and not quiet:
            say_failures(failed, len(names) * len(jobs), "model" if len(jobs) == 1 else "run")
        if failed or any(one.met for one in done):
            raise typer.Exit(1)


def _check_several(several: Sequence[str], what: What, report: Report, scoring: Scoring) -> None:
    """Refuse options that belong to one benchmark if there are several."""
    if len(several) < 2:
        return
    given = {
        "--scores": what.scores,
        "--export-rewardbench": report.export_rewardbench,
        "--benchmark-revision": scoring.benchmark_revision,
    }
    for option, value in given.items():
        if value is not None:
            raise ValueError(f"{option}: belongs to one benchmark, so give one --benchmark")


def _refuse_equal_names(names: list[str]) -> None:
    """Refuse benchmarks that would share a folder."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"--benchmark: {names.count(name)} benchmarks are called {name!r}: rename a file"
            )


def _joint(done: Sequence[Done], scoring: Scoring) -> Joint:
    from rmcalib.report import join_evaluations

    results, scores = [one.result for one in done], [one.scores for one in done]
    return join_evaluations(results, scores, recipes=scoring.recipes or ())


def _show(
    done: Sequence[Done],
    failed: Sequence[Failure],
    joint: Joint | None,
    output: str,
    markdown: Path | None,
    common: Common,
) -> None:
    """Print the results, and which conditions of --fail-if hold."""
    if common.json:
        typer.echo(json.dumps(_content(done, failed, joint)))
    elif not common.quiet:
        _print(done, joint, output)
    holding = [
        f"{one.result.model}: {condition.text} holds: {condition.subject} is "
        f"{condition.value(one.result.metrics):.4g}"
        for one in done
        for condition in one.met
    ]
    if markdown is not None:
        _write_markdown(markdown, done, failed, holding)
    for line in holding:
        say(line)


def _print(done: Sequence[Done], joint: Joint | None, output: str) -> None:
    from rmcalib._util.storage import shown
    from rmcalib.cli._shared.joint import print_joint
    from rmcalib.cli._shared.summary import print_evaluations

    print_evaluations([(one.result, shown(one.folder)) for one in done], together=joint is None)
    if joint is not None:
        print_joint(joint)
        say(f"One page of all: rmcalib report {output}")


def _write_markdown(
    path: Path, done: Sequence[Done], failed: Sequence[Failure], holding: Sequence[str]
) -> None:
    from rmcalib._util.files import write_text
    from rmcalib.publish import evaluation_summary

    errors = [f"{one['model']}: {one['error']}" for one in failed]
    write_text(path, evaluation_summary([one.result for one in done], [*errors, *holding]))


def _content(done: Sequence[Done], failed: Sequence[Failure], joint: Joint | None) -> dict[str, Any]:
    return {
        "evaluations": [{**one.result.content(), "folder": str(one.folder)} for one in done],
        "failed": failed,
        "conditions_met": [
            {"model": one.result.model, "condition": condition.text} for one in done for condition in one.met
        ],
        **({} if joint is None else {"benchmarks": joint.content()}),
    }
