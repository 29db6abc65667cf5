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
from collections.abc import Sequence
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

_RESTARTS = 4  # of a worker whose node or process was lost, before its model counts as failed
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
    batch.status.change(name, "downloading")
    remote = ray.remote(
        num_cpus=need["CPU"],
        num_gpus=need["GPU"],
        max_restarts=_RESTARTS,
        max_task_retries=_RESTARTS,
    )(Scorer)
    loading = {**job.loading(), "revision": ticket.commit}
    workers = [
        remote.remote(name, ticket.entry.recipe, loading, job.token_budget, items) for _ in range(shards)
    ]
    try:
        inputs, about = _get(ray, workers[0].about.remote())
        with Run(ticket.folder, job.benchmark, inputs, about=about, fresh=job.fresh) as run:
            batch.status.change(name, "scoring")
            _work_off(batch, name, ray, workers, run)
            run.finish(processes=shards)
        if job.free_disk and ticket.commit is not None:
            freed = sum(ray.get([worker.free.remote(ticket.commit) for worker in workers]))
            batch.status.event("freed", model=name, bytes=freed)
    finally:
        for worker in workers:
            ray.kill(worker)


def _work_off(batch: Batch, name: str, ray: Any, workers: list[Any], run: Run) -> None:
    """Let the workers score what the run lacks, block by block, and write each block as it comes."""
    blocks = _blocks(run.remaining, len(workers))
    total = sum(len(item.responses) for block in blocks for item in block)
    done = tokens = 0
    idle, pending = list(workers), {}
    batch.status.progress(name, 0, total, 0)
    while blocks or pending:
        while idle and blocks:
            worker, block = idle.pop(), blocks.pop(0)
            pending[worker.score.remote([item.id for item in block])] = worker
        finished, _ = ray.wait(list(pending), num_returns=1)
        for reference in finished:
            scored: list[ScoredItem] = _get(ray, reference)
            run.add(scored)
            idle.append(pending.pop(reference))
            done += sum(len(item.rewards) for item in scored)
            tokens += sum(sum(item.n_tokens) for item in scored)
        batch.status.progress(name, done, total, tokens)


def _blocks(items: Sequence[Item], n_workers: int) -> list[list[Item]]:
    """Cut what is left into blocks of whole chunks: few enough to be cheap, enough for all workers."""
    from rmcalib.rewards.scoring import CHUNK

    n_chunks = math.ceil(len(items) / CHUNK)
    size = CHUNK * max(1, min(_MOST_CHUNKS, n_chunks // (4 * n_workers)))
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


class Scorer:
    """A worker of a cluster: one model, loaded when it is first needed, and again when its node was lost."""

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


def _get(ray: Any, reference: Any) -> Any:
    """Get a result; the worker's own error if it raised one, else one line about what was lost."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        raise ValueError(told(cause)) from None
    except ray.exceptions.RayError as error:
        line = told(error)
        raise ValueError(
            f"its worker was lost {_RESTARTS + 1} times, for want of memory or with its node "
            f"({line[:200]}{'...' * (len(line) > 200)})"
        ) from None


def _ray() -> Any:
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
