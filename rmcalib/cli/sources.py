"""Where the scores of ``eval`` and ``score`` come from: a model that is run, or scores made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmcalib.cli.progress import progress_bar, say

if TYPE_CHECKING:
    from rmcalib.rewards.benchmarks import Benchmark
    from rmcalib.rewards.store import Scores

__all__ = ["Request", "benchmark_for", "given_scores", "is_main_process", "model_names", "run_model"]

PUBLISHED = "published"


@dataclass(frozen=True)
class Request:
    """The scoring options of the command line."""

    benchmark: str | None
    benchmark_revision: str | None
    limit: int | None
    revision: str | None
    device: str
    dtype: str
    max_length: int | None
    token_budget: int | None
    trust_remote_code: bool
    allow_pickle: bool
    recipes: tuple[Path, ...]
    fresh: bool
    output: Path
    quiet: bool


def model_names(given: list[str] | None, scores: str | None = None) -> list[str | None]:
    """Return the models to work on; with scores from a file the name may be left to the file."""
    names = list(dict.fromkeys(given or []))
    if scores is None:
        return [*names] or ["demo"]
    if scores == PUBLISHED and not names:
        raise ValueError("--scores published: name the model with --model")
    if scores != PUBLISHED and len(names) > 1:
        raise ValueError("--scores FILE: a file holds the scores of one model, so give one --model")
    return [*names] or [None]


def benchmark_for(names: list[str | None], request: Request, scores: str | None = None) -> Benchmark | None:
    """Load the benchmark that was asked for, or the one that goes with the models.

    Scores made elsewhere need no benchmark: without its texts there are no examples to read.
    """
    from rmcalib.rewards.benchmarks import load_benchmark
    from rmcalib.rewards.hub import HubError

    name = request.benchmark
    if name is None and scores is None:
        name = "demo" if names == ["demo"] else "reward-bench-2"
    if name is not None:
        return load_benchmark(name, revision=request.benchmark_revision, limit=request.limit)
    if request.benchmark_revision is not None or request.limit is not None:
        raise ValueError("--benchmark-revision and --limit: need a --benchmark when scores are given")
    if scores != PUBLISHED:
        return None
    try:
        return load_benchmark("reward-bench-2")
    except HubError as error:
        if not request.quiet:
            say(f"warning: the report has no texts to read ({error})")
        return None


def run_model(name: str, benchmark: Benchmark, request: Request) -> Scores:
    """Score a benchmark with a model, with a progress bar."""
    from rmcalib.rewards.jobs import score
    from rmcalib.rewards.registry import recipe_for

    with progress_bar(name, quiet=request.quiet or not is_main_process()) as on_progress:
        return score(
            name,
            benchmark,
            output=request.output,
            revision=request.revision,
            device=request.device,
            dtype=request.dtype,
            max_length=request.max_length,
            token_budget=request.token_budget,
            trust_remote_code=request.trust_remote_code,
            allow_pickle=request.allow_pickle,
            recipe=recipe_for(name, request.recipes),
            fresh=request.fresh,
            on_progress=on_progress,
        )


def given_scores(source: str, model: str | None, benchmark: Benchmark | None) -> tuple[Scores, str, str]:
    """Read scores made elsewhere: the scores, the model's name, and what to call the benchmark's folder."""
    from rmcalib.rewards.published import published_scores
    from rmcalib.rewards.store import load_scores

    if source == PUBLISHED:
        assert model is not None
        scores = published_scores(model)
        return scores, model, f"{scores.manifest['benchmark']}-published"
    scores = load_scores(source)
    told = str(scores.manifest.get("benchmark") or Path(source).stem)
    name = model or str(scores.manifest.get("model") or Path(source).stem)
    return scores, name, benchmark.name if benchmark is not None else told


def is_main_process() -> bool:
    """Tell whether this process is the one that prints and writes reports."""
    import os

    return os.environ.get("RANK", "0") == "0"
