"""Seconds by stage of the label-ranking experiments, and what a second process brings.

    python scripts/bench_prolr.py [--dataset iris] [--processes 2]

Prints the seconds of every stage for each learner on one fold, then the time of a whole cross-validation
in one process (the baseline) against several.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from rmcalib.calibration import notion_interval, notion_null, sub_k, top_k
from rmcalib.ranking import PairwiseProbabilities
from rmcalib.tabular import LEARNERS, Plan, Questions, load_dataset, make_learner, run_experiment
from rmcalib.tabular._features import fit_encoder
from rmcalib.tabular._reference import reference_support

Result = TypeVar("Result")


def timed(stage: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = stage()
    return result, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", default="iris")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    data, seconds = timed(lambda: load_dataset(options.dataset))
    print(f"{options.dataset}: {len(data):,} rows, {data.n_items} labels; loaded in {seconds:.2f} s")
    rows = np.random.default_rng(0).permutation(len(data))
    test, train = np.split(rows, [len(data) // 5])
    encoder = fit_encoder(data, train)
    x_train, x_test = encoder.transform(data, train), encoder.transform(data, test)
    orders = data.orders[test]
    stages = ("fit", "predict", "exact", "reference", "null", "interval")
    print("seconds  " + "".join(f"{stage:>11}" for stage in stages) + "   (sub-2 and top-1; 100 resamples)")
    make_learner("pl").fit(x_train[:10], data.orders[train][:10])  # torch is imported before the clock runs
    for name in LEARNERS:
        learner = make_learner(name)
        cells = [timed(lambda learner=learner: learner.fit(x_train, data.orders[train]))[1]]  # type: ignore[misc]
        dist, seconds = timed(lambda learner=learner: learner.predict(x_test))  # type: ignore[misc]
        cells.append(seconds)
        families: Any = [("sub", 2, sub_k)]
        if not isinstance(dist, PairwiseProbabilities):
            families.append(("top", 1, top_k))
        reference: Any = {"protocol": "reference", "support": reference_support(data.orders)}
        start = time.perf_counter()
        for _, k, notion in families:
            notion(dist, orders, k)
        cells.append(time.perf_counter() - start)
        start = time.perf_counter()
        for _, k, notion in families:
            notion(dist, orders, k, **reference)
        cells.append(time.perf_counter() - start)
        start = time.perf_counter()
        if not isinstance(dist, PairwiseProbabilities):
            for family, k, _ in families:
                notion_null(dist, orders, k, family, resamples=100)
        cells.append(time.perf_counter() - start)
        start = time.perf_counter()
        for family, k, _ in families:
            notion_interval(dist, orders, k, family, resamples=100)
        cells.append(time.perf_counter() - start)
        print(f"{name:<9}" + "".join(f"{cell:11.3f}" for cell in cells))
    plan = Plan(questions=Questions(resamples=100))
    with tempfile.TemporaryDirectory() as folder:
        _, one = timed(lambda: run_experiment([data], plan, f"{folder}/one"))
        more = f"{folder}/more"
        _, several = timed(lambda: run_experiment([data], plan, more, processes=options.processes))
    print(
        f"all folds and learners: {one:.1f} s in one process (baseline), {several:.1f} s "
        f"in {options.processes}: {one / several:.2f} times as fast"
    )


if __name__ == "__main__":
    main()
