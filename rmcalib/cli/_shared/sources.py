"""Where the scores of ``eval`` and ``score`` come from: a judge that is run, or a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rmcalib.cli._shared.kinds import reading_options
from rmcalib.cli._shared.progress import progress_bar, say

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.cli._shared.scoring_options import Scoring
    from rmcalib.scores import Scores

__all__ = [
    "Failure",
    "benchmark_for",
    "check_export",
    "for_each_model",
    "given_scores",
    "model_names",
    "run_model",
    "say_failures",
    "scores_of_file",
]

PUBLISHED = "published"
T = TypeVar("T")
Failure = dict[str, str]
"""A model that failed: ``model`` and ``error``."""


def model_names(
    given: list[str] | None, scores: str | None = None, found: Mapping[str, Scores] | None = None
) -> list[str | None]:
    """Return the models to work on; None stands for the name that a file of scores has.

    ``found`` are the scores of the file, by model.
    """
    names = list(dict.fromkeys(given or []))
    if scores is not None and not all(name.strip() for name in names):
        raise ValueError("--model: an empty name")
    if scores is None:
        if len(names) == 1:  # one of several is reported as a failure of that model
            from rmcalib.judges import check_judge_name

            check_judge_name(names[0])
        return [*names] or ["demo"]
    if scores == PUBLISHED and not names:
        raise ValueError("--scores published: name the model with --model")
    if found is not None and len(found) > 1:
        return [*names] or [*found]
    if scores != PUBLISHED and len(names) > 1:
        raise ValueError("--scores FILE: a file holds the scores of one model, so give one --model")
    return [*names] or [None]


def check_export(file: Path | None, names: Sequence[str | None], output: str) -> None:
    """Refuse an export that could not be written, before hours of scoring."""
    from rmcalib._util.storage import is_remote

    if file is None:
        return
    if len(names) > 1:
        raise ValueError("--export-rewardbench: one file holds the scores of one model, so give one --model")
    if not is_remote(output) and file.resolve() in (Path(output).resolve(), *Path(output).resolve().parents):
        raise ValueError(f"--export-rewardbench {file}: is the folder of --output, or above it: name a file")


def benchmark_for(
    names: Sequence[str | None], scoring: Scoring, scores: str | None = None, *, quiet: bool
) -> Benchmark | None:
    """Load the benchmark that was asked for, or the default for these models.

    Scores from a file need no benchmark. Without its texts, the report has no examples.
    """
    from rmcalib._util.hub import HubError
    from rmcalib.benchmarks import load_benchmark

    name = scoring.benchmark
    if name is None and scoring.format is not None and scores is None:
        raise ValueError("--format: give the file with --benchmark")
    if name is None and scores is None:
        name = "demo" if list(names) == ["demo"] else "reward-bench-2"
    if name is not None:
        # With scores, a limit or part from a config file has no effect.
        limit, part = (scoring.limit, scoring.part) if scores is None else (None, None)
        bench = load_benchmark(
            name, format=scoring.format, revision=scoring.benchmark_revision, part=part, limit=limit
        )
        if not quiet:
            for note in bench.notes:
                say(f"warning: {note}")
        return bench
    if scoring.benchmark_revision is not None or scoring.format is not None:
        option = "--format" if scoring.benchmark_revision is None else "--benchmark-revision"
        raise ValueError(f"{option}: needs a --benchmark when scores are given")
    if scores != PUBLISHED:
        return None
    try:
        return load_benchmark("reward-bench-2")
    except HubError as error:
        if not quiet:
            say(f"warning: the report has no texts to read ({error})")
        return None


def for_each_model(
    names: Sequence[str | None], work: Callable[[str | None], T], *, alone: bool | None = None
) -> tuple[list[T], list[Failure]]:
    """Call ``work`` for every model; return its results, and the models that failed.

    An error is raised if the model is ``alone``, by default if it is the only one.
    """
    from rmcalib._util.processes import is_main_process

    done: list[T] = []
    failed: list[Failure] = []
    for name in names:
        try:
            done.append(work(name))
        except (ValueError, OSError, MemoryError) as error:
            if len(names) == 1 if alone is None else alone:
                raise
            failed.append({"model": str(name), "error": " ".join(str(error).split())})
            if is_main_process():
                say(f"error: {failed[-1]['error']}")
    return done, failed


def say_failures(failed: Sequence[Failure], n: int, noun: str = "model") -> None:
    """Print which of ``n`` models or runs failed, if any."""
    if failed:
        names = ", ".join(entry["model"] for entry in failed)
        say(f"{len(failed)} of {n} {noun}s failed: {names} (see above)")


def run_model(name: str, benchmark: Benchmark, scoring: Scoring, *, quiet: bool) -> Scores:
    """Score a benchmark with a judge, with a progress bar; say what was scored before."""
    from rmcalib._util.processes import is_main_process
    from rmcalib.runs import score

    all_responses, begun = benchmark.n_responses, False
    notify = say if is_main_process() and not quiet else lambda _: None
    with progress_bar(name, quiet=quiet) as draw:

        def on_progress(done: int, total: int, tokens: int) -> None:
            nonlocal begun
            if not begun and total < all_responses:
                before = all_responses - total
                notify(f"{name}: {before:,} of {all_responses:,} responses were scored before; continuing")
            begun = True
            if draw is not None:
                draw(done, total, tokens)

        scores = score(
            name,
            benchmark,
            output=scoring.output,
            fresh=scoring.fresh,
            on_progress=on_progress,
            **scoring.judge_options(),
        )
    if not begun:
        notify(f"{name}: all responses were scored before (--fresh scores them again)")
    return scores


def scores_of_file(source: str | None, steps: str | None, missing: str | None) -> dict[str, Scores]:
    """Read the scores of all models of the file that ``--scores`` names; none without a file."""
    from rmcalib.scores import load_all_scores

    reading = reading_options(steps, missing)
    if source is None or source == PUBLISHED:
        option = "--steps" if steps else "--missing" if missing else None
        if option is not None:
            raise ValueError(f"{option}: needs a file of scores (--scores FILE)")
        return {}
    return load_all_scores(source, **reading)


def given_scores(
    source: str, model: str | None, benchmark: Benchmark | None, found: Mapping[str, Scores]
) -> tuple[Scores, str, str]:
    """Take scores made elsewhere: the scores, the model's name, and the name of the benchmark's folder.

    ``found`` are the scores of the file, by model.
    """
    from rmcalib.report import UNNAMED
    from rmcalib.scores import find_model, published_scores

    if source == PUBLISHED:
        assert model is not None
        scores = published_scores(model)
        return scores, model, f"{scores.manifest['benchmark']}-published"
    only = next(iter(found.values())) if len(found) == 1 else None
    scores = only or find_model(found, str(model), source)
    if benchmark is not None and not {item.id for item in benchmark.items} & {*scores.item_id.tolist()}:
        raise ValueError(
            f"{source}: none of its prompts is in {benchmark.name}: name the benchmark they are from, or "
            "leave --benchmark out"
        )
    # The same name for all files without one, so that they can be compared.
    label = benchmark.name if benchmark is not None else str(scores.manifest.get("benchmark") or UNNAMED)
    name = model or str(scores.manifest.get("model") or Path(source).stem)
    # The folder's name is only similar to these: reports read them from the manifest.
    named = {**scores.manifest, "model": name, "benchmark": label}
    return replace(scores, manifest=named), name, label
