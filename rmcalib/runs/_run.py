"""Score a benchmark with a judge: resumable, by one process or several.

While a run scores, `scored-0.jsonl` in its folder gets one line per chunk of prompts that were scored together,
with a check of its content. At the end, `scores.parquet` is written once and the journal is removed. A half-written
line at the end is ignored. Any other damage is an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rmcalib._util.display import count
from rmcalib._util.files import json_hash, opened_to_append, read_object, utc, write_bytes
from rmcalib._util.processes import Team, joined, package_versions, process_rank
from rmcalib._util.storage import is_remote, read_file
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.judges import Judge, ScoredItem, load_judge
from rmcalib.judges._judge import about_judge, close_judge, scored_chunks
from rmcalib.judges._scoring import CHUNK
from rmcalib.runs import _folder
from rmcalib.scores import Scores
from rmcalib.scores._answers import answers_summary
from rmcalib.scores._meaning import measured
from rmcalib.scores._runs import REMEDY, TABLE, RunError, read_run

if TYPE_CHECKING:
    import numpy.typing as npt

    from rmcalib.benchmarks import Item
    from rmcalib.judges import RewardModel


T = TypeVar("T")

_ROUNDING = 1e-3  # relative difference of rewards that may be rounding in a narrow dtype

OnProgress = Callable[[int, int, int], None]
"""Called with the number of responses that this process has scored, that of all its responses, and of tokens."""


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
    with joined() as team, contextlib.ExitStack() as opened:
        bench = load_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
        _check_votes(bench)
        chosen = load_judge(given, kind=kind, name=name, **options)
        if isinstance(given, str):
            opened.callback(close_judge, chosen)
        place = opened.enter_context(TemporaryDirectory()) if output is None else output
        folder = _folder.run_folder(place, chosen.name, bench.name)
        scores = None
        # Only if there is a run: `asked_for` hashes the files of a local model.
        if not fresh and team.rank == 0 and read_object(folder / "run.json"):
            scores = _folder.finished_scores(folder, asked_for(chosen, bench))
        if not team.gather(scores is not None)[0]:
            scores = _score_together(chosen, bench, folder, team, fresh, on_progress)
        return scores if scores is not None else Scores.from_parquet(folder / TABLE)


def _score_together(
    judge: Judge, bench: Benchmark, folder: Path, team: Team, fresh: bool, on_progress: OnProgress | None
) -> Scores | None:
    """Score what is left of a benchmark; the main process returns all scores."""
    inputs = score_inputs(judge, bench)
    if len({*team.gather(json_hash(inputs))}) > 1:
        raise ValueError(f"{judge.name}: the processes found different models or data: start them again")
    about, asked = about_judge(judge), asked_for(judge, bench)
    about |= {} if asked is None else {"asked": asked}
    if team.rank > 0:
        team.gather(None)  # the main process opens the folder first
    with Run(folder, bench, inputs, about=about, fresh=fresh, rank=team.rank) as run:
        if team.rank == 0:
            team.gather(None)
        team.gather(None)  # all must have read the journals before any of them grows
        _fill(run, judge, team, on_progress)
        work = _work(team, judge)
        scores = run.finish(processes=team.world, **work) if team.rank == 0 else None
        team.gather(None)
    if scores is not None and (note := indifference_note(scores)):
        warnings.warn(f"{judge.name}: {note}", stacklevel=2)
    return scores


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
        "model": _folder.model_folder(judge.name),
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
    identity: Callable[[], dict[str, Any] | None] = getattr(judge, "asked", None) or judge.identity
    asked = identity()
    if asked is None:
        return None
    data = [benchmark.name, benchmark.revision, _items_hash(benchmark)]
    return json_hash({**asked, "model": _folder.model_folder(judge.name), "benchmark": data})


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


class Run:
    """An open scoring run; use it as a context manager, so that its lock is released.

    Parameters
    ----------
    folder : Path
        The folder of the run (`run_folder`).
    benchmark : Benchmark
        The prompts; the final file has their order.
    inputs : Mapping[str, Any]
        Everything that changes a score (`score_inputs`).
    about : Mapping[str, Any], optional
        Other entries of the manifest.
    fresh : bool
        Remove the files of an earlier run, even if its inputs differ.
    rank : int
        Number of this process, if several share the run. Rank 0 takes the lock and must open the run before
        the others. Every rank writes its own journal. Rank 0 calls `finish` when all are done.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from rmcalib.benchmarks import Benchmark, Item
    >>> bench = Benchmark("b", "1", (Item("a", "Math", "2+2?", ("4", "5"), 1),))
    >>> with TemporaryDirectory() as folder:
    ...     with Run(Path(folder), bench, {"model": "m"}) as run:
    ...         run.add([ScoredItem("a", (1.0, -1.0), n_tokens=(5, 5), truncated=(False, False))])
    ...         scores = run.finish()
    >>> scores.reward.tolist(), scores.manifest["counts"]["responses"]
    ([1.0, -1.0], 2)
    """

    def __init__(
        self,
        folder: Path,
        benchmark: Benchmark,
        inputs: Mapping[str, Any],
        *,
        about: Mapping[str, Any] | None = None,
        fresh: bool = False,
        rank: int = 0,
    ) -> None:
        """Store the arguments; nothing is read or written before the run is entered."""
        # Through JSON and back, so that they can be compared with a stored manifest.
        inputs = json.loads(json.dumps(dict(inputs)))
        described = {
            "versions": package_versions(),
            "benchmark_format": benchmark.format,
            **(about or {}),
        }
        self.folder, self.benchmark = folder, benchmark
        self.hash = json_hash(inputs)
        self.manifest = {**inputs, **described, "status": "running", "hash": self.hash, "inputs": inputs}
        self._fresh, self._rank = fresh, rank
        self._scored: dict[str, ScoredItem] = {}
        self._finished: Scores | None = None
        self._started = time.time()
        self._parts = 0
        self._writer = uuid.uuid4().hex[:8]
        self._lock = contextlib.ExitStack()

    @property
    def remaining(self) -> list[Item]:
        """Prompts that are not scored yet, in the order of the benchmark."""
        if self._finished is not None:
            return []
        return [item for item in self.benchmark.items if item.id not in self._scored]

    def __enter__(self) -> Run:
        """Take the lock, check that existing files belong to the same inputs, and read what is done."""
        with contextlib.ExitStack() as opened:
            if self._rank == 0:
                opened.enter_context(_folder.locked(self.folder))
                _folder.claim(self.folder, self.manifest, fresh=self._fresh)
            manifest = read_object(self.folder / "run.json")
            if manifest.get("status") == "finished" and manifest.get("hash") == self.hash:
                self._finished = read_run(self.folder)
            if self._finished is None:
                self._scored = self._read_journals()
            self._lock = opened.pop_all()  # keep the lock: there was no error
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self._lock.close()

    def add(self, scored: Iterable[ScoredItem]) -> None:
        """Append a chunk of scored prompts to the journal. After this call they survive a crash."""
        chunk = {item.id: item for item in scored}
        if not chunk:
            return
        line = _line(self.hash, chunk.values())
        if is_remote(self.folder):  # objects cannot be appended to, and another process may write here, too
            write_bytes(self.folder / f"scored-{self._writer}-{self._parts:05d}.jsonl", line)
        else:
            _append(self.folder / f"scored-{self._rank}.jsonl", line, trim=not self._parts)
        self._parts += 1
        self._scored |= chunk

    def finish(self, **about: Any) -> Scores:
        """Write the scores of all processes to `scores.parquet`, in the benchmark's order."""
        if self._finished is not None:
            return self._finished
        self._scored |= self._read_journals()
        missing = [item.id for item in self.benchmark.items if item.id not in self._scored]
        if missing:
            raise RunError(
                f"{self.folder}: {count(len(missing), 'prompt')} {'is' if len(missing) == 1 else 'are'} "
                f"not scored yet (the first: {missing[0]!r})"
            )
        columns = _columns(self.benchmark.items, self._scored)
        scores = Scores.from_columns(columns, self.manifest, source=str(self.folder))
        scores = measured(scores, self.manifest.get("numbers"), guess=False)
        answers = answers_summary(scores)
        self.manifest |= {
            **about,
            "counts": {
                "items": len(self.benchmark),
                "responses": len(scores),
                "truncated": int(scores.truncated.sum()),
                "empty": self.benchmark.n_empty,
                "tokens": int(scores.n_tokens[scores.n_tokens > 0].sum()),  # negative: unknown
            },
            "timings": {"started": utc(self._started), "finished": utc(time.time())},
            **({"judge_answers": answers} if answers else {}),
        }
        self._finished = _folder.write_scores(self.folder, scores, self.manifest)
        _folder.remove_journals(self.folder)  # only now: everything is in scores.parquet
        return self._finished

    def _read_journals(self) -> dict[str, ScoredItem]:
        prompts: dict[str, ScoredItem] = {}
        for file in _folder.files_of(self.folder, _folder.JOURNAL):
            runs, scored = _read_journal(file)
            if not runs <= {self.hash}:
                warnings.warn(f"{file}: belongs to another run, and is ignored", stacklevel=3)
                continue
            prompts |= scored
        return prompts


