"""Put requests that arrive together into batches, and score them in one thread.

Judges keep state, so only one thread calls them. A batch is what waits when the last one is done. If the last
batch had several samples, or several wait, the thread waits up to two milliseconds until as many are there
again; a single client never waits. While the model behind is away, one request at a time is tried, so that a text
which its server cannot answer does not hold up the others.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rmcalib.judges.apis.samples import Sample, Scored
from rmcalib.live.scoring import is_away

Outcome = Scored | Exception
Score = Callable[[list[Sequence[Sample]]], list[list[Outcome]]]
F = TypeVar("F")
_PATIENCE = 0.002  # seconds to wait for company
_MOST_SAMPLES = 512  # in a batch
_MOST_CHARACTERS = 4_000_000
_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)  # seconds between two attempts while the model behind is away


class FullError(RuntimeError):
    """The queue is full."""


@dataclass(eq=False)
class Job(Generic[F]):
    """Samples that belong together, and where their outcomes go; `cancelled` if they are no longer needed."""

    samples: Sequence[Sample]
    future: F
    size: int
    cancelled: bool = False


@dataclass(eq=False)
class Batcher(Generic[F]):
    """Scores jobs in a separate thread.

    Parameters
    ----------
    score : callable
        Returns the outcomes of several jobs.
    new_future : callable
        Returns what a job's outcomes are put into.
    deliver : callable
        Called in the thread with a batch of jobs and their outcomes.
    most_waiting : int
        Samples in the queue, above which a job is refused.
    hold : bool
        Try jobs again for as long as the model behind is away.
    """

    score: Score
    new_future: Callable[[], F]
    deliver: Callable[[list[tuple[Job[F], list[Outcome]]]], None]
    most_waiting: int = 16_384
    hold: bool = False
    on_batch: Callable[[int], None] = lambda _: None
    waiting: int = 0
    away_since: float | None = None
    _queue: deque[Job[F]] = field(default_factory=deque)
    _tasks: deque[Callable[[], None]] = field(default_factory=deque)
    _closed: bool = False
    _company: int = 0  # samples for which the thread waits; it is not woken for fewer
    _most: int = _MOST_SAMPLES  # jobs in the next batch: one after a failure, then twice as many each time

    def __post_init__(self) -> None:
        """Start the thread."""
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="rmcalib-judge", daemon=True)
        self._thread.start()

    def submit(self, samples: Sequence[Sample]) -> Job[F]:
        """Queue samples; raise a `FullError` if too many wait already."""
        job = Job(samples, self.new_future(), sum(sample.size for sample in samples))
        with self._change:
            if self._closed:
                raise FullError("no more samples are taken: the reward is closed")
            if self.waiting and self.waiting + len(samples) > self.most_waiting:
                raise FullError(f"{self.waiting} samples are waiting already")
            self._queue.append(job)
            self.waiting += len(samples)
            if self.waiting >= self._company:
                self._change.notify()
        return job

    def cancel(self, job: Job[F]) -> None:
        """Drop a job that is no longer needed. If it is being scored now, its outcome is discarded."""
        job.cancelled = True

    def call(self, task: Callable[[], Any]) -> Future[Any]:
        """Run a function in the judge's thread, before the next batch."""
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)

        with self._change:
            self._tasks.append(run)
            self._change.notify()
        return future

    def close(self, timeout: float | None = None) -> None:
        """Score what waits, then end the thread."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        size, failures = 1, 0
        while True:
            jobs = self._next(size, failures)
            if jobs is None:
                return
            if not jobs:
                continue
            size = sum(len(job.samples) for job in jobs)
            self.on_batch(size)
            try:
                outcomes = self.score([job.samples for job in jobs])
            except BaseException as error:  # no client may wait for ever, not even if a judge calls sys.exit
                problem = (
                    error if isinstance(error, Exception) else RuntimeError(f"the judge raised {error!r}")
                )
                outcomes = [[problem] * len(job.samples) for job in jobs]
            failures = self._finish(jobs, outcomes, failures)

    def _next(self, size: int, failures: int) -> list[Job[F]] | None:
        """Return the next batch, empty if only tasks were run, None at the end."""
        with self._change:
            if failures and not self._closed:  # the model behind is away
                pause = _PAUSES[min(failures, len(_PAUSES)) - 1]
                self._change.wait_for(lambda: self._tasks or self._closed, pause)
            while not (self._queue or self._tasks or self._closed):
                self._change.wait()
            tasks = [self._tasks.popleft() for _ in range(len(self._tasks))]
            if not tasks and not self._queue:
                return None
            if not tasks and (size > 1 or len(self._queue) > 1):
                self._wait_for_company(size)
        for task in tasks:
            task()
        with self._change:
            return [] if tasks and not self._queue else self._taken()

    def _wait_for_company(self, size: int) -> None:
        self._company = min(size, _MOST_SAMPLES)
        self._change.wait_for(lambda: self.waiting >= self._company or self._closed, _PATIENCE)
        self._company = 0

    def _taken(self) -> list[Job[F]]:
        jobs: list[Job[F]] = []
        samples = characters = 0
        while self._queue and len(jobs) < self._most:
            job = self._queue[0]
            full = samples + len(job.samples) > _MOST_SAMPLES or characters + job.size > _MOST_CHARACTERS
            if jobs and full:
                break
            self._queue.popleft()
            self.waiting -= len(job.samples)
            if not job.cancelled:
                jobs.append(job)
                samples += len(job.samples)
                characters += job.size
        return jobs

    def _finish(self, jobs: list[Job[F]], outcomes: list[list[Outcome]], failures: int) -> int:
        """Deliver a batch; put jobs back whose model is away. Returns how often it was away in a row."""
        done: list[tuple[Job[F], list[Outcome]]] = []
        held: list[Job[F]] = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            if self.hold and not self._closed and any(map(is_away, outcome)):
                held.append(job)
            else:
                done.append((job, outcome))
        with self._change:
            if len(jobs) == 1:  # others are tried before it is tried again
                self._queue.extend(held)
            else:
                self._queue.extendleft(reversed(held))
            self._most = 1 if held else min(2 * self._most, _MOST_SAMPLES)
            self.waiting += sum(len(job.samples) for job in held)
        away = held or any(is_away(each) for _, outcome in done for each in outcome)
        self.away_since = (self.away_since or time.monotonic()) if away else None
        if done:
            self.deliver(done)
        return failures + 1 if held else 0


def deliver_to_threads(done: list[tuple[Job[Future[list[Outcome]]], list[Outcome]]]) -> None:
    """Set the results of futures that threads wait for; a task that waited may have been cancelled."""
    for job, outcomes in done:
        if job.future.set_running_or_notify_cancel():
            job.future.set_result(outcomes)
