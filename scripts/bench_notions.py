"""Speed and memory of the label-ranking core, against plain enumeration measured in the same run.

Prints CPU seconds and ratios. Baselines: a plain-Python loop over all m! rankings for the same marginals, and
the same question at another size (growing n, k, m). Run it with one BLAS thread for steady figures:

    OMP_NUM_THREADS=1 python scripts/bench_notions.py [--quick]

`--quick` takes a few seconds: it leaves the large sizes out.
"""

import argparse
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, permutations
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from rmcalib.calibration import ece_interval, full_rank, sub_k, top_k
from rmcalib.ranking import Mallows, PlackettLuce, RankingDistribution, SparseRankings
from rmcalib.ranking.events import all_events
from rmcalib.ranking.synthetic import synthetic_plackett_luce


def cpu(action: Callable[[], object], repeats: int = 1) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def plain_sub(utilities: list[list[float]], k: int) -> list[list[float]]:
    """Sub-k marginals of Plackett-Luce by summing over all rankings, with nothing but Python."""
    m = len(utilities[0])
    result = []
    for row in utilities:
        theta = [math.exp(u) for u in row]
        sums = dict.fromkeys(permutations(range(m), k), 0.0)
        for order in permutations(range(m)):
            p, rest = 1.0, sum(theta)
            for item in order:
                p *= theta[item] / rest
                rest -= theta[item]
            place = {item: position for position, item in enumerate(order)}
            for event in sums:
                if all(place[a] < place[b] for a, b in pairwise(event)):
                    sums[event] += p
        result.append(list(sums.values()))
    return result


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    quick = parser.parse_args().quick
    against_enumeration(quick)
    if not quick:
        sweep()
    political_size()
    uncertainty(200 if quick else 1763)
    growth(quick)
    memory(quick)


def against_enumeration(quick: bool) -> None:
    rng = np.random.default_rng(0)
    utilities = rng.normal(size=(10, 6))
    dist = PlackettLuce(utilities)
    print(
        "sub-k marginals of Plackett-Luce, m = 6, n = 10, all events: plain Python over 6! rankings / rmcalib"
    )
    for k in (2,) if quick else (2, 3):
        slow = cpu(lambda k=k: plain_sub(utilities.tolist(), k))  # type: ignore[misc]
        fast = cpu(lambda k=k: dist.sub(all_events(6, k)), 20)  # type: ignore[misc]
        print(f"  k = {k}: {slow:8.3f} s / {fast:.6f} s = {slow / fast:,.0f}x")


def sweep() -> None:
    """The sizes of the movies data set: 15 items, 52 test instances."""
    rng = np.random.default_rng(0)
    data = synthetic_plackett_luce(52, 15, rng=rng)
    models: dict[str, RankingDistribution] = {
        "plackett-luce": data.forecast,
        "mallows": Mallows(np.tile(rng.permutation(15), (52, 1)), 0.1),
    }
    print("sub-2..4 and top-1..4, m = 15, n = 52, all events (aim: under 2 s in total)")
    total = 0.0
    for name, dist in models.items():
        seconds = [cpu(lambda k=k: sub_k(dist, data.orders, k)) for k in (2, 3, 4)]  # type: ignore[misc] # noqa: B023
        seconds += [cpu(lambda k=k: top_k(dist, data.orders, k)) for k in (1, 2, 3, 4)]  # type: ignore[misc] # noqa: B023
        total += sum(seconds)
        print(f"  {name:14s} {sum(seconds):.2f} s  ({', '.join(f'{s:.3f}' for s in seconds)})")
    print(f"  total          {total:.2f} s; public code: about 420 s per model and fold, {840 / total:,.0f}x")


def political_size() -> None:
    """The job of the political data set: 6 items, all k of both families, 4 models × 5 folds of 34."""
    rng = np.random.default_rng(0)
    data = synthetic_plackett_luce(34, 6, rng=rng)
    listed = np.unique(data.orders, axis=0)
    models: list[RankingDistribution] = [
        data.forecast,
        Mallows(np.tile(np.arange(6), (34, 1)), 0.5),
        SparseRankings(listed, rng.normal(size=(34, len(listed))), -5.0),
        PlackettLuce(rng.normal(size=(34, 6))),
    ]

    def all_notions() -> None:
        for dist in models:
            for k in range(1, 7):
                top_k(dist, data.orders, k)
                if k > 1:
                    sub_k(dist, data.orders, k)

    seconds = 5 * cpu(all_notions, 2)
    print("all k of both families, m = 6, 4 models × 5 folds of 34 instances")
    print(f"  {seconds:.2f} s; the public code needs 14 s: {14 / seconds:,.0f}x")


