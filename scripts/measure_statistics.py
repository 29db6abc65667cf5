"""How often do the 95% intervals of a report contain the truth, and how often do its tests reject?

Draws many data sets from known truths and counts how often each interval contains the value of unlimited
data. The settings differ in more than the scale of the rewards: numbers of responses, label noise, mixtures
of over- and under-confident prompts, heavy tails, saturated and nearly uniform forecasts, ties, and models
that are nearly always right. Writes results/statistics.csv after each setting, and results/statistics.md. An
interrupted run continues where it stopped.

    python scripts/measure_statistics.py [--runs 400] [--only NAME] [--again MEASURE] [--fresh]
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, first_and_next
from rmcalib._util.files import write_csv, write_text
from rmcalib._util.markdown import markdown_table
from rmcalib.calibration import (
    ErrorOptions,
    Inference,
    Interval,
    ScaleLoss,
    bin_edges,
    bin_index,
    binned_error,
    binned_inference,
    cross_fit,
    ece_interval,
    ece_null,
    fit_top_1_temperature,
    jump_interval,
    mean_interval,
    pairwise_inference,
    proportion_interval,
    scale_loss,
    smooth_inference,
)
from rmcalib.calibration._binning import grouped_sums, unpack_bins
from rmcalib.calibration._smooth_ece import cosine_coefficients, fixed_points, residual_grid

RESULTS = Path(__file__).resolve().parents[1] / "results"
RESAMPLES = 199
BEFORE = 100  # data sets on which intervals are compared with the earlier ones, and with separate tests
TRUTH_PROMPTS = 200_000
PLAIN, MASS, SQUARE = (
    ErrorOptions(),
    ErrorOptions(spacing="mass"),
    ErrorOptions(norm=2, debias=True),
)
LOW, HIGH = 0.93, 0.97


@dataclass(frozen=True)
class Setting:
    """A known truth: n prompts with m responses (0: 2 to 10), and how the forecast differs from it."""

    name: str
    n: int
    m: int = 4
    confidence: float = 1.0  # the factor by which the rewards exceed those of the truth
    noise: float = 0.0  # fraction of labels drawn at random
    advantage: float = 0.0  # of one response of each prompt, which makes the model accurate
    mixed: bool = False  # half of the prompts at twice the scale, half at half of it
    heavy: bool = False  # rewards with Student's t distribution with 3 degrees of freedom
    deviation: float = 1.5  # standard deviation of the true rewards, without an advantage
    sure: float = 0.0  # fraction of prompts whose best response is better by 30
    surely_wrong: float = 0.0  # fraction of prompts whose second response is the correct one
    tied: float = 0.0  # fraction of prompts whose two best responses are equally good

    def draw(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, BoolArray, FloatArray]:
        """Rewards (n, M), which of them exist, and the true probabilities of being correct."""
        width = self.m or 10
        exists = np.ones((n, width), dtype=bool)
        if not self.m:
            exists = np.arange(width) < rng.integers(2, 11, size=(n, 1))
        if self.heavy:
            utility = 1.2 * rng.standard_t(3, size=(n, width))
        else:
            utility = rng.normal(scale=1.0 if self.advantage else self.deviation, size=(n, width))
        if self.advantage:
            utility[np.arange(n), rng.integers(width, size=n)] += self.advantage
        prompts, order = np.arange(n), np.argsort(np.where(exists, -utility, np.inf), axis=1)
        best, second = order[:, 0], order[:, 1]
        utility[prompts, second] = np.where(
            rng.random(n) < self.tied, utility[prompts, best], utility[prompts, second]
        )
        utility[prompts, best] += np.where(rng.random(n) < self.sure, 30.0, 0.0)
        truth = softmax(utility, exists)
        wrong = rng.random(n) < self.surely_wrong
        truth[wrong] = np.arange(width) == second[wrong, None]
        truth = (1 - self.noise) * truth + self.noise * exists / exists.sum(axis=1, keepdims=True)
        scale = np.where(rng.random((n, 1)) < 0.5, 2.0, 0.5) if self.mixed else self.confidence
        return scale * utility, exists, truth


ACCURATE = (
    ("pairs", 2, ".97", 4.33),
    ("pairs", 2, ".995", 6.26),
    ("four", 4, ".97", 5.5),
    ("four", 4, ".995", 7.38),
)
"""Names, numbers of responses, accuracies, and the advantages that lead to them."""

ODD: dict[str, dict[str, Any]] = {
    "10% saturated": {"sure": 0.1},
    "5% surely wrong": {"advantage": 5.0, "surely_wrong": 0.05},
    "nearly no information": {"deviation": 0.1},
    "20% tied": {"tied": 0.2},
}

SETTINGS = (
    Setting("pairs, calibrated", 350, m=2),
    Setting("pairs, under-confident", 350, m=2, confidence=0.5),
    Setting("four, calibrated", 100),
    Setting("four, calibrated", 2000),
    Setting("four, under-confident", 100, confidence=0.7),
    Setting("four, under-confident", 500, confidence=0.7),
    Setting("four, slightly over-confident", 500, confidence=1.2),
    Setting("four, over-confident", 2000, confidence=1.5),
    Setting("four, very over-confident", 100, confidence=3.0),
    Setting("ten, over-confident", 500, m=10, confidence=1.5),
    Setting("two to ten, over-confident", 500, m=0, confidence=1.5),
    Setting("10% label noise", 500, noise=0.1),
    Setting("25% label noise", 500, noise=0.25),
    Setting("half over-, half under-confident", 500, mixed=True),
    Setting("heavy tails, over-confident", 500, confidence=1.5, heavy=True),
    Setting("saturated", 500, confidence=8.0),
    Setting("accuracy .97, calibrated", 183, advantage=5.55),
    Setting("accuracy .97, over-confident", 183, confidence=1.5, advantage=5.55),
    Setting("accuracy .97, under-confident", 183, confidence=0.7, advantage=5.55),
    Setting("nearly uniform", 500, confidence=0.05),
    *(
        Setting(f"{name}, accuracy {accuracy}, calibrated", n, m=m, advantage=advantage)
        for name, m, accuracy, advantage in ACCURATE
        for n in (12, 28, 40, 100, 200)
    ),
    *(
        Setting(f"{name}, {what}", n, m=m, **how)
        for name, m in (("pairs", 2), ("four", 4))
        for what, how in ODD.items()
        for n in (28, 100)
    ),
)


@dataclass
class Tally:
    """What happened to one interval over the data sets of a setting."""

    value: float = 0.0
    held: int = 0
    above_truth: int = 0
    below_truth: int = 0
    width: float = 0.0
    width_before: list[tuple[float, float]] = field(default_factory=list)
    rejected: int | None = None
    contradictions: int = 0


@dataclass(frozen=True)
class Found:
    """One interval of one data set; ``rejected`` by the null test, and what the earlier interval was."""

    interval: Interval
    rejected: bool | None = None
    separate: bool | None = None  # rejected by the test when it is called by itself
    before: Interval | None = None


def softmax(rewards: FloatArray, exists: BoolArray) -> FloatArray:
    """Return the probabilities (n, m); 0 for responses that do not exist."""
    return special.softmax(np.where(exists, rewards, -np.inf), axis=1)


def intervals(
    rewards: FloatArray, exists: BoolArray, winner: IntArray, seed: int, *, before: bool
) -> dict[str, Callable[[], Found]]:
    """How to compute every interval that a report shows, for one data set."""
    n = len(rewards)
    p_all = softmax(rewards, exists)
    groups, r = np.nonzero(exists)[0], rewards[exists]
    correct = np.arange(rewards.shape[1]) == winner[:, None]
    y_all = correct.astype(np.float64)
    p, y = p_all[exists], y_all[exists]
    first, second = first_and_next(r, exists.sum(axis=1))
    confidence, share, wins = p_all.max(axis=1), first_shares(rewards, exists), pair_wins(rewards, exists)
    right = share[np.arange(n), winner]

    def binned(
        p: FloatArray,
        y: FloatArray,
        groups: IntArray,
        options: ErrorOptions,
        one: bool,
        share: FloatArray | None = None,
    ) -> Found:
        how: dict[str, Any] = {"one_per_group": one, "share": share, "resamples": RESAMPLES, "rng": seed}
        found = binned_inference(p, y, groups, options, **how)
        shape: dict[str, Any] = {
            "spacing": options.spacing, "norm": options.norm, "debias": options.debias, "groups": groups,
            "resamples": RESAMPLES, "rng": seed,
        }  # fmt: skip
        rejected, separate, old = found.test().p_value <= 0.05, None, None
        if before and (share is None or (share == 1).all()):
            null = ece_null(p, y, draw="one_per_group" if one else "independent", **shape)
            separate, old = null.p_value <= 0.05, ece_interval(p, y, method="recentred", **shape)
        return Found(found.interval(), rejected, separate, old)

    def other(found: Inference) -> Found:
        return Found(found.interval(), found.test().p_value <= 0.05)

    def mean(values: FloatArray) -> Found:
        old = mean_interval(values, method="percentile", resamples=RESAMPLES, rng=seed) if before else None
        return Found(mean_interval(values), before=old)

    def jumping(losses: FloatArray) -> Found:
        """The mean of losses (n, M), one for each response that may be the correct one."""
        values, every = losses[np.arange(n), winner], losses[exists]
        limits = jump_interval(values, every[first], [every[second]])
        return Found(Interval(float(values.mean()), *limits, 0.95, 0), before=mean(values).before)

    def at_temperature() -> Found:
        tempered = softmax(rewards / cross_fitted(r, y, groups, n)[:, None], exists)[exists]
        return binned(tempered, y, groups, PLAIN, one=True)

    @lru_cache(maxsize=1)
    def scale() -> ScaleLoss:
        return scale_loss(r, y, groups)

    how: dict[str, Any] = {"resamples": RESAMPLES, "rng": seed}
    return {
        "overconfidence": lambda: jumping(confidence[:, None] - share),
        "mean_confidence": lambda: mean(confidence),
        "accuracy": lambda: Found(proportion_interval(right), before=mean(right).before),
        "lost_information": lambda: Found(scale().lost),
        "usable_information": lambda: Found(scale().usable),
        "temperature": lambda: Found(scale().temperature),
        "ece": lambda: binned(p, y, groups, PLAIN, one=True),
        "confidence_ece": lambda: binned(
            np.minimum(confidence, share.max(axis=1)),
            right,
            np.arange(n),
            PLAIN,
            one=False,
            share=share.max(axis=1),
        ),
        "equal_mass_ece": lambda: binned(p, y, groups, MASS, one=True),
        "debiased_ece": lambda: binned(p, y, groups, SQUARE, one=True),
        "smooth_ece": lambda: other(smooth_inference(p, y, groups, one_per_group=True, **how)),
        "pairwise_ece": lambda: other(
            pairwise_inference(log_softmax(rewards, exists), y == 1, groups, **how)
        ),
        "ece_at_temperature": at_temperature,
        "nll": lambda: jumping(-special.log_softmax(np.where(exists, rewards, -np.inf), axis=1)),
        "brier": lambda: jumping((p_all**2).sum(axis=1, keepdims=True) + 1 - 2 * p_all),
        "pairwise_accuracy": lambda: jumping(wins),
    }


def first_shares(rewards: FloatArray, exists: BoolArray) -> FloatArray:
    """Return each response's share of the first place (n, M): 1/t for t responses with the largest reward."""
    kept = np.where(exists, rewards, -np.inf)
    largest = kept == kept.max(axis=1, keepdims=True)
    return largest / largest.sum(axis=1, keepdims=True)


