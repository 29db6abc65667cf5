"""Score a benchmark with a judge: resumable, by one process or several."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rmcalib._util.processes import Team, joined, process_rank
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.judges import (
    INDIFFERENT,
    Judge,
    about_judge,
    is_indifferent,
    load_judge,
    scored_chunks,
    shard,
    work_of,
)
from rmcalib.runs._folder import RunFolder
from rmcalib.runs._lock import RunError, read_manifest
from rmcalib.runs._manifest import asked_for, content_hash, inputs_hash, score_inputs
from rmcalib.runs._run import SCORING, Run, finished_manifest, finished_scores, run_folder
from rmcalib.scores import Scores

if TYPE_CHECKING:
    from rmcalib.judges import RewardModel

__all__ = ["OnProgress", "keep_scores", "score"]

OnProgress = Callable[[int, int, int], None]
"""Called with the responses scored so far, the responses to score, and the tokens read so far."""


def score(
    judge: str | Judge | RewardModel | Callable[..., Any] | None = None,
    benchmark: str | Benchmark = "demo",
    *,
    model: str | Judge | RewardModel | Callable[..., Any] | None = None,
    name: str | None = None,
    kind: str | None = None,
    output: str | Path | None = None,
    fresh: bool = False,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> Scores:
    """Score every response of a benchmark with a judge.

    Parameters
    ----------
    judge : a Hub id, a local folder, ``"demo"`` (the default), the name of a registered judge, a function
        ``f(prompt, responses) -> numbers``, or an object that is a :class:`rmcalib.judges.Judge`.
    benchmark : what :func:`rmcalib.load_benchmark` takes or returns.
    model : another name for ``judge``.
    name, kind : the name of a function; the kind of judge that a name stands for.
    output : where run folders are kept (``<output>/<org>__<name>/<benchmark>/``): a folder or an fsspec URL.
        A run that was killed continues where it stopped, and a finished run is not scored again. Default:
        nothing is kept.
    fresh : score again, and replace the earlier run in the folder, whatever its settings.
    on_progress : called as responses are scored.
    **options : how to load the judge; see :func:`rmcalib.load_judge`. For Hugging Face models they are the
        fields of :class:`rmcalib.judges.LoadOptions`: ``device``, ``dtype``, ``revision``, ...

    Returns
    -------
    Scores
        In the order of the benchmark, with a manifest. Under ``torchrun`` or ``accelerate launch``, each
        process scores a part of the prompts and all return the same scores. They need an ``output`` that all
        of them can reach.

    Examples
    --------
    >>> import rmcalib
    >>> bench = rmcalib.load_benchmark("demo", limit=8)
    >>> rmcalib.score("demo", bench, device="cpu").n_items
    8
    >>> def shortest(prompt, responses):
    ...     return [-len(response) for response in responses]
    >>> rmcalib.score(shortest, bench).manifest["model"]
    'shortest'
    """
    if judge is not None and model is not None:
        raise ValueError("judge, model: two names for one argument; give one of them")
    if process_rank()[1] > 1 and output is None:
        raise ValueError("output: several processes need a folder that all of them can reach")
    given = judge if judge is not None else model if model is not None else "demo"
    with joined() as team, contextlib.ExitStack() as places:
        with team.step():
            bench = load_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
            chosen = load_judge(given, kind=kind, name=name, **options)
            place = places.enter_context(TemporaryDirectory()) if output is None else output
            folder = run_folder(place, chosen.name, bench.name)
            there = None
            # A local model's files are hashed to know what is asked for: only if there is a finished run.
            if not fresh and team.rank == 0 and finished_manifest(folder):
                there = finished_scores(folder, asked_for(chosen, bench))
        if team.gather(there is not None)[0]:
            return there if there is not None else Scores.from_parquet(folder / "scores.parquet")

        with team.step():
            inputs = score_inputs(chosen, bench)
            about, asked = about_judge(chosen), asked_for(chosen, bench)
            about |= {} if asked is None else {"asked": asked}
        if len({*team.gather(inputs_hash(inputs))}) > 1:
            raise ValueError(f"{chosen.name}: the processes found different models or data: start them again")

        run = Run(folder, bench, inputs, about=about, fresh=fresh, rank=team.rank)
        with contextlib.ExitStack() as opened:
            for turn in (team.rank == 0, team.rank > 0):  # rank 0 opens the folder before the others
                with team.step():
                    if turn:
                        opened.enter_context(run)
            with team.step():
                _fill(run, chosen, team, on_progress)
            work = _work(team, chosen)
            with team.step():
                scores = run.finish(processes=team.world, **work) if team.rank == 0 else None
        return scores if scores is not None else Scores.from_parquet(folder / "scores.parquet")


def _fill(run: Run, judge: Judge, team: Team, on_progress: OnProgress | None) -> None:
    """Score this process's part of what is left of a run."""
    own = {item.id for item in shard(run.benchmark.items, team.rank, team.world)}
    items = [item for item in run.remaining if item.id in own]
    count = _counter(team, on_progress, sum(len(item.responses) for item in run.remaining))
    distinct: set[bool | None] = set()
    for scored in scored_chunks(judge, items, count):
        run.add(scored)
        distinct |= {item.distinct for item in scored}
        team.check()
    if is_indifferent(distinct):
        warnings.warn(f"{judge.name}: {INDIFFERENT}", stacklevel=2)


def _work(team: Team, judge: Judge) -> dict[str, dict[str, int]]:
    """Add up what the judges of all processes have computed since they were started."""
    parts = team.gather(work_of(judge))
    total = {name: sum(part.get(name, 0) for part in parts) for part in parts for name in part}
    return {"work": total} if any(total.values()) else {}


def keep_scores(folder: Path, scores: Scores, *, asked: str | None = None, fresh: bool = False) -> None:
    """Write scores that were made elsewhere to a run folder, with a manifest. Another run is not replaced.

    Their hash is that of the scores themselves, so that they are never mistaken for a run of a judge. A run's
    own scores can be given to it again, and stay as they are. ``asked`` is a hash by which they are found
    again (`finished_scores`).

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
    there, here = before.get("model"), scores.manifest.get("model")
    if there and here and there != here and not fresh:
        raise RunError(
            f"{folder} holds the scores of {there!r}, and {here!r} has the same folder: choose another "
            "--output, or --fresh to replace them"
        )
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
    """Return whether `scores` were read from the finished run in this folder."""
    if manifest.get("status") != "finished" or manifest.get("hash") in (None, content_hash(scores)):
        return False
    if manifest["hash"] != scores.manifest.get("hash"):
        return False
    try:
        there = Scores.from_parquet(file)
    except ValueError:
        return False
    return there.manifest.get("hash") == manifest["hash"] and content_hash(there) == content_hash(scores)


def _counter(team: Team, on_progress: OnProgress | None, total: int) -> Callable[[int, int], None]:
    """Return a function that counts what all processes have done, and reports it."""

    def count(n_responses: int, n_tokens: int) -> None:
        done, tokens = team.add("responses", n_responses), team.add("tokens", n_tokens)
        if on_progress is not None:
            on_progress(done, total, tokens)

    if on_progress is not None:
        on_progress(0, total, 0)
    return count
