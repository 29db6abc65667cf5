"""Scoring jobs: from a model's name and a benchmark to scores, resumable, by one process or several."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rmcalib._util.processes import Team, joined, process_rank
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.judges import Recipe, check_model_name, identify
from rmcalib.runs._folder import RunFolder
from rmcalib.runs._lock import read_manifest
from rmcalib.runs._manifest import asked_for, content_hash, describe, inputs_hash, score_inputs
from rmcalib.runs._run import SCORING, Run, finished_manifest, finished_scores, run_folder
from rmcalib.scores import Scores

if TYPE_CHECKING:
    from rmcalib.judges import RewardModel

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
    model : a Hub id, a local folder, ``"demo"``, or a model that is loaded already. That one is known by its
        name and revision: after a change of its weights, as in training, keep nothing or pass ``fresh``.
    benchmark : what :func:`rmcalib.load_benchmark` takes or returns.
    output : where run folders are kept (``<output>/<org>__<name>/<benchmark>/``), a folder or an fsspec URL.
        A run that was killed is taken up where it stopped, and a finished one is not scored again. Default:
        nothing is kept.
    revision, device, dtype, max_length, trust_remote_code, allow_pickle, recipe : how to load the model; see
        :func:`rmcalib.judges.load_model`.
    token_budget : tokens in one forward pass; default what free memory allows.
    fresh : score again, and replace what an earlier run, with whatever settings, left in the folder.
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
    from rmcalib.judges import load_model, score_items, shard

    if process_rank()[1] > 1 and output is None:
        raise ValueError("output: several processes need a folder that all of them can reach")
    loading: dict[str, Any] = {
        "device": device,
        "dtype": dtype,
        "max_length": max_length,
        "trust_remote_code": trust_remote_code,
        "allow_pickle": allow_pickle,
        "recipe": recipe,
    }
    with joined() as team, contextlib.ExitStack() as places:
        with team.step():
            bench = load_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
            name = check_model_name(model) if isinstance(model, str) else model.name
            place = places.enter_context(TemporaryDirectory()) if output is None else output
            folder = run_folder(place, name, bench.name)
            there = None
            if isinstance(model, str) and not fresh and team.rank == 0:
                there = _finished(folder, model, revision, bench, loading)
        if team.gather(there is not None)[0]:
            return there if there is not None else Scores.from_parquet(folder / "scores.parquet")

        with team.step():
            loaded = load_model(model, revision=revision, **loading) if isinstance(model, str) else model
            inputs, about = score_inputs(loaded, bench), describe(loaded)
            if isinstance(model, str):
                about["asked"] = asked_for(model, loaded.revision, bench, **loading)
        if len({*team.gather(inputs_hash(inputs))}) > 1:
            raise ValueError(f"{name}: the processes found different models or data: start them again")

        run = Run(folder, bench, inputs, about=about, fresh=fresh, rank=team.rank)
        with contextlib.ExitStack() as opened:
            for turn in (team.rank == 0, team.rank > 0):  # the others find the folder opened
                with team.step():
                    if turn:
                        opened.enter_context(run)
            with team.step():
                own = {item.id for item in shard(bench.items, team.rank, team.world)}
                items = [item for item in run.remaining if item.id in own]
                count = _counter(team, on_progress, sum(len(item.responses) for item in run.remaining))
                for scored in score_items(loaded, items, token_budget=token_budget, progress=count):
                    run.add(scored)
                    team.check()
            with team.step():
                scores = run.finish(processes=team.world) if team.rank == 0 else None
        return scores if scores is not None else Scores.from_parquet(folder / "scores.parquet")


def keep_scores(folder: Path, scores: Scores, *, asked: str | None = None, fresh: bool = False) -> None:
    """Keep scores that were made elsewhere in a run folder, with a manifest; another run is not replaced.

    The hash is that of the scores themselves, whatever their manifest says: they are never taken for a run of
    ours. A run's own scores can be given to it again, and stay what they are. By ``asked``, a hash, they are
    found again (`finished_scores`).

    >>> columns = {"item_id": ["a", "a"], "category": ["x", "x"], "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [1.0, 0.0]}
    >>> with TemporaryDirectory() as folder:
    ...     keep_scores(Path(folder), Scores.from_columns(columns))
    ...     sorted(path.name for path in Path(folder).iterdir() if path.name != ".lock")
    ['run.json', 'scores.parquet']
    """
    digest = content_hash(scores)
    before = read_manifest(folder / "run.json") or {}
    if _is_own(before, folder / "scores.parquet", scores):
        return
    about = {key: value for key, value in scores.manifest.items() if key != "asked"}
    if before.get("hash") == digest and "asked" in before:
        about["asked"] = before["asked"]
    if asked:
        about["asked"] = asked
    with RunFolder(folder, {}, SCORING, about=about, fresh=fresh, digest=digest) as run:
        kept = dataclasses.replace(scores, manifest=run.manifest("finished"))
        kept.to_parquet(run.folder / "scores.parquet")
        run.finish()


def _is_own(manifest: Mapping[str, Any], file: Path, scores: Scores) -> bool:
    """Tell whether a folder's finished run is the very one that `scores` were read from."""
    if manifest.get("status") != "finished" or manifest.get("hash") in (None, content_hash(scores)):
        return False
    if manifest["hash"] != scores.manifest.get("hash"):
        return False
    try:
        there = Scores.from_parquet(file)
    except ValueError:
        return False
    return there.manifest.get("hash") == manifest["hash"] and content_hash(there) == content_hash(scores)


def _finished(
    folder: Path, model: str, revision: str | None, benchmark: Benchmark, loading: dict[str, Any]
) -> Scores | None:
    """Return the scores of a finished run of just what is asked for."""
    if not finished_manifest(folder):
        return None  # before all files of a local model are read
    return finished_scores(folder, asked_for(model, identify(model, revision), benchmark, **loading))


def _counter(team: Team, on_progress: OnProgress | None, total: int) -> Callable[[int, int], None]:
    """Count what all processes have done, and tell it where it is asked for."""

    def count(n_responses: int, n_tokens: int) -> None:
        done, tokens = team.add("responses", n_responses), team.add("tokens", n_tokens)
        if on_progress is not None:
            on_progress(done, total, tokens)

    if on_progress is not None:
        on_progress(0, total, 0)
    return count