def pair_wins(rewards: FloatArray, exists: BoolArray) -> FloatArray:
    """Return the fraction of the other responses that each response beats (n, M); a tie counts 1/2."""
    kept = np.where(exists, rewards, np.inf)
    beaten = (kept[:, :, None] > kept[:, None, :]).sum(axis=2)
    tied = (kept[:, :, None] == kept[:, None, :]).sum(axis=2) - 1
    return (beaten + tied / 2) / (exists.sum(axis=1, keepdims=True) - 1)


def log_softmax(rewards: FloatArray, exists: BoolArray) -> FloatArray:
    """Return the log-probabilities of the responses that exist (N,)."""
    return special.log_softmax(np.where(exists, rewards, -np.inf), axis=1)[exists]


def cross_fitted(r: FloatArray, y: FloatArray, groups: IntArray, n: int) -> FloatArray:
    """Temperatures (n,) fitted on other folds, limited as a report limits them."""
    spread = float(np.std(r)) or 1.0

    def fit(train: IntArray) -> float:
        rows = np.isin(groups, train)
        found = fit_top_1_temperature(r[rows], y[rows], groups[rows]).temperature
        return float(np.clip(found, spread / 100, spread * 100))

    return cross_fit(n, fit, lambda t, test: np.full(len(test), t))


