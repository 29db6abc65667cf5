"""A replacement for Ray whose workers run in this process, for tests that need no cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from rmcalib.batch._batch import Batch, Job, Ticket
from rmcalib.batch._ray import score_on_cluster
from rmcalib.batch._ray_workers import Scorer


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ActorDiedError(RayError):
    def __init__(self, text: str, *, init_failed: bool = False) -> None:
        super().__init__(text)
        self.actor_init_failed = init_failed


class ActorPool:
    """Like Ray's, but a call is executed when its result is requested."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self._idle = list(actors)
        self._busy: list[tuple[Any, Any]] = []
        self._waiting: list[tuple[Any, Any]] = []

    def submit(self, call: Callable[[Any, Any], Any], value: Any) -> None:
        if self._idle:
            actor = self._idle.pop()
            self._busy.append((actor, call(actor, value)))
        else:
            self._waiting.append((call, value))

    def has_next(self) -> bool:
        return bool(self._busy)

    def get_next_unordered(self, timeout: float) -> Any:
        assert timeout > 0
        actor, reference = self._busy.pop(0)
        if not reference.ready:
            reference.ready = True
            self._busy.append((actor, reference))
            raise TimeoutError
        self._idle.append(actor)
        if self._waiting:
            self.submit(*self._waiting.pop(0))
        return reference.call()

    def pop_idle(self) -> Any:
        return self._idle.pop() if self._idle and not self._waiting else None


@dataclass
class StandInRay:
    """The part of the module `ray` that is used; `node_list` has the resources of the living nodes."""

    node_list: list[dict[str, float]] = field(default_factory=list)
    killed: list[Any] = field(default_factory=list)
    util: Any = field(default_factory=lambda: SimpleNamespace(ActorPool=ActorPool))
    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def wait(self, references: list[Any], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        assert timeout > 0
        ready = [reference for reference in references if reference.ready][:num_returns]
        return ready, []

    def get(self, reference: Any) -> Any:
        return reference.call()

    def kill(self, worker: Any) -> None:
        self.killed.append(worker)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": node} for node in self.node_list]


@dataclass(eq=False)
class Task:
    """A reference to a call, which returns a result or raises."""

    call: Callable[[], Any]
    ready: bool = True


def method(make: Callable[..., Any], *, ready: bool = True) -> Any:
    """Return a method of an actor."""
    return SimpleNamespace(remote=lambda *args: Task(lambda: make(*args), ready))


def in_process(job: Job, ticket: Ticket) -> Any:
    """Return a real worker in this process."""
    made = Scorer(job.judge(ticket.entry, ticket.commit))
    return SimpleNamespace(origin=method(made.origin), score=method(made.score))


def score_in_process(
    batch: Batch, job: Job, ticket: Ticket, patch: pytest.MonkeyPatch, *, shards: int = 1
) -> None:
    """Score a model as on a cluster, with workers in this process."""
    patch.setattr("rmcalib.batch._ray.import_ray", StandInRay)
    workers = [in_process(job, ticket) for _ in range(shards)]
    score_on_cluster(batch, job, ticket, workers, lambda: None)
