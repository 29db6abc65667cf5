"""Forecasts: what a reward model's rewards say about which response of a prompt comes first.

Prompts have different numbers of responses, so everything is flat: one entry a response, prompt after prompt,
and offsets that say where each prompt starts. Sums and maxima are taken by segment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, as_floats
from rmcalib.metrics._rewardbench import TIES
from rmcalib.scores import Scores

__all__ = [
    "Forecasts",
    "centred",
    "first_correct_probability",
    "forecast",
    "log_softmax",
    "pairwise_forecasts",
    "select_prompts",
    "set_forecasts",
    "top_1_prompts",
]


@dataclass(frozen=True)
class Forecasts:
    """Plackett-Luce forecasts of the first response of each prompt, one entry a response (N,).

    ``log_probability`` is log P(i first); ``is_correct`` the truth; ``reward`` and ``length`` are kept beside
    them; ``offsets`` (n + 1,) say where each of the n prompts starts, ``prompt`` (N,) which prompt a row is
    of, ``source`` (n,) which prompt of the scores it was, ``category`` (n,) its category.
    """

    log_probability: FloatArray
    is_correct: BoolArray
    reward: FloatArray
    length: FloatArray
    offsets: IntArray
    source: IntArray
    category: np.ndarray[tuple[int], np.dtype[np.str_]]

    def __len__(self) -> int:
        """Count the prompts."""
        return len(self.offsets) - 1

    @property
    def probability(self) -> FloatArray:
        """P(i first): (N,)."""
        return np.exp(self.log_probability)

    @property
    def starts(self) -> IntArray:
        """Where each prompt's rows start: (n,)."""
        return self.offsets[:-1]

    @property
    def sizes(self) -> IntArray:
        """How many responses each prompt has: (n,)."""
        return np.diff(self.offsets)

    @property
    def prompt(self) -> IntArray:
        """Which prompt each row belongs to: (N,)."""
        return np.repeat(np.arange(len(self)), self.sizes)


def forecast(scores: Scores, *, temperature: ArrayLike = 1.0, lengths: ArrayLike | None = None) -> Forecasts:
    """Turn rewards into P(i first) = exp(r_i/T) / Σ_j exp(r_j/T) over the responses of each prompt.

    ``temperature``: one number, or one for each prompt (n,). ``lengths`` (N,): the responses' lengths; by
    default the scores' numbers of tokens, NaN where they are unknown.

    >>> columns = {"item_id": ["a", "a"], "category": ["Math"] * 2, "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [np.log(3.0), 0.0]}
    >>> forecast(Scores.from_columns(columns)).probability.round(4)
    array([0.75, 0.25])
    """
    offsets = scores.offsets
    if lengths is None:
        lengths = np.where(scores.n_tokens >= 0, scores.n_tokens, np.nan)
    length = np.asarray(lengths, dtype=np.float64)
    if length.shape != scores.reward.shape:
        raise ValueError(f"lengths: {length.shape[0]} lengths for {len(scores)} responses")
    return Forecasts(
        log_probability=log_softmax(scores.reward, offsets, temperature=temperature),
        is_correct=scores.is_correct,
        reward=scores.reward,
        length=length,
        offsets=offsets,
        source=np.arange(len(offsets) - 1),
        category=scores.category[offsets[:-1]],
    )


def log_softmax(rewards: ArrayLike, offsets: IntArray, *, temperature: ArrayLike = 1.0) -> FloatArray:
    """Return r_i/T − log Σ_j exp(r_j/T) over each segment: (N,), in float64, whatever the rewards' size.

    >>> np.exp(log_softmax([1e6, 1e6, 0.0], np.array([0, 2, 3])))
    array([0.5, 0.5, 1. ])
    """
    r = as_floats(rewards, "rewards", ndim=1)
    t = np.asarray(temperature, dtype=np.float64)
    n = len(offsets) - 1
    if t.ndim > 1 or (t.ndim == 1 and len(t) != n) or not (np.isfinite(t) & (t > 0)).all():
        raise ValueError(f"temperature: expected a positive number, or one for each of the {n} prompts")
    starts, sizes = offsets[:-1], np.diff(offsets)
    logits = r / np.repeat(np.broadcast_to(t, (n,)), sizes)
    logits = logits - np.repeat(np.maximum.reduceat(logits, starts), sizes)
    return logits - np.repeat(np.log(np.add.reduceat(np.exp(logits), starts)), sizes)


def top_1_prompts(forecasts: Forecasts) -> BoolArray:
    """Tell which prompts (n,) have one right answer: exactly one correct response, and not in Ties.

    >>> columns = {"item_id": ["a", "a"], "category": ["Ties"] * 2, "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [1.0, 0.0]}
    >>> top_1_prompts(forecast(Scores.from_columns(columns)))
    array([False])
    """
    correct = np.add.reduceat(forecasts.is_correct, forecasts.starts, dtype=np.int64)
    return np.asarray((correct == 1) & (forecasts.category != TIES))


