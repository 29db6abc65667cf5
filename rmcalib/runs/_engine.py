"""The workers of a batch: a process on this machine, or tasks on a Ray cluster.

Both run the same function, `scored_parts`, once per judge and share of its prompts, and stream what it yields
back to the process that runs the batch. Only that process writes files, so the nodes of a cluster need no
shared disk. If a node is lost, Ray runs its tasks again elsewhere.
"""

from __future__ import annotations

import contextlib
import gc
import math
import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.files import check_no_link, opened_to_append
from rmcalib._util.processes import end_with_parent, spared
from rmcalib._util.storage import is_late

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges import Judge, ScoredItem
    from rmcalib.runs._plan import Cluster, PlanEntry

_PACKAGE = str(Path(__file__).parents[1])
_RETRIES = 5  # how often Ray runs a task again before its model fails
_SCANS = 100  # most attempts to scan the Hub's cache while other processes change it
_LOOK = 1.0  # seconds between checks whether the batch was interrupted


class WorkerError(ValueError):
    """Scoring failed in a worker; the message is one line."""


class Stopped(BaseException):
    """The batch was interrupted. This is not a failure of the model."""


@dataclass(frozen=True)
class Task:
    """A judge, and the prompts that one worker scores with it."""

    judge: Judge
    items: Sequence[Item]
    free: str | None = None  # commit to remove from the Hub's cache at the end


@dataclass(frozen=True)
class Part:
    """What a worker yields: first where it is (once the judge is loaded), then chunks of scored prompts."""

    identity: dict[str, Any] | None = None
    about: dict[str, Any] | None = None
    scored: tuple[ScoredItem, ...] = ()
    warnings: tuple[str, ...] = ()


def scored_parts(task: Task) -> Iterator[Part]:
    """Score the prompts of a task. The first, empty part says that the worker has started.

    Every run of a task yields the same number of parts, so that Ray can go on after a lost worker.
    """
    from rmcalib._util.processes import package_versions
    from rmcalib.judges._judge import about_judge, close_judge, scored_chunks

    yield Part()
    try:
        with _own_warnings() as texts:
            identity = task.judge.identity()
            about = {**about_judge(task.judge), "versions": package_versions()}
        yield Part(identity, about, warnings=tuple(texts))
        chunks = scored_chunks(task.judge, task.items)
        while True:
            with _own_warnings() as texts:
                chunk = next(chunks, None)
            if chunk is None:
                break
            yield Part(scored=tuple(chunk), warnings=tuple(texts))
    finally:
        close_judge(task.judge)
    if task.free is not None:
        _free_checkpoint(task.free)


def _free_checkpoint(commit: str) -> None:
    """Remove the files of a commit from the Hub's cache of this machine."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    for _ in range(_SCANS):
        try:
            scan_cache_dir().delete_revisions(commit).execute()
        except FileNotFoundError:  # a download changed the cache during the scan
            continue
        except CacheNotFound:
            pass
        return


def cause(error: BaseException) -> str:
    """Return the cause of an error in one line.

    >>> cause(ValueError("two\\nlines")), cause(KeyError("x"))
    ('two lines', "KeyError: 'x'")
    """
    line = " ".join(str(error).split())
    plain = isinstance(error, (ValueError, OSError, MemoryError)) and line
    return line if plain else f"{type(error).__name__}: {line}".removesuffix(": ")


@contextlib.contextmanager
def _own_warnings() -> Iterator[list[str]]:
    """Collect our own warnings; those of libraries are dropped."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield texts
    ours = (
        warning
        for warning in caught
        if warning.filename.startswith(_PACKAGE) and warning.category is UserWarning
    )
    texts += [" ".join(str(warning.message).split()) for warning in ours]


class LocalEngine:
    """A process on this machine that scores one judge after another.

    If a judge crashes the process (out of memory, a fault in compiled code), only this judge fails, and the next
    one gets a new process. The output of libraries goes to a log file.
    """

    at_once = 1

    def __init__(self, log: Path) -> None:
        """Store the path of the log."""
        check_no_link(log)  # the error of a worker would not reach the user
        self.log = log
        self._stopping = False
        self._worker: tuple[Any, Connection] | None = None  # the process, and our end of its pipe

    def stop(self) -> None:
        """End the process, even while it scores. Whoever waits for a part raises `Stopped`."""
        self._stopping = True
        if self._worker is not None:
            self._worker[0].terminate()

    close = stop

    def run(self, tasks: Sequence[Task], _: PlanEntry) -> Generator[Part]:
        """Run a task and yield its parts; raises `WorkerError` if it fails."""
        (task,) = tasks
        if self._worker is None or not self._worker[0].is_alive():
            self._worker = self._started()
        process, pipe = self._worker
        failure: WorkerError | None = None
        is_ready = False  # for the next task
        try:
            pipe.send(task)
            while (part := pipe.recv()) is not None:
                if isinstance(part, WorkerError):
                    failure = part
                else:
                    yield part
            is_ready = True
        except (EOFError, ConnectionError):
            process.join()
            if self._stopping:
                raise Stopped from None
            ending = _ending(process.exitcode)
            failure = failure or WorkerError(f"the scoring process {ending} (its output is in {self.log})")
        finally:
            if not is_ready:  # also if the caller wants no more parts
                self._worker = None
                process.terminate()
                process.join()
                pipe.close()
        if failure is not None:
            raise failure

    def _started(self) -> tuple[Any, Connection]:
        # Spawned, not forked: torch's threads do not survive a fork.
        spawn = multiprocessing.get_context("spawn")
        pipe, other_end = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(other_end, str(self.log)))
        with spared():
            process.start()
        other_end.close()  # only the worker keeps it open, so that `recv` notices if the worker dies
        return process, pipe


