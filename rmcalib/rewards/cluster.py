"""Batches on a Ray cluster: models, and shards of a model's prompts, on whatever nodes there are.

Workers hold a model each and score blocks of prompts; the process that runs the batch is the only one that
writes. So nothing has to be shared between nodes, a block that was scored twice because a node was lost is
kept once, and what is written looks like a local run's, to the last bit of a reward. Blocks are whole chunks
of `rmcalib.rewards.scoring`, which is why it does not matter who scores them, or in which order.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmcalib.rewards.batch import Batch, Job, Ticket, free_checkpoint, scoring_ticket
from rmcalib.rewards.batch_worker import told
from rmcalib.rewards.plan import PlanEntry
from rmcalib.rewards.runs import Run

if TYPE_CHECKING:
    from rmcalib.rewards.benchmarks import Benchmark, Item
    from rmcalib.rewards.registry import Recipe
    from rmcalib.rewards.scoring import ScoredItem

__all__ = ["Cluster", "gpus_for", "run_ray"]

_LOSSES = 5  # workers of one model that may be lost, with their node or by themselves, before it has failed
_MOST_CHUNKS = 8  # in a block: what is lost with a node at most


@dataclass(frozen=True)
class Cluster:
    """Where to run: a cluster's address (`local` starts one here), and what each model gets of it.

    `shards` workers share a model's prompts; each has `gpus` GPUs (None: as many of `gpu_memory` bytes as
    the model needs, none if the cluster has none) and `cpus` processors.
    """

    address: str = "local"
    shards: int = 1
    gpus: float | None = None
    gpu_memory: float = 80e9
    cpus: float = 1.0


def gpus_for(entry: PlanEntry, cluster: Cluster, available: float) -> float:
    """Return the GPUs that one worker of a model needs, on a cluster with so many `available`.

    >>> from rmcalib.rewards.registry import Recipe
    >>> entry = PlanEntry(Recipe("org/rm-70B"), "llama", 70.0, memory=168e9)
    >>> gpus_for(entry, Cluster(), available=8), gpus_for(entry, Cluster(), available=0)
    (3.0, 0.0)
    """
    if cluster.gpus is not None:
        return cluster.gpus
    if available <= 0:
        return 0.0
    return float(max(1, math.ceil((entry.memory or 0) / cluster.gpu_memory)))


def run_ray(batch: Batch, job: Job, plan: Sequence[PlanEntry], cluster: Cluster) -> None:
    """Score the models of `plan` on a Ray cluster: as many at a time as it has room for, small ones first."""
    ray = _ray()
    started = _connect(ray, cluster.address)
    pool = ThreadPoolExecutor(max_workers=256)  # they only wait; the room limits them
    try:
        room = _Room(ray)
        items = ray.put(job.benchmark)
        for entry in plan:
            if entry.skipped:
                continue
            with batch.attempt(entry.model):
                ticket = scoring_ticket(batch, job, entry)
                if ticket.scored:
                    room.judge(batch, ticket)
                    continue
                gpus = 0.0 if job.device == "cpu" else gpus_for(entry, cluster, room.total("GPU"))
                need = {"CPU": cluster.cpus, "GPU": gpus}
                room.check(need)
                room.take(need, cluster.shards)
                pool.submit(_one, batch, job, ticket, cluster, room, need, items)
        pool.shutdown(wait=True)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if started:
            ray.shutdown()


def _one(
    batch: Batch,
    job: Job,
    ticket: Ticket,
    cluster: Cluster,
    room: _Room,
    need: dict[str, float],
    items: Any,
) -> None:
    """Score one model and conclude it; what goes wrong is its failure alone."""
    try:
        with batch.attempt(ticket.entry.model):
            _score(batch, job, ticket, cluster.shards, need, items)
            room.judge(batch, ticket)
    finally:
        room.give(need, cluster.shards)


def _score(batch: Batch, job: Job, ticket: Ticket, shards: int, need: dict[str, float], items: Any) -> None:
    ray, name = _ray(), ticket.entry.model
    # No restarts by Ray: it would wait for room for a lost worker while others could do the work.
    remote = ray.remote(num_cpus=need["CPU"], num_gpus=need["GPU"], max_restarts=0)(Scorer)
    loading = {**job.loading(), "revision": ticket.commit}
    crew = _Crew(ray, lambda: remote.remote(name, ticket.entry.recipe, loading, job.token_budget, items))
    batch.status.change(name, "downloading")
    try:
        inputs, about = crew.open(shards)
        with Run(ticket.folder, job.benchmark, inputs, about=about, fresh=job.fresh) as run:
            batch.status.change(name, "scoring")
            blocks = _blocks(run.remaining, shards)
            total = sum(len(item.responses) for block in blocks for item in block)
            done = tokens = 0
            batch.status.progress(name, 0, total, 0)
            for scored in crew.work_off([[item.id for item in block] for block in blocks]):
                run.add(scored)
                done += sum(len(item.rewards) for item in scored)
                tokens += sum(sum(item.n_tokens) for item in scored)
                batch.status.progress(name, done, total, tokens)
            run.finish(processes=shards)
        if crew.losses:
            batch.status.warn(name, f"{crew.losses} workers were lost on the way, and others took over")
        if job.free_disk and ticket.commit is not None:
            batch.status.event("freed", model=name, bytes=crew.free(ticket.commit))
    finally:
        crew.dismiss()


class _Crew:
    """The workers of one model: whoever is ready takes the next block, and a lost one is replaced."""

    def __init__(self, ray: Any, hire: Callable[[], Any]) -> None:
        self.losses = 0
        self._ray, self._hire = ray, hire
        self._busy: dict[Any, tuple[Any, list[str] | None]] = {}  # by reference: the worker, and its block
        self._idle: list[Any] = []

    def open(self, n_workers: int) -> Any:
        """Hire workers and wait for the first to be ready; returns what it says about the model."""
        for _ in range(n_workers):
            self._add()
        while True:
            for _, about in self._finished([]):
                return about

    def work_off(self, blocks: list[list[str]]) -> Iterator[list[ScoredItem]]:
        """Yield each block's scores once, in the order in which they come."""
        while blocks or any(block is not None for _, block in self._busy.values()):
            while blocks and self._idle:
                worker, block = self._idle.pop(), blocks.pop(0)
                self._busy[worker.score.remote(block)] = (worker, block)
            for scored_block, result in self._finished(blocks):
                if scored_block is not None:
                    yield result

    def free(self, commit: str) -> int:
        """Drop the model from the caches of the workers that are there."""
        return sum(_get(self._ray, worker.free.remote(commit)) for worker in self._idle)

    def dismiss(self) -> None:
        """Let all workers go."""
        for worker in [*self._idle, *(worker for worker, _ in self._busy.values())]:
            if self._ray.is_initialized():
                self._ray.kill(worker)

    def _add(self) -> None:
        if not self._ray.is_initialized():  # or Ray would start another cluster
            raise ValueError("the batch was interrupted")
        worker = self._hire()
        self._busy[worker.about.remote()] = (worker, None)

    def _finished(self, blocks: list[list[str]]) -> Iterator[tuple[list[str] | None, Any]]:
        """Wait for a worker; what a lost one was doing goes back to `blocks`."""
        ready, _ = self._ray.wait(list(self._busy), num_returns=1)
        for reference in ready:
            worker, block = self._busy.pop(reference)
            try:
                result = _get(self._ray, reference)
            except _LostError as error:
                self.losses += 1
                if self._ray.is_initialized():
                    self._ray.kill(worker)  # it may only be out of reach
                if self.losses > _LOSSES:
                    raise ValueError(
                        f"{self.losses} workers were lost, for want of memory or with their nodes: {error}"
                    ) from None
                blocks += [block] if block is not None else []
                time.sleep(self.losses)  # a node that was just lost may still be offered to new workers
                self._add()
            else:
                self._idle.append(worker)
                yield block, result


