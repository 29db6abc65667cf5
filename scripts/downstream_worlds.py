"""What does a wrong reward cost, by what is done with it? Exactly, in small worlds.

A prompt has eight answers. The first policy draws answer a with probability π(a); it is right with probability q(a).
A calibrated reward is s = logit q. Seven errors change it; each is also repaired by one temperature T and one offset
b, fitted on the first policy's samples. Ten uses act on the reward, and what they get is computed without sampling,
from q. The cost is what the same use gets from s, minus what it gets from the wrong reward, in points: right answers
per 100 prompts (or per 100 samples, for filters). Twenty worlds of 200 prompts give the standard error.
Writes results/downstream_worlds.csv.

    python scripts/downstream_worlds.py [--worlds 20]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from measuring import RESULTS, Row
from scipy.optimize import brentq, minimize
from scipy.special import expit, log_expit, logit, softmax

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib._util.files import write_csv

PROMPTS, ANSWERS, CATEGORIES = 200, 8, 4
SAMPLES, GROUP = 16, 4  # of best-of-n and early stopping; of GRPO
BUDGET, BETA = 0.3, 1.0  # nats of KL; the penalty that a calibrated reward is trained with
ACCEPT, KEEP, DRAW = 0.9, 0.8, 0.004  # thresholds of probabilities; the cost of a sample


@dataclass(frozen=True)
class World:
    """Prompts × answers: the policy, P(right), P(safe), and the category of each prompt."""

    policy: FloatArray
    right: FloatArray
    safe: FloatArray
    category: IntArray
    trick: BoolArray
    noise: FloatArray


def drawn_world(seed: int) -> World:
    rng, shape = np.random.default_rng(seed), (PROMPTS, ANSWERS)
    trick = rng.random(shape) < 0.03
    log_odds = rng.normal(-0.5, 1.5, size=(PROMPTS, 1)) + rng.normal(0, 1.5, size=shape)
    return World(
        policy=rng.dirichlet(np.ones(ANSWERS), size=PROMPTS),
        right=np.where(trick, 0.01, expit(log_odds)),
        safe=expit(rng.normal(1.0, 1.5, size=shape)),
        category=np.arange(PROMPTS) % CATEGORIES,
        trick=trick,
        noise=rng.normal(size=shape),
    )


# Errors: functions of the world and the calibrated reward.


def _by_category(world: World, even: float, odd: float) -> FloatArray:
    return np.where(world.category % 2 == 0, even, odd)[:, None]


ERRORS: dict[str, Callable[[World, FloatArray], FloatArray]] = {
    "scale × 4": lambda _, s: 4 * s,
    "scale × ¼": lambda _, s: s / 4,
    "offset + 2": lambda _, s: s + 2,
    "offset ± 2 by category": lambda world, s: s + _by_category(world, 2.0, -2.0),
    "scale × 4, × ¼ by category": lambda world, s: s * _by_category(world, 4.0, 0.25),
    "noise": lambda world, s: s + 1.5 * world.noise,
    "3% tricks": lambda world, s: np.where(world.trick, s + 9.0, s),
}


def recalibrated(world: World, r: FloatArray) -> FloatArray:
    """Return (r − b)/T with the least expected log loss on the policy's samples."""
    scale = float(r.std())

    def loss(x: FloatArray) -> float:
        odds = x[0] * r / scale + x[1]
        each = world.right * log_expit(odds) + (1 - world.right) * log_expit(-odds)
        return -float((world.policy * each).sum()) / PROMPTS

    found = minimize(loss, np.array([1.0, 0.0]), method="BFGS").x
    return np.asarray(found[0] * r / scale + found[1])


# Uses: what is reached, in points. A reward is a log-odds; its sigmoid is the stated probability.


def best_of_n(world: World, r: FloatArray) -> float:
    """The best of 16 samples."""
    return 100 * float((chosen(world.policy, r) * world.right).sum(axis=1).mean())


def chosen(policy: FloatArray, r: FloatArray, n: int = SAMPLES) -> FloatArray:
    """P(answer a is the best of n samples): F(a)ⁿ − F(a−)ⁿ."""
    order = np.argsort(r, axis=1)
    mass = np.take_along_axis(policy, order, axis=1)
    up_to = np.cumsum(mass, axis=1)
    found = np.empty_like(policy)
    np.put_along_axis(found, order, up_to**n - np.maximum(up_to - mass, 0) ** n, axis=1)
    return found


