"""``rmcalib eval``: from a model's name, or from scores, to a calibration report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from rmcalib.cli.conditions import Condition, check_categories, parse_condition
from rmcalib.cli.options import (
    MAIN,
    MORE,
    CalibratorFile,
    Common,
    FailIf,
    Judged,
    Markdown,
    Measuring,
    Name,
    Names,
    Reading,
    Scoring,
    refuse,
    writes_stdout,
)
from rmcalib.cli.screen import following, messages, print_json, say, working
from rmcalib.cli.sources import judge_options, load_prompts, model_names, run_judge, say_whether_it_holds

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.report import Evaluation
    from rmcalib.scores import Scores

PUBLISHED = "published"


@Parameter(name="*", group=MAIN)
@dataclass(frozen=True)
class Wanted:
    """What is evaluated and reported."""

    scores: Annotated[Name | None, Parameter(metavar="FILE")] = None
    """Scores made elsewhere: a file, a run folder, or 'published' for those that RewardBench has published."""
    calibrator: CalibratorFile = None
    fail_if: FailIf = ()
    group_by: Annotated[Names, Parameter(metavar="COLUMN", group=MORE)] = ()
    """Also report the gap by length, responses, or columns of the benchmark."""
    markdown: Markdown = None
    dry_run: Annotated[bool, Parameter(group=MORE)] = False
    """Only count the requests and tokens of a language model that judges."""


@dataclass(frozen=True)
class Done:
    """One evaluated model, its folder, and the conditions of --fail-if that hold."""

    result: Evaluation
    folder: Path
    met: tuple[Condition, ...]


def command(
    *,
    judged: Judged = Judged(),
    wanted: Wanted = Wanted(),
    scoring: Scoring = Scoring(),
    reading: Reading = Reading(),
    measuring: Measuring = Measuring(),
    common: Common = Common(),
) -> int:
    """Evaluate models on benchmarks, or scores, and write a folder for each."""
    from rmcalib._util.processes import is_main_process, joined

    conditions = [parse_condition(text) for text in wanted.fail_if]
    silent = writes_stdout(common, markdown=wanted.markdown)
    _check(judged, wanted, scoring, reading)
    main = is_main_process()
    with messages(quiet=common.quiet or not main), joined() as team:
        with team.step():
            jobs = (
                _given(judged, wanted, scoring, reading)
                if wanted.scores
                else _to_run(judged, scoring, common)
            )
            if wanted.dry_run:
                return _show_costs(jobs, judged, scoring, common)
            for _, bench, scores in jobs:
                own = dict.fromkeys(bench.categories if scores is None else scores.category.tolist())  # type: ignore[union-attr]
                check_categories(conditions, own)
        done: list[Done] = []
        failed: list[dict[str, str]] = []
        for name, bench, scores in jobs:
            try:
                with team.step():
                    rewards = scores or run_judge(name, bench, scoring, judged.endpoint, quiet=common.quiet)  # type: ignore[arg-type]
                    if main:
                        done.append(
                            _evaluate(rewards, name, bench, conditions, wanted, scoring, measuring, common)
                        )
            except (ValueError, OSError, MemoryError) as error:
                if len(jobs) == 1:
                    raise
                failed.append({"model": name, "error": " ".join(str(error).split())})
                if main:
                    say(f"error: {failed[-1]['error']}")
    if main:
        _show(done, failed, wanted, scoring, replace(common, quiet=common.quiet or silent))
    return int(bool(failed) or any(one.met for one in done))


Job = tuple[str, "Benchmark | None", "Scores | None"]
"""A model, its benchmark, and its scores if they exist already."""


def _check(judged: Judged, wanted: Wanted, scoring: Scoring, reading: Reading) -> None:
    """Refuse options that would do nothing."""
    if wanted.scores is None:
        reading.refuse("it reads files of scores (--scores)")
        if scoring.format is not None and not scoring.benchmark:
            raise ValueError("--format: give the file with --benchmark")
        return
    if wanted.scores == PUBLISHED:
        reading.refuse("published scores are read as they are")
        if not judged.model:
            raise ValueError("--scores published: name the model with --model")
    if len(scoring.benchmark) > 1:
        raise ValueError("--benchmark: scores belong to one benchmark, so give one")
    given = {"--endpoint": judged.endpoint, "--backend": scoring.backend, "--limit": scoring.limit}
    more = {
        "--dry-run": wanted.dry_run,
        "-J": tuple(one for one in scoring.judge if not one.startswith("recipes=")),
    }
    refuse({**given, **more}, "no model is run with --scores")


def _recipes(scoring: Scoring) -> tuple[Any, ...]:
    return tuple(path for one in scoring.judge if one.startswith("recipes=") for path in one[8:].split(","))


def _to_run(judged: Judged, scoring: Scoring, common: Common) -> list[Job]:
    """Return every model on every benchmark."""
    names = model_names(judged, _recipes(scoring))
    for name in names:
        judge_options(scoring, judged.endpoint, name)
    wanted = scoring.benchmark or ("demo" if names == ["demo"] else "reward-bench-2",)
    found = [load_prompts(one, scoring, part=judged.part, quiet=common.quiet) for one in wanted]
    called = [bench.name for bench in found]
    twice = next((name for name in called if called.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"--benchmark: {called.count(twice)} benchmarks are called {twice!r}: rename a file")
    return [(name, bench, None) for bench in found for name in names]


def _given(judged: Judged, wanted: Wanted, scoring: Scoring, reading: Reading) -> list[Job]:
    """Return the models of a file of scores, or those with published scores."""
    from rmcalib._util.hub import HubError
    from rmcalib.report import UNNAMED
    from rmcalib.scores import load_all_scores, published_scores
    from rmcalib.scores._load import find_model

    source = str(wanted.scores)
    bench = load_prompts(scoring.benchmark[0], scoring) if scoring.benchmark else None
    if source == PUBLISHED:
        if bench is None:
            try:
                bench = load_prompts("reward-bench-2", scoring)
            except HubError as error:
                say(f"warning: the report has no texts to read ({error})")
        return [(name, bench, _part(published_scores(name), judged.part)) for name in judged.model]
    found = load_all_scores(source, **reading.options())
    if len(found) == 1 and len(judged.model) == 1:
        found = {judged.model[0]: next(iter(found.values()))}
    jobs: list[Job] = []
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
        jobs.append((name, bench, replace(scores, manifest=manifest)))
    return jobs


def _part(scores: Scores, part: str | None) -> Scores:
    return scores if part is None else scores.part(part)


def _evaluate(
    scores: Scores,
    name: str,
    bench: Benchmark | None,
    conditions: Sequence[Condition],
    wanted: Wanted,
    scoring: Scoring,
    measuring: Measuring,
    common: Common,
) -> Done:
    """Evaluate one model and write its files into its run folder."""
    from rmcalib._util.files import kind_on_disk
    from rmcalib.judges import registry
    from rmcalib.judges._registry import recipe_of_run, remember_model
    from rmcalib.repair import Calibrator
    from rmcalib.report import evaluate, write_evaluation
    from rmcalib.runs import run_folder
    from rmcalib.runs._run import is_own_run, keep_scores

    published = "-published" if wanted.scores == PUBLISHED else ""
    folder = run_folder(scoring.output, name, f"{scores.manifest['benchmark']}{published}")
    recipe = recipe_of_run(name, scores.manifest, registry(_recipes(scoring)))
    calibrator = None if wanted.calibrator is None else Calibrator.load(wanted.calibrator)
    if calibrator is not None and not common.quiet:
        say_whether_it_holds(calibrator, scores, name)
    with working(f"evaluating {name}", quiet=common.quiet):
        result = evaluate(
            scores,
            benchmark=bench,
            model=name,
            recipe=recipe,
            group_by=wanted.group_by,
            calibrator=calibrator,
            resamples=measuring.resamples,
            seed=measuring.seed,
        )
        if wanted.scores is not None:
            source = Path(wanted.scores) if kind_on_disk(wanted.scores) == "file" else None
            keep_scores(folder, remember_model(scores, recipe), source=source, fresh=scoring.fresh)
        if calibrator is not None:
            folder = folder / "calibrated"
        elif (
            wanted.scores
            and bench is None
            and (folder / "report.html").is_file()
            and is_own_run(folder, scores)
        ):
            folder = folder / "without-texts"  # the page of the run has the texts
        write_evaluation(result, folder)
    return Done(result, folder, tuple(one for one in conditions if one.met(result.rows)))


def _repairable(result: Evaluation) -> bool:
    """Whether there are probabilities to repair, and a repair may help."""
    from rmcalib.report.sentences import temperature_helps

    single = result.facts["view"] == "pointwise"
    return bool(result.reliability) and (single or temperature_helps(result.rows, result.facts))


def _show(
    done: Sequence[Done], failed: Sequence[dict[str, str]], wanted: Wanted, scoring: Scoring, common: Common
) -> None:
    """Print the results, write the summary, and say which conditions of --fail-if hold."""
    from rmcalib._util.files import write_text
    from rmcalib.report import document_of, markdown_summary, print_document

    holding = [
        f"{one.result.model}: {condition.text} holds: {condition.subject} is "
        f"{condition.value(one.result.rows):.4g}"
        for one in done
        for condition in one.met
    ]
    if common.json:
        met = [{"model": one.result.model, "condition": each.text} for one in done for each in one.met]
        results = [{**one.result.content(), "folder": str(one.folder)} for one in done]
        print_json({"evaluations": results, "failed": failed, "conditions_met": met})
    elif not common.quiet:
        for one in done:
            print_document(document_of(one.result))
            following({"Report": one.folder / "report.html"}, "")
        if len(done) == 1 and wanted.calibrator is None and _repairable(done[0].result):
            following({}, f"rmcalib calibrate {done[0].folder}")
        elif done:
            following({}, f"rmcalib report {scoring.output}")
    if wanted.markdown is not None:
        notes = [*(f"{one['model']}: {one['error']}" for one in failed), *holding]
        write_text(wanted.markdown, markdown_summary([document_of(one.result) for one in done], notes))
    for line in holding:
        say(line)
    if failed and not common.quiet:
        names = ", ".join(one["model"] for one in failed)
        say(f"{len(failed)} of {len(done) + len(failed)} failed: {names} (see above)")


def _show_costs(jobs: Sequence[Job], judged: Judged, scoring: Scoring, common: Common) -> int:
    """Print what judging costs. No server is asked, and no model is loaded."""
    from dataclasses import asdict

    from rmcalib.judges import load_judge
    from rmcalib.judges._generative import GenerativeJudge

    costs = {}
    for name, bench, _ in jobs:
        judge = load_judge(name, **judge_options(scoring, judged.endpoint, name))
        if not isinstance(judge, GenerativeJudge) or bench is None:
            raise ValueError(
                "--dry-run: counts the requests of a language model that judges: give -J judging=letter"
            )
        costs[f"{judge.name} on {bench.name}"] = judge.cost(bench.items)
    if common.json:
        print_json({name: asdict(cost) for name, cost in costs.items()})
        return 0
    from rmcalib.cli.screen import print_lines

    for name, cost in costs.items():
        print_lines(
            f"{name}: {cost.prompts:,} prompts, {cost.requests:,} requests, about {cost.prompt_tokens:,} tokens to "
            f"read (at 4 characters each), at most {cost.answer_tokens:,} to write"
        )
    return 0
