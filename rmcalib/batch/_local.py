"""Batches: a list of models through a benchmark, one failure at a time, resumable at any moment.

What is the same for all engines is here: what was asked for, what is done already, how a model ends. The
engines are `run_local` (below), `rmcalib.batch._ray` and `rmcalib.batch._published`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmcalib._util.files import read_object
from rmcalib.batch._plan import PlanEntry
from rmcalib.batch._status import ModelStatus, Status
from rmcalib.batch._worker import Worker, WorkerError, told
from rmcalib.benchmarks import Benchmark
from rmcalib.judges import Classifier, LoadOptions, Recipe, is_local, locate
from rmcalib.runs import RunError, asked_for, finished_scores, run_folder
from rmcalib.scores import Scores

__all__ = ["Batch", "Evaluator", "Job", "open_batch", "run_local"]

_SCANS = 100  # of the Hub's cache, while it changes


@dataclass(frozen=True)
class Evaluator:
    """What is done with scores: `write` puts a model's metrics into its run folder, `metrics.json` last.

    `made_from` is a hash of everything that changes them. Metrics with the same hash are kept.
    """

    write: Callable[[PlanEntry, Scores, Path], None]
    made_from: Callable[[PlanEntry, Scores], str]


@dataclass(frozen=True)
class Job:
    """What is the same for all models of a batch: the benchmark, and how to score.

    `source` and `limit` are what `load_benchmark` made `benchmark` from.
    """

    benchmark: Benchmark
    source: str
    limit: int | None = None
    options: LoadOptions = field(default_factory=LoadOptions)
    fresh: bool = False
    free_disk: bool = False

    def judge(self, entry: PlanEntry, revision: str | None = None) -> Classifier:
        """Return the judge of a plan's entry; its model is not loaded yet."""
        options = dataclasses.replace(self.options, recipe=entry.recipe, revision=revision)
        return Classifier(entry.model, options)


@dataclass(frozen=True)
class Ticket:
    """One model on its way: the commit that is scored, a hash of what is asked for, whether that is there."""

    entry: PlanEntry
    commit: str | None  # None: a local folder
    asked: str | None
    folder: Path
    scored: bool = False
    fresh: bool = False