def scored_before(folder: Path) -> set[str]:
    """Return the ids of the prompts in the journals of a run that is not open."""
    files = _folder.files_of(folder, _folder.JOURNAL)
    return {item for file in files for item in _read_journal(file)[1]}


def _fill(run: Run, judge: Judge, team: Team, on_progress: OnProgress | None) -> None:
    """Score this process's share of the remaining prompts."""
    items = shard(run.remaining, team.rank, team.world)
    total = sum(len(item.responses) for item in items)
    done = tokens = 0

    def progress(n_responses: int, n_tokens: int) -> None:
        nonlocal done, tokens
        done, tokens = done + n_responses, tokens + n_tokens
        if on_progress is not None:
            on_progress(done, total, tokens)

    progress(0, 0)
    for scored in scored_chunks(judge, items, progress):
        run.add(scored)


def _work(team: Team, judge: Judge) -> dict[str, dict[str, int]]:
    """Return the sum over all processes of the work that their judges have done."""
    work: Callable[[], dict[str, int]] = getattr(judge, "work", None) or dict
    parts = team.gather(work())
    total = {name: sum(part.get(name, 0) for part in parts) for part in parts for name in part}
    return {"work": total} if any(total.values()) else {}


def indifference_note(scores: Scores) -> str:
    """Return a warning if the rewards of a prompt never differ by more than rounding; empty otherwise.

    >>> indifference_note(Scores.from_arrays([[1.0, 1.0], [0.5, 0.5001]]))[:25]
    'all responses of a prompt'
    """
    starts, several = scores.offsets[:-1], np.diff(scores.offsets) > 1
    low, high = np.minimum.reduceat(scores.reward, starts), np.maximum.reduceat(scores.reward, starts)
    differs = high - low > _ROUNDING * np.maximum(-low, high)
    if differs.any() or not several.any():
        return ""
    return (
        "all responses of a prompt have the same reward, for every prompt. A model may read it before the "
        "response begins: try `pooling: last_token` in its recipe"
    )


