"""Score a benchmark with a judge: resumable, by one process or several."""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from rmcalib._util.files import read_object
from rmcalib._util.processes import Team, joined, process_rank
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.judges import Judge, load_judge
from rmcalib.judges._judge import about_judge, close_judge, scored_chunks
from rmcalib.judges._scoring import CHUNK, indifference_note
from rmcalib.runs._folder import inputs_hash
from rmcalib.runs._run import Run, finished_scores, model_folder, run_folder
from rmcalib.scores import Scores

if TYPE_CHECKING:
    from rmcalib.judges import RewardModel


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
            if isinstance(given, str):
                places.callback(close_judge, chosen)
            place = places.enter_context(TemporaryDirectory()) if output is None else output
            folder = run_folder(place, chosen.name, bench.name)
            there = None
            # Only if there is a run: `asked_for` hashes the files of a local model.
            if not fresh and team.rank == 0 and read_object(folder / "run.json"):
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


def score_inputs(
    judge: Judge, benchmark: Benchmark, identity: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return everything that changes a score. Runs with equal inputs can share their prompts.

    `identity` is the result of `judge.identity()`, if another process has loaded the judge.

    >>> judge = load_judge(lambda prompt, responses: [len(text) for text in responses], name="longest")
    >>> inputs = score_inputs(judge, load_benchmark("demo", limit=4))
    >>> inputs["model"], inputs["benchmark"], inputs["n_items"]
    ('longest', 'demo', 4)
    """
    return {
        **(judge.identity() if identity is None else identity),
        "model": model_folder(judge.name),
        "benchmark": benchmark.name,
        "benchmark_revision": benchmark.revision,
        "n_items": len(benchmark),
        "items_sha256": _items_hash(benchmark),
    }


def asked_for(judge: Judge, benchmark: Benchmark) -> str | None:
    """Return a hash of a request to score, which is known before the judge is loaded; None if it is not.

    The manifest of a run contains it as `asked`. If the same request comes again, `finished_scores` finds the
    finished run by it, and no weights are loaded.

    >>> asked = asked_for(load_judge("demo"), load_benchmark("demo", limit=4))
    >>> asked == asked_for(load_judge("demo"), load_benchmark("demo", limit=5))
    False
    """
    known: Callable[[], dict[str, Any] | None] = getattr(judge, "asked", None) or judge.identity
    asked = known()
    if asked is None:
        return None
    data = [benchmark.name, benchmark.revision, _items_hash(benchmark)]
    return inputs_hash({**asked, "model": model_folder(judge.name), "benchmark": data})


def _items_hash(benchmark: Benchmark) -> str:
    """Hash the fields of all prompts that scores depend on or contain; votes only if there are any."""
    items = [
        (item.id, item.category, item.prompt, item.responses, item.n_correct)
        + (() if item.votes is None else (item.votes, item.ties))
        for item in benchmark.items
    ]
    return hashlib.sha256(json.dumps(items).encode("utf-8", "surrogatepass")).hexdigest()


def shard(items: Sequence[T], rank: int, world: int) -> list[T]:
    """Return the items that process `rank` of `world` scores, in whole blocks of a judge.

    >>> [len(shard(range(100), rank, 2)) for rank in range(2)]
    [64, 36]
    """
    blocks = [items[start : start + CHUNK] for start in range(0, len(items), CHUNK)]
    return [item for block in blocks[rank::world] for item in block]


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
    remaining = run.remaining
    count = _counter(team, on_progress, sum(len(item.responses) for item in remaining))
    distinct: set[bool | None] = set()
    for scored in scored_chunks(judge, shard(remaining, team.rank, team.world), count):
        run.add(scored)
        distinct |= {item.distinct for item in scored}
        team.check()
    if note := indifference_note(distinct):
        warnings.warn(f"{judge.name}: {note}", stacklevel=2)


def _work(team: Team, judge: Judge) -> dict[str, dict[str, int]]:
    """Return the sum over all processes of the work that their judges have done."""
    work: Callable[[], dict[str, int]] = getattr(judge, "work", None) or dict
    parts = team.gather(work())
    total = {name: sum(part.get(name, 0) for part in parts) for part in parts for name in part}
    return {"work": total} if any(total.values()) else {}


def _counter(team: Team, on_progress: OnProgress | None, total: int) -> Callable[[int, int], None]:
    """Return a function that counts the work of all processes and reports it."""

    def count(n_responses: int, n_tokens: int) -> None:
        done, tokens = team.add("responses", n_responses), team.add("tokens", n_tokens)
        if on_progress is not None:
            on_progress(done, total, tokens)

    if on_progress is not None:
        on_progress(0, total, 0)
    return count