def _blocks(items: Sequence[Item], n_workers: int) -> list[list[Item]]:
    """Cut what is left into blocks of whole chunks: few enough to be cheap, enough for all workers."""
    from rmcalib.rewards.scoring import CHUNK

    n_chunks = math.ceil(len(items) / CHUNK)
    size = CHUNK * max(1, min(_MOST_CHUNKS, n_chunks // (4 * n_workers)))
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


class Scorer:
    """A worker of a cluster, with one model, which is loaded when it is first needed."""

    def __init__(
        self,
        name: str,
        recipe: Recipe,
        loading: dict[str, Any],
        token_budget: int | None,
        benchmark: Benchmark,
    ) -> None:
        """Remember what to score; loading could fail, and that is told by a call, not by a dead worker."""
        self.name, self.recipe, self.loading = name, recipe, loading
        self.token_budget, self.benchmark = token_budget, benchmark
        self._items = {item.id: item for item in benchmark.items}
        self._model: Any = None

    def about(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what changes a score, and what else the manifest says."""
        from rmcalib.rewards.manifest import describe, score_inputs

        model = self._loaded()
        return score_inputs(model, self.benchmark), describe(model)

    def score(self, ids: list[str]) -> list[ScoredItem]:
        """Score the prompts with these ids."""
        from rmcalib.rewards.scoring import score_items

        items = [self._items[identifier] for identifier in ids]
        chunks = score_items(self._loaded(), items, token_budget=self.token_budget)
        return [item for chunk in chunks for item in chunk]

    def free(self, commit: str) -> int:
        """Drop the model from this node's cache; return the bytes that freed."""
        return free_checkpoint(commit)

    def _loaded(self) -> Any:
        from rmcalib.rewards.models import load_model

        if self._model is None:
            self._model = load_model(self.name, recipe=self.recipe, **self.loading)
        return self._model


class _Room:
    """What the cluster has to give, so that no more models are begun than it can hold."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._used = {"CPU": 0.0, "GPU": 0.0}
        self._changed = threading.Condition()
        self._judging = threading.Lock()

    def total(self, kind: str) -> float:
        return float(self._ray.cluster_resources().get(kind, 0.0))

    def check(self, need: dict[str, float]) -> None:
        """Refuse a worker that no node could ever hold: Ray would wait for ever."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for kind, amount in need.items():
            most = max((float(node.get(kind, 0.0)) for node in nodes), default=0.0)
            if amount > most:
                raise ValueError(
                    f"needs {amount:g} {kind}s on one node, and the largest has {most:g} "
                    "(see --gpus and --gpu-memory)"
                )

    def take(self, need: dict[str, float], shards: int) -> None:
        """Wait until all shards of a model fit, or until nothing else runs."""
        with self._changed:
            while any(self._used.values()) and any(
                self._used[kind] + shards * amount > self.total(kind) for kind, amount in need.items()
            ):
                self._changed.wait(timeout=5)  # nodes may come
            for kind, amount in need.items():
                self._used[kind] += shards * amount

    def give(self, need: dict[str, float], shards: int) -> None:
        with self._changed:
            for kind, amount in need.items():
                self._used[kind] -= shards * amount
            self._changed.notify_all()

    def judge(self, batch: Batch, ticket: Ticket) -> None:
        """Judge one model at a time: drawing is not safe in several threads."""
        with self._judging:
            batch.conclude(ticket)


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
        raise _LostError(told(error)[:300]) from None


def _ray() -> Any:
    # After an interruption, threads that still wait for a result must not start another cluster.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    try:
        import ray
    except ImportError:
        raise ValueError("--engine ray: Ray is not installed (pip install 'rmcalib[ray]')") from None
    return ray


def _connect(ray: Any, address: str) -> bool:
    """Join a cluster, or start one on this machine that nobody else can reach; tell whether that was done."""
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if address == "local":
            # Without this, Ray listens on an address that other machines can reach.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ValueError(f"--address {address}: no Ray cluster there: {told(error)}") from None
    _wait_for_node(ray)
    return True


def _wait_for_node(ray: Any) -> None:
    for _ in range(100):
        if ray.cluster_resources().get("CPU"):
            return
        time.sleep(0.1)