def truths(setting: Setting) -> dict[str, float]:
    """The value of every measure for unlimited data, from the true probabilities of many prompts."""
    rng = np.random.default_rng(12345)
    return true_values(*setting.draw(truth_prompts(setting), rng))


def truth_prompts(setting: Setting) -> int:
    """How many prompts stand for unlimited data."""
    return TRUTH_PROMPTS // max(setting.m or 6, 4) * 4


def true_values(rewards: FloatArray, exists: BoolArray, truth: FloatArray) -> dict[str, float]:
    """The expected value of every measure over the outcomes, given rewards and true probabilities (n, M)."""
    n = len(rewards)
    p_all = softmax(rewards, exists)
    p, q, groups = p_all[exists], truth[exists], np.nonzero(exists)[0]
    confidence, right = p_all.max(axis=1), (truth * first_shares(rewards, exists)).sum(axis=1)
    best = fit_mean_temperature(rewards, exists, truth)
    uniform = float(np.log(exists.sum(axis=1)).mean())
    loss, least = (float(-(truth[exists] * log_softmax(rewards / t, exists)).sum() / n) for t in (1.0, best))
    residual = residual_grid(p, (q - p) / len(p), 4096)
    tempered = softmax(rewards / best, exists)[exists]
    return {
        "overconfidence": float((confidence - right).mean()),
        "mean_confidence": float(confidence.mean()),
        "accuracy": float(right.mean()),
        "lost_information": (loss - least) / uniform,
        "usable_information": 1 - least / uniform,
        "temperature": best,
        "ece": binned_truth(p, q, PLAIN),
        "confidence_ece": binned_truth(confidence, right, PLAIN),
        "equal_mass_ece": binned_truth(p, q, MASS),
        "debiased_ece": binned_truth(p, q, ErrorOptions(norm=2)),
        "smooth_ece": float(fixed_points(cosine_coefficients(residual), steps=16)[0]),
        "pairwise_ece": pairwise_truth(p_all, truth, exists),
        "ece_at_temperature": binned_truth(tempered, q, PLAIN),
        "nll": loss,
        "brier": float(np.bincount(groups, p**2 - 2 * p * q + q).mean()),
        "pairwise_accuracy": float((truth * pair_wins(rewards, exists))[exists].sum() / n),
    }


