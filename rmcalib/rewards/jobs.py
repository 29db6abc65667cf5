"""Scoring jobs: from a model's name and a benchmark to scores, resumable, by one process or several."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rmcalib.rewards.benchmarks import Benchmark, load_benchmark
from rmcalib.rewards.manifest import describe, score_inputs
from rmcalib.rewards.registry import Recipe
from rmcalib.rewards.runs import Run, RunError, run_folder
from rmcalib.rewards.store import Scores, write_json

if TYPE_CHECKING:
    from rmcalib.rewards.models import RewardModel

__all__ = ["OnProgress", "keep_scores", "score"]

OnProgress = Callable[[int, int, int], None]
"""Called with the responses scored so far, the responses to score, and the tokens read so far."""


def score(
    model: str | RewardModel = "demo",
    benchmark: str | Benchmark = "demo",
    *,
    output: str | Path | None = None,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    max_length: int | None = None,
    token_budget: int | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    recipe: Recipe | None = None,
    fresh: bool = False,
    on_progress: OnProgress | None = None,
) -> Scores:
    """Score every response of a benchmark with a reward model.

    Parameters
    ----------
    model : a Hub id, a local folder, ``"demo"``, or a model that is loaded already.
    benchmark : what :func:`rmcalib.load_benchmark` takes or returns.
    output : where run folders are kept (``<output>/<org>__<name>/<benchmark>/``). A run that was killed is
        taken up where it stopped, and a finished one is not scored again. Default: nothing is kept.
    revision, device, dtype, max_length, trust_remote_code, allow_pickle, recipe : how to load the model; see
        :func:`rmcalib.rewards.load_model`.
    token_budget : tokens in one forward pass; default what free memory allows.
    fresh : replace what an earlier run with other settings left in the folder.
    on_progress : called after each forward pass.

    Returns
    -------
    Scores
        In the benchmark's order, with a manifest. Under ``torchrun`` or ``accelerate launch`` each process
        scores its share, and all return the same scores; they need an ``output`` that all can reach.

    Examples
    --------
    >>> import rmcalib
    >>> scores = rmcalib.score(model="demo", benchmark=rmcalib.load_benchmark("demo", limit=8))
    >>> scores.n_items
    8
    """
    from rmcalib.rewards.models import RewardModel, load_model
    from rmcalib.rewards.scoring import process_rank, score_items, shard

    rank, world = process_rank()
    if output is None and world > 1:
        raise ValueError("output: several processes need a folder that all of them can reach")
    bench = load_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
    loaded = (
        model
        if isinstance(model, RewardModel)
        else load_model(
            model,
            revision=revision,
            device=device,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
            max_length=max_length,
            recipe=recipe,
        )
    )
    inputs, about = score_inputs(loaded, bench), describe(loaded)
    keep: Any = TemporaryDirectory() if output is None else contextlib.nullcontext(output)
    with keep as root, _together(world) as wait:
        run = Run(
            run_folder(root, loaded.name, bench.name), bench, inputs, about=about, fresh=fresh, rank=rank
        )
        if rank > 0:
            wait()  # until rank 0 has opened the folder
        with run:
            if rank == 0:
                wait()
            mine = [item for item in shard(bench.items, rank, world) if item.id not in run.done]
            count = _counter(on_progress, sum(len(item.responses) for item in mine))
            for scored in score_items(loaded, mine, token_budget=token_budget, progress=count):
                run.add(scored)
            wait()  # until all have written their parts
            scores = run.finish(processes=world) if rank == 0 else None
            wait()  # until rank 0 has joined them
        return scores if scores is not None else Scores.from_parquet(run.folder / "scores.parquet")


def keep_scores(folder: Path, scores: Scores, *, fresh: bool = False) -> None:
    """Keep scores that were made elsewhere in a run folder, with a manifest; another run is not replaced.

    >>> columns = {"item_id": ["a", "a"], "category": ["x", "x"], "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [1.0, 0.0]}
    >>> with TemporaryDirectory() as folder:
    ...     keep_scores(Path(folder), Scores.from_columns(columns))
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['run.json', 'scores.parquet']
    """
    digest = hashlib.sha256("\0".join(scores.item_id.tolist()).encode("utf-8", "surrogatepass"))
    digest.update(scores.reward.tobytes())
    manifest = {"hash": digest.hexdigest(), "status": "finished", **scores.manifest}
    told = folder / "run.json"
    if told.exists() and not fresh and _hash_in(told) != manifest["hash"]:
        raise RunError(f"{folder} holds another run: choose another --output, or --fresh to replace it")
    scores.to_parquet(folder / "scores.parquet")
    write_json(told, manifest)


def _hash_in(manifest: Path) -> str | None:
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content.get("hash") if isinstance(content, dict) else None


def _counter(on_progress: OnProgress | None, total: int) -> Callable[[int, int], None] | None:
    if on_progress is None:
        return None
    done = tokens = 0

    def count(n_responses: int, n_tokens: int) -> None:
        nonlocal done, tokens
        done, tokens = done + n_responses, tokens + n_tokens
        on_progress(done, total, tokens)

    on_progress(0, total, 0)
    return count


@contextlib.contextmanager
def _together(world: int) -> Iterator[Callable[[], None]]:
    """Join the processes of a launcher; yields a function that waits until all have called it."""
    if world == 1:
        yield lambda: None
        return
    import datetime

    from torch import distributed

    # A process may have much more to score than another; the launcher ends all if one dies.
    distributed.init_process_group("gloo", timeout=datetime.timedelta(days=7))
    try:
        yield lambda: distributed.barrier()
    finally:
        distributed.destroy_process_group()