def select_prompts(forecasts: Forecasts, kept: BoolArray) -> Forecasts:
    """Return the forecasts of the prompts where ``kept`` (n,) is true.

    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x", "x", "y", "y"], "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [1.0, 0.0, 2.0, 0.0]}
    >>> select_prompts(forecast(Scores.from_columns(columns)), np.array([False, True])).reward
    array([2., 0.])
    """
    rows = np.repeat(kept, forecasts.sizes)
    return Forecasts(
        log_probability=forecasts.log_probability[rows],
        is_correct=forecasts.is_correct[rows],
        reward=forecasts.reward[rows],
        length=forecasts.length[rows],
        offsets=np.concatenate([[0], np.cumsum(forecasts.sizes[kept])]).astype(np.int64),
        source=forecasts.source[kept],
        category=forecasts.category[kept],
    )


def centred(values: FloatArray, forecasts: Forecasts) -> FloatArray:
    """Return values (N,) less the mean of their prompt.

    >>> columns = {"item_id": ["a", "a"], "category": ["x"] * 2, "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [3.0, 1.0]}
    >>> centred(np.array([3.0, 1.0]), forecast(Scores.from_columns(columns)))
    array([ 1., -1.])
    """
    means = np.add.reduceat(values, forecasts.starts) / forecasts.sizes
    return values - np.repeat(means, forecasts.sizes)


def first_correct_probability(forecasts: Forecasts) -> FloatArray:
    """Return P(first) of each prompt's first correct response (n,): what the reference protocol looks at."""
    correct = np.flatnonzero(forecasts.is_correct)
    return forecasts.probability[correct[np.searchsorted(correct, forecasts.starts)]]


def pairwise_forecasts(forecasts: Forecasts) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return the sub-2 forecasts of every correct-versus-wrong pair: probabilities, outcomes, prompts.

    P(i before j) = 1 / (1 + exp(r_j − r_i)): Plackett-Luce on the two. Each pair is there in both
    orientations, (p, 1) and (1 − p, 0): taken the one way only, every outcome would be 1.

    >>> columns = {"item_id": ["a"] * 3, "category": ["x"] * 3, "response": [0, 1, 2],
    ...            "is_correct": [True, False, False], "reward": [np.log(3.0), 0.0, 0.0]}
    >>> p, happened, prompt = pairwise_forecasts(forecast(Scores.from_columns(columns)))
    >>> p.round(2), happened, prompt
    (array([0.75, 0.75, 0.25, 0.25]), array([1., 1., 0., 0.]), array([0, 0, 0, 0]))
    """
    correct = np.flatnonzero(forecasts.is_correct)
    wrong = np.flatnonzero(~forecasts.is_correct)
    n_wrong = np.add.reduceat(~forecasts.is_correct, forecasts.starts, dtype=np.int64)
    first_wrong = np.cumsum(n_wrong) - n_wrong
    owner = forecasts.prompt[correct]
    repeats = n_wrong[owner]
    # The number of each pair among those of its correct response.
    within = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    other = wrong[np.repeat(first_wrong[owner], repeats) + within]
    one = np.repeat(correct, repeats)
    # Log-probabilities differ by r_i/T − r_j/T, so that pairs follow the forecast's temperature.
    gap = forecasts.log_probability[one] - forecasts.log_probability[other]
    prompt = np.repeat(owner, repeats)
    return sigmoid(np.concatenate([gap, -gap])), _yes_then_no(len(gap)), np.concatenate([prompt, prompt])


def set_forecasts(forecasts: Forecasts) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return P(a correct response is first) and P(a wrong one is): probabilities, outcomes, prompts (2n,).

    The sums over the correct and over the wrong responses of each prompt, with outcomes 1 and 0: the question
    where several responses are correct.

    >>> columns = {"item_id": ["a"] * 4, "category": ["x"] * 4, "response": [0, 1, 2, 3],
    ...            "is_correct": [True, True, True, False], "reward": [0.0] * 4}
    >>> set_forecasts(forecast(Scores.from_columns(columns)))[:2]
    (array([0.75, 0.25]), array([1., 0.]))
    """
    log_odds = _log_sum(forecasts, forecasts.is_correct) - _log_sum(forecasts, ~forecasts.is_correct)
    prompt = np.arange(len(forecasts))
    return (
        sigmoid(np.concatenate([log_odds, -log_odds])),
        _yes_then_no(len(forecasts)),
        np.concatenate([prompt, prompt]),
    )


def _yes_then_no(n: int) -> FloatArray:
    return np.repeat([1.0, 0.0], n)


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(−x)) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _log_sum(forecasts: Forecasts, rows: BoolArray) -> FloatArray:
    """Log of the summed probability of some rows of each prompt; every prompt has at least one: (n,)."""
    values = np.where(rows, forecasts.log_probability, -np.inf)
    peak = np.maximum.reduceat(values, forecasts.starts)
    total = np.add.reduceat(np.exp(values - np.repeat(peak, forecasts.sizes)), forecasts.starts)
    return peak + np.log(total)
