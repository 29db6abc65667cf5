"""``rmcalib eval``: from a model's name, or from scores, to a calibration report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from rmcalib.cli import options
from rmcalib.cli.options import MORE, Common, Judged, Measuring, Name, Reading, refuse
from rmcalib.cli.screen import Screen, command_line, following, print_json, print_lines, say, session
from rmcalib.cli.sources import default_benchmark, load_prompts, model_names, run_judge, run_options
from rmcalib.metrics.conditions import check_categories, holding, parse_condition

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.report import Evaluation
    from rmcalib.scores import Scores

PUBLISHED = "published"


@dataclass
class Job:
    """A model on a benchmark, and the outcome: scores in a run, a result in a folder, or an error.

    ``scores`` are given, or made by running the model; only given ones may have no benchmark. ``met`` are the
    conditions of --fail-if that hold. ``labelled`` is how `rmcalib label` reads the scores with labels of a file.
    """

    name: str
    bench: Any
    scores: Scores | None = None
    result: Evaluation | None = None
    run: Path = Path()
    folder: Path = Path()
    met: dict[str, str] = field(default_factory=dict)
    error: str = ""
    labelled: str = ""


def command(
    *,
    judged: Judged = Judged(),
    scores: Annotated[Name | None, Parameter(metavar="FILE")] = None,
    calibrator: options.CalibratorFile = None,
    fail_if: options.FailIf = (),
    group_by: Annotated[options.Names, Parameter(metavar="COLUMN", group=MORE)] = (),
    ties: Annotated[Literal["drop", "davidson"], Parameter(group=MORE)] = "drop",
    markdown: options.Markdown = None,
    dry_run: Annotated[bool, Parameter(group=MORE)] = False,
    reading: Reading = Reading(),
    measuring: Measuring = Measuring(),
    common: Common = Common(),
) -> int:
    """Evaluate models on benchmarks, or scores, and write a folder for each.

    Parameters
    ----------
    scores
        Scores made elsewhere: a file, a folder, or 'published' for those that RewardBench has published.
    group_by
        Also report the gap by length, responses, or columns of the benchmark.
    ties
        Ties of winners, ranks and votes: leave them out, or forecast them with Davidson's model.
    dry_run
        Only count the requests and tokens of a language model that judges.
    """
    from rmcalib._util.files import write_text
    from rmcalib._util.processes import is_main_process, process_rank
    from rmcalib.repair import Calibrator
    from rmcalib.report.card import markdown_summary

    conditions = [parse_condition(text) for text in fail_if]
    _check(judged, scores, reading, dry_run=dry_run)
    used = None if calibrator is None else Calibrator.load(calibrator)
    how = {"group_by": group_by, "ties": ties, "calibrator": used, **asdict(measuring)}
    inputs = [*(str(file) for file in (scores, calibrator) if file), *judged.benchmark, *reading.files]
    with session(common, inputs, markdown=markdown) as screen:
        jobs = _given(scores, judged, reading, screen) if scores else _to_run(judged, screen)
        if dry_run:
            return _show_costs(jobs, judged, screen)
        for job in jobs:
            check_categories(
                conditions, job.bench.categories if job.scores is None else job.scores.category.tolist()
            )
        for job in jobs:
            try:
                job.scores = job.scores or run_judge(job.name, job.bench, judged, screen)
                if is_main_process():
                    result = _evaluate(job, scores, judged, screen, how)
                    job.met = holding(
                        {each: each.value(result.rows, result.facts["view"]) for each in conditions}
                    )
                    job.result = result
            except (ValueError, OSError, MemoryError) as error:
                if len(jobs) == 1 or process_rank()[1] > 1:  # a launcher ends all processes
                    raise
                job.error = " ".join(str(error).split())
                screen.say(f"error: {job.error}")
        if is_main_process():
            met = [f"{job.name}: {line}" for job in jobs for line in job.met.values()]
            _show(jobs, judged, screen)
            if markdown is not None:
                failed = [f"{job.name}: {job.error}" for job in jobs if job.error]
                documents = [job.result.document() for job in jobs if job.result]
                write_text(markdown, markdown_summary(documents, [*failed, *met]))
            for line in met:
                say(line)
    return int(any(job.error or job.met for job in jobs))


def _check(judged: Judged, scores: str | None, reading: Reading, *, dry_run: bool) -> None:
    """Refuse options that would do nothing."""
    if scores is None:
        reading.refuse("it reads files of scores (--scores)")
        if judged.format is not None and not judged.benchmark:
            raise ValueError("--format: give the file with --benchmark")
        return
    if scores == PUBLISHED:
        reading.refuse("published scores are read as they are")
        if not judged.model:
            raise ValueError("--scores published: name the model with --model")
    if len(judged.benchmark) > 1:
        raise ValueError("--benchmark: scores belong to one benchmark, so give one")
    why = "no model is run with --scores"
    refuse({"--dry-run": dry_run}, why)
    judged.refuse_run(why)


def _recipes(judged: Judged) -> tuple[Any, ...]:
    return tuple(path for text in judged.judge if text.startswith("recipes=") for path in text[8:].split(","))


def _to_run(judged: Judged, screen: Screen) -> list[Job]:
    """Return every model on every benchmark."""
    names = model_names(judged, _recipes(judged))
    for name in names:
        run_options(judged, name)  # a wrong setting is reported before anything is loaded
    wanted = judged.benchmark or default_benchmark(names)
    loaded = [load_prompts(benchmark, judged, screen) for benchmark in wanted]
    by_name = {bench.name: bench for bench in loaded}
    if len(by_name) < len(wanted):
        raise ValueError(f"--benchmark: two benchmarks have the same name (have: {', '.join(by_name)})")
    return [Job(name, bench) for bench in by_name.values() for name in names]


def _given(source: str, judged: Judged, reading: Reading, screen: Screen) -> list[Job]:
    """Return the models of a file of scores, or those with published scores."""
    from rmcalib._util.secrets import masked
    from rmcalib.report.sentences import UNNAMED
    from rmcalib.scores import load_all_scores, published_scores
    from rmcalib.scores._load import find_model

    labelled = ""
    names = [masked(name) for name in judged.model]  # they are shown on every page
    if source == PUBLISHED:
        bench = _published_prompts(judged, screen)
        by_name = {name: published_scores(name) for name in names}
    else:
        bench = load_prompts(judged.benchmark[0], judged, screen) if judged.benchmark else None
        by_name = load_all_scores(source, **asdict(reading))
        if reading.labels is not None and len(by_name) == 1:  # `label` reads one model
            named = () if reading.columns is None else ("--columns", reading.columns)
            labelled = masked(shlex.join([source, *named, "--labels", str(reading.labels)]))
    if len(by_name) == 1 and len(names) == 1:
        by_name = {names[0]: next(iter(by_name.values()))}
    jobs = []
    for name in names or by_name:
        scores = find_model(by_name, name, source)
        if judged.part is not None:
            scores = scores.part(judged.part)
        if bench is not None and not {item.id for item in bench.items} & {*scores.item_id.tolist()}:
            raise ValueError(
                f"{source}: none of its prompts is in {bench.name}: name the benchmark they are from, or "
                "leave --benchmark out"
            )
        # The same name for all files without one, so that they can be compared.
        label = bench.name if bench is not None else str(scores.manifest.get("benchmark") or UNNAMED)
        manifest = {**scores.manifest, "model": name, "benchmark": label}
        jobs.append(Job(name, bench, replace(scores, manifest=manifest), labelled=labelled))
    return jobs


def _published_prompts(judged: Judged, screen: Screen) -> Benchmark | None:
    """Load the texts of published scores, which only the page needs; None if they cannot be fetched."""
    from rmcalib._util.hub import HubError

    wanted, *_ = judged.benchmark or ("reward-bench-2",)
    try:
        return load_prompts(wanted, judged, screen)
    except HubError as error:
        screen.say(f"note: no texts of the prompts in the report ({error})")
        return None


def _evaluate(
    job: Job, source: str | None, judged: Judged, screen: Screen, how: dict[str, Any]
) -> Evaluation:
    """Evaluate one model and write its files into its run folder."""
    from rmcalib._util.files import kind_on_disk
    from rmcalib.report import evaluate
    from rmcalib.report.evaluation import no_labels
    from rmcalib.runs import run_folder
    from rmcalib.runs._folder import keep_scores

    scores = job.scores
    assert scores is not None
    if source is not None and scores.labels is None:
        raise ValueError(f"{source}: {no_labels(scores, source)}")
    published = "-published" if source == PUBLISHED else ""
    job.run = job.folder = run_folder(judged.output, job.name, f"{scores.manifest['benchmark']}{published}")
    with screen.progress(f"evaluating {job.name}"):
        result = evaluate(scores, benchmark=job.bench, model=job.name, **how)
        if source is not None:
            again = kind_on_disk(source) is not None and not _is_inside(source, job.folder)
            keep_scores(job.folder, scores, source=Path(source) if again else None, fresh=judged.fresh)
        if how["calibrator"] is not None:
            job.folder = job.folder / "calibrated"
        elif source is not None and job.bench is None and _is_inside(source, job.folder):
            job.folder = job.folder / "without-texts"  # the page of the run has the texts
        result.write(job.folder, source=job.run, labelled=job.labelled)
    return result


def _is_inside(source: str, folder: Path) -> bool:
    """Whether scores are those of this run folder: its file, or the folder itself."""
    from rmcalib._util.storage import as_path

    return as_path(source).resolve() in (folder.resolve(), (folder / "scores.parquet").resolve())


def _show(jobs: Sequence[Job], judged: Judged, screen: Screen) -> None:
    """Print the results, and the command that continues from there."""
    from rmcalib._util.secrets import masked
    from rmcalib.report.document import print_document

    done = [(job.result, job) for job in jobs if job.result]
    failed = [{"model": job.name, "error": job.error} for job in jobs if job.error]
    if screen.json:
        met = [{"model": job.name, "condition": each} for job in jobs for each in job.met]
        results = [{**result.content(), "folder": str(job.folder)} for result, job in done]
        print_json({"evaluations": results, "failed": failed, "conditions_met": met})
    elif screen.prints:
        for result, job in done:
            document = result.document(masked(str(job.run)), job.labelled)
            print_document(document if len(done) == 1 else replace(document, steps=()))
            following({"Report": job.folder / "report.html"}, "")
        if len(done) > 1:
            following({}, command_line("report", judged.output))
    if failed:
        names = ", ".join(row["model"] for row in failed)
        screen.say(f"{len(failed)} of {len(jobs)} failed: {names} (see above)")


def _show_costs(jobs: Sequence[Job], judged: Judged, screen: Screen) -> int:
    """Print what judging costs. No server is asked, and no model is loaded."""
    from rmcalib.judges import load_judge
    from rmcalib.judges._generative import GenerativeJudge

    costs = {}
    for job in jobs:
        judge = load_judge(job.name, **run_options(judged, job.name))
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
