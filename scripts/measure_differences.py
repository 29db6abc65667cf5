"""How often do the 95% intervals of a difference hold the truth? Two forecasts of the same prompts.

Draws many data sets from known truths, forecasts them twice, and counts how often the interval of the
difference holds the one of unlimited data, and how often it excludes 0. Writes results/differences.csv after
each setting, and results/differences.md. An interrupted run continues where it stopped.

    python scripts/measure_differences.py [--runs 400] [--only NAME] [--fresh]
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib._util.files import write_csv, write_text
from rmcalib.calibration import (
    Difference,
    Inference,
    binned_inference,
    difference,
    mean_difference,
    scale_loss,
    smooth_inference,
)

sys.path.insert(0, str(Path(__file__).parent))
from measure_statistics import PLAIN, RESAMPLES, RESULTS, Setting, coverage_table, markdown, softmax, truths

NOISE = 0.1  # standard deviation of either forecast's own noise, where both have the same scale
MEASURES = ("overconfidence", "lost_information", "ece", "confidence_ece", "smooth_ece", "nll")


@dataclass(frozen=True)
class Pair:
    """Two forecasts of one setting, by the factors on the rewards."""

    name: str
    setting: Setting
    factors: tuple[float, float]

    def forecasts(self, rewards: FloatArray, rng: np.random.Generator) -> list[FloatArray]:
        """Rewards of the two forecasts; those of the same scale get some noise of their own."""
        if self.factors[0] != self.factors[1]:
            return [factor * rewards for factor in self.factors]
        return [f * (rewards + NOISE * rng.normal(size=rewards.shape)) for f in self.factors]


def four(n: int, a: float, b: float) -> Pair:
    return Pair(f"four responses: {a:g} and {b:g}", Setting("four", n), (a, b))


PAIRS = (
    *(four(n, a, b) for n in (100, 500) for a, b in ((0.001, 1), (1, 1), (1, 1.5), (1.5, 1.5), (0.7, 1.2))),
    four(2000, 1, 1.5),
    Pair("pairs: 0.5 and 1", Setting("pairs", 350, m=2), (0.5, 1.0)),
    Pair("ten responses: 1 and 1.5", Setting("ten", 500, m=10), (1.0, 1.5)),
    Pair("25% label noise: 1 and 1.5", Setting("noise", 500, noise=0.25), (1.0, 1.5)),
    Pair("heavy tails: 1 and 1.5", Setting("heavy", 500, heavy=True), (1.0, 1.5)),
    Pair("accuracy .97: 1 and 1.5", Setting("accurate", 183, advantage=5.55), (1.0, 1.5)),
)


def differences(
    pair: list[FloatArray], exists: BoolArray, winner: IntArray, seed: int
) -> dict[str, Difference]:
    """The differences of one data set, as `rmcalib compare` computes them."""
    groups = np.nonzero(exists)[0]
    y = (np.arange(exists.shape[1]) == winner[:, None])[exists].astype(np.float64)
    n, found = len(exists), []
    for rewards in pair:
        p_all = softmax(rewards, exists)
        p = p_all[exists]
        picked, confidence = p_all.argmax(axis=1), p_all.max(axis=1)
        right = (picked == winner).astype(np.float64)
        how: dict[str, Any] = {"resamples": RESAMPLES, "rng": seed}
        found.append(
            {
                "overconfidence": confidence - right,
                "lost_information": scale_loss(rewards[exists], y, groups),
                "ece": binned_inference(p, y, groups, PLAIN, one_per_group=True, **how),
                "confidence_ece": binned_inference(
                    confidence, right, np.arange(n), PLAIN, one_per_group=False, **how
                ),
                "smooth_ece": smooth_inference(p, y, groups, one_per_group=True, rng=seed),
                "nll": -np.log(np.maximum(p[y == 1], 1e-300)),
            }
        )
    result = {}
    for name in MEASURES:
        a, b = found[0][name], found[1][name]
        if isinstance(a, np.ndarray):
            result[name] = mean_difference(a, b)
        elif isinstance(a, Inference):
            result[name] = difference(a.interval(), b.interval(), a.influence, b.influence)
        else:
            result[name] = difference(a.lost, b.lost, a.lost_influence, b.lost_influence)
    return result


def measure(pair: Pair, runs: int) -> list[dict[str, Any]]:
    start, n = time.process_time(), pair.setting.n
    sides = [truths(replace(pair.setting, confidence=factor)) for factor in pair.factors]
    same = pair.factors[0] == pair.factors[1]
    true = {name: 0.0 if same else sides[1][name] - sides[0][name] for name in MEASURES}
    held, without, width = (dict.fromkeys(MEASURES, 0.0) for _ in range(3))
    for run in range(runs):
        rng = np.random.default_rng([run, n, PAIRS.index(pair)])
        rewards, exists, truth = pair.setting.draw(n, rng)
        winner = (np.cumsum(truth, axis=1) > rng.random((n, 1))).argmax(axis=1)
        for name, found in differences(pair.forecasts(rewards, rng), exists, winner, run).items():
            held[name] += found.low - 1e-9 <= true[name] <= found.high + 1e-9
            without[name] += not found.low <= 0 <= found.high
            width[name] += found.high - found.low
    return [
        {
            "setting": pair.name,
            "prompts": n,
            "measure": name,
            "true_difference": round(true[name], 5),
            "coverage": round(held[name] / runs, 4),
            "excludes_0": round(without[name] / runs, 4),
            "width": round(width[name] / runs, 5),
            "runs": runs,
            "seconds": round(time.process_time() - start, 1),
        }
        for name in MEASURES
    ]


def report(rows: list[dict[str, Any]], runs: int) -> str:
    worst = min(rows, key=lambda row: float(row["coverage"]))
    none = [float(row["excludes_0"]) for row in rows if float(row["true_difference"]) == 0]
    none = none or [float("nan")]
    power = [
        {"setting": row["setting"], "prompts": row["prompts"], "measure": row["measure"],
         "true difference": row["true_difference"], "excludes 0": row["excludes_0"], "width": row["width"]}
        for row in rows if row["measure"] in ("ece", "lost_information")
    ]  # fmt: skip
    seconds = sum({(row["setting"], row["prompts"]): float(row["seconds"]) for row in rows}.values())
    return f"""# How often the intervals of a difference hold the truth

