"""The workers of a cluster: processes on its nodes with one model each, and the crew that a model has."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rmcalib.batch._local import free_checkpoint
from rmcalib.batch._worker import is_for_users, told

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.judges import Judge, ScoredItem

__all__ = ["Crew", "Scorer", "Stopped", "gist", "import_ray"]

_LOSSES = 5  # workers of one model that may be lost, with their node or by themselves, before it has failed
_LOOK = 1.0  # seconds between looks whether to go on waiting


class Stopped(BaseException):
    """The batch was interrupted: not a failure of the model."""


class Crew:
    """The workers of one model: whoever is ready takes the next block, and a lost one is replaced.

    `hire` starts a worker; `patience` is called every second while nothing comes, and raises an error when
    there is nothing to wait for any more.
    """

    def __init__(self, ray: Any, hire: Callable[[], Any], patience: Callable[[], None]) -> None:
        """Begin with nobody."""
        self.losses = 0
        self._ray, self._hire, self._patience = ray, hire, patience
        self._busy: dict[Any, tuple[Any, list[str] | None]] = {}  # by reference: the worker, and its block
        self._idle: list[Any] = []
        self._inputs: dict[str, Any] | None = None
        self._versions: dict[str, str] = {}
        self.other_versions: set[str] = set()  # what workers have that the first one has not

    def open(self, n_workers: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Hire workers and wait for the first to be ready; returns what it says about the model."""
        for _ in range(n_workers):
            self._add()
        while True:
            for _, about in self._finished([]):
                self._inputs, self._versions = about[0], about[1].get("versions", {})
                return about

    def work_off(self, blocks: list[list[str]]) -> Iterator[tuple[list[ScoredItem], list[str]]]:
        """Yield each block's scores and warnings (`Scorer.score`) once, in the order in which they come."""
        while blocks or any(block is not None for _, block in self._busy.values()):
            while blocks and self._idle:
                worker, block = self._idle.pop(), blocks.pop(0)
                self._busy[worker.score.remote(block)] = (worker, block)
            for scored_block, result in self._finished(blocks):
                if scored_block is not None:
                    yield result
                else:
                    self._compare(*result)

    def free(self, commit: str) -> int:
        """Drop the model from the caches of the workers that are there."""
        freed = 0
        for worker in self._idle:
            try:
                freed += _get(self._ray, worker.free.remote(commit))
            except _LostError:  # and its node's disk with it
                continue
        return freed

    def dismiss(self) -> None:
        """Let all workers go."""
        for worker in [*self._idle, *(worker for worker, _ in self._busy.values())]:
            if self._ray.is_initialized():
                self._ray.kill(worker)

    def _add(self) -> None:
        worker = self._hire()
        self._busy[worker.about.remote()] = (worker, None)

    def _compare(self, inputs: dict[str, Any], about: dict[str, Any]) -> None:
        """Refuse a worker whose scores would be others, say with another dtype; note other versions."""
        versions = about.get("versions", {}).items() - self._versions.items()
        self.other_versions |= {f"{package} {version}" for package, version in versions}
        assert self._inputs is not None
        other = [key for key in {**self._inputs, **inputs} if self._inputs.get(key) != inputs.get(key)]
        if other:
            told = "; ".join(f"{key}: {self._inputs.get(key)} and {inputs.get(key)}" for key in sorted(other))
            raise ValueError(
                f"the nodes of the cluster would score differently ({told}): set it, say --dtype"
            )

    def _finished(self, blocks: list[list[str]]) -> Iterator[tuple[list[str] | None, Any]]:
        """Wait for a worker; what a lost one was doing goes back to `blocks`."""
        ready: list[Any] = []
        while not ready:
            self._patience()
            ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=_LOOK)
        for reference in ready:
            worker, block = self._busy.pop(reference)
            try:
                result = _get(self._ray, reference)
            except _LostError as error:
                self.losses += 1
                self._ray.kill(worker)  # it may only be out of reach
                if self.losses > _LOSSES:
                    raise ValueError(
                        f"{self.losses} workers were lost, for want of memory or with their nodes: {error}"
                    ) from None
                blocks += [block] if block is not None else []
                time.sleep(self.losses)  # a node that was just lost may still be offered to new workers
                self._patience()
                self._add()
            else:
                self._idle.append(worker)
                yield block, result


class Scorer:
    """A worker of a cluster, with one model, which is loaded when it is first needed."""

    def __init__(self, judge: Judge, benchmark: Benchmark) -> None:
        """Remember what to score; loading may fail, and a call reports that better than a dead worker."""
        self.judge, self.benchmark = judge, benchmark
        self._items = {item.id: item for item in benchmark.items}
        self._warnings: list[str] = []

    def about(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what changes a score, and what else the manifest says."""
        from rmcalib.judges import about_judge
        from rmcalib.runs import package_versions, score_inputs

        with self._listening():
            inputs = score_inputs(self.judge, self.benchmark)
        return inputs, {**about_judge(self.judge), "versions": package_versions()}

    def score(self, ids: list[str]) -> tuple[list[ScoredItem], list[str]]:
        """Score the prompts with these ids; also returns what this worker has warned of so far."""
        from rmcalib.judges import scored_chunks

        items = [self._items[identifier] for identifier in ids]
        with self._listening():
            scored = [item for chunk in scored_chunks(self.judge, items) for item in chunk]
        return scored, list(self._warnings)

    def free(self, commit: str) -> int:
        """Drop the model from this node's cache; return the bytes that freed."""
        return free_checkpoint(commit)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Keep our warnings, each once: nobody reads what a worker prints on its node."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            yield
        for warning in caught:
            line = " ".join(str(warning.message).split())
            if not is_for_users(warning.category, warning.filename):
                sys.stderr.write(f"{self.judge.name}: {warning.category.__name__}: {line}\n")
            elif gist(line) not in {gist(text) for text in self._warnings}:
                self._warnings.append(line)


def gist(warning: str) -> str:
    """Return what a warning says apart from its numbers, which differ from block to block.

    >>> gist("rewards differ by up to 2.1e-05") == gist("rewards differ by up to 0.3")
    True
    """
    return re.sub(r"\d[\d.e+-]*", "#", warning)


class _LostError(Exception):
    """A worker is gone, or cannot be reached."""


def _get(ray: Any, reference: Any) -> Any:
    """Get a result; what the worker raised is raised here, and that it was lost is told apart from that."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        raise ValueError(told(cause)) from None
    except ray.exceptions.RayError as error:
        if getattr(error, "actor_init_failed", False):
            why = told(error)[-300:]
            raise ValueError(f"a node cannot start a worker (is rmcalib installed there?): {why}") from None
        raise _LostError(told(error)[:300]) from None


def import_ray() -> Any:
    """Import Ray, or say how to get it."""
    # After an interruption, a thread that still waits for a result must not start another cluster.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    try:
        import ray
    except ImportError:
        raise ValueError("--engine ray: Ray is not installed (pip install 'rmcalib[ray]')") from None
    return ray