def binned_truth(p: FloatArray, q: FloatArray, options: ErrorOptions) -> float:
    edges = bin_edges(p, options)
    none = np.zeros(len(p), dtype=np.int64)
    sums = grouped_sums(p, q, none, bin_index(p, edges), len(edges) - 1)
    return float(binned_error(unpack_bins(sums[0]), options))


def pairwise_truth(p: FloatArray, truth: FloatArray, exists: BoolArray) -> float:
    """Pairs (i, j) where i is correct, which has the probability truth_i, in both orientations."""
    total = np.zeros(30)
    for i in range(p.shape[1]):
        for j in range(p.shape[1]):
            both = exists[:, i] & exists[:, j]
            if i != j and both.any():
                pi, pj = p[both, i], p[both, j]
                first = np.divide(pi, pi + pj, out=np.full(len(pi), 0.5), where=pi + pj > 0)
                index = bin_index(first, np.arange(11) / 10)
                won, lost = truth[both, i], truth[both, j]
                total[:10] += np.bincount(index, won + lost, 10)
                total[10:20] += np.bincount(index, first * (won + lost), 10)
                total[20:] += np.bincount(index, won, 10)
    return float(binned_error(unpack_bins(total), PLAIN))


def fit_mean_temperature(rewards: FloatArray, exists: BoolArray, truth: FloatArray) -> float:
    """The temperature of the least expected loss."""
    from scipy.optimize import brentq

    kept = np.where(exists, rewards, 0.0)

    def slope(log_beta: float) -> float:
        return float(((softmax(rewards * np.exp(log_beta), exists) - truth) * kept).sum())

    return float(np.exp(-brentq(slope, -12, 12, xtol=1e-10)))


