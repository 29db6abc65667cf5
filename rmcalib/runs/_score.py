"""Score a benchmark with a judge: resumable, by one process or several."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rmcalib._util.files import write_json
from rmcalib._util.processes import Team, joined, process_rank
from rmcalib._util.remote import is_remote, mirrored, runs_in
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.judges import (
    INDIFFERENT,
    Judge,
    about_judge,
    is_indifferent,
    load_judge,
    scored_chunks,
    shard,
)
from rmcalib.runs._folder import Run, finished_manifest, finished_scores, run_folder
from rmcalib.runs._lock import RunError, locked, read_manifest
from rmcalib.runs._manifest import asked_for, content_hash, inputs_hash, score_inputs
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
    if process_rank()[1] > 1 and (output is None or is_remote(output)):
        raise ValueError("output: several processes need a folder that all of them can reach")
    given = judge if judge is not None else model if model is not None else "demo"
    with joined() as team, contextlib.ExitStack() as places:
        with team.step():
            bench = load_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
            chosen = load_judge(given, kind=kind, name=name, **options)
            inner = run_folder("", chosen.name, bench.name)
            needed = runs_in([inner.as_posix()])
            keep: Any = TemporaryDirectory() if output is None else mirrored(output, needed=needed)
            folder = places.enter_context(keep) / inner
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
            with team.step():
                scores = run.finish(processes=team.world) if team.rank == 0 else None
        return scores if scores is not None else Scores.from_parquet(folder / "scores.parquet")


def _fill(run: Run, judge: Judge, team: Team, on_progress: OnProgress | None) -> None:
    """Score this process's part of what is left of a run."""
    own = {item.id for item in shard(run.benchmark.items, team.rank, team.world)}
    items = [item for item in run.remaining if item.id in own]
    count = _counter(team, on_progress, sum(len(item.responses) for item in run.remaining))
    told_apart: set[bool | None] = set()
    for scored in scored_chunks(judge, items, count):
        run.add(scored)
        told_apart |= {item.told_apart for item in scored}
        team.check()
    if is_indifferent(told_apart):
        warnings.warn(f"{judge.name}: {INDIFFERENT}", stacklevel=2)


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
    about = {key: value for key, value in scores.manifest.items() if key != "asked"}
    manifest = {**about, "status": "finished", "hash": digest} | ({"asked": asked} if asked else {})
    run_file, file, parts = folder / "run.json", folder / "scores.parquet", folder / "parts"
    with locked(folder):
        before = read_manifest(run_file)
        if _is_own(before or {}, file, scores):
            return
        same = before is not None and before.get("hash") == digest
        if before is not None and same and "asked" in before:
            manifest = {"asked": before["asked"], **manifest}
        if not same and not fresh and (before is not None or file.exists() or parts.exists()):
            raise RunError(
                f"{folder} holds another run, with other scores than these: choose another --output, or "
                "--fresh to replace them"
            )
        if not same:  # if killed now, no scores stand beside another run's manifest
            file.unlink(missing_ok=True)
            shutil.rmtree(parts, ignore_errors=True)
            write_json(run_file, {**manifest, "status": "scoring"})
        dataclasses.replace(scores, manifest=manifest).to_parquet(file)
        write_json(run_file, manifest)


def _is_own(manifest: Mapping[str, Any], file: Path, scores: Scores) -> bool:
    """Return whether `scores` were read from the finished run in this folder."""
    finished = manifest.get("status") == "finished" and file.is_file()
    if not finished or manifest.get("hash") in (None, content_hash(scores)):
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
