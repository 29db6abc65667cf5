"""How often do the 95% intervals of a difference contain the truth? Two forecasts of the same prompts.

Draws many data sets from known truths, forecasts them twice, and counts how often the interval of the
difference contains the one of unlimited data, and how often it excludes 0. Writes results/differences.csv
after each setting, and results/differences.md. An interrupted run continues where it stopped.

    python scripts/measure_differences.py [--runs 400] [--only NAME] [--fresh]
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, first_and_next
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
from measure_statistics import (
    ACCURATE,
    LOW,
    ODD,
    PLAIN,
    RESAMPLES,
    RESULTS,
    Setting,
    coverage_table,
    first_shares,
    markdown,
    softmax,
    true_values,
    truth_prompts,
)

SMOOTH_RUNS = 200  # data sets for the smooth ECE, which takes longer than all others together
SMOOTH = ("four responses: 1 and 1, nearly the same", "four responses: 1 and 1.5", "accuracy .97: 1 and 1.5")
SMOOTH_PROMPTS = 500  # it is measured in these settings, with at most so many prompts
MEASURES = ("accuracy", "overconfidence", "lost_information", "ece", "confidence_ece", "smooth_ece", "nll")


@dataclass(frozen=True)
class Pair:
    """Two forecasts of the same prompts: factors on the true rewards, and noise of each forecast's own."""

    name: str
    setting: Setting
    factors: tuple[float, float]
    noise: float = 0.0  # standard deviation, before the factor

    def draw(self, n: int, rng: np.random.Generator) -> tuple[list[FloatArray], BoolArray, FloatArray]:
        """Rewards (n, M) of the two forecasts, which of them exist, and the true probabilities."""
        rewards, exists, truth = self.setting.draw(n, rng)
        own = rng.normal(size=(2, *rewards.shape)) * self.noise
        return [f * (rewards + e) for f, e in zip(self.factors, own, strict=True)], exists, truth

    @property
    def measures(self) -> tuple[str, ...]:
        """What is measured in this setting."""
        wanted = self.name in SMOOTH and self.setting.n <= SMOOTH_PROMPTS
        return tuple(name for name in MEASURES if wanted or name != "smooth_ece")

    def true_differences(self) -> dict[str, float]:
        """The differences of unlimited data."""
        if self.factors[0] == self.factors[1]:
            return dict.fromkeys(MEASURES, 0.0)
        rewards, exists, truth = self.draw(truth_prompts(self.setting), np.random.default_rng(12345))
        a, b = (true_values(one, exists, truth) for one in rewards)
        return {name: b[name] - a[name] for name in MEASURES}


def four(n: int, a: float, b: float, noise: float = 0.0) -> Pair:
    how = {0.0: "", 0.1: ", nearly the same", 1.0: ", different models"}[noise]
    return Pair(f"four responses: {a:g} and {b:g}{how}", Setting("four", n), (a, b), noise)


PAIRS = (
    *(four(n, 1, 1, 0.1) for n in (100, 500)),
    *(four(n, 1, 1.5) for n in (100, 500, 2000)),
    *(four(n, 1.5, 1.5, 0.1) for n in (100, 500)),
    *(four(n, 0.7, 1.2) for n in (100, 500)),
    four(100, 0.05, 1),
    *(four(n, 0.7, 1.4, 1.0) for n in (100, 500)),
    four(100, 0.7, 0.7, 1.0),
    Pair("pairs: 0.5 and 1", Setting("pairs", 350, m=2), (0.5, 1.0)),
    Pair("ten responses: 1 and 1.5", Setting("ten", 500, m=10), (1.0, 1.5)),
    Pair("two to ten responses: 1 and 1.5", Setting("varying", 500, m=0), (1.0, 1.5)),
    Pair("25% label noise: 1 and 1.5", Setting("noise", 500, noise=0.25), (1.0, 1.5)),
    Pair("heavy tails: 1 and 1.5", Setting("heavy", 500, heavy=True), (1.0, 1.5)),
    Pair("saturated: 1 and 8", Setting("saturated", 500), (1.0, 8.0)),
    Pair("accuracy .97: 1 and 1.5", Setting("accurate", 183, advantage=5.55), (1.0, 1.5)),
    Pair(
        "accuracy .97: 1 and 1, different models", Setting("accurate", 183, advantage=5.55), (1.0, 1.0), 1.0
    ),
    *(
        Pair(
            f"{name}, accuracy {accuracy}: {a:g} and {b:g}, nearly the same",
            Setting(f"{name} {accuracy}", n, m=m, advantage=advantage),
            (a, b),
            0.1,
        )
        for name, m, accuracy, advantage in ACCURATE
        for n in (28, 100)
        for a, b in ((1.0, 1.0), (1.0, 1.5))
    ),
    *(Pair(f"four, {what}: 1 and 1.5", Setting(what, 100, **how), (1.0, 1.5)) for what, how in ODD.items()),
)


