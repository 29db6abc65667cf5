"""Batches on a Ray cluster: models, and shards of a model's prompts, on whatever nodes there are.

Workers hold a model each and score blocks of prompts; the process that runs the batch is the only one that
writes. So nothing has to be shared between nodes, a block that was scored twice because a node was lost is
kept once, and what is written looks like a local run's: to the last bit of a reward, with the same number of
threads and tokens in a pass. Blocks are whole chunks of `rmcalib.judges`, which is why it does not
matter who scores them, or in which order.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmcalib._util.interrupts import deferred
from rmcalib.batch._local import Batch, Job, Ticket, scoring_ticket
from rmcalib.batch._plan import PlanEntry
from rmcalib.batch._ray_workers import Crew, Scorer, Stopped, gist, import_ray
from rmcalib.batch._worker import told
from rmcalib.runs import Run

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

__all__ = ["Cluster", "gpus_for", "run_ray"]

_AT_ONCE = 256  # models
_MOST_CHUNKS = 8  # in a block: what is lost with a node at most
_NODES_GONE = 600.0  # seconds without any node that could hold a worker, before a model has failed


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

    >>> from rmcalib.judges import Recipe
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
    ray = import_ray()
    joined = ray.is_initialized()
    room = _Room(ray)
    pool = ThreadPoolExecutor(max_workers=_AT_ONCE)  # they only wait; the room limits them
    running: list[Future[None]] = []
    try:
        if not joined:
            _connect(ray, cluster.address)
        items = ray.put(job.benchmark)
        for entry in plan:
            if entry.skipped:
                continue
            with batch.attempt(entry.model):
                ticket = scoring_ticket(batch, job, entry)
                if ticket.scored:
                    room.judge(batch, ticket)
                    continue
                gpus = 0.0 if job.options.device == "cpu" else gpus_for(entry, cluster, room.total("GPU"))
                need = {"CPU": cluster.cpus, "GPU": gpus}
                room.check(need)
                room.take(need, cluster.shards)
                running.append(pool.submit(_one, batch, job, ticket, cluster, room, need, items))
        wait(running)
    finally:
        # Interrupted: every thread ends within a second or so, gives its workers and its folder back, and
        # only then is the cluster left. Futures are waited for, not threads: a thread whose join was
        # interrupted counts as ended for Python 3.11, and is not waited for again.
        room.stopping.set()
        wait(running)
        pool.shutdown()
        if not joined:
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
    with contextlib.suppress(Stopped), batch.attempt(ticket.entry.model):
        try:
            _score(batch, job, ticket, cluster.shards, room, need, items)
        finally:
            room.give(need, cluster.shards)
        room.judge(batch, ticket)


def _score(
    batch: Batch, job: Job, ticket: Ticket, shards: int, room: _Room, need: dict[str, float], items: Any
) -> None:
    from rmcalib.judges import INDIFFERENT, is_indifferent

    ray, name = import_ray(), ticket.entry.model
    # No restarts by Ray: it would wait for room for a lost worker while others could do the work.
    remote = ray.remote(num_cpus=need["CPU"], num_gpus=need["GPU"], max_restarts=0)(Scorer)
    judge = job.judge(ticket.entry, ticket.commit)
    crew = Crew(ray, lambda: remote.remote(judge, items), room.patience(need))
    batch.status.change(name, "downloading")
    try:
        inputs, about = crew.open(shards)
        about = {**about, "asked": ticket.asked}
        with Run(ticket.folder, job.benchmark, inputs, about=about, fresh=job.fresh) as run:
            batch.status.change(name, "scoring")
            blocks = _blocks(run.remaining, shards)
            total = sum(len(item.responses) for block in blocks for item in block)
            done = tokens = 0
            warned: set[str] = set()
            told_apart: set[bool | None] = set()
            batch.status.progress(name, 0, total, 0)
            for scored, warnings in crew.work_off([[item.id for item in block] for block in blocks]):
                run.add(scored)
                for text in warnings:
                    if gist(text) not in warned:
                        warned.add(gist(text))
                        batch.status.warn(name, text)
                told_apart |= {item.told_apart for item in scored}
                done += sum(len(item.rewards) for item in scored)
                tokens += sum(sum(item.n_tokens) for item in scored)
                batch.status.progress(name, done, total, tokens)
            if is_indifferent(told_apart):
                batch.status.warn(name, f"{name}: {INDIFFERENT}")
            run.finish(processes=shards)
        if crew.other_versions:
            others = ", ".join(sorted(crew.other_versions))
            batch.status.warn(name, f"not all workers have the same packages (some: {others})")
        if crew.losses:
            batch.status.warn(name, f"{crew.losses} workers were lost on the way, and others took over")
        if job.free_disk and ticket.commit is not None:
            batch.status.event("freed", model=name, bytes=crew.free(ticket.commit))
    finally:
        crew.dismiss()


def _blocks(items: Sequence[Item], n_workers: int) -> list[list[Item]]:
    """Cut what is left into blocks of whole chunks: few enough to be cheap, enough for all workers."""
    from rmcalib.judges import CHUNK

    n_chunks = math.ceil(len(items) / CHUNK)
    size = CHUNK * max(1, min(_MOST_CHUNKS, n_chunks // (4 * n_workers)))
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


class _Room:
    """What the cluster has to give, so that no more models are begun than it can hold."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._used = {"CPU": 0.0, "GPU": 0.0}
        self._changed = threading.Condition()
        self._judging = threading.Lock()
        self.stopping = threading.Event()

    def total(self, kind: str) -> float:
        return float(self._ray.cluster_resources().get(kind, 0.0))

    def check(self, need: dict[str, float]) -> None:
        """Refuse a worker that no node could ever hold: Ray would wait for ever."""
        for kind, amount in need.items():
            most = self._most(kind)
            if amount > most:
                raise ValueError(
                    f"needs {amount:g} {kind}s on one node, and the largest has {most:g} "
                    "(see --gpus and --gpu-memory)"
                )

    def patience(self, need: dict[str, float]) -> Callable[[], None]:
        """Return what is asked while a model waits: ends it when it should stop, or has nothing to wait for.

        Nodes that are lost may come back, but not for ever.
        """
        looked = there = time.monotonic()

        def look() -> None:
            nonlocal looked, there
            if self.stopping.is_set():
                raise Stopped
            now = time.monotonic()
            if now - looked < min(10.0, _NODES_GONE / 10):
                return
            looked = now
            if all(amount <= self._most(kind) for kind, amount in need.items()):
                there = now
            elif now - there > _NODES_GONE:
                raise ValueError(
                    f"for {now - there:.0f} s the cluster has had no node left with "
                    + " and ".join(f"{amount:g} {kind}s" for kind, amount in need.items() if amount)
                )

        return look

    def _most(self, kind: str) -> float:
        """What the largest node has."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return max((float(node.get(kind, 0.0)) for node in nodes), default=0.0)

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


def _connect(ray: Any, address: str) -> None:
    """Join a cluster, or start one on this machine that nobody else can reach."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if address == "local":
            # Without this, Ray listens on an address that other machines can reach.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            with deferred():  # interrupted, Ray would leave processes behind
                ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ValueError(f"--address {address}: no Ray cluster there: {told(error)}") from None
    _wait_for_node(ray)


def _wait_for_node(ray: Any) -> None:
    for _ in range(600):  # a busy machine takes its time
        if ray.cluster_resources().get("CPU"):
            return
        time.sleep(0.1)
