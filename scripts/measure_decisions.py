"""Does the guarantee of `rmcalib decide` hold? Violations in simulated data.

Draws many data sets from a known truth. In each, `safe_threshold` picks a threshold; it is violated if the
true error rate of accepted responses is above alpha. That may happen in at most 5% of the data sets. Two
naive rules are shown for comparison. A second table has prompts that belong together. Writes
results/decisions.csv and results/decisions.md.

    python scripts/measure_decisions.py [--runs 2000]
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measuring import markdown, parser_of, uncertainty
from scipy.special import softmax

from rmcalib._util.arrays import BoolArray, FloatArray
from rmcalib._util.files import write_csv, write_text
from rmcalib.repair.calibrator import log_odds
from rmcalib.repair.decisions import THRESHOLDS, safe_threshold

MANY = 1_000_000
Draw = Callable[[np.random.Generator, int], tuple[FloatArray, FloatArray]]


class Case(NamedTuple):
    """One row of the table: what the model is like, alpha, and the number of prompts."""

    model: str
    alpha: float
    prompts: int


def plackett_luce(scale: float, spread: float) -> Draw:
    """Draw four responses with normal utilities; the rewards are `scale` times the true ones."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        utility = spread * rng.normal(size=(n, 4))
        truth, stated = (softmax(factor * utility, axis=1).max(axis=1) for factor in (1.0, scale))
        return log_odds(np.log(stated)), 1 - truth

    return draw


def cliff(alpha: float) -> Draw:
    """Draw choices that are surely safe, or so often wrong that accepting both is just above alpha."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        sure = rng.random(n) < 0.5
        return np.where(sure, 3.05, 1.05), np.where(sure, 0.0, 2.02 * alpha)

    return draw


def reversed_at_the_top(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    """Draw a model whose surest choices are worse than the next ones: 20% wrong, then 4%, then more."""
    odds = rng.normal(1.5, 1.5, size=n)
    wrong = np.where(odds > 4, 0.2, np.where(odds > 2, 0.04, 0.25))
    return odds, wrong


def random_guess(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    """Draw a model whose probabilities say nothing about the chance of being wrong, which is 10.5%."""
    return rng.normal(2.0, 1.0, size=n), np.full(n, 0.105)


def draws(alpha: float) -> dict[str, Draw]:
    return {
        "calibrated": plackett_luce(1.0, 2.5),
        "over-confident (x3)": plackett_luce(3.0, 2.5),
        "over-confident (x10)": plackett_luce(10.0, 2.5),
        "under-confident (x0.3)": plackett_luce(0.3, 2.5),
        "nearly always right": plackett_luce(1.0, 8.0),
        "just above alpha, after a cliff": cliff(alpha),
        "worst where it is surest": reversed_at_the_top,
        "knows nothing, 10.5% wrong": random_guess,
    }


def cases() -> list[Case]:
    return [Case(model, alpha, n) for model in draws(0.1) for alpha in (0.05, 0.1) for n in (300, 1763)]


def measure(case: Case, runs: int, rng: np.random.Generator) -> dict[str, Any]:
    draw = draws(case.alpha)[case.model]
    risk = true_risk(*draw(rng, MANY))
    violated = {"fixed sequence": 0, "observed rate": 0, "best bound": 0}
    accepted, found_one = 0.0, 0
    for _ in range(runs):
        odds, chance = draw(rng, case.prompts)
        wrong = rng.random(case.prompts) < chance
        choice = safe_threshold(odds, wrong, alpha=case.alpha)
        picks = {"fixed sequence": choice.threshold, **naive_picks(odds, wrong, case.alpha)}
        for rule, threshold in picks.items():
            violated[rule] += threshold is not None and risk[threshold] > case.alpha
        accepted += choice.accepted
        found_one += choice.threshold is not None
    return {
        **case._asdict(),
        "threshold found": round(found_one / runs, 3),
        "accepted": round(accepted / runs, 3),
        **{f"violated: {rule}": round(count / runs, 4) for rule, count in violated.items()},
    }


def true_risk(odds: FloatArray, chance: FloatArray) -> dict[float, float]:
    """Return the chance of being wrong given p >= t, for each threshold."""
    order = np.argsort(-odds)
    counts = np.searchsorted(-odds[order], -grid_odds(), side="right")
    total = np.concatenate([[0.0], np.cumsum(chance[order])])[counts]
    return dict(zip(THRESHOLDS, (total / np.maximum(counts, 1)).tolist(), strict=True))


def naive_picks(odds: FloatArray, wrong: BoolArray, alpha: float) -> dict[str, float | None]:
    """Return the lowest thresholds whose observed error rate, or whose exact bound, is at most alpha."""
    from scipy.special import betaincinv

    order = np.argsort(-odds)
    counts = np.searchsorted(-odds[order], -grid_odds(), side="right")
    errors = np.concatenate([[0], np.cumsum(wrong[order])])[counts]
    rate = np.where(counts > 0, errors / np.maximum(counts, 1), 1.0)
    bound = np.where(counts > errors, betaincinv(errors + 1, np.maximum(counts - errors, 1), 0.95), 1.0)
    picks = {}
    for rule, measured in (("observed rate", rate), ("best bound", bound)):
        passed = np.flatnonzero(measured <= alpha)
        picks[rule] = THRESHOLDS[passed[-1]] if len(passed) else None
    return picks


def grid_odds() -> FloatArray:
    with np.errstate(divide="ignore"):
        return log_odds(np.log(np.array(THRESHOLDS)))


def write(
    rows: list[dict[str, Any]], together: list[dict[str, Any]], runs: int, of_clusters: int, folder: Path
) -> None:
    write_csv(folder / "decisions.csv", rows)
    worst = max(rows, key=lambda row: row["violated: fixed sequence"])
    text = f"""# Decisions: does the guarantee of `rmcalib decide` hold?