class Batch:
    """A running batch; open it by `open_batch`."""

    def __init__(
        self,
        output: Path,
        status: Status,
        evaluator: Evaluator | None,
        place: str | None = None,
    ) -> None:
        """Remember where the results go, where the states are told, and what is done with scores."""
        self.output, self.status, self.evaluator = output, status, evaluator
        self.place = place or str(output)

    def conclude(self, ticket: Ticket, scores: Scores | None = None) -> None:
        """Judge the scores of a model unless that is done, and mark the model as done."""
        name, folder = ticket.entry.model, ticket.folder
        shutil.rmtree(folder / "parts", ignore_errors=True)  # of a run that was killed while it tidied up
        judged = True
        if self.evaluator is not None:
            scores = scores or Scores.from_parquet(folder / "scores.parquet")
            made_from = read_object(folder / "metrics.json").get("made_from")
            judged = not ticket.fresh and made_from == self.evaluator.made_from(ticket.entry, scores)
            if not judged:
                self.status.change(name, "evaluating")
                self.evaluator.write(ticket.entry, scores, folder)
        self.status.change(name, "done", folder=self._named(folder), fresh=not (ticket.scored and judged))

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Turn whatever goes wrong in the block into the failure of one model."""
        try:
            yield
        except Exception as error:
            self.status.change(name, "failed", why=self._named(told(error)))

    def _named(self, text: object) -> str:
        """Name the output as the user does: what is told outlives a folder that only mirrors it."""
        return str(text).replace(str(self.output), self.place)


@contextlib.contextmanager
def open_batch(
    output: Path,
    plan: Sequence[PlanEntry],
    *,
    evaluator: Evaluator | None = None,
    on_change: Callable[[Status], None] | None = None,
    place: str | None = None,
    **about: Any,
) -> Iterator[Batch]:
    """Take the lock of a batch's output folder and begin a run: states in `batch.json`, `events.jsonl`.

    `place` is how the output is called in what is told, where that is not the folder (a mirrored URL).
    """
    from filelock import FileLock, Timeout

    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = FileLock(output / ".batch.lock", timeout=0)
        lock.acquire()
    except Timeout:
        who = read_object(output / "batch.json")
        raise RunError(
            f"{output} is in use by another batch (process {who.get('pid', '?')} on {who.get('host', '?')}): "
            "wait for it, or choose another --output"
        ) from None
    except OSError as error:
        raise RunError(f"{output}: cannot be written: {error.strerror or error}") from error
    with lock:
        models = [ModelStatus(e.model, parameters=e.parameters, planned=e.seconds) for e in plan]
        status = Status(output, models, on_change=on_change, **about)
        for entry in plan:
            if entry.skipped:
                status.change(entry.model, "skipped", why=entry.skipped)
        try:
            yield Batch(output, status, evaluator, place)
        except BaseException:
            status.end("interrupted")
            raise
        status.end()


def run_local(batch: Batch, job: Job, plan: Sequence[PlanEntry]) -> None:
    """Score one model after another; meanwhile the next is downloaded, and the one before is judged.

    Scoring is done by a process of its own, so that a model that takes the process down (out of memory, a
    fault in compiled code) is one failure among others. A killed batch takes it along.
    """
    entries = [entry for entry in plan if not entry.skipped]
    ahead = _after(None, prepare, batch, job, entries[0]) if entries else None
    with _judging() as judging, Worker(batch.output / "batch.log") as worker:
        for number, entry in enumerate(entries):
            assert ahead is not None
            current = ahead
            if number + 1 < len(entries):  # begins when this model's own download has ended
                ahead = _after(current, prepare, batch, job, entries[number + 1])
            with batch.attempt(entry.model):
                ticket = current.result()
                if not ticket.scored:
                    batch.status.change(entry.model, "scoring")
                    _score(batch, job, ticket, worker)
                    batch.status.change(entry.model, "scored")
                judging.submit(_conclude, batch, job, ticket)


@contextlib.contextmanager
def _judging() -> Iterator[ThreadPoolExecutor]:
    """Give a thread that judges; an interruption waits for the model in the works, but for no others."""
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        yield pool
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def prepare(batch: Batch, job: Job, entry: PlanEntry) -> Ticket:
    """See what is done of a model, and download it if it has to be scored."""
    ticket = scoring_ticket(batch, job, entry)
    if not ticket.scored:
        batch.status.change(entry.model, "downloading")
        fetch(entry.recipe, ticket.commit, job)
        batch.status.change(entry.model, "ready")
    return ticket


def scoring_ticket(batch: Batch, job: Job, entry: PlanEntry) -> Ticket:
    """See what is done of a model: asks the Hub for its commit, and downloads nothing.

    With ``job.fresh`` nothing counts as done.
    """
    judge = job.judge(entry)
    asked = asked_for(judge, job.benchmark)
    folder = run_folder(batch.output, entry.model, job.benchmark.name)
    commit = None if is_local(entry.model) else judge.commit
    scored = not job.fresh and finished_scores(folder, asked) is not None
    return Ticket(entry, commit, asked, folder, scored, job.fresh)


def fetch(recipe: Recipe, commit: str | None, job: Job) -> None:
    """Download a model into the Hub's cache: its files, and those of the model an adapter was trained on."""
    if commit is None:
        return
    options = dataclasses.replace(job.options, recipe=recipe, revision=commit)
    folder, _ = locate(recipe.model, options)
    adapter = read_object(folder / "adapter_config.json")
    if adapter.get("base_model_name_or_path"):
        base = dataclasses.replace(options, revision=adapter.get("revision"))
        locate(adapter["base_model_name_or_path"], base)


def free_checkpoint(commit: str) -> int:
    """Drop a commit's files from the Hub's cache, and return how many bytes that freed."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    for attempt in range(_SCANS):
        try:
            cache = scan_cache_dir()
            break
        except CacheNotFound:
            return 0
        except FileNotFoundError:  # all of the cache is looked at, and others drop or fetch their models
            if attempt + 1 == _SCANS:
                raise
    strategy = cache.delete_revisions(commit)
    strategy.execute()
    return int(strategy.expected_freed_size)


def _conclude(batch: Batch, job: Job, ticket: Ticket) -> None:
    with batch.attempt(ticket.entry.model):
        batch.conclude(ticket)
        if job.free_disk and ticket.commit is not None:
            freed = free_checkpoint(ticket.commit)
            batch.status.event("freed", model=ticket.entry.model, bytes=freed)


def _score(batch: Batch, job: Job, ticket: Ticket, worker: Worker) -> None:
    name = ticket.entry.model
    task = {
        "model": name,
        "source": job.source,
        "benchmark_revision": job.benchmark.revision,
        "limit": job.limit,
        "output": str(batch.output),
        "fresh": job.fresh,
        "recipe": dataclasses.asdict(ticket.entry.recipe),
        "options": dataclasses.asdict(
            dataclasses.replace(job.options, recipe=None, revision=ticket.commit, recipes=())
        ),
    }
    for event in worker.run(task):
        if event["event"] == "progress":
            batch.status.progress(name, event["done"], event["total"], event["tokens"])
        elif event["event"] == "warning":
            batch.status.warn(name, event["text"])
        else:
            raise WorkerError(event["error"])


def _after(previous: Future[Ticket] | None, call: Callable[..., Ticket], *args: Any) -> Future[Ticket]:
    """Call in the background, when `previous` has ended; the thread does not keep the process alive."""
    future: Future[Ticket] = Future()

    def work() -> None:
        if previous is not None:
            previous.exception()  # waits; what went wrong there is told there
        try:
            future.set_result(call(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future
