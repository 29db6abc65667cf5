"""``rmcalib eval``: from a model's name, or from scores, to a calibration report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from rmcalib.cli import options
from rmcalib.cli.conditions import Condition, check_categories, parse_condition
from rmcalib.cli.options import MORE, Common, Judged, Measuring, Name, Reading, Scoring, refuse
from rmcalib.cli.screen import Screen, following, print_json, print_lines, say, session
from rmcalib.cli.sources import (
    default_benchmark,
    judge_options,
    load_prompts,
    model_names,
    run_judge,
    say_whether_it_holds,
)

if TYPE_CHECKING:
    from rmcalib.report import Evaluation
    from rmcalib.scores import Scores

PUBLISHED = "published"


@dataclass(frozen=True)
class Job:
    """A model, its benchmark, and its scores if they exist already; only then the benchmark may be None."""

    name: str
    bench: Any
    scores: Scores | None


@dataclass(frozen=True)
class Done:
    """One evaluated model, its folder, and the conditions of --fail-if that hold."""

    result: Evaluation
    folder: Path
    met: tuple[Condition, ...]


def command(
    *,
    judged: Judged = Judged(),
    scores: Annotated[Name | None, Parameter(metavar="FILE")] = None,
    calibrator: options.CalibratorFile = None,
    fail_if: options.FailIf = (),
    group_by: Annotated[options.Names, Parameter(metavar="COLUMN", group=MORE)] = (),
    markdown: options.Markdown = None,
    dry_run: Annotated[bool, Parameter(group=MORE)] = False,
    scoring: Scoring = Scoring(),
    reading: Reading = Reading(),
    measuring: Measuring = Measuring(),
    common: Common = Common(),
) -> int:
    """Evaluate models on benchmarks, or scores, and write a folder for each.

    Parameters
    ----------
    scores
        Scores made elsewhere: a file, a run folder, or 'published' for those that RewardBench has published.
    group_by
        Also report the gap by length, responses, or columns of the benchmark.
    dry_run
        Only count the requests and tokens of a language model that judges.
    """
    from rmcalib._util.files import write_text
    from rmcalib._util.processes import is_main_process, process_rank
    from rmcalib.repair import Calibrator
    from rmcalib.report.card import markdown_summary
    from rmcalib.report.pages import document_of

    conditions = [parse_condition(text) for text in fail_if]
    _check(judged, scores, scoring, reading, dry_run=dry_run)
    used = None if calibrator is None else Calibrator.load(calibrator)
    how = {"group_by": group_by, "calibrator": used, **asdict(measuring)}
    done: list[Done] = []
    failed: list[dict[str, str]] = []
    with session(common, markdown=markdown) as screen:
        jobs = (
            _given(scores, judged, scoring, reading, screen) if scores else _to_run(judged, scoring, screen)
        )
        if dry_run:
            return _show_costs(jobs, judged, scoring, screen)
        for job in jobs:
            check_categories(conditions, _categories(job))
        for job in jobs:
            try:
                found = job.scores or run_judge(job.name, job.bench, scoring, judged.endpoint, screen)
                if is_main_process():
                    result, folder = _evaluate(found, job, scores, scoring, screen, how)
                    met = tuple(one for one in conditions if one.met(result.rows))
                    done.append(Done(result, folder, met))
            except (ValueError, OSError, MemoryError) as error:
                if len(jobs) == 1 or process_rank()[1] > 1:  # a launcher ends all processes
                    raise
                failed.append({"model": job.name, "error": " ".join(str(error).split())})
                screen.say(f"error: {failed[-1]['error']}")
        if is_main_process():
            holding = [_holding(one.result, condition) for one in done for condition in one.met]
            _show(done, failed, scoring, screen, calibrated=calibrator is not None)
            if markdown is not None:
                notes = [*(f"{one['model']}: {one['error']}" for one in failed), *holding]
                write_text(markdown, markdown_summary([document_of(one.result) for one in done], notes))
            for line in holding:
                say(line)
    return int(bool(failed) or any(one.met for one in done))


def _check(judged: Judged, scores: str | None, scoring: Scoring, reading: Reading, *, dry_run: bool) -> None:
    """Refuse options that would do nothing."""
    if scores is None:
        reading.refuse("it reads files of scores (--scores)")
        if scoring.format is not None and not scoring.benchmark:
            raise ValueError("--format: give the file with --benchmark")
        return
    if scores == PUBLISHED:
        reading.refuse("published scores are read as they are")
        if not judged.model:
            raise ValueError("--scores published: name the model with --model")
    if len(scoring.benchmark) > 1:
        raise ValueError("--benchmark: scores belong to one benchmark, so give one")
    given = {"--endpoint": judged.endpoint, "--backend": scoring.backend, "--limit": scoring.limit}
    settings = tuple(one for one in scoring.judge if not one.startswith("recipes="))
    refuse({**given, "--dry-run": dry_run, "-J": settings}, "no model is run with --scores")


def _recipes(scoring: Scoring) -> tuple[Any, ...]:
    return tuple(path for one in scoring.judge if one.startswith("recipes=") for path in one[8:].split(","))


def _to_run(judged: Judged, scoring: Scoring, screen: Screen) -> list[Job]:
    """Return every model on every benchmark."""
    names = model_names(judged, _recipes(scoring))
    for name in names:
        judge_options(scoring, judged.endpoint, name)
    wanted = scoring.benchmark or default_benchmark(names)
    found = {
        bench.name: bench
        for bench in (load_prompts(one, scoring, screen, part=judged.part) for one in wanted)
    }
    if len(found) < len(wanted):
        raise ValueError(f"--benchmark: two benchmarks have the same name (have: {', '.join(found)})")
    return [Job(name, bench, None) for bench in found.values() for name in names]


def _given(source: str, judged: Judged, scoring: Scoring, reading: Reading, screen: Screen) -> list[Job]:
    """Return the models of a file of scores, or those with published scores."""
    from rmcalib._util.hub import HubError
    from rmcalib.report.evaluation import UNNAMED
    from rmcalib.scores import load_all_scores, published_scores
    from rmcalib.scores._load import find_model

    bench = load_prompts(scoring.benchmark[0], scoring, screen) if scoring.benchmark else None
    if source == PUBLISHED:
        if bench is None:
            try:
                bench = load_prompts("reward-bench-2", scoring, screen)
            except HubError as error:
                screen.say(f"warning: the report has no texts to read ({error})")
        return [Job(name, bench, _part(published_scores(name), judged.part)) for name in judged.model]
    found = load_all_scores(source, **asdict(reading))
    if len(found) == 1 and len(judged.model) == 1:
        found = {judged.model[0]: next(iter(found.values()))}
    jobs = []
    for name in judged.model or found:
        scores = _part(find_model(found, name, source), judged.part)
        if bench is not None and not {item.id for item in bench.items} & {*scores.item_id.tolist()}:
            raise ValueError(
                f"{source}: none of its prompts is in {bench.name}: name the benchmark they are from, or "
                "leave --benchmark out"
            )
        # The same name for all files without one, so that they can be compared.
        label = bench.name if bench is not None else str(scores.manifest.get("benchmark") or UNNAMED)
        manifest = {**scores.manifest, "model": name, "benchmark": label}
        jobs.append(Job(name, bench, replace(scores, manifest=manifest)))
    return jobs


def _part(scores: Scores, part: str | None) -> Scores:
    return scores if part is None else scores.part(part)


def _categories(job: Job) -> Sequence[str]:
    return list(job.bench.categories if job.scores is None else dict.fromkeys(job.scores.category.tolist()))


def _evaluate(
    scores: Scores, job: Job, source: str | None, scoring: Scoring, screen: Screen, how: dict[str, Any]
) -> tuple[Evaluation, Path]:
    """Evaluate one model and write its files into its run folder."""
    from rmcalib._util.files import kind_on_disk
    from rmcalib.judges import registry
    from rmcalib.judges._registry import recipe_of_run, remember_model
    from rmcalib.report import evaluate
    from rmcalib.runs import run_folder
    from rmcalib.runs._folder import is_own_run, keep_scores

    published = "-published" if source == PUBLISHED else ""
    folder = run_folder(scoring.output, job.name, f"{scores.manifest['benchmark']}{published}")
    recipe = recipe_of_run(job.name, scores.manifest, registry(_recipes(scoring)))
    if how["calibrator"] is not None:
        say_whether_it_holds(screen, how["calibrator"], scores)
    with screen.working(f"evaluating {job.name}"):
        result = evaluate(scores, benchmark=job.bench, model=job.name, recipe=recipe, **how)
        if source is not None:
            file = Path(source) if kind_on_disk(source) == "file" else None
            keep_scores(folder, remember_model(scores, recipe), source=file, fresh=scoring.fresh)
        if how["calibrator"] is not None:
            folder = folder / "calibrated"
        elif (
            source is not None
            and job.bench is None
            and (folder / "report.html").is_file()
            and is_own_run(folder, scores)
        ):
            folder = folder / "without-texts"  # the page of the run has the texts
        result.write(folder)
    return result, folder


def _holding(result: Evaluation, condition: Condition) -> str:
    value = condition.value(result.rows)
    return f"{result.model}: {condition.text} holds: {condition.subject} is {value:.4g}"


def _show(
    done: Sequence[Done],
    failed: Sequence[dict[str, str]],
    scoring: Scoring,
    screen: Screen,
    *,
    calibrated: bool,
) -> None:
    """Print the results, and the command that continues from there."""
    from rmcalib.report.document import print_document
    from rmcalib.report.pages import document_of

    if screen.json:
        met = [{"model": one.result.model, "condition": each.text} for one in done for each in one.met]
        results = [{**one.result.content(), "folder": str(one.folder)} for one in done]
        print_json({"evaluations": results, "failed": failed, "conditions_met": met})
    elif screen.prints:
        for one in done:
            print_document(document_of(one.result))
            following({"Report": one.folder / "report.html"}, "")
        if len(done) == 1 and not calibrated and _repairable(done[0].result):
            following({}, f"rmcalib calibrate {done[0].folder}")
        elif done:
            following({}, f"rmcalib report {scoring.output}")
    if failed:
        names = ", ".join(one["model"] for one in failed)
        screen.say(f"{len(failed)} of {len(done) + len(failed)} failed: {names} (see above)")


def _repairable(result: Evaluation) -> bool:
    """Whether there are probabilities to repair, and a repair may help."""
    from rmcalib.report.sentences import temperature_helps

    single = result.facts["view"] == "pointwise"
    return bool(result.reliability) and (single or temperature_helps(result.rows, result.facts))


def _show_costs(jobs: Sequence[Job], judged: Judged, scoring: Scoring, screen: Screen) -> int:
    """Print what judging costs. No server is asked, and no model is loaded."""
    from rmcalib.judges import load_judge
    from rmcalib.judges._generative import GenerativeJudge

    costs = {}
    for job in jobs:
        judge = load_judge(job.name, **judge_options(scoring, judged.endpoint, job.name))
        if not isinstance(judge, GenerativeJudge):
            raise ValueError(
                "--dry-run: counts the requests of a language model that judges: give -J judging=letter"
            )
        costs[f"{judge.name} on {job.bench.name}"] = judge.cost(job.bench.items)
    if screen.json:
        print_json({name: asdict(cost) for name, cost in costs.items()})
        return 0
    for name, cost in costs.items():
        print_lines(
            f"{name}: {cost.prompts:,} prompts, {cost.requests:,} requests, about {cost.prompt_tokens:,} tokens to "
            f"read (at 4 characters each), at most {cost.answer_tokens:,} to write"
        )
    return 0