def measure(setting: Setting, runs: int, only: str | None = None) -> list[dict[str, Any]]:
    """Count over ``runs`` data sets: one row for each measure, or for the one that is asked for."""
    start, true = time.process_time(), truths(setting)
    tallies = {name: Tally() for name in true if only in (None, name)}
    for run in range(runs):
        rng = np.random.default_rng([run, setting.n, SETTINGS.index(setting)])
        rewards, exists, truth = setting.draw(setting.n, rng)
        winner = (np.cumsum(truth, axis=1) > rng.random((setting.n, 1))).argmax(axis=1)
        found = intervals(rewards, exists, winner, run, before=run < min(BEFORE, runs))
        for name, tally in tallies.items():
            count(tally, found[name](), true[name])
    seconds = time.process_time() - start
    rows = []
    for name, tally in tallies.items():
        before = np.array(tally.width_before)
        ratio = float(before[:, 0].sum() / before[:, 1].sum()) if len(before) and before[:, 1].any() else None
        rows.append(
            {
                "setting": setting.name,
                "prompts": setting.n,
                "measure": name,
                "truth": round(true[name], 5),
                "mean": round(tally.value / runs, 5),
                "coverage": round(tally.held / runs, 4),
                "interval_above": round(tally.above_truth / runs, 4),
                "interval_below": round(tally.below_truth / runs, 4),
                "width": round(tally.width / runs, 5),
                "width_to_before": None if ratio is None else round(ratio, 3),
                "rejected": None if tally.rejected is None else round(tally.rejected / runs, 4),
                "contradictions": None if tally.rejected is None else tally.contradictions,
                "runs": runs,
                "seconds": round(seconds, 1),
            }
        )
    return rows


def count(tally: Tally, found: Found, truth: float) -> None:
    interval = found.interval
    tally.value += interval.value if np.isfinite(interval.value) else np.nan
    tally.above_truth += truth < interval.low - 1e-9
    tally.below_truth += truth > interval.high + 1e-9
    tally.held += interval.low - 1e-9 <= truth <= interval.high + 1e-9
    tally.width += interval.high - interval.low
    if found.before is not None:
        tally.width_before.append((interval.high - interval.low, found.before.high - found.before.low))
    if found.rejected is not None:
        tally.rejected = (tally.rejected or 0) + found.rejected
        tested = found.rejected if found.separate is None else found.separate
        tally.contradictions += tested != (interval.low > 0)


