"""Score a benchmark with a judge: resumable, by one process or several."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from rmcalib._util.files import read_object
from rmcalib._util.processes import Team, joined, process_rank
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.judges import Judge, about_judge, indifference_note, load_judge, scored_chunks
from rmcalib.runs._folder import RunFolder
from rmcalib.runs._lock import RunError
from rmcalib.runs._manifest import asked_for, content_hash, inputs_hash, score_inputs
from rmcalib.runs._run import SCORING, Run, finished_manifest, finished_scores, run_folder
from rmcalib.scores import Scores

if TYPE_CHECKING:
    from rmcalib.judges import RewardModel

__all__ = ["OnProgress", "keep_scores", "score"]

T = TypeVar("T")

OnProgress = Callable[[int, int, int], None]
"""Called with the number of responses scored, the number of all responses, and the number of tokens read."""


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
    judge : str | Judge | RewardModel | Callable[..., Any], optional
        A Hub id, a local folder, ``"demo"`` (the default), the name of a registered judge, a function
        ``f(prompt, responses) -> numbers``, or an object that is a :class:`rmcalib.judges.Judge`.
    benchmark : str | Benchmark
        What :func:`rmcalib.load_benchmark` takes or returns.
    model : str | Judge | RewardModel | Callable[..., Any], optional
        Another name for ``judge``.
    name : str, optional
        Name of the judge, if it is a function.
    kind : str, optional
        Kind of judge, if ``judge`` is a name that could be several.
    output : str | Path, optional
        Folder or fsspec URL for run folders (``<output>/<org>__<name>/<benchmark>/``). A run that was killed
        continues where it stopped, and a finished run is not scored again. Default: nothing is kept.
    fresh : bool
        Score again, and replace an earlier run in the folder, even if its settings differ.
    on_progress : OnProgress, optional
        Called as responses are scored.
    **options
        How to load the judge; see :func:`rmcalib.load_judge`. For Hugging Face models they are the fields of
        :class:`rmcalib.judges.LoadOptions`: ``device``, ``dtype``, ``revision``, ...

    Returns
    -------
    Scores
        In the order of the benchmark, with a manifest. Under ``torchrun`` or ``accelerate launch``, each
        process scores a part of the prompts, and all return the same scores. They need an ``output`` that all
        of them can access.

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
        raise ValueError("judge, model: two names for one argument; give only one")
    if process_rank()[1] > 1 and output is None:
        raise ValueError("output: several processes need a folder that all of them can reach")
    given = judge if judge is not None else model if model is not None else "demo"
    with joined() as team, contextlib.ExitStack() as places:
        with team.step():
            bench = load_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
            _check_votes(bench)
            chosen = load_judge(given, kind=kind, name=name, **options)
            place = places.enter_context(TemporaryDirectory()) if output is None else output
            folder = run_folder(place, chosen.name, bench.name)
            there = None
            # Only if there is a finished run: `asked_for` hashes the files of a local model.
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


def _check_votes(benchmark: Benchmark) -> None:
    """Refuse a benchmark whose scores could not be written, before a model is loaded."""
    voted = sum(item.votes is not None for item in benchmark.items)
    if 0 < voted < len(benchmark):
        raise ValueError(
            f"{benchmark.name}: {voted:,} of {len(benchmark):,} prompts have people's votes; give all "
            "prompts votes or none, such as in two files"
        )


def _fill(run: Run, judge: Judge, team: Team, on_progress: OnProgress | None) -> None:
    """Score this process's share of the remaining prompts."""
    own = {item.id for item in shard(run.benchmark.items, team.rank, team.world)}
    items = [item for item in run.remaining if item.id in own]
    count = _counter(team, on_progress, sum(len(item.responses) for item in run.remaining))
    distinct: set[bool | None] = set()
    for scored in scored_chunks(judge, items, count):
        run.add(scored)
        distinct |= {item.distinct for item in scored}
        team.check()
    if note := indifference_note(distinct):
        warnings.warn(f"{judge.name}: {note}", stacklevel=2)


def shard(items: Sequence[T], rank: int, world: int) -> list[T]:
    """Return the items that process `rank` of `world` scores: every item belongs to exactly one process.

    >>> shard("abcde", 0, 2), shard("abcde", 1, 2)
    (['a', 'c', 'e'], ['b', 'd'])
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank: must be from 0 to {world - 1}, got {rank}")
    return list(items[rank::world])


def _work(team: Team, judge: Judge) -> dict[str, dict[str, int]]:
    """Return the sum over all processes of the work that their judges have done."""
    work: Callable[[], dict[str, int]] = getattr(judge, "work", None) or dict
    parts = team.gather(work())
    total = {name: sum(part.get(name, 0) for part in parts) for part in parts for name in part}
    return {"work": total} if any(total.values()) else {}


def keep_scores(folder: Path, scores: Scores, *, asked: str | None = None, fresh: bool = False) -> None:
    """Write scores that were made elsewhere to a run folder, with a manifest.

    The hash of the run is that of the scores themselves, so they are never mistaken for a run of a judge.
    Writing a run's own scores to its folder changes nothing.

    Parameters
    ----------
    folder : Path
        The folder of the run. If it holds another run, a `RunError` is raised.
    scores : Scores
        The scores.
    asked : str, optional
        Hash of a request by which `finished_scores` finds them again.
    fresh : bool
        Replace another run in the folder.

    Examples
    --------
    >>> with TemporaryDirectory() as folder:
    ...     keep_scores(Path(folder), Scores.from_arrays([[1.0, 0.0]]))
    ...     sorted(path.name for path in Path(folder).iterdir() if path.name != ".lock")
    ['run.json', 'scores.parquet']
    """
    digest = content_hash(scores)
    before = read_object(folder / "run.json")
    if _is_own(before, folder / "scores.parquet", scores):
        return
    there, here = before.get("model"), scores.manifest.get("model")
    if there and here and there != here and not fresh:
        raise RunError(
            f"{folder} holds the scores of {there!r}, and {here!r} has the same folder: choose another "
            "--output, or --fresh to replace them"
        )
    about = {key: value for key, value in scores.manifest.items() if key not in ("asked", "scores_sha256")}
    if before.get("hash") == digest and "asked" in before:
        about["asked"] = before["asked"]
    if asked:
        about["asked"] = asked
    with RunFolder(folder, {}, SCORING, about=about, fresh=fresh, digest=digest) as run:
        kept = dataclasses.replace(scores, manifest=run.manifest("finished"))
        signed = kept.to_parquet(run.folder / "scores.parquet")
        run.finish(scores_sha256=signed["scores_sha256"])


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
    """Return a function that counts the work of all processes and reports it."""

    def count(n_responses: int, n_tokens: int) -> None:
        done, tokens = team.add("responses", n_responses), team.add("tokens", n_tokens)
        if on_progress is not None:
            on_progress(done, total, tokens)

    if on_progress is not None:
        on_progress(0, total, 0)
    return count
