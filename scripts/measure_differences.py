"""How often do the 95% intervals of a difference contain the truth? Two forecasts of the same prompts.

Draws many data sets from known truths, forecasts them twice, and counts how often the interval of the
difference contains the one of unlimited data, and how often it excludes 0. Writes results/differences.csv
after each setting, and results/differences.md. An interrupted run continues where it stopped.

    python scripts/measure_differences.py [--runs 400] [--only NAME] [--minutes 10] [--fresh]
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from measure_statistics import HOW, LOW, coverage_table, is_low
from measuring import markdown, measure_all, uncertainty
from worlds import ACCURATE, ODD, Setting, part_of, true_values, truth_prompts

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.calibration.estimates import difference_of, size_difference_of
from rmcalib.calibration.intervals import Difference
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.table import estimate_of

MEASURES = (
    "accuracy",
    "pairwise_accuracy",
    "overconfidence",
    "lost_information",
    "ece",
    "confidence_ece",
    "nll",
    "brier",
)


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
    Pair("pairs: the same plus noise of 0.001", Setting("pairs", 600, m=2), (1.0, 1.0), 0.001),
    Pair(
        "saturated pairs: the same plus noise of 0.001",
        Setting("saturated pairs", 200, m=2, deviation=20.0, surely_wrong=0.03),
        (1.0, 1.0),
        0.001,
    ),
    Pair("ten responses: 1 and 1.5", Setting("ten", 500, m=10), (1.0, 1.5)),
    Pair("two to ten responses: 1 and 1.5", Setting("varying", 500, m=0), (1.0, 1.5)),
    Pair("25% label noise: 1 and 1.5", Setting("noise", 500, noise=0.25), (1.0, 1.5)),
    Pair("heavy tails: 1 and 1.5", Setting("heavy", 500, heavy=3), (1.0, 1.5)),
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


def differences(pair: list[FloatArray], exists: BoolArray, winner: IntArray) -> dict[str, Difference]:
    """The differences of one data set, as `rmcalib compare` computes them."""
    parts = [part_of(rewards, exists, winner) for rewards in pair]
    found = {}
    for name in MEASURES:
        estimates = [estimate_of(catalogue()[name], part, HOW) for part in parts]
        one = None if None in estimates else difference_of(*estimates)  # type: ignore[arg-type]
        if one is not None:
            found[name] = one
    return found


def measure(pair: Pair, runs: int) -> list[dict[str, Any]]:
    start, n, true = time.process_time(), pair.setting.n, pair.true_differences()
    held, without, against, width, done = (dict.fromkeys(MEASURES, 0.0) for _ in range(5))
    for run in range(runs):
        rng = np.random.default_rng([run, n, PAIRS.index(pair)])
        rewards, exists, truth = pair.draw(n, rng)
        winner = (np.cumsum(truth, axis=1) > rng.random((n, 1))).argmax(axis=1)
        for name, found in differences(rewards, exists, winner).items():
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
        for name in MEASURES
    ]


def opposite_gaps(runs: int, seed: int = 0) -> list[dict[str, Any]]:
    """How often one of two models with gaps of the same size is called better: it should be at most 5%."""
    rows = []
    for n in (100, 400, 1000):
        for same in (True, False):
            winners = 0
            for run in range(runs):
                rng = np.random.default_rng([run, n, int(same), seed])
                right = rng.random(n) < 0.7
                estimates = []
                for gap in (-0.06, 0.06):
                    own = right if same else rng.random(n) < 0.7
                    confidence = np.clip(0.7 + gap + rng.normal(0, 0.05, n), 0.51, 0.99)
                    margin = np.log(confidence / (1 - confidence))
                    # Which response is right is the same for both; the choices may differ.
                    flip = np.where(own == right, 1.0, -1.0)
                    rewards = np.column_stack([margin * flip, np.zeros(n)])
                    part = part_of(rewards, np.ones((n, 2), dtype=bool), (~right).astype(int))
                    estimates.append(estimate_of(catalogue()["overconfidence"], part, HOW))
                found = size_difference_of(*estimates)  # type: ignore[arg-type]
                winners += found is not None and not found.low <= 0 <= found.high
            rows.append(
                {
                    "prompts": n,
                    "choices": "the same" if same else "different",
                    "winner": f"{winners / runs:.3f}",
                }
            )
    return rows


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
    low = [row for row in rows if is_low(row)]
    of_gaps = min(runs, 300)
    gaps = markdown(opposite_gaps(of_gaps))
    return f"""# Coverage of the intervals of a difference

Made by `scripts/measure_differences.py`: {runs} simulated data sets per setting, {HOW.resamples} resamples
each, in {seconds / 60:.0f} minutes on one core. All intervals have the level 95%.
A coverage from {runs} data sets is uncertain by about {uncertainty(runs):.3f}.

**Lowest coverage: {float(worst["coverage"]):.3f}, for {worst["measure"]} ({worst["setting"]},
{worst["prompts"]} prompts).** {len(low)} of {len(rows)} coverages are more than two standard errors
below {LOW}. Without a true difference, the intervals exclude 0 in {min(none):.3f} to {max(none):.3f} of the data sets.
Interval and test
disagree about 0 in {against} of {sum(int(row["runs"]) for row in rows)} data sets and measures.

Each setting has two forecasts of the same prompts. Its name gives the factors by which they multiply the true
rewards. A factor of 1 is calibrated, and 0.05 gives every response nearly the same probability.

- "Nearly the same": each forecast has its own noise with standard deviation 0.1.
- "Different models": each forecast has its own noise with standard deviation 1.
- Differences of calibration errors and of lost information combine the intervals of the two values
  (MOVER). Differences of means are paired, prompt by prompt.
- A coverage above 0.97 means that an interval is wider than necessary. This is the case for errors if neither
  of the two is significantly above 0.

## Coverage

The fraction of data sets whose interval contains the true difference, which is that of unlimited data. Bold:
more than two standard errors below 0.93.

{coverage_table(rows)}

## Two gaps of the same size

Model A has a gap of −6 points and model B one of +6. How often is one called better, in {of_gaps} data sets?

{gaps}

## Power and width

{markdown(power)}
"""


def main() -> None:
    measure_all(
        "differences", __doc__, {(pair.name, pair.setting.n): pair for pair in PAIRS}, measure, report
    )


if __name__ == "__main__":
    main()
