"""Estimate how long the classifiers of the leaderboard take on 1, 8 and 64 GPUs, from the plan of `batch`.

    python scripts/plan_leaderboard.py [--gpu-memory 80] [--rate 1e14]

The plan gives memory and time of each model (`rmcalib batch --dry-run`). A model takes as many GPUs as its
memory needs, and the longest one that fits is started first. Downloads and loading are not counted.
"""

from __future__ import annotations

import argparse
import heapq
import math

from rmcalib.judges import LoadOptions
from rmcalib.runs import Batch, Cluster, plan_batch
from rmcalib.runs._plan import PlanEntry

CLUSTERS = ((1, 1), (8, 1), (64, 4))  # GPUs, and workers that share the prompts of a model


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--gpu-memory", type=float, default=80, help="of one GPU, in GB")
    parser.add_argument("--rate", type=float, default=1e14, help="operations per second of one GPU")
    args = parser.parse_args()
    plan = plan_batch(Batch(cluster=Cluster(), options=LoadOptions(trust_remote_code=True)))
    models = [entry for entry in plan if not entry.skipped and entry.seconds is not None]
    print(f"{'GPUs':>5}{'workers':>9}{'models':>8}{'hours':>8}{'GPU-hours':>11}")
    for gpus, workers in CLUSTERS:
        jobs = [(seconds_of(entry) * 1e14 / args.rate, gpus_of(entry, args.gpu_memory)) for entry in models]
        fitting = [(seconds / workers, needs) for seconds, needs in jobs if needs <= gpus]
        hours = makespan(gpus, fitting * workers) / 3600
        used = sum(seconds * needs for seconds, needs in fitting) * workers / 3600
        print(f"{gpus:>5}{workers:>9}{len(fitting):>8}{hours:>8.1f}{used:>11.1f}")


def seconds_of(entry: PlanEntry) -> float:
    assert entry.seconds is not None
    return entry.seconds


def gpus_of(entry: PlanEntry, gpu_memory: float) -> int:
    assert entry.memory is not None
    return max(1, math.ceil(entry.memory / (gpu_memory * 1e9)))


def makespan(gpus: int, jobs: list[tuple[float, int]]) -> float:
    """Return when the last of `jobs` (seconds, GPUs) ends, if the longest that fits always starts first."""
    waiting = sorted(jobs, reverse=True)
    running: list[tuple[float, int]] = []
    now, free = 0.0, gpus
    while waiting or running:
        started = []
        for number, (seconds, needs) in enumerate(waiting):
            if needs <= free:
                free -= needs
                heapq.heappush(running, (now + seconds, needs))
                started.append(number)
        waiting = [job for number, job in enumerate(waiting) if number not in started]
        now, needs = heapq.heappop(running)
        free += needs
    return now


if __name__ == "__main__":
    main()
