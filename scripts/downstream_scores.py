"""Does calibrating real reward models change what is reached with them? Scores of twelve models that are built in.

Nine models on RewardMATH, three on RewardBench 2; prompts with one correct response. Twenty times, the prompts are
split into halves: calibrate on one, act on the other. Thresholds with a promised error, sums of two models' rewards,
and stopping early. Results of a prompt are averaged over the splits in which it was acted on; standard errors are over
prompts. Writes results/downstream_scores.csv.

    python scripts/downstream_scores.py [--splits 20]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
from measuring import RESULTS, Row
from scipy.special import expit, softmax

import rmcalib
from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib._util.files import write_csv
from rmcalib.calibration.best_of import best_of_values
from rmcalib.calibration.maps import fit_sigmoid
from rmcalib.calibration.temperature import Softmax
from rmcalib.repair.calibrator import log_odds_of
from rmcalib.repair.decisions import safe_threshold

BOARDS = ("rewardmath", "reward-bench-2")
PROMISE, STOP = 0.9, 0.7
Key = tuple[str, str, str, str]


def loaded(board: str) -> tuple[dict[str, FloatArray], IntArray]:
    """Rewards (n, m) of each model, and the index of the correct response: prompts with m responses, one correct."""
    rewards, correct = {}, np.empty(0, dtype=np.int64)
    for name, scores in rmcalib.load_board(board).items():
        sizes = np.diff(scores.offsets)
        m = int(np.bincount(sizes).argmax())
        kept = scores.take((sizes == m) & (np.add.reduceat(scores.is_correct, scores.offsets[:-1]) == 1))
        rewards[name.rpartition("/")[2]] = kept.reward.reshape(-1, m)
        correct = kept.is_correct.reshape(-1, m).argmax(axis=1)
    return rewards, correct


class Tally:
    """Sums over splits of one number per prompt, where it is known, by task, model, rule and measure."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.sums: dict[Key, FloatArray] = defaultdict(lambda: np.zeros((2, n)))

    def add(self, key: Key, where: BoolArray, values: FloatArray) -> None:
        rows, known = np.flatnonzero(where), np.isfinite(values)
        self.sums[key][0, rows[known]] += values[known]
        self.sums[key][1, rows[known]] += 1

    def rows(self, board: str, splits: int) -> list[Row]:
        """Weighted means over prompts, with the standard error of a ratio."""
        found = []
        for key, (total, weight) in self.sums.items():
            known = weight.sum() > 0
            value = total.sum() / weight.sum() if known else np.nan
            influence = (total - value * weight) / weight.mean() if known else np.full(self.n, np.nan)
            found.append(
                {
                    "board": board,
                    **dict(zip(("task", "model", "rule", "measure"), key, strict=True)),
                    "value": round(float(value), 5),
                    "standard_error": round(float(influence.std(ddof=1) / self.n**0.5), 5),
                    "prompts": int((weight > 0).sum()),
                    "splits": splits,
                }
            )
        return found


def thresholds(name: str, r: FloatArray, correct: IntArray, fit: BoolArray, tally: Tally) -> None:
    """Accept the first choice: by its stated probability, calibrated, or by the rule of `decide`."""
    act = ~fit
    t = temperature(r[fit], correct[fit])
    first = r.argmax(axis=1)
    right = (first == correct).astype(float)
    stated, calibrated = softmax(r, axis=1).max(axis=1), softmax(r / t, axis=1).max(axis=1)
    rule = safe_threshold(log_odds_of(calibrated[fit]), right[fit] < 1, alpha=1 - PROMISE).threshold
    accepts = {
        "stated p ≥ .9": stated >= PROMISE,
        "calibrated p ≥ .9": calibrated >= PROMISE,
        "the rule of decide": np.zeros(len(r), dtype=bool) if rule is None else calibrated >= rule,
    }
    for rule_name, accept in accepts.items():
        tally.add(("accept", name, rule_name, "accepted"), act, accept[act].astype(float))
        tally.add(("accept", name, rule_name, "wrong"), act, np.where(accept, 1 - right, np.nan)[act])