def growth(quick: bool) -> None:
    sizes = (30, 300) if quick else (300, 3000, 30_000)
    print("growth in n: sub-3 and top-3, m = 10 (a ratio near 10 is linear)")
    for name, notion in (("sub_k", sub_k), ("top_k", top_k)):
        times = []
        for n in sizes:
            data = synthetic_plackett_luce(n, 10, rng=np.random.default_rng(0))
            times.append(cpu(lambda data=data, notion=notion: notion(data.forecast, data.orders, 3), 2))  # type: ignore[misc]
        ratios = ", ".join(f"{b / a:.1f}x" for a, b in pairwise(times))
        shown = ", ".join(f"{n:,}" for n in sizes)
        print(f"  {name}: {', '.join(f'{t:.3f} s' for t in times)} for n = {shown}: {ratios}")
    print("growth in m and k: exact sub-k marginals of Mallows, all events, one dispersion")
    print("  (ratio: time per event, over that of the first line, the baseline)")
    first = math.nan
    for m, k in ((10, 2), (10, 3)) if quick else ((10, 3), (15, 3), (15, 4), (15, 5), (20, 4), (30, 3)):
        dist, events = Mallows([np.arange(m)], 0.3), all_events(m, k)
        seconds = cpu(lambda dist=dist, events=events: dist.sub(events))  # type: ignore[misc]
        each = seconds / len(events)
        first = each if math.isnan(first) else first
        print(f"  m = {m}, k = {k}: {len(events):>9,} events in {seconds:6.3f} s, {each / first:.2f}x")


def uncertainty(n: int) -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=n)
    y = np.eye(4)[(p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)]
    groups = np.repeat(np.arange(n), 4)
    flat_p, flat_y = p.reshape(-1), y.reshape(-1)
    seconds = cpu(lambda: ece_interval(flat_p, flat_y, groups=groups), 2)
    rows = [np.arange(4 * g, 4 * g + 4) for g in range(n)]

    def plain() -> None:
        for _ in range(20):
            chosen = np.concatenate([rows[g] for g in rng.integers(n, size=n)])
            ece_of_rows(flat_p[chosen], flat_y[chosen])

    slow = 50 * cpu(plain)
    print(f"1,000 resamples of an ECE on {4 * n:,} rows in {n:,} prompts (aim: under 1 s for 1,763)")
    print(
        f"  {seconds:.3f} s; resampling rows, 20 times scaled to 1,000: {slow:.1f} s: {slow / seconds:,.0f}x"
    )


def ece_of_rows(
    p: np.ndarray[tuple[int], np.dtype[np.float64]], y: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> float:
    return sum(abs((y - p)[(p >= b / 10) & (p < (b + 1) / 10)].sum()) for b in range(10)) / len(p)


def memory_of_sub_k(n: int) -> float:
    data = synthetic_plackett_luce(n, 12, rng=np.random.default_rng(0))
    before = peak()
    sub_k(data.forecast, data.orders, 4)
    return peak() - before


def memory_of_full_rank(n: int) -> float:
    data = synthetic_plackett_luce(n, 4, rng=np.random.default_rng(0))
    before = peak()
    full_rank(data.forecast, data.orders)
    return peak() - before


def peak() -> float:
    """Peak memory of this process in MB. Not ru_maxrss: a spawned process inherits that of its parent."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def memory(quick: bool) -> None:
    n = 100 if quick else 10_000
    print("peak memory of one job in a separate process, beyond the data (work arrays: 32 MB each)")
    for name, job, whole in (
        (f"sub_k, n = {n:,}, m = 12, k = 4: 11,880 events", memory_of_sub_k, n * 11_880),
        (f"full_rank, n = {n:,}, 24 classes", memory_of_full_rank, n**2),
    ):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            used = max(pool.submit(job, n).result(), 1.0)
        table = whole * 8 / 2**20
        print(f"  {name}: {used:.0f} MB; the table at once: {table:,.0f} MB, {table / used:.1f}x")


if __name__ == "__main__":
    main()
