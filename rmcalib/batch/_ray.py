"""Batches on a Ray cluster: several models at the same time, and several workers per model.

Each worker has one model and scores blocks of prompts. Only the process that runs the batch writes files, so
nodes need no shared disk. If a node is lost, its blocks may be scored twice, but are kept once. Blocks are
whole chunks of `rmcalib.judges`. So the rewards do not depend on which worker scores a block or in which
order, and are equal to those of a local run to the last bit.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from rmcalib._util.terminal import count
from rmcalib.batch._batch import Batch, Job, Ticket, free_checkpoint, scoring_ticket
from rmcalib.batch._plan import PlanEntry
from rmcalib.batch._ray_cluster import Cluster, Need, Stopped, connected, gpus_for, patience, reserve
from rmcalib.batch._ray_workers import (
    RESTARTS,
    Origin,
    Scorer,
    gist,
    import_ray,
    results,
    wait_for_first,
)
from rmcalib.runs import Run, score_inputs

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

__all__ = ["run_ray", "score_on_cluster"]

_AT_ONCE = 256  # most models at the same time
_MOST_CHUNKS = 8  # most chunks of a block, which is lost together with its worker


def run_ray(batch: Batch, job: Job, plan: Sequence[PlanEntry], cluster: Cluster) -> None:
    """Score the models of `plan` on a Ray cluster, small ones first, as many at a time as fit."""
    ray = import_ray()
    evaluating, stopping = threading.Lock(), threading.Event()
    pool = ThreadPoolExecutor(max_workers=_AT_ONCE)  # its threads only wait
    running: list[Future[None]] = []

    def finish(ticket: Ticket) -> None:
        with evaluating:  # Matplotlib is not thread-safe
            batch.conclude(ticket)

    def one(ticket: Ticket, need: Need, group: Any) -> None:
        with contextlib.suppress(Stopped), batch.attempt(ticket.entry.model):
            try:
                look = patience(ray, need, stopping)
                workers = _workers(ray, job, ticket, need, group)
                score_on_cluster(batch, job, ticket, workers, look)
            finally:
                if ray.is_initialized():
                    ray.util.remove_placement_group(group)  # ends its workers
            finish(ticket)

    def start(entry: PlanEntry) -> None:
        ticket = scoring_ticket(batch, job, entry)
        if ticket.scored:
            finish(ticket)
            return
        available = float(ray.cluster_resources().get("GPU", 0.0))
        gpus = 0.0 if job.options.device == "cpu" else gpus_for(entry, cluster, available)
        need = {kind: n for kind, n in (("CPU", cluster.cpus), ("GPU", gpus)) if n}
        group = reserve(ray, need, cluster.shards, patience(ray, need, stopping))
        running.append(pool.submit(one, ticket, need, group))

    with connected(ray, cluster.address):
        try:
            for entry in plan:
                if not entry.skipped:
                    with batch.attempt(entry.model):
                        start(entry)
            wait(running)
        finally:
            # After an interruption, every thread ends within about a second and releases its folder. Then the
            # cluster is left. Wait for futures, not threads: Python 3.11 considers a thread ended if its join
            # was interrupted.
            stopping.set()
            wait(running)
            pool.shutdown()


def score_on_cluster(
    batch: Batch,
    job: Job,
    ticket: Ticket,
    workers: list[Any],
    look: Callable[[], None],
) -> None:
    """Let the workers of a model score it, and write the results."""
    from rmcalib.judges import indifference_note

    ray, name = import_ray(), ticket.entry.model
    batch.status.change(name, "downloading")
    first = wait_for_first(ray, workers, look)
    about = first.about | ({} if ticket.asked is None else {"asked": ticket.asked})
    inputs = score_inputs(job.judge(ticket.entry), job.benchmark, first.identity)
    with Run(ticket.folder, job.benchmark, inputs, about=about, fresh=job.fresh) as run:
        batch.status.change(name, "scoring")
        blocks = _blocks(run.remaining, len(workers))
        total = sum(len(item.responses) for block in blocks for item in block)
        done = tokens = 0
        warned: set[str] = set()
        origins = {first.process: first}
        distinct: set[bool | None] = set()
        batch.status.progress(name, 0, total, 0)
        for scored, texts, origin in results(ray, workers, blocks, look):
            _check_same(first, origin)
            origins[origin.process] = origin
            run.add(scored)
            for text in texts:
                if gist(text) not in warned:
                    warned.add(gist(text))
                    batch.status.warn(name, text)
            distinct |= {item.distinct for item in scored}
            done += sum(len(item.rewards) for item in scored)
            tokens += sum(sum(item.n_tokens) for item in scored)
            batch.status.progress(name, done, total, tokens)
        if note := indifference_note(distinct):
            batch.status.warn(name, f"{name}: {note}")
        run.finish(processes=len(workers))
    for text in _remarks(first, origins.values()):
        batch.status.warn(name, text)
    if job.free_disk and ticket.commit is not None:
        freed = _free(ray, {origin.node for origin in origins.values()}, ticket.commit)
        batch.status.event("freed", model=name, bytes=freed)


def _workers(ray: Any, job: Job, ticket: Ticket, need: Need, group: Any) -> list[Any]:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    # Restarts are limited, retries are not: Ray may retry a task many times before it notices that a node was
    # lost.
    actor = ray.remote(
        num_cpus=need.get("CPU", 0),
        num_gpus=need.get("GPU", 0),
        max_restarts=RESTARTS,
        max_task_retries=-1,
        scheduling_strategy=PlacementGroupSchedulingStrategy(group),
    )(Scorer)
    judge = job.judge(ticket.entry, ticket.commit)
    return [actor.remote(judge) for _ in range(group.bundle_count)]


def _check_same(first: Origin, other: Origin) -> None:
    """Refuse a worker whose scores would differ, for example because of its dtype."""
    differing = [
        key
        for key in {**first.identity, **other.identity}
        if first.identity.get(key) != other.identity.get(key)
    ]
    if differing:
        shown = "; ".join(
            f"{key}: {first.identity.get(key)} and {other.identity.get(key)}" for key in sorted(differing)
        )
        raise ValueError(
            f"the nodes of the cluster would score differently ({shown}): set it, for example --dtype"
        )


def _remarks(first: Origin, origins: Iterable[Origin]) -> Iterator[str]:
    """Yield warnings about the workers of a model."""
    origins = list(origins)
    versions = first.about.get("versions", {}).items()
    other = {
        f"{package} {version}"
        for origin in origins
        for package, version in origin.about.get("versions", {}).items() - versions
    }
    if other:
        yield f"not all workers have the same packages (some: {', '.join(sorted(other))})"
    lost = sum(origin.restarted for origin in origins)
    if lost:
        yield f"{count(lost, 'worker')} lost while scoring; Ray replaced {'it' if lost == 1 else 'them'}"


def _free(ray: Any, nodes: set[str], commit: str) -> int:
    """Remove a model from the caches of these nodes, and return the number of freed bytes."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(free_checkpoint)
    tasks = [
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(commit)
        for node in nodes
    ]
    freed = 0
    for reference in tasks:
        with contextlib.suppress(ray.exceptions.RayError):  # the node may be lost
            freed += ray.get(reference)
    return freed


def _blocks(items: Sequence[Item], n_workers: int) -> list[list[Item]]:
    """Split the remaining prompts into blocks of whole chunks, at least four per worker if possible."""
    from rmcalib.judges import CHUNK

    n_chunks = math.ceil(len(items) / CHUNK)
    size = CHUNK * max(1, min(_MOST_CHUNKS, n_chunks // (4 * n_workers)))
    return [list(items[start : start + size]) for start in range(0, len(items), size)]
