"""Simulated models with a known truth, for scripts/measure_statistics.py and measure_differences.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.calibration.binning import (
    ErrorOptions,
    bin_edges,
    bin_index,
    bin_sums,
    binned_error,
    unpack_bins,
)
from rmcalib.metrics.views import Part, whole_part
from rmcalib.scores import Scores

TRUTH_PROMPTS = 200_000
PLAIN, MASS = ErrorOptions(), ErrorOptions(spacing="mass")


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
    heavy: int = 0  # rewards with Student's t distribution with so many degrees of freedom
    rounded: float = 0.0  # the model states rewards in such steps
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
            utility = 1.2 * rng.standard_t(self.heavy, size=(n, width))
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
        rewards = scale * utility
        return np.round(rewards / self.rounded) * self.rounded if self.rounded else rewards, exists, truth


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
    Setting("heavy tails, over-confident", 500, confidence=1.5, heavy=3),
    Setting("very heavy tails, 10% label noise", 200, noise=0.1, heavy=2),
    Setting("rounded to halves", 200, rounded=0.5),
    Setting("four, calibrated", 5),
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


def softmax(rewards: FloatArray, exists: BoolArray) -> FloatArray:
    """Return the probabilities (n, m); 0 for responses that do not exist."""
    return special.softmax(np.where(exists, rewards, -np.inf), axis=1)


def drawn_part(setting: Setting, rng: np.random.Generator) -> Part:
    """Draw a data set: rewards, and one correct response of each prompt."""
    rewards, exists, truth = setting.draw(setting.n, rng)
    winner = (np.cumsum(truth, axis=1) > rng.random((setting.n, 1))).argmax(axis=1)
    return part_of(rewards, exists, winner)


def part_of(rewards: FloatArray, exists: BoolArray, winner: IntArray) -> Part:
    """Return the prompts as metrics see them."""
    prompt, response = np.nonzero(exists)
    columns = {
        "item_id": prompt.astype(str),
        "category": np.full(len(prompt), "all"),
        "response": response,
        "is_correct": response == winner[prompt],
        "reward": rewards[exists],
    }
    return whole_part(Scores.from_columns(columns))


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
    tempered = softmax(rewards / best, exists)[exists]
    return {
        "overconfidence": float((confidence - right).mean()),
        "mean_confidence": float(confidence.mean()),
        "accuracy": float(right.mean()),
        "kept_information": 1 - loss / uniform,
        "lost_information": (loss - least) / uniform,
        "usable_information": 1 - least / uniform,
        "temperature": best,
        "ece": binned_truth(p, q, PLAIN),
        "confidence_ece": binned_truth(confidence, right, PLAIN),
        "equal_mass_ece": binned_truth(p, q, MASS),
        "debiased_ece": binned_truth(p, q, ErrorOptions(norm=2)),
        "pairwise_ece": pairwise_truth(p_all, truth, exists),
        "ece_at_temperature": binned_truth(tempered, q, PLAIN),
        "nll": loss,
        "brier": float(np.bincount(groups, p**2 - 2 * p * q + q).mean()),
        "pairwise_accuracy": float((truth * pair_wins(rewards, exists))[exists].sum() / n),
    }


def binned_truth(p: FloatArray, q: FloatArray, options: ErrorOptions) -> float:
    edges = bin_edges(p, options)
    return float(binned_error(bin_sums(bin_index(p, edges), p, q, len(edges) - 1), options))


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