def replaced(rows: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put rows in the place of those of the same setting and measure, or at the end."""

    def key(row: dict[str, Any]) -> tuple[str, int, str]:
        return row["setting"], row["prompts"], row["measure"]

    new = {key(row): row for row in found}
    return [new.pop(key(row), row) for row in rows] + list(new.values())


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return a table of rows that have the same keys."""
    shown = [["" if value is None else value for value in row.values()] for row in rows]
    return "\n".join(markdown_table(list(rows[0]), shown, escape=False))


def coverage_table(rows: list[dict[str, Any]]) -> str:
    """Settings down, measures across: the coverage, in bold where it is too low."""
    names = list(dict.fromkeys(row["measure"] for row in rows))
    table = []
    for setting, n in dict.fromkeys((row["setting"], row["prompts"]) for row in rows):
        line: dict[str, Any] = {"setting": setting, "prompts": n}
        for row in rows:
            if (row["setting"], row["prompts"]) == (setting, n):
                shown = f"{float(row['coverage']):.3f}"
                line[row["measure"]] = f"**{shown}**" if float(row["coverage"]) < LOW else shown
        table.append({key: line.get(key, "") for key in ("setting", "prompts", *names)})
    return markdown(table)


def report(rows: list[dict[str, Any]], runs: int) -> str:
    """The text of results/statistics.md."""
    worst = min(rows, key=lambda row: float(row["coverage"]))
    by_measure = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        own = [row for row in rows if row["measure"] == name]
        least = min(own, key=lambda row: float(row["coverage"]))
        ratios = [float(row["width_to_before"]) for row in own if row["width_to_before"] not in (None, "")]
        by_measure.append(
            {
                "measure": name,
                "lowest coverage": f"{float(least['coverage']):.3f}",
                "where": f"{least['setting']}, {least['prompts']} prompts",
                "mean coverage": f"{np.mean([float(row['coverage']) for row in own]):.3f}",
                "highest": f"{max(float(row['coverage']) for row in own):.3f}",
                "width to before": f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "",
            }
        )
    tested = [row for row in rows if row["rejected"] not in (None, "")]
    calibrated = [
        row for row in tested if float(row["truth"]) == 0 and row["measure"] != "ece_at_temperature"
    ]
    rates = [float(row["rejected"]) for row in calibrated] or [float("nan")]
    against = sum(int(float(row["contradictions"])) for row in tested)
    seconds = sum({(row["setting"], row["prompts"]): float(row["seconds"]) for row in rows}.values())
    margin = 1.96 * (0.95 * 0.05 / runs) ** 0.5
    advantages = ", ".join(f"{name} {accuracy}: {advantage}" for name, _, accuracy, advantage in ACCURATE)
    return f"""# Coverage of the intervals of a report

Made by `scripts/measure_statistics.py`: {runs} simulated data sets per setting, {RESAMPLES} resamples each,
in {seconds / 60:.0f} minutes on one core. All intervals have the level 95%. A coverage from {runs} data sets
is uncertain by about {margin:.3f}, so an exact interval shows {LOW} to {HIGH}.

**Lowest coverage: {float(worst["coverage"]):.3f}, for {worst["measure"]} ({worst["setting"]},
{worst["prompts"]} prompts).** The null tests reject {min(rates):.3f} to {max(rates):.3f} of the calibrated
forecasts at 5%. Interval and test disagree about 0 in {against} of {sum(int(row["runs"]) for row in tested)}
data sets and measures.

## By measure

"Width to before" is the ratio to the width of the intervals of earlier versions: recentred intervals for
calibration errors, percentiles of resamples for means and accuracy.

{markdown(by_measure)}

## By setting

The fraction of data sets whose interval contains the true value, which is that of unlimited data. Bold: below
{LOW}. The file `statistics.csv` also has the true values, the mean values and widths, the side of the misses,
and the rejection rates.

{coverage_table(rows)}

Settings have four responses unless they say otherwise. The true rewards are normal with standard deviation
1.5, and the correct response is drawn from their softmax. Forecasts multiply these rewards by a factor:

| forecast | factor |
| --- | --- |
| slightly over-confident | 1.2 |
| over-confident | 1.5 |
| very over-confident | 3 |
| saturated | 8 |
| under-confident | 0.7 |
| under-confident pairs | 0.5 |
| nearly uniform | 0.05 |

- Label noise: a fraction of the correct responses is drawn at random.
- Half over-, half under-confident: half of the prompts have twice the scale, and the others half of it.
- Heavy tails: Student's t with 3 degrees of freedom.
- Accuracy .97 and .995: one response of each prompt has an advantage ({advantages}).
- 10% saturated: the best response of a tenth of the prompts is better by 30.
- 5% surely wrong: the second response of these prompts is the correct one.
- Nearly no information: the true rewards have a standard deviation of 0.1.
- 20% tied: the two best responses of a fifth of the prompts have equal rewards.

Metrics of people's votes are measured in [votes.md](votes.md).
"""


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--runs", type=int, default=400, help="simulated data sets for each setting")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--only", help="only settings whose name contains this")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument("--again", metavar="MEASURE", help="measure this measure again, and keep the others")
    args = parser.parse_args()
    path, rows = args.output / "statistics.csv", []
    if path.exists() and not args.fresh:
        with path.open(encoding="utf-8", newline="") as file:
            kept = (row for row in csv.DictReader(file) if "measure" in row)
            rows = [row | {"prompts": int(row["prompts"])} for row in kept if row["runs"] == str(args.runs)]
    done = {(row["setting"], row["prompts"]): float(row["seconds"]) for row in rows}
    for setting in SETTINGS:
        key = setting.name, setting.n
        if (args.only or "") not in setting.name or (key in done and not args.again):
            continue
        found = measure(setting, args.runs, args.again if key in done else None)
        for row in found:
            row["seconds"] = done.get(key, row["seconds"])  # of all measures together
        rows = replaced(rows, found)
        write_csv(path, rows)
        print(f"{setting.name}, {setting.n} prompts: {found[-1]['seconds']} s", flush=True)
    write_text(args.output / "statistics.md", report(rows, args.runs))


if __name__ == "__main__":
    main()
