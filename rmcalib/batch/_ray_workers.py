"""The workers of a Ray cluster: actors on its nodes, each with one model.

Ray schedules them, restarts those that are lost, and runs their tasks again.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmcalib.batch._worker import cause, is_for_users

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges import Judge, ScoredItem

    Block = tuple[list[ScoredItem], list[str], "Origin"]

__all__ = ["RESTARTS", "Origin", "Scorer", "gist", "import_ray", "results", "wait_for_first"]

RESTARTS = 5  # most restarts of one worker before its model fails
_LOOK = 1.0  # seconds between checks whether to stop waiting


@dataclass(frozen=True)
class Origin:
    """The worker that made some scores.

    Parameters
    ----------
    identity : dict[str, Any]
        Everything about the judge that changes a score.
    about : dict[str, Any]
        Other entries of the manifest.
    node : str
        Id of the node.
    process : str
        Id of the worker's process.
    restarted : bool
        Whether the worker replaced one that was lost.
    """

    identity: dict[str, Any]
    about: dict[str, Any]
    node: str = ""
    process: str = ""
    restarted: bool = False


def wait_for_first(ray: Any, workers: list[Any], look: Callable[[], None]) -> Origin:
    """Wait until a worker has loaded the model, and return its `Origin`."""
    waiting = [worker.origin.remote() for worker in workers]
    ready: list[Any] = []
    while not ready:
        look()
        ready, _ = ray.wait(waiting, num_returns=1, timeout=_LOOK)
    with _errors(ray):
        origin: Origin = ray.get(ready[0])
    return origin


def results(
    ray: Any, workers: list[Any], blocks: list[list[Item]], look: Callable[[], None]
) -> Iterator[Block]:
    """Let the workers score blocks of prompts; yield the results (`Scorer.score`) as they arrive.

    Parameters
    ----------
    ray : Any
        The module.
    workers : list[Any]
        Handles of `Scorer` actors.
    blocks : list[list[Item]]
        Lists of prompts.
    look : Callable[[], None]
        Called every second; raises an error if the wait should end.
    """
    pool = ray.util.ActorPool(workers)
    for block in blocks:
        pool.submit(lambda worker, items: worker.score.remote(items), block)
    while pool.has_next():
        look()
        try:
            with _errors(ray):
                result = pool.get_next_unordered(timeout=_LOOK)
        except TimeoutError:
            continue
        # An idle worker makes room for a lost worker that waits for a place.
        while (idle := pool.pop_idle()) is not None:
            ray.kill(idle)
        yield result


class Scorer:
    """A worker of a cluster with one judge. The model is loaded at the first call."""

    def __init__(self, judge: Judge) -> None:
        """Store the judge. It is not loaded here, because an error would end the worker."""
        self.judge = judge
        self._origin: Origin | None = None
        self._warnings: list[str] = []

    def origin(self) -> Origin:
        """Load the model, and return its identity and where this worker runs."""
        from rmcalib.judges import about_judge
        from rmcalib.runs import package_versions

        if self._origin is None:
            with self._listening():
                identity = self.judge.identity()
            about = {**about_judge(self.judge), "versions": package_versions()}
            self._origin = Origin(identity, about, *_place())
        return self._origin

    def score(self, items: list[Item]) -> Block:
        """Score prompts. Also returns all warnings of this worker so far."""
        from rmcalib.judges import scored_chunks

        with self._listening():
            scored = [item for chunk in scored_chunks(self.judge, items) for item in chunk]
        return scored, list(self._warnings), self.origin()

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Collect rmcalib's warnings, each once, because the output of a worker stays on its node."""
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
    """Return a warning without its numbers, which differ between blocks.

    >>> gist("rewards differ by up to 2.1e-05") == gist("rewards differ by up to 0.3")
    True
    """
    return re.sub(r"\d[\d.e+-]*", "#", warning)


def _place() -> tuple[str, str, bool]:
    """Return this worker's node and process, and whether Ray has restarted it."""
    ray = import_ray()
    process = uuid.uuid4().hex
    if not ray.is_initialized():
        return "", process, False
    context = ray.get_runtime_context()
    return str(context.get_node_id()), process, bool(context.was_current_actor_reconstructed)


@contextlib.contextmanager
def _errors(ray: Any) -> Iterator[None]:
    """Turn Ray's errors into one line: what a worker raised, or why there is no worker."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        raised = error.cause if isinstance(error.cause, Exception) else error
        raise ValueError(cause(raised)) from None
    except TimeoutError:  # one of Ray's errors is a TimeoutError, too
        raise
    except ray.exceptions.RayError as error:
        if getattr(error, "actor_init_failed", False):
            why = cause(error)[-300:]
            raise ValueError(f"a node cannot start a worker (is rmcalib installed there?): {why}") from None
        raise ValueError(
            f"a worker was lost {RESTARTS + 1} times, because of its memory or its node: {cause(error)[:300]}"
        ) from None


def import_ray() -> Any:
    """Import Ray, or raise an error that says how to install it."""
    # After an interruption, a waiting thread must not start another cluster.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    try:
        import ray
        import ray.util
    except ImportError:
        raise ValueError("--engine ray: Ray is not installed (pip install 'rmcalib[ray]')") from None
    return ray