def grpo(world: World, r: FloatArray) -> float:
    """A step along the expected normalised advantages of groups of four, as far as the KL budget allows."""
    groups = np.array(list(product(range(ANSWERS), repeat=GROUP)))
    total, advantage = np.zeros_like(r), np.empty_like(r)
    for g in range(PROMPTS):
        rewards, weight = r[g][groups], world.policy[g][groups].prod(axis=1)
        spread = rewards.std(axis=1, keepdims=True)
        a = (rewards - rewards.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
        total[g] = np.bincount(groups.ravel(), (weight[:, None] * a).ravel(), ANSWERS)
    # Expected advantage of a sample, given that it is drawn.
    advantage = total / (GROUP * world.policy)
    return at_budget(world, advantage)


def at_budget(world: World, r: FloatArray) -> float:
    """KL-regularised RL, π ∝ π₀ exp(r/β), with β chosen for a mean KL of 0.3 nats."""

    def excess(log_beta: float) -> float:
        return kl(world, tilted(world, r / np.exp(log_beta))) - BUDGET

    beta = np.exp(brentq(excess, -8, 8))
    return 100 * gold(world, tilted(world, r / beta))


def at_beta(world: World, r: FloatArray) -> float:
    """The same with β = 1 whatever the scale; KL is priced at what the last bit of it bought at β = 1, on scale."""
    s, step = logit(world.right), 1e-4
    ends = [tilted(world, s / (BETA + d)) for d in (-step, step)]
    price = (gold(world, ends[0]) - gold(world, ends[1])) / (kl(world, ends[0]) - kl(world, ends[1]))
    policy = tilted(world, r / BETA)
    return 100 * (gold(world, policy) - price * kl(world, policy))


def tilted(world: World, r: FloatArray) -> FloatArray:
    return np.asarray(softmax(np.log(world.policy) + r, axis=1))


def kl(world: World, policy: FloatArray) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(policy > 0, policy * np.log(policy / world.policy), 0.0)
    return float(each.sum(axis=1).mean())


def gold(world: World, policy: FloatArray) -> float:
    return float((policy * world.right).sum(axis=1).mean())


def summed(world: World, r: FloatArray) -> float:
    """The best of 16 by the sum of the reward and a calibrated one of safety; right and safe."""
    both = chosen(world.policy, r + logit(world.safe)) * world.right * world.safe
    return 100 * float(both.sum(axis=1).mean())


def summed_logs(world: World, r: FloatArray) -> float:
    """The same by the sum of log-probabilities."""
    both = chosen(world.policy, log_expit(r) + np.log(world.safe)) * world.right * world.safe
    return 100 * float(both.sum(axis=1).mean())


def best_third(world: World, r: FloatArray) -> float:
    """Keep the third of all samples with the largest rewards: how many of them are right."""
    order = np.argsort(-r.ravel(), kind="stable")
    mass, right = world.policy.ravel()[order] / PROMPTS, world.right.ravel()[order]
    kept = np.clip(1 / 3 - (np.cumsum(mass) - mass), 0, mass)
    return 100 * 3 * float((kept * right).sum())


def filtered(world: World, r: FloatArray) -> float:
    """Keep samples that are right with probability .8 or more; a wrong one costs four right ones."""
    kept = world.policy * (expit(r) >= KEEP)
    return 100 * float((kept * (world.right - KEEP / (1 - KEEP) * (1 - world.right))).sum(axis=1).mean())


def accepted(world: World, r: FloatArray) -> float:
    """Accept the best of 16 if it is right with probability .9 or more; else ask a person, for .1 of an answer."""
    p = chosen(world.policy, r)
    worth = np.where(expit(r) >= ACCEPT, world.right, ACCEPT)  # a person is right, and costs .1
    return 100 * float((p * worth).sum(axis=1).mean())


def drawn_until(world: World, r: FloatArray) -> float:
    """Draw until a sample is right with probability .9 or more, at most 16 times; a sample costs .004 answers."""
    enough = expit(r) >= ACCEPT
    stop = (world.policy * enough).sum(axis=1)
    missed = (1 - stop) ** SAMPLES
    n = np.divide(1 - missed, stop, out=np.full(PROMPTS, float(SAMPLES)), where=stop > 0)
    # Stopped: a sample above the threshold, in proportion to the policy. Else the best of 16 of the others.
    first = world.policy * enough * n[:, None]
    below = np.where(enough, 0.0, world.policy)
    others = below / np.maximum(below.sum(axis=1, keepdims=True), 1e-300)
    rest = chosen(others, np.where(enough, -np.inf, r)) * missed[:, None]
    return 100 * float((((first + rest) * world.right).sum(axis=1) - DRAW * n).mean())


USES: dict[str, Callable[[World, FloatArray], float]] = {
    "best of 16": best_of_n,
    "GRPO, normalised advantages": grpo,
    "KL-regularised RL, KL budget": at_budget,
    "KL-regularised RL, fixed β": at_beta,
    "keep the best third of samples": best_third,
    "keep samples with p ≥ .8": filtered,
    "sum of two rewards": summed,
    "sum of two log-probabilities": summed_logs,
    "accept if p ≥ .9, else ask": accepted,
    "draw until p ≥ .9": drawn_until,
}


def costs(world: World) -> dict[tuple[str, str, bool], float]:
    s = logit(world.right)
    best = {name: use(world, s) for name, use in USES.items()}
    found: dict[tuple[str, str, bool], float] = {}
    for error, change in ERRORS.items():
        wrong = change(world, s)
        for repaired, r in ((False, wrong), (True, recalibrated(world, wrong))):
            found |= {(name, error, repaired): best[name] - use(world, r) for name, use in USES.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    every = [costs(drawn_world(seed)) for seed in range(options.worlds)]
    rows: list[Row] = []
    for use, error, repaired in every[0]:
        values = np.array([one[use, error, repaired] for one in every])
        error_of_mean = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
        rows.append(
            {
                "use": use,
                "error": error,
                "repaired": repaired,
                "cost": round(float(values.mean()), 6),
                "standard_error": round(float(error_of_mean), 6),
                "largest": round(float(np.abs(values).max()), 12),
                "worlds": options.worlds,
            }
        )
    write_csv(options.output / "downstream_worlds.csv", rows)
    for use in USES:
        shown = [f"{row['cost']:6.2f}{'*' if row['repaired'] else ' '}" for row in rows if row["use"] == use]
        print(f"{use:32s}", *shown)


if __name__ == "__main__":
    main()
