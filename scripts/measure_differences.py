"""Are the intervals of a difference honest? Two forecasts of the same prompts, over simulated data sets.

Counts how often the 95% interval of the difference of two ECEs holds the true one, and how often the 5% test
finds that there is one: by combining intervals of inverted simulations, as `rmcalib compare` does, and by
plain percentiles of paired resamples. Writes results/differences.csv and results/differences.md.

    python scripts/measure_differences.py [--runs 400]
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib._util.files import write_csv, write_text
from rmcalib.calibration import (
    ErrorOptions,
    bin_edges,
    bin_index,
    binned_error,
    binned_inference,
    grouped_sums,
    top_1_probabilities,
    unpack_bins,
)
from rmcalib.metrics import Settings, Statistic, difference

sys.path.insert(0, str(Path(__file__).parent))
from measure_statistics import RESAMPLES, RESULTS, markdown

PAIRS = ((0.0, 1.0), (1.0, 1.0), (1.0, 1.5), (1.0, 2.0), (1.5, 1.5), (0.7, 1.2))
PROMPTS = (100, 250, 1763)
NOISE = 0.1  # of either forecast's own, where both have the same confidence: they are not the same then
BINS = 10
OPTIONS = ErrorOptions(bins=BINS)


def pair(
    n: int, confidences: tuple[float, float], rng: np.random.Generator
) -> tuple[list[FloatArray], FloatArray, IntArray]:
    """Two forecasts of prompts with four responses; one is right, drawn from softmax of the true rewards."""
    rewards = rng.normal(scale=1.5, size=(n, 4))
    winner = (rewards + rng.gumbel(size=rewards.shape)).argmax(axis=1)
    groups = np.repeat(np.arange(n), 4)
    forecasts = []
    for confidence in confidences:
        seen = rewards
        if confidences[0] == confidences[1]:
            seen = rewards + NOISE * rng.normal(size=rewards.shape)
        forecasts.append(top_1_probabilities(confidence * seen.reshape(-1), groups))
    return forecasts, np.eye(4)[winner].reshape(-1), groups


def true_error(confidence: float) -> float:
    """The binned error of infinitely much data, from four million prompts and the true probabilities."""
    if confidence == 1:
        return 0.0
    rng = np.random.default_rng(12345)
    total = np.zeros(10)
    count = 0
    for _ in range(20):
        rewards = rng.normal(scale=1.5, size=(200_000, 4)).reshape(-1)
        groups = np.repeat(np.arange(200_000), 4)
        truth = top_1_probabilities(rewards, groups)
        p = top_1_probabilities(confidence * rewards, groups)
        total += np.bincount(np.minimum((p * 10).astype(int), 9), truth - p, 10)
        count += len(p)
    return float(np.abs(total).sum() / count)


def inverted(p: FloatArray, y: FloatArray, groups: IntArray, settings: Settings) -> Statistic:
    """The ECE as `rmcalib compare` has it: with the interval of inverted simulations."""
    found = binned_inference(
        p, y, groups, OPTIONS, one_per_group=True, resamples=settings.resamples, rng=settings.seed
    )
    return Statistic.inferred(found.value, lambda: found, int(groups[-1]) + 1)


def resampled(p: FloatArray, y: FloatArray, groups: IntArray) -> Statistic:
    """The ECE with plain percentiles of resamples."""
    edges = bin_edges(p, OPTIONS)
    sums = grouped_sums(p, y, groups, bin_index(p, edges), BINS)
    return Statistic.of_sums(sums, lambda totals: binned_error(unpack_bins(totals), OPTIONS))


def measure(task: tuple[int, tuple[float, float], int]) -> dict[str, Any]:
    n, confidences, runs = task
    a, b = confidences
    truth = 0.0 if a == b or a == 0 else true_error(b) - true_error(a)
    held = {"inverted": 0, "percentile": 0}
    found, width = dict(held), dict.fromkeys(held, 0.0)
    for run in range(runs):
        rng = np.random.default_rng([n, int(1000 * a), int(1000 * b), run])
        forecasts, y, groups = pair(n, confidences, rng)
        settings = Settings(resamples=RESAMPLES, seed=run)
        errors = {
            "inverted": [inverted(p, y, groups, settings) for p in forecasts],
            "percentile": [resampled(p, y, groups) for p in forecasts],
        }
        for name, (one, other) in errors.items():
            limits = difference(one, other, settings)
            assert limits is not None
            held[name] += limits.low <= truth <= limits.high
            found[name] += not limits.low <= 0 <= limits.high
            width[name] += limits.high - limits.low
    return {
        "prompts": n,
        "confidence_a": a,
        "confidence_b": b,
        "true_difference": round(truth, 4),
        **{f"coverage_{name}": round(count / runs, 4) for name, count in held.items()},
        **{f"found_{name}": round(count / runs, 4) for name, count in found.items()},
        **{f"width_{name}": round(total / runs, 4) for name, total in width.items()},
        "runs": runs,
    }


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--runs", type=int, default=400, help="simulated data sets for each row")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    tasks = [(n, confidences, args.runs) for n in PROMPTS for confidences in PAIRS]
    with ProcessPoolExecutor(args.processes) as pool:
        rows = list(pool.map(measure, tasks))
    write_csv(args.output / "differences.csv", rows)
    write_text(
        args.output / "differences.md",
        f"""# Are the intervals of a difference honest?

Made by `scripts/measure_differences.py`: {args.runs} simulated data sets per row, {RESAMPLES} resamples each.
A fraction of {args.runs} runs is uncertain by about {1.96 * (0.95 * 0.05 / args.runs) ** 0.5:.3f} at 0.95.

Two forecasts of the same prompts with four responses. `confidence` is the factor by which a forecast's
rewards exceed the true ones: 1 is calibrated, and so is 0, which gives every response the same probability.
Two forecasts of the same confidence each have some noise. The 95% interval of the difference of their top-1
ECEs should hold the true difference in 95% of the runs (`coverage`). Where the true difference is 0, the
interval should exclude 0 in 5% of the runs; elsewhere, as often as possible (`found`).

{markdown(rows)}

Percentiles of paired resamples mistake the noise of a calibrated forecast for an error: they find a
difference wherever the other forecast is less bold (0 and 1), and underestimate a true one (1 and 2).
`inverted`, which `rmcalib compare` uses, does neither; its intervals are wider.
""",
    )
    print((args.output / "differences.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
