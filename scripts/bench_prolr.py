"""Seconds by stage of the label-ranking experiments, and the speedup by a second process.

    python scripts/bench_prolr.py [--dataset iris] [--processes 2] [--learner mallows]

Prints the seconds of every stage for each learner on one fold, then the time of a whole cross-validation
in one process (the baseline) and in several.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from rmcalib.calibration import sub_k, top_k
from rmcalib.calibration.reference import ENUMERATED_BELOW
from rmcalib.ranking import RankingDistribution
from rmcalib.tabular import LEARNERS, Plan, Questions, load_dataset, run_prolr
from rmcalib.tabular._datasets import fit_encoder

Result = TypeVar("Result")


def timed(stage: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = stage()
    return result, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", default="iris")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--learner", action="append", choices=LEARNERS, help="only this one; may be repeated")
    parser.add_argument("--resamples", type=int, default=100)
    options = parser.parse_args()
    learners = tuple(options.learner or LEARNERS)
    data, seconds = timed(lambda: load_dataset(options.dataset))
    print(f"{options.dataset}: {len(data):,} rows, {data.n_items} labels; loaded in {seconds:.2f} s")
    rows = np.random.default_rng(0).permutation(len(data))
    test, train = np.split(rows, [len(data) // 5])
    encode = fit_encoder(data, train)
    x_train, x_test = encode(train), encode(test)
    orders = data.orders[test]
    stages = ("fit", "predict", "exact", "reference", "null", "interval")
    resamples = options.resamples
    head = "".join(f"{stage:>11}" for stage in stages)
    print(f"seconds  {head}   (sub-2 and top-1; {resamples} resamples)")
    for name in learners:
        LEARNERS[name](0).fit(x_train[:10], data.orders[train][:10])  # imports before the clock runs
        learner = LEARNERS[name](0)
        cells = [timed(lambda learner=learner: learner.fit(x_train, data.orders[train]))[1]]  # type: ignore[misc]
        dist, seconds = timed(lambda learner=learner: learner.predict(x_test))  # type: ignore[misc]
        cells.append(seconds)
        ranks = isinstance(dist, RankingDistribution)
        notions: Any = [(sub_k, 2), (top_k, 1)] if ranks else [(sub_k, 2)]
        support = None if data.n_items < ENUMERATED_BELOW else data.orders
        reference: Any = {"protocol": "reference", "support": support}
        start = time.perf_counter()
        results = [notion(dist, orders, k) for notion, k in notions]
        cells.append(time.perf_counter() - start)
        start = time.perf_counter()
        for notion, k in notions:
            notion(dist, orders, k, **reference)
        cells.append(time.perf_counter() - start)
        start = time.perf_counter()
        for result in results if ranks else []:
            result.null(resamples=resamples)
        cells.append(time.perf_counter() - start)
        start = time.perf_counter()
        for result in results:
            result.interval(resamples=resamples)
        cells.append(time.perf_counter() - start)
        print(f"{name:<9}" + "".join(f"{cell:11.3f}" for cell in cells))
    plan = Plan(learners=learners, questions=Questions(resamples=resamples))
    _, one = timed(lambda: run_prolr(data, plan))
    _, several = timed(lambda: run_prolr(data, plan, processes=options.processes))
    print(
        f"all folds and learners: {one:.1f} s in one process (baseline), {several:.1f} s "
        f"in {options.processes}: {one / several:.2f} times as fast"
    )


if __name__ == "__main__":
    main()