def _columns(items: Sequence[Item], by_id: Mapping[str, ScoredItem]) -> dict[str, Any]:
    """Return the columns of the table of a run; a number that a judge has not given is NaN."""
    scored = [by_id[item.id] for item in items]
    sizes = [len(each.rewards) for each in scored]

    def repeated(values: Iterable[Any]) -> list[Any]:
        return [value for value, n in zip(values, sizes, strict=True) for _ in range(n)]

    def flat(rows: Iterable[Iterable[Any]], dtype: type) -> npt.NDArray[Any]:
        return np.fromiter(chain.from_iterable(rows), dtype)

    response = flat(map(range, sizes), np.int64)
    columns = {
        "item_id": repeated(item.id for item in items),
        "category": repeated(item.category for item in items),
        "response": response,
        "is_correct": response < repeated(item.n_correct for item in items),
        "reward": flat((each.rewards for each in scored), np.float64),
        "n_tokens": flat((each.n_tokens for each in scored), np.int64),
        "truncated": flat((each.truncated for each in scored), np.bool_),
    }
    if any(item.votes is not None for item in items):
        columns["votes"] = flat((item.votes or () for item in items), np.int64)
        columns["ties"] = np.array(repeated(item.ties for item in items))
    for name in dict.fromkeys(name for each in scored for name in each.details):
        rows = (each.details.get(name) or [np.nan] * len(each.rewards) for each in scored)
        columns[f"judge_{name}"] = flat(rows, np.float64)
    return columns


def _line(run: str, scored: Iterable[ScoredItem]) -> bytes:
    """Return the line of a chunk in the journal."""
    record = {"run": run, "items": [asdict(item) for item in scored]}
    return json.dumps({**record, "check": json_hash(record)}).encode() + b"\n"


def _read_journal(file: Path) -> tuple[set[str], dict[str, ScoredItem]]:
    """Return the hashes of the runs that wrote a journal, and the prompts; none if the file was just removed."""
    try:
        lines = _whole_lines(read_file(file)).splitlines()
    except FileNotFoundError:
        lines = []
    runs: set[str] = set()
    prompts: dict[str, ScoredItem] = {}
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if record.pop("check") != json_hash(record):
                raise ValueError("the check does not match")
            runs.add(record["run"])
            for item in record["items"]:
                values = {key: tuple(value) for key, value in item.items() if isinstance(value, list)}
                prompts[item["id"]] = ScoredItem(**{**item, **values})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RunError(f"{file}, line {number}: damaged; {REMEDY}") from error
    return runs, prompts


def _whole_lines(content: bytes) -> bytes:
    """Return the content of a journal without what was being written when the process was killed."""
    return content[: content.rfind(b"\n") + 1]


def _append(path: Path, line: bytes, *, trim: bool) -> None:
    """Append a line to a file; with `trim`, first remove the half line that a killed process left."""
    try:
        with opened_to_append(path) as file:
            if trim:
                file.seek(0)
                file.truncate(len(_whole_lines(file.read())))
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror or error}") from error