def _serve(pipe: Connection, log: str) -> None:
    """Score in a worker, one task after another. None says that it is ready for the next one."""
    end_with_parent()
    with opened_to_append(Path(log)) as file:  # the output of libraries
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    while True:
        task = pipe.recv()
        try:
            for part in scored_parts(task):
                pipe.send(part)
        except Exception as error:
            sys.stderr.write(f"{task.judge.name}:\n{traceback.format_exc()}\n")
            pipe.send(WorkerError(cause(error)))  # the error itself may not be picklable
            if isinstance(error.__cause__ or error, RuntimeError) or is_late():
                return  # a device may be unusable now, or a call that was given up goes on
        del task
        gc.collect()  # frees the model
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()
        pipe.send(None)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name
    return f"was killed ({name})" + ("; the machine probably ran out of memory" if code == -9 else "")


class RayEngine:
    """A Ray cluster, which runs many tasks at a time. Ray decides where, and runs lost tasks again."""

    at_once = 256  # judges that wait for Ray at the same time

    def __init__(self, cluster: Cluster, *, on_cpu: bool = False) -> None:
        """Connect to the cluster; an existing connection is used and kept. `on_cpu`: no judge needs a GPU."""
        # After an interruption, a waiting thread must not start another cluster.
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise ValueError("Ray is not installed (pip install 'rmcalib[ray]')") from None
        self.ray: Any = ray
        self.cluster, self.on_cpu = cluster, on_cpu
        self._stopping = threading.Event()
        self._ours = not ray.is_initialized()
        # Ray prints a page of logs to standard output whenever a worker is lost, and has no option for it.
        self._printing = self.ray._private.worker.print_to_stdstream
        self.ray._private.worker.print_to_stdstream = lambda *_, **__: None
        if not self._ours:
            return
        local: dict[str, Any] = {}
        if cluster.address == "local":
            # Without these, Ray listens on an address that other machines can reach.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            local = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        try:
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR", **local)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            self.close()
            raise ValueError(f"address {cluster.address}: no Ray cluster there: {cause(error)}") from None

    def close(self) -> None:
        """Leave the cluster."""
        if self._ours:
            self.ray.shutdown()
        self.ray._private.worker.print_to_stdstream = self._printing

    def stop(self) -> None:
        """Let everyone who waits for a part raise `Stopped`."""
        self._stopping.set()

    def run(self, tasks: Sequence[Task], entry: PlanEntry) -> Generator[Part]:
        """Run tasks and yield their parts as they arrive; raises `WorkerError` if one fails."""
        how = {"num_returns": "streaming", "max_retries": _RETRIES, "num_gpus": self._gpus(entry)}
        worker = self.ray.remote(**how)(scored_parts)
        streams = [worker.remote(task) for task in tasks]
        try:
            while streams:
                if self._stopping.is_set():
                    raise Stopped
                ready, streams = self.ray.wait(streams, num_returns=1, timeout=_LOOK, fetch_local=False)
                for stream in ready:
                    try:
                        yield self.ray.get(next(stream))
                    except StopIteration:
                        continue
                    streams.append(stream)
        except self.ray.exceptions.RayTaskError as error:
            raised = error.cause if isinstance(error.cause, Exception) else error
            raise WorkerError(cause(raised)) from None
        except self.ray.exceptions.RayError as error:
            lost = f"a worker was lost {_RETRIES + 1} times, because of its memory or its node"
            raise WorkerError(f"{lost}: {cause(error)[:300]}") from None
        finally:  # after a failure, or if the caller wants no more parts
            for stream in streams:
                self.ray.cancel(stream)

    def _gpus(self, entry: PlanEntry) -> float:
        """Return the GPUs of a task; raises if no node has so many, because Ray would wait for one."""
        if entry.served or self.on_cpu:
            return 0.0
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        largest = max((node.get("GPU", 0.0) for node in nodes), default=0.0)
        needed = self.cluster.gpus
        if needed is None:
            shared = int((entry.options or {}).get("tensor_parallel", 1))
            by_memory = math.ceil((entry.memory or 0) / self.cluster.gpu_memory)
            needed = float(max(shared, by_memory)) if largest else 0.0
        if needed > largest:
            raise WorkerError(
                f"needs {needed:g} GPUs on one node, and the largest has {largest:g} "
                "(see gpus and gpu_memory)"
            )
        return needed