def temperature(r: FloatArray, correct: IntArray) -> float:
    won = np.arange(r.shape[1]) == correct[:, None]
    found = Softmax(r.ravel(), won.ravel(), np.full(len(r), r.shape[1])).fit().temperature
    return float(np.clip(found, r.std() / 100, r.std() * 100))


def sums(rewards: Mapping[str, FloatArray], correct: IntArray, fit: BoolArray, tally: Tally) -> None:
    """The first choice by the sum of two models' rewards: raw, standardised, or calibrated."""
    act = ~fit
    own = {name: temperature(r[fit], correct[fit]) for name, r in rewards.items()}
    for a, b in combinations(rewards, 2):
        accuracy = {one: (rewards[one][fit].argmax(axis=1) == correct[fit]).mean() for one in (a, b)}
        better = max(accuracy, key=lambda one: float(accuracy[one]))
        choices = {
            "the better one alone": rewards[better],
            "raw": rewards[a] + rewards[b],
            "standardised": sum(rewards[one] / within(rewards[one][fit]).std() for one in (a, b)),
            "calibrated": sum(rewards[one] / own[one] for one in (a, b)),
        }
        right = {rule: (r.argmax(axis=1) == correct).astype(float)[act] for rule, r in choices.items()}
        for rule, values in right.items():
            tally.add(("sum", "all pairs", rule, "right"), act, values)
            tally.add(("sum", f"{a} + {b}", rule, "right"), act, values)
        for other in ("raw", "standardised", "the better one alone"):
            tally.add(
                ("sum", "all pairs", f"calibrated − {other}", "right"),
                act,
                right["calibrated"] - right[other],
            )


def within(r: FloatArray) -> FloatArray:
    return r - r.mean(axis=1, keepdims=True)


def stopping(
    name: str, r: FloatArray, correct: IntArray, fit: BoolArray, tally: Tally, rng: np.random.Generator
) -> None:
    """Draw responses in random order until one is correct with probability .7, and else take the best of all."""
    act = ~fit
    n, m = int(act.sum()), r.shape[1]
    won = (np.arange(m) == correct[:, None]).astype(float)
    fitted = fit_sigmoid(r[fit].ravel(), won[fit].ravel())
    order = rng.permuted(np.tile(np.arange(m), (n, 1)), axis=1)
    reward, label = (np.take_along_axis(x[act], order, axis=1) for x in (r, won))
    curve = best_of_values(r[act].ravel(), won[act].ravel(), np.full(n, m), np.arange(1, m + 1))
    for rule, p in (("stated p ≥ .7", expit(reward)), ("calibrated p ≥ .7", expit(fitted.log_odds(reward)))):
        enough = p >= STOP
        stopped = enough.any(axis=1)
        place = np.where(stopped, enough.argmax(axis=1), reward.argmax(axis=1))
        right, samples = label[np.arange(n), place], np.where(stopped, enough.argmax(axis=1) + 1.0, float(m))
        low = int(np.clip(np.floor(samples.mean()), 1, m - 1))
        share = samples.mean() - low
        measured = {
            "right": right,
            "samples": samples,
            "stopped": stopped.astype(float),
            "right if stopped": np.where(stopped, right, np.nan),
            "best of as many": curve[:, low - 1] * (1 - share) + curve[:, low] * share,
        }
        for measure, values in measured.items():
            tally.add(("stop", name, rule, measure), act, values)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows: list[Row] = []
    for board in BOARDS:
        rewards, correct = loaded(board)
        tally = Tally(len(correct))
        for seed in range(options.splits):
            rng = np.random.default_rng(seed)
            fit = rng.permutation(len(correct)) < len(correct) // 2
            for name, r in rewards.items():
                thresholds(name, r, correct, fit, tally)
                stopping(name, r, correct, fit, tally, rng)
            sums(rewards, correct, fit, tally)
        rows += tally.rows(board, options.splits)
        print(f"{board}: {len(rewards)} models, {len(correct)} prompts")
    write_csv(options.output / "downstream_scores.csv", rows)


if __name__ == "__main__":
    main()
