"""Connect to a Ray cluster, and reserve resources for the workers of a model."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rmcalib._util.interrupts import deferred
from rmcalib.batch._plan import PlanEntry
from rmcalib.batch._worker import cause

__all__ = ["Cluster", "Need", "Stopped", "connected", "gpus_for", "patience", "reserve", "silenced"]

_NODES_GONE = 600.0  # seconds without a node that is large enough for a worker, before a model fails

Need = dict[str, float]
"""The resources of one worker, such as ``{"CPU": 1.0, "GPU": 2.0}``."""


class Stopped(BaseException):
    """The batch was interrupted. This is not a failure of the model."""


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster, and the resources of each model.

    Parameters
    ----------
    address : str
        `"local"` starts a cluster on this machine, `"auto"` finds a running one, or `"HOST:PORT"`.
    shards : int
        Number of workers that share the prompts of a model.
    gpus : float, optional
        Number of GPUs per worker. Default: as many as the model needs, or none if the cluster has none.
    gpu_memory : float
        Memory of one GPU in bytes.
    cpus : float
        Number of CPUs per worker.

    Examples
    --------
    >>> Cluster("auto", shards=4, gpus=0.5).shards
    4
    """

    address: str = "local"
    shards: int = 1
    gpus: float | None = None
    gpu_memory: float = 80e9
    cpus: float = 1.0


def gpus_for(entry: PlanEntry, cluster: Cluster, available: float) -> float:
    """Return the number of GPUs that one worker needs, on a cluster with `available` GPUs.

    >>> from rmcalib.judges import Recipe
    >>> entry = PlanEntry(Recipe("org/rm-70B"), "llama", 70.0, memory=168e9)
    >>> gpus_for(entry, Cluster(), available=8), gpus_for(entry, Cluster(), available=0)
    (3.0, 0.0)
    """
    if entry.served:
        return 0.0
    if cluster.gpus is not None:
        return cluster.gpus
    if available <= 0:
        return 0.0
    return float(max(1, math.ceil((entry.memory or 0) / cluster.gpu_memory)))


@contextlib.contextmanager
def connected(ray: Any, address: str) -> Iterator[None]:
    """Connect to a cluster for the length of the block. An existing connection is used and kept."""
    if ray.is_initialized():
        yield
        return
    with silenced(ray):
        try:
            _connect(ray, address)
            yield
        finally:
            ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    """Join a cluster, or start one on this machine that other machines cannot reach."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if address == "local":
            # Without this, Ray listens on an address that other machines can reach.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            with deferred():  # an interruption would leave processes of Ray behind
                ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ValueError(f"--address {address}: no Ray cluster there: {cause(error)}") from None
    for _ in range(600):  # the resources may be reported late on a busy machine
        if ray.cluster_resources().get("CPU"):
            return
        time.sleep(0.1)


@contextlib.contextmanager
def silenced(ray: Any) -> Iterator[None]:
    """Stop Ray from printing a page of logs to standard output whenever a worker is lost.

    Ray has no option for this. The batch reports in one line how many workers were lost.
    """
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    printing = getattr(worker, "print_to_stdstream", None)
    if printing is None:
        yield
        return
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = printing


def reserve(ray: Any, need: Need, shards: int, look: Callable[[], None]) -> Any:
    """Wait until the cluster has room for the workers of a model, and return a placement group.

    If fewer than `shards` workers fit on the whole cluster, there are fewer.
    """
    if not _fitting(ray, need):
        largest = {kind: max((node.get(kind, 0.0) for node in _nodes(ray)), default=0.0) for kind in need}
        kind = next((kind for kind in need if need[kind] > largest[kind]), "CPU")
        raise ValueError(
            f"needs {need[kind]:g} {kind}s on one node, and the largest has {largest[kind]:g} "
            "(see --gpus and --gpu-memory)"
        )
    while True:
        n_workers = max(1, min(shards, _fitting(ray, need)))
        group = ray.util.placement_group([need] * n_workers)
        try:
            while not group.wait(1):
                look()
                if max(1, min(shards, _fitting(ray, need))) != n_workers:  # nodes were added or lost
                    break
            else:
                return group
        except BaseException:
            ray.util.remove_placement_group(group)
            raise
        ray.util.remove_placement_group(group)


def patience(ray: Any, need: Need, stopping: threading.Event) -> Callable[[], None]:
    """Return a function that raises if the batch was interrupted, or if waiting takes too long.

    Lost nodes may come back, but the wait for them is limited.
    """
    looked = there = time.monotonic()

    def look() -> None:
        nonlocal looked, there
        if stopping.is_set():
            raise Stopped
        now = time.monotonic()
        if now - looked < min(10.0, _NODES_GONE / 10):
            return
        looked = now
        if _fitting(ray, need):
            there = now
        elif now - there > _NODES_GONE:
            room = " and ".join(f"{amount:g} {kind}s" for kind, amount in need.items())
            raise ValueError(f"the cluster has had no node with {room} for {now - there:.0f} s")

    return look


def _nodes(ray: Any) -> list[dict[str, float]]:
    """Return the resources of the nodes that are alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _fitting(ray: Any, need: Need) -> int:
    """Return how many workers fit on the whole cluster."""
    return sum(
        min(int(node.get(kind, 0.0) / amount + 1e-9) for kind, amount in need.items()) for node in _nodes(ray)
    )
