"""Numbers about real reward models on RewardMATH; `report_reward_models.py` writes them down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
from scipy.special import log_softmax

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import (
    ece,
    fit_top_1_temperature,
    mean_difference,
    mean_interval,
    proportion_interval,
    temperature_interval,
)
from rmcalib.metrics import Settings, forecast, metric_rows
from rmcalib.repair import decide
from rmcalib.scores import STEPS, Scores

Row = dict[str, Any]
Values = dict[str, Row]
RESPONSES = 10
SIZES = (2, 4, 10)
SETTINGS = Settings(resamples=1000, seed=0)
MEASURED = (
    *("mean_confidence", "accuracy", "overconfidence", "lost_information", "usable_information"),
    *("temperature", "ece", "confidence_ece", "confidence_ece_null_mean", "confidence_ece_p_value", "nll"),
)
WRONG = (0.1, 0.3, 0.5)
ASKING = 0.1  # the cost of asking a person, if a wrong response costs 1
SURE = (0.5, 0.7, 0.9)


def measure(scores: Scores) -> Values:
    """Return the metrics of all prompts together, by name."""
    rows = metric_rows(scores, model="", benchmark="", settings=SETTINGS, metrics=MEASURED)
    return {row["metric"]: row for row in rows if row["category"] == "overall"}


def held_out(scores: Scores, seed: int = 0) -> Scores:
    """Divide the rewards of each half of the problems by the temperature fitted on the other half."""
    n = scores.n_items
    first = np.zeros(n, dtype=bool)
    first[np.random.default_rng(seed).permutation(n)[: n // 2]] = True
    temperatures = np.empty(n)
    for half in (first, ~first):
        other = scores.take(~half)
        prompt = np.repeat(np.arange(other.n_items), np.diff(other.offsets))
        temperatures[half] = fit_top_1_temperature(other.reward, other.is_correct, prompt).temperature
    return replace(scores, reward=scores.reward / np.repeat(temperatures, np.diff(scores.offsets)))


def with_responses(scores: Scores, k: int, seed: int = 0) -> Scores:
    """Keep the correct response of each problem and k − 1 of the wrong ones, the same for every model.

    The choice is random. Those of a smaller k are among those of a larger one.
    """
    rewards = scores.reward.reshape(-1, RESPONSES)
    wrong = np.tile(np.arange(1, RESPONSES), (len(rewards), 1))
    wrong = np.random.default_rng(seed).permuted(wrong, axis=1)[:, : k - 1]
    kept = np.column_stack([np.zeros(len(rewards), dtype=np.int64), wrong])
    return Scores.from_arrays(np.take_along_axis(rewards, kept, axis=1), manifest=scores.manifest)


def first_pairs(scores: Scores) -> Scores:
    """Keep the correct response of each problem and the first wrong one that the source lists."""
    return Scores.from_arrays(scores.reward.reshape(-1, RESPONSES)[:, :2], manifest=scores.manifest)


def temperature_row(scores: Scores, resamples: int) -> Row:
    """Return the best temperatures with some responses, and how much larger those are than with all ten.

    The sets share their problems. The intervals of the ratios resample problems, and so allow for it.
    """
    sets = {f"{k}": with_responses(scores, k) for k in SIZES} | {"first": first_pairs(scores)}
    row: Row = {}
    for name, one in sets.items():
        prompt = np.repeat(np.arange(one.n_items), np.diff(one.offsets))
        found = temperature_interval(one.reward, one.is_correct, prompt)
        row |= {f"t_{name}": found.value, f"t_{name}_low": found.low, f"t_{name}_high": found.high}
    rng = np.random.default_rng(0)
    drawn = [rng.integers(scores.n_items, size=scores.n_items) for _ in range(resamples)]
    all_ten = np.array([_fitted(scores, index) for index in drawn])
    for name in ("2", "first"):
        row |= dict.fromkeys((f"ratio_{name}", f"ratio_{name}_low", f"ratio_{name}_high"))
        if np.isfinite([row[f"t_{name}"], row["t_10"], row["t_10_high"]]).all():
            ratios = np.array([_fitted(sets[name], index) for index in drawn]) / all_ten
            low, high = np.quantile(ratios, [0.025, 0.975])
            value = row[f"t_{name}"] / row["t_10"]
            row |= {
                f"ratio_{name}": value,
                f"ratio_{name}_low": float(low),
                f"ratio_{name}_high": float(high),
            }
    return row


def _fitted(scores: Scores, index: IntArray) -> float:
    """Return the best temperature of some problems, which may be there several times."""
    m = len(scores) // scores.n_items
    rewards, correct = (values.reshape(-1, m)[index].ravel() for values in (scores.reward, scores.is_correct))
    return fit_top_1_temperature(rewards, correct, np.repeat(np.arange(len(index)), m)).temperature


def best_of_k(scores: Scores, k: int) -> FloatArray:
    """Return the probability that the choice among k of the ten responses is correct, for each problem (n,).

    All choices of k responses are equally likely. Exact: with b wrong responses below the correct one and t
    at the same reward, the sum over the j of them that are among the k.
    """
    rewards = scores.reward.reshape(-1, RESPONSES)
    below = (rewards[:, 1:] < rewards[:, :1]).sum(axis=1)
    level = (rewards[:, 1:] == rewards[:, :1]).sum(axis=1)
    return np.array([_picked(int(b), int(t), k) for b, t in zip(below, level, strict=True)])


def _picked(below: int, level: int, k: int) -> float:
    ways = sum(comb(below, k - 1 - j) * comb(level, j) / (1 + j) for j in range(min(level, k - 1) + 1))
    return k / RESPONSES * ways / comb(RESPONSES - 1, k - 1)


def curve_rows(board: Mapping[str, Scores]) -> list[Row]:
    """Return best-of-k of each model: the probability of a correct choice, with its interval."""
    rows = []
    for model, scores in board.items():
        for k in range(1, RESPONSES + 1):
            found = mean_interval(best_of_k(scores, k))
            limits = {"right": found.value, "right_low": found.low, "right_high": found.high}
            rows.append({"model": model, "k": k, **limits})
    return rows


def threshold_rows(model: str, scores: Scores) -> list[Row]:
    """Return how many first choices have at least a stated probability, and how many of them are right."""
    confidence = forecast(scores).probability.reshape(-1, RESPONSES).max(axis=1)
    right, rows = _right(scores), []
    for limit in SURE:
        accepted = confidence >= limit
        row: Row = {"model": model, "limit": limit, "accepted": int(accepted.sum()), "right": None}
        if accepted.any():
            share = proportion_interval(right[accepted])
            row |= {"right": share.value, "right_low": share.low, "right_high": share.high}
        rows.append({"right_low": None, "right_high": None, **row})
    return rows


def decision_row(scores: Scores) -> Row:
    """Return what can be accepted so that few are wrong, and the cost of accepting p ≥ 1 − ASKING."""
    row: Row = {}
    for alpha in WRONG:
        choice, name = decide(scores, alpha=alpha).choice, f"{alpha:.0%}".removesuffix("%")
        accepted = None if choice.threshold is None else choice.n
        row |= {f"threshold_{name}": choice.threshold, f"accepted_{name}": accepted}
        row |= {f"wrong_{name}": choice.wrong, f"wrong_{name}_high": choice.high}
    regret = decide(scores, alpha=ASKING).regret
    assert regret is not None
    row |= {"believed": regret.believed, "cost": regret.cost, "calibrated_cost": regret.calibrated_cost}
    return row | {"regret": regret.value, "regret_low": regret.low, "regret_high": regret.high}


def step_differences(models: Mapping[str, Scores], name: str) -> list[Row]:
    """Compare the accuracy of each way to combine steps with that of the product, on the same problems."""
    right = {how: _right(models[f"{name} ({how})"]) for how in STEPS}
    rows = []
    for how in STEPS[1:]:
        found = mean_difference(right["product"], right[how])
        limits = {"difference": found.value, "difference_low": found.low, "difference_high": found.high}
        rows.append({"model": name, "steps": how, **limits, "p_value": found.p_value})
    return rows


def _right(scores: Scores) -> FloatArray:
    """Return whether the correct response has the largest reward, in parts where several do: (n,)."""
    rewards = scores.reward.reshape(-1, RESPONSES)
    largest = rewards == rewards.max(axis=1, keepdims=True)
    return largest[:, 0] / largest.sum(axis=1)


def shared_top(scores: Scores) -> Row:
    """Return how often the largest score is shared by several responses, with its interval."""
    rewards = scores.reward.reshape(-1, RESPONSES)
    shared = ((rewards == rewards.max(axis=1, keepdims=True)).sum(axis=1) > 1).astype(np.float64)
    found = proportion_interval(shared)
    return {"shared": found.value, "shared_low": found.low, "shared_high": found.high}


def order_agreement(board: Mapping[str, Scores], resamples: int) -> list[Row]:
    """Return Kendall's tau between the orders of models with 2 and with 10 responses, for three metrics.

    The intervals resample problems; the models are these nine.
    """
    pairs = [(with_responses(scores, SIZES[0]), scores) for scores in board.values()]
    n = pairs[0][1].n_items
    rng = np.random.default_rng(0)
    drawn = [np.arange(n), *(rng.integers(n, size=n) for _ in range(resamples))]
    taus = np.array([_taus(pairs, index) for index in drawn])
    low, high = np.quantile(taus[1:], [0.025, 0.975], axis=0)
    return [
        {"metric": name, "tau": float(taus[0, i]), "tau_low": float(low[i]), "tau_high": float(high[i])}
        for i, name in enumerate(("lost_information", "overconfidence", "ece"))
    ]


def _taus(pairs: Sequence[tuple[Scores, Scores]], index: IntArray) -> list[float]:
    from scipy.stats import kendalltau

    few, many = (np.array([_errors(pair[side], index) for pair in pairs]) for side in (0, 1))
    return [float(kendalltau(few[:, i], many[:, i]).statistic) for i in range(few.shape[1])]


def _errors(scores: Scores, index: IntArray) -> list[float]:
    """Return lost information, the size of the gap and the ECE of some problems, computed directly."""
    m = len(scores) // scores.n_items
    rewards = scores.reward.reshape(-1, m)[index]  # the first response is the correct one
    now, best = (log_softmax(rewards / t, axis=1) for t in (1.0, _fitted(scores, index)))
    lost = float((best[:, 0] - now[:, 0]).mean() / np.log(m))
    largest = rewards == rewards.max(axis=1, keepdims=True)
    p = np.exp(now)
    gap = float(p.max(axis=1).mean() - (largest[:, 0] / largest.sum(axis=1)).mean())
    correct = np.zeros_like(p)
    correct[:, 0] = 1.0
    return [lost, abs(gap), ece(p.ravel(), correct.ravel())]