def differences(
    pair: list[FloatArray], exists: BoolArray, winner: IntArray, seed: int, *, smooth: bool = True
) -> dict[str, Difference]:
    """The differences of one data set, as `rmcalib compare` computes them."""
    groups = np.nonzero(exists)[0]
    y = (np.arange(exists.shape[1]) == winner[:, None])[exists].astype(np.float64)
    prompts = np.arange(len(exists))
    scaled = [rewards - rewards.max(axis=1, keepdims=True) for rewards in pair]
    a, b = (np.where(exists, one, 0.0) / np.abs(one[exists]).max() for one in scaled)
    same_order = np.allclose(a, b, rtol=1e-9, atol=1e-12)  # one is a multiple of the other
    found: list[dict[str, Any]] = []
    for rewards in pair:
        p_all, share = softmax(rewards, exists), first_shares(rewards, exists)
        p, confidence = p_all[exists], p_all.max(axis=1)
        right = share[prompts, winner]
        rows = first_and_next(rewards[exists], exists.sum(axis=1))
        losses = {
            "accuracy": share,
            "overconfidence": confidence[:, None] - share,
            "nll": -special.log_softmax(np.where(exists, rewards, -np.inf), axis=1),
        }
        how: dict[str, Any] = {"resamples": RESAMPLES, "rng": seed}
        found.append(
            {
                # What is observed, and what would be if the first choice, or the runner-up, were correct.
                **{
                    name: np.stack([loss[prompts, winner], *(loss[exists][one] for one in rows)])
                    for name, loss in losses.items()
                },
                "lost_information": scale_loss(rewards[exists], y, groups),
                "ece": binned_inference(p, y, groups, PLAIN, one_per_group=True, **how),
                "confidence_ece": binned_inference(
                    np.minimum(confidence, share.max(axis=1)),
                    right,
                    prompts,
                    PLAIN,
                    one_per_group=False,
                    share=share.max(axis=1),
                    **how,
                ),
                "smooth_ece": smooth_inference(p, y, groups, one_per_group=True, **how) if smooth else None,
            }
        )
    result = {}
    for name in MEASURES:
        a, b = found[0][name], found[1][name]
        if a is None:
            continue
        if isinstance(a, np.ndarray):
            base = b[1] - a[1]
            jump = np.abs(b[2] - a[2] - base)
            others = [base - jump, base + jump]
            if name in ("accuracy", "overconfidence"):
                others = [] if same_order else [base - 1, base + 1]
            result[name] = mean_difference(a[0], b[0], base=base, others=others)
        elif isinstance(a, Inference):
            centres = (a.centre, b.centre)
            result[name] = difference(a.interval(), b.interval(), a.influence, b.influence, centres=centres)
        else:
            centres = (a.lost_centre, b.lost_centre)
            result[name] = difference(a.lost, b.lost, a.lost_influence, b.lost_influence, centres=centres)
    return result