Made by `scripts/measure_differences.py`: {runs} simulated data sets per setting, {RESAMPLES} resamples each,
in {seconds / 60:.0f} minutes on one core. All intervals have the level 95%. A coverage from {runs} data sets
is uncertain by about {1.96 * (0.95 * 0.05 / runs) ** 0.5:.3f}.

**Lowest coverage: {float(worst["coverage"]):.3f}, for {worst["measure"]} ({worst["setting"]},
{worst["prompts"]} prompts).** Where there is no true difference, the intervals exclude 0 in {min(none):.3f}
to {max(none):.3f} of the data sets.

Two forecasts of the same prompts; the names of the settings have the factors on the true rewards. A factor of
1 is calibrated, and 0.001 gives every response nearly the same probability. Forecasts with the same factor
have some noise of their own. Differences of calibration errors and of lost information combine the intervals
of the two (`rmcalib.calibration.difference`); those of means are paired (`mean_difference`).

## Coverage

The fraction of data sets whose interval holds the difference of unlimited data. Bold: below 0.93.

{coverage_table(rows)}

## Power and width

{markdown(power)}
"""


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--runs", type=int, default=400, help="simulated data sets for each setting")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--only", help="only settings whose name contains this")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    args = parser.parse_args()
    path, rows = args.output / "differences.csv", []
    if path.exists() and not args.fresh:
        with path.open(encoding="utf-8", newline="") as file:
            kept = (row for row in csv.DictReader(file) if "measure" in row)
            rows = [row for row in kept if row["runs"] == str(args.runs)]
    done = {(row["setting"], int(row["prompts"])) for row in rows}
    for pair in PAIRS:
        if (pair.name, pair.setting.n) not in done and (args.only or "") in pair.name:
            rows += measure(pair, args.runs)
            write_csv(path, rows)
            print(f"{pair.name}, {pair.setting.n} prompts: {rows[-1]['seconds']} s", flush=True)
    write_text(args.output / "differences.md", report(rows, args.runs))


if __name__ == "__main__":
    main()