Made by `scripts/measure_decisions.py` from {runs:,} simulated data sets per row. The threshold guarantees
that accepted responses are wrong at most `alpha` of the time, with 95% confidence. This is violated if the
true error rate is above `alpha`, which may happen in at most 5% of the data sets. The largest rate here is
{worst["violated: fixed sequence"]:.4f} ({worst["model"]}, alpha {worst["alpha"]:g}, {worst["prompts"]:,} \
prompts); a rate of 0.05 is uncertain by ±{uncertainty(runs):.4f}.

The last two columns show two other rules: the lowest threshold whose observed error rate is at most `alpha`,
and the lowest one whose exact 95% bound is at most `alpha`. `accepted` is the mean fraction of accepted
prompts.
"""
    more = f"""## Prompts that belong together

The fraction of violations at alpha = 0.1, and in brackets how often there is a threshold, in {of_clusters} data sets
each (a rate of 0.05 is uncertain by ±{uncertainty(of_clusters):.3f}). Of the prompts of a question, half or four fifths
share what decides whether their response is wrong. `safe_threshold` gets the question as the cluster. With fewer than
29 clusters, there is no threshold, because the sample may have missed all clusters that are wrong together.

{markdown(together)}
"""
    write_text(folder / "decisions.md", f"{text}\n{markdown(rows)}\n\n{more}")


CLUSTERS = {
    "80 × 5": [5] * 80,
    "300 × 5": [5] * 300,
    "100 × 15": [15] * 100,
    "20 × 15": [15] * 20,
    "5 × 60": [60] * 5,
    "one has a tenth of 300": [30] + [1] * 270,
    "four have 20 of 300": [20] * 4 + [1] * 220,
    "one has half of 300": [150] + [1] * 150,
}
"""The numbers of prompts of each question."""


def measure_clusters(runs: int, alpha: float = 0.1) -> list[dict[str, Any]]:
    """Count violations if prompts of a question are wrong together: a share of them has the same uniform number."""
    rows = []
    for model in ("calibrated", "just above alpha, after a cliff", "knows nothing, 10.5% wrong"):
        draw = draws(alpha)[model]
        risk = true_risk(*draw(np.random.default_rng(1), MANY))
        for shared in (0.5, 0.8):
            line: dict[str, Any] = {"model": model, "shared": shared}
            for name, sizes in CLUSTERS.items():
                cluster = np.repeat(np.arange(len(sizes)), sizes)
                found, violated = 0, 0
                for run in range(runs):
                    rng = np.random.default_rng([run, len(sizes), sum(sizes)])
                    odds, chance = draw(rng, len(cluster))
                    together = rng.random(len(cluster)) < shared
                    number = np.where(together, rng.random(len(sizes))[cluster], rng.random(len(cluster)))
                    threshold = safe_threshold(odds, number < chance, alpha=alpha, cluster=cluster).threshold
                    found += threshold is not None
                    violated += threshold is not None and risk[threshold] > alpha
                line[name] = f"{violated / runs:.3f} ({found / runs:.2f})"
            rows.append(line)
            print(line, flush=True)
    return rows


def main() -> None:
    parser = parser_of(__doc__, runs=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    of_clusters = max(args.runs // 10, 1)
    together = measure_clusters(of_clusters)
    seeds = np.random.SeedSequence(args.seed).spawn(len(cases()))
    rows = []
    for case, seed in zip(cases(), seeds, strict=True):
        rows.append(measure(case, args.runs, np.random.default_rng(seed)))
        print(rows[-1], flush=True)
    write(rows, together, args.runs, of_clusters, args.output)


if __name__ == "__main__":
    main()