def measure(pair: Pair, runs: int) -> list[dict[str, Any]]:
    start, n, true = time.process_time(), pair.setting.n, pair.true_differences()
    most_smooth = SMOOTH_RUNS if "smooth_ece" in pair.measures else 0
    held, without, against, width, done = (dict.fromkeys(MEASURES, 0.0) for _ in range(5))
    for run in range(runs):
        rng = np.random.default_rng([run, n, PAIRS.index(pair)])
        rewards, exists, truth = pair.draw(n, rng)
        winner = (np.cumsum(truth, axis=1) > rng.random((n, 1))).argmax(axis=1)
        for name, found in differences(rewards, exists, winner, run, smooth=run < most_smooth).items():
            excluded = not found.low <= 0 <= found.high
            held[name] += found.low - 1e-9 <= true[name] <= found.high + 1e-9
            without[name] += excluded
            against[name] += excluded != (found.p_value <= 0.05)
            width[name] += found.high - found.low
            done[name] += 1
    return [
        {
            "setting": pair.name,
            "prompts": n,
            "measure": name,
            "true_difference": round(true[name], 5),
            "coverage": round(held[name] / done[name], 4),
            "excludes_0": round(without[name] / done[name], 4),
            "contradictions": int(against[name]),
            "width": round(width[name] / done[name], 5),
            "runs": int(done[name]),
            "seconds": round(time.process_time() - start, 1),
        }
        for name in pair.measures
    ]


def report(rows: list[dict[str, Any]], runs: int) -> str:
    worst = min(rows, key=lambda row: float(row["coverage"]))
    none = [float(row["excludes_0"]) for row in rows if float(row["true_difference"]) == 0]
    none = none or [float("nan")]
    power = [
        {"setting": row["setting"], "prompts": row["prompts"], "measure": row["measure"],
         "true difference": row["true_difference"], "excludes 0": row["excludes_0"], "width": row["width"]}
        for row in rows if row["measure"] in ("overconfidence", "lost_information", "ece")
    ]  # fmt: skip
    seconds = sum({(row["setting"], row["prompts"]): float(row["seconds"]) for row in rows}.values())
    against = sum(int(row["contradictions"]) for row in rows)
    low = [row for row in rows if float(row["coverage"]) < LOW]
    return f"""# Coverage of the intervals of a difference

Made by `scripts/measure_differences.py`: {runs} simulated data sets per setting ({SMOOTH_RUNS} for the smooth
ECE), {RESAMPLES} resamples each, in {seconds / 60:.0f} minutes on one core. All intervals have the level 95%.
A coverage from {runs} data sets is uncertain by about {1.96 * (0.95 * 0.05 / runs) ** 0.5:.3f}.

**Lowest coverage: {float(worst["coverage"]):.3f}, for {worst["measure"]} ({worst["setting"]},
{worst["prompts"]} prompts).** {len(low)} of {len(rows)} coverages are below {LOW}. Without a true
difference, the intervals exclude 0 in {min(none):.3f} to {max(none):.3f} of the data sets. Interval and test
disagree about 0 in {against} of {sum(int(row["runs"]) for row in rows)} data sets and measures.

Each setting has two forecasts of the same prompts. Its name gives the factors by which they multiply the true
rewards. A factor of 1 is calibrated, and 0.05 gives every response nearly the same probability.

- "Nearly the same": each forecast has its own noise with standard deviation 0.1.
- "Different models": each forecast has its own noise with standard deviation 1.
- Differences of calibration errors and of lost information combine the intervals of the two values
  (`rmcalib.calibration.difference`). Differences of means are paired (`mean_difference`).
- A coverage above 0.97 means that an interval is wider than necessary. This is the case for errors if neither
  of the two is significantly above 0.

## Coverage

The fraction of data sets whose interval contains the true difference, which is that of unlimited data. Bold:
below 0.93.

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
    path = args.output / "differences.csv"
    rows: list[dict[str, Any]] = []
    if path.exists() and not args.fresh:
        with path.open(encoding="utf-8", newline="") as file:
            kept = (row for row in csv.DictReader(file) if "measure" in row)
            rows = [row | {"prompts": int(row["prompts"])} for row in kept]
    done = {(row["setting"], row["prompts"]) for row in rows}
    for pair in PAIRS:
        if (pair.name, pair.setting.n) not in done and (args.only or "") in pair.name:
            rows += measure(pair, args.runs)
            write_csv(path, rows)
            print(f"{pair.name}, {pair.setting.n} prompts: {rows[-1]['seconds']} s", flush=True)
    order = [(pair.name, pair.setting.n) for pair in PAIRS]
    rows.sort(key=lambda row: order.index((row["setting"], row["prompts"])))
    write_csv(path, rows)
    write_text(args.output / "differences.md", report(rows, args.runs))


if __name__ == "__main__":
    main()
