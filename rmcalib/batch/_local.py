"""Batches on one machine: one model at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rmcalib._util.files import read_object, write_bytes
from rmcalib._util.storage import is_remote
from rmcalib.batch._batch import Batch, Job, Ticket, free_checkpoint, scoring_ticket
from rmcalib.batch._plan import PlanEntry
from rmcalib.batch._worker import Task, Worker
from rmcalib.judges import Recipe, locate

__all__ = ["run_local"]


def run_local(batch: Batch, job: Job, plan: Sequence[PlanEntry]) -> None:
    """Score the models one by one. Meanwhile, download the next model and evaluate the previous one.

    Another process does the scoring, so that a model that crashes it does not stop the batch.
    """
    entries = [entry for entry in plan if not entry.skipped]
    ahead = _after(None, prepare, batch, job, entries[0]) if entries else None
    with _log(batch.output) as log, _evaluating() as evaluating, Worker(log) as worker:
        for number, entry in enumerate(entries):
            assert ahead is not None
            current = ahead
            if number + 1 < len(entries):  # starts after the download of this model
                ahead = _after(current, prepare, batch, job, entries[number + 1])
            with batch.attempt(entry.model):
                ticket = current.result()
                if not ticket.scored:
                    batch.status.change(entry.model, "scoring")
                    _score(batch, job, ticket, worker)
                    batch.status.change(entry.model, "scored")
                evaluating.submit(_conclude, batch, job, ticket)


@contextlib.contextmanager
def _log(output: Path) -> Iterator[Path]:
    """Yield the file for the worker's output. It is uploaded to object storage at the end."""
    if not is_remote(output):
        yield output / "batch.log"
        return
    with tempfile.TemporaryDirectory(prefix="rmcalib-") as folder:
        log = Path(folder) / "batch.log"
        try:
            yield log
        finally:
            if log.exists():
                write_bytes(output / "batch.log", log.read_bytes())


@contextlib.contextmanager
def _evaluating() -> Iterator[ThreadPoolExecutor]:
    """Yield a thread for evaluations. An interruption waits for the current model only."""
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        yield pool
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def prepare(batch: Batch, job: Job, entry: PlanEntry) -> Ticket:
    """Find out whether a model is done, and download it if it must be scored."""
    ticket = scoring_ticket(batch, job, entry)
    if not ticket.scored:
        batch.status.change(entry.model, "downloading")
        _fetch(entry.recipe, ticket.commit, job)
        batch.status.change(entry.model, "ready")
    return ticket


def _fetch(recipe: Recipe, commit: str | None, job: Job) -> None:
    """Download a model into the Hub's cache, and the base model of an adapter."""
    if commit is None:
        return
    options = dataclasses.replace(job.options, recipe=recipe, revision=commit)
    folder, _ = locate(recipe.model, options)
    adapter = read_object(folder / "adapter_config.json")
    if adapter.get("base_model_name_or_path"):
        base = dataclasses.replace(options, revision=adapter.get("revision"))
        locate(adapter["base_model_name_or_path"], base)


def _conclude(batch: Batch, job: Job, ticket: Ticket) -> None:
    with batch.attempt(ticket.entry.model):
        batch.conclude(ticket)
        if job.free_disk and ticket.commit is not None:
            freed = free_checkpoint(ticket.commit)
            batch.status.event("freed", model=ticket.entry.model, bytes=freed)


def _score(batch: Batch, job: Job, ticket: Ticket, worker: Worker) -> None:
    name = ticket.entry.model
    task = Task(job.judge(ticket.entry, ticket.commit), job.benchmark, str(batch.output), job.fresh)
    for kind, values in worker.run(task):
        if kind == "progress":
            batch.status.progress(name, *values)
        else:
            batch.status.warn(name, *values)


def _after(previous: Future[Ticket] | None, call: Callable[..., Ticket], *args: Any) -> Future[Ticket]:
    """Call a function in a daemon thread after `previous` has ended."""
    future: Future[Ticket] = Future()

    def work() -> None:
        if previous is not None:
            previous.exception()  # waits; errors are raised where its result is used
        try:
            future.set_result(call(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future
