"""Reproduce the paper's label-ranking experiments, and say where exact computation changes the picture.

    python scripts/reproduce_paper.py --processes 2 [--published reference_results.csv]

Downloads the data sets (or set RMCALIB_DATA), runs four experiments, which can be resumed at any time, and
writes tidy CSV files, figures and tables into results/. ``--published``: a CSV file of the public code's
results (columns dataset, family, notion, k, model, weighting, discrepancy, fold, ece) to compare with.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from rmcalib.tabular._tables import read_results

from rmcalib._util.files import write_json, write_text
from rmcalib.tabular import Dataset, Plan, Questions, load_dataset, run_prolr

sys.path.insert(0, str(Path(__file__).parent))
from reproduce_report import write_report

SMALL = ("iris", "wine", "authorship", "vehicle", "glass", "political")
LARGE = ("movies", "vowel", "yeast", "libras", "segment")
LARGEST = ("pendigits",)
SAMPLING = ("pl", "mallows", "rc", "pl-rpc")

Step = tuple[tuple[str, ...], Plan]

_WEAK = ("rankwise", "rankwise-95")
_BOTH: Any = ("exact", "reference")
_ABS: Any = ("abs",)
_ALL_K = Questions(
    sub=(2, 3, 4, 5, 6), top=(1, 2, 3, 4, 5), notions=(*_WEAK, "full-rank"), protocols=_BOTH, resamples=0
)
_FEW_K = replace(_ALL_K, sub=(2, 3), top=(1, 2, 3), notions=_WEAK)
_EXACT = Questions(notions=(*_WEAK, "full-rank"), resamples=100)
_RECALIBRATION = Questions(notions=("rankwise",), discrepancies=_ABS, resamples=50, intervals=False)
_CONTROL = Questions(notions=_WEAK, protocols=_BOTH, discrepancies=_ABS, intervals=False)


def experiments() -> dict[str, list[Step]]:
    """The four experiments: which data sets, and what is done with them."""
    reference = Plan(training="reference")
    exact = Plan()
    recalibrated = Plan(learners=SAMPLING, recalibrate=True)
    control = Plan(learners=SAMPLING, training="reference", truth="model")
    return {
        "reference": [
            (SMALL, replace(reference, questions=_ALL_K)),
            (LARGE, replace(reference, questions=_FEW_K)),
        ],
        "exact": [
            ((*SMALL, "movies", "vowel", "yeast", "libras"), replace(exact, questions=_EXACT)),
            (("segment",), replace(exact, questions=replace(_EXACT, notions=_WEAK))),
            (LARGEST, replace(exact, questions=replace(_EXACT, sub=(2,), top=(1, 2), notions=_WEAK))),
        ],
        "recalibration": [((*SMALL, *LARGE), replace(recalibrated, questions=_RECALIBRATION))],
        "control": [((*SMALL, *LARGE), replace(control, questions=_CONTROL))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"), help="folder for parts")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder for tables and figures")
    parser.add_argument("--published", type=Path, help="CSV of the public code's results to compare with")
    parser.add_argument("--datasets", default="", help="only these, separated by commas")
    parser.add_argument(
        "--experiments",
        default="",
        help="only these, separated by commas, or 'none'; the others are read from --results",
    )
    options = parser.parse_args()
    asked = [name for name in options.experiments.split(",") if name] or list(experiments())
    only = [name for name in options.datasets.split(",") if name]
    loaded: dict[str, Dataset] = {}
    tables: dict[str, pd.DataFrame] = {}
    seconds: dict[str, float] = {}
    for experiment, steps in experiments().items():
        if experiment not in asked:
            tables[experiment] = read_results(options.results / f"{experiment}.csv")
            continue
        start = time.perf_counter()
        parts = []
        for number, (names, plan) in enumerate(steps):
            chosen = [name for name in names if not only or name in only]
            for name in chosen:
                loaded.setdefault(name, load_dataset(name))
            if chosen:
                result = run_prolr(
                    [loaded[name] for name in chosen],
                    plan,
                    folder=options.runs / experiment / str(number),
                    processes=options.processes,
                    on_done=_Clock(start),
                )
                parts.append(result.table)
        seconds[experiment] = time.perf_counter() - start
        tables[experiment] = pd.concat(parts, ignore_index=True)
        rounded = tables[experiment].map(_rounded)
        write_text(options.results / f"{experiment}.csv", rounded.to_csv(index=False))
    write_json(options.runs / "seconds.json", seconds)
    write_report(tables, options.results, options.published)


class _Clock:
    """Prints what is done and when."""

    def __init__(self, start: float) -> None:
        self.start = start

    def __call__(self, label: str) -> None:
        print(f"{time.perf_counter() - self.start:7.1f} s  {label}", flush=True)


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
