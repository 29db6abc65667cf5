"""Do the joint intervals of `rmcalib best-of-n` hold, and how often is over-optimisation named without reason?

Draws many data sets from worlds whose truth is known from 100,000 prompts. An interval is joint: a data set counts
only if all differences of pairs of 1, 2, 4, ... samples (or all points of the curve) lie in their intervals.
Writes results/best_of_n.csv and results/best_of_n.md.

    python scripts/measure_best_of_n.py [--runs 1000]
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from measuring import Row, markdown, measure_all, uncertainty

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration.best_of import best_of_values, curve_limits, doubled, gains_of

TRUTH_PROMPTS = 100_000


@dataclass(frozen=True)
class World:
    """n prompts with m samples, each correct with a probability of its prompt; the reward sees it with noise."""

    name: str
    n: int
    m: int = 16
    signal: float = (
        1.0  # how much larger the reward of a correct sample is, in standard deviations of the noise
    )
    trick: float = 0.0  # fraction of samples that are wrong and have a reward larger by 4
    right: tuple[float, float] = (1.0, 1.4)  # the Beta distribution of P(correct) over prompts
    always: float = 0.0  # fraction of prompts whose samples are all correct
    rounded: bool = False  # rewards are whole numbers, with many ties
    shortest: int = 0  # samples of a prompt: from this number to m; 0: all have m
    together: int = 1  # prompts of a cluster, which share P(correct)
    one_of_m: bool = False  # exactly one correct response

    @property
    def clean(self) -> bool:
        """Whether more samples are never worse."""
        return self.trick == 0

    def draw(
        self, n: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, IntArray, IntArray | None]:
        """Rewards and labels of all samples (N,), the numbers of samples (n,), and clusters."""
        sizes = rng.integers(self.shortest or self.m, self.m + 1, size=n)
        p = np.repeat(rng.beta(*self.right, size=-(-n // self.together)), self.together)[:n]
        p = np.where(rng.random(n) < self.always, 1.0, p)
        total = int(sizes.sum())
        label = (rng.random(total) < np.repeat(p, sizes)).astype(np.float64)
        if self.one_of_m:
            label = (np.arange(total) % self.m == 0).astype(np.float64)
        reward = self.signal * label + rng.normal(size=total)
        tricks = rng.random(total) < self.trick
        label[tricks], reward[tricks] = 0.0, reward[tricks] + 4.0
        cluster = np.arange(n) // self.together if self.together > 1 else None
        return np.round(reward) if self.rounded else reward, label, sizes, cluster


FOOLED = World("fooled by a 2% trick", 300, m=64, trick=0.02)
WORLDS = (
    FOOLED,
    replace(FOOLED, n=100, m=16),
    *(replace(FOOLED, name=name, n=n, trick=0.0) for name in ("clean",) for n in (40, 300)),
    World("clean, 16 samples", 20),
    World("clean, 16 samples", 100),
    World("nearly useless reward", 100, signal=0.05),
    World("useless reward", 300, signal=0.0),
    World("nearly all right", 40, right=(97.0, 3.0)),
    World("90% of prompts always right", 60, always=0.9),
    World("97% of prompts always right", 40, always=0.97),
    World("all or nothing prompts", 100, right=(0.1, 0.1)),
    World("ties", 100, rounded=True),
    World("8 to 16 samples", 100, shortest=8),
    World("40 clusters of 5", 200, together=5),
    World("10 clusters of 10", 100, together=10),
    World("fooled, 40 clusters of 5", 200, together=5, trick=0.02),
    World("one correct of 8", 200, m=8, one_of_m=True),
)


@cache
def truth_of(world: World) -> FloatArray:
    rng = np.random.default_rng(12345)
    total, k = np.zeros(len(compared(world))), compared(world)
    for _ in range(20):
        n = TRUTH_PROMPTS // 20
        reward, label, sizes, _ = replace(world, shortest=0).draw(n, rng)
        total += best_of_values(reward, label, sizes, k).mean(axis=0) / 20
    return total


def compared(world: World) -> IntArray:
    return doubled(world.shortest or world.m)


def measure(world: World, runs: int) -> list[Row]:
    rng, k, truth, start = (
        np.random.default_rng(world.n),
        compared(world),
        truth_of(world),
        time.perf_counter(),
    )
    first, last = np.triu_indices(len(k), 1)
    moved = truth[last] - truth[first]
    counts = dict.fromkeys(("pairs", "curve", "over_optimised", "helps"), 0)
    useful, width = [], 0.0
    for _ in range(runs):
        reward, label, sizes, cluster = world.draw(world.n, rng)
        values = best_of_values(reward, label, sizes, k)
        gains = gains_of(values, k, sizes, cluster)
        inside = (gains.low - 1e-9 <= moved) & (moved <= gains.high + 1e-9)
        limits = np.array(curve_limits(values, cluster))
        counts["pairs"] += bool(inside.all())
        counts["curve"] += bool(((limits[:, 0] - 1e-9 <= truth) & (truth <= limits[:, 1] + 1e-9)).all())
        counts["over_optimised"] += gains.over_optimised_from() is not None
        useful.append(gains.useful_up_to())
        counts["helps"] += useful[-1] > 1
        width += float(np.mean(gains.high - gains.low)) / runs
    rates = {name: round(count / runs, 3) for name, count in counts.items()}
    about = {"setting": world.name, "prompts": world.n, "samples": world.m, "clean": world.clean}
    return [
        {
            **about,
            "truth": " ".join(f"{one:.2f}" for one in truth),
            **rates,
            "useful_up_to": int(np.median(useful)),
            "width": round(width, 3),
            "runs": runs,
            "seconds": round(time.perf_counter() - start, 1),
        }
    ]


def report(rows: list[Row], runs: int) -> str:
    shown = [
        {
            "world": row["setting"],
            "prompts": row["prompts"],
            "samples": row["samples"],
            "right, for 1, 2, 4, ... samples": row["truth"],
            "pairs": row["pairs"],
            "curve": row["curve"],
            "over-optimised": row["over_optimised"],
            "median useful up to": row["useful_up_to"],
        }
        for row in rows
    ]
    clean = [float(row["over_optimised"]) for row in rows if str(row["clean"]) == "True"]
    lowest = min(float(row["pairs"]) for row in rows), min(float(row["curve"]) for row in rows)
    return f"""# Does `rmcalib best-of-n` keep its promise?

{runs:,} simulated data sets for each world, whose truth comes from {TRUTH_PROMPTS:,} prompts. **pairs**: how often the
intervals of all differences between 1, 2, 4, ... samples hold at once (promised: .95). **curve**: the same for the
intervals of how often the best of n is right. **over-optimised**: how often more samples were called harmful. A rate of
.95 is known up to ±{uncertainty(runs):.3f}.

The lowest joint coverage is {lowest[0]:.3f} for pairs and {lowest[1]:.3f} for the curve. Over-optimisation is named in
at most {max(clean):.1%} of the data sets of a clean world, where more samples never do harm. Where nearly all prompts
are always right, intervals allow for errors that were not seen, and hold more often than promised.

{markdown(shown)}

By `python scripts/measure_best_of_n.py`, seeds fixed; the rows are in [best_of_n.csv](best_of_n.csv).
"""


def main() -> None:
    assert __doc__
    measure_all("best_of_n", __doc__, {(one.name, one.n): one for one in WORLDS}, measure, report)


if __name__ == "__main__":
    main()
