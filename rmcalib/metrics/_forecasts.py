"""Forecasts: what a reward model's rewards say about which response of a prompt comes first.

Prompts have different numbers of responses, so arrays are flat: one entry per response, prompt after prompt,
with offsets that say where each prompt starts. Sums and maxima are taken per segment.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, as_floats, segment_log_softmax
from rmcalib.benchmarks import OfficialScore
from rmcalib.metrics._rewardbench import tied_categories
from rmcalib.scores import Scores

__all__ = [
    "Forecasts",
    "accuracy_of",
    "centred",
    "first_correct_probability",
    "forecast",
    "fraction_correct",
    "log_softmax",
    "margins",
    "once",
    "outcomes",
    "pair_log_odds",
    "pairwise_forecasts",
    "picked_rows",
    "select_prompts",
    "set_forecasts",
    "single_answers",
    "top_1_prompts",
]

Options = ParamSpec("Options")
Result = TypeVar("Result")
Names = np.ndarray[tuple[int], np.dtype[np.str_]]


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Plackett-Luce forecasts of the first response of each prompt.

    Attributes
    ----------
    log_probability : (N,) log P(i first), one entry per response.
    is_correct : (N,) the truth.
    reward, length : (N,) the rewards, and the lengths of the responses (NaN where unknown).
    offsets : (n + 1,) where each of the n prompts starts.
    source : (n,) the number of each prompt in the scores.
    category : (n,) the category of each prompt.
    one_answer : (n,) whether the benchmark asks for one right answer; False for RewardBench 2's Ties.
    scores : the scores that the forecasts were made from.
    whole : the forecasts of all prompts, if these are a selection; else None.
    official : what the benchmark's authors report of these scores, if known.
    """

    log_probability: FloatArray
    is_correct: BoolArray
    reward: FloatArray
    length: FloatArray
    offsets: IntArray
    source: IntArray
    category: Names
    one_answer: BoolArray
    scores: Scores = field(repr=False)
    whole: Forecasts | None = field(default=None, repr=False)
    official: tuple[OfficialScore, ...] = ()
    memory: dict[Hashable, object] = field(default_factory=dict, repr=False)

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


def once(
    compute: Callable[Concatenate[Forecasts, Options], Result],
) -> Callable[Concatenate[Forecasts, Options], Result]:
    """Compute a function of forecasts once per forecasts and options: several metrics share the result."""

    @wraps(compute)
    def remembered(forecasts: Forecasts, /, *args: Options.args, **options: Options.kwargs) -> Result:
        key = (compute, args, tuple(sorted(options.items())))
        if key not in forecasts.memory:
            forecasts.memory[key] = compute(forecasts, *args, **options)
        result: Result = forecasts.memory[key]  # type: ignore[assignment]
        return result

    return remembered


def forecast(
    scores: Scores,
    *,
    temperature: ArrayLike = 1.0,
    lengths: ArrayLike | None = None,
    official: Iterable[OfficialScore] = (),
) -> Forecasts:
    """Turn rewards into P(i first) = exp(r_i/T) / Σ_j exp(r_j/T) over the responses of each prompt.

    ``temperature``: one number, or one per prompt (n,). ``lengths`` (N,): the lengths of the responses; by
    default the scores' numbers of tokens, NaN where they are unknown. ``official``: what the benchmark's
    authors report, as `rmcalib.benchmarks.official_score` computes it.

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
        one_answer=~np.isin(scores.category[offsets[:-1]], sorted(tied_categories(scores))),
        scores=scores,
        official=tuple(official),
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
    sizes = np.diff(offsets)
    return segment_log_softmax(r / np.repeat(np.broadcast_to(t, (n,)), sizes), sizes)


def top_1_prompts(forecasts: Forecasts) -> BoolArray:
    """Return which prompts (n,) have exactly one correct response and ask for one right answer.

    >>> columns = {"item_id": ["ref:1", "ref:1"], "category": ["Ties"] * 2, "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [1.0, 0.0]}
    >>> top_1_prompts(forecast(Scores.from_columns(columns)))
    array([False])
    """
    correct = np.add.reduceat(forecasts.is_correct, forecasts.starts, dtype=np.int64)
    return np.asarray((correct == 1) & forecasts.one_answer)


def single_answers(scores: Scores) -> Forecasts | None:
    """Return the forecasts of the prompts with exactly one correct response; None if there are none.

    >>> single_answers(Scores.from_arrays([[1.0, 0.0], [2.0, 0.0]])).reward.tolist()
    [1.0, 0.0, 2.0, 0.0]
    """
    if not scores.is_correct.any():
        return None
    everything = forecast(scores.decided())
    kept = top_1_prompts(everything)
    return select_prompts(everything, kept) if kept.any() else None


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
        one_answer=forecasts.one_answer[kept],
        scores=forecasts.scores,
        whole=forecasts.whole or forecasts,
    )


def centred(values: FloatArray, forecasts: Forecasts) -> FloatArray:
    """Return values (N,) minus the mean of their prompt.

    >>> columns = {"item_id": ["a", "a"], "category": ["x"] * 2, "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [3.0, 1.0]}
    >>> centred(np.array([3.0, 1.0]), forecast(Scores.from_columns(columns)))
    array([ 1., -1.])
    """
    means = np.add.reduceat(values, forecasts.starts) / forecasts.sizes
    return values - np.repeat(means, forecasts.sizes)


def first_correct_probability(forecasts: Forecasts) -> FloatArray:
    """Return P(first) of each prompt's first correct response (n,): used by the reference protocol."""
    correct = np.flatnonzero(forecasts.is_correct)
    return forecasts.probability[correct[np.searchsorted(correct, forecasts.starts)]]


def pairwise_forecasts(forecasts: Forecasts) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return the sub-2 forecasts of every correct-versus-wrong pair: probabilities, outcomes, prompts.

    P(i before j) = 1 / (1 + exp(r_j − r_i)): Plackett-Luce on the two. Each pair is counted in both
    orientations, (p, 1) and (1 − p, 0): with only one of them every outcome would be 1.

    >>> columns = {"item_id": ["a"] * 3, "category": ["x"] * 3, "response": [0, 1, 2],
    ...            "is_correct": [True, False, False], "reward": [np.log(3.0), 0.0, 0.0]}
    >>> p, happened, prompt = pairwise_forecasts(forecast(Scores.from_columns(columns)))
    >>> p.round(2), happened, prompt
    (array([0.75, 0.75, 0.25, 0.25]), array([1., 1., 0., 0.]), array([0, 0, 0, 0]))
    """
    from scipy.special import expit

    gap, prompt = pair_log_odds(forecasts)
    return expit(np.concatenate([gap, -gap])), _yes_then_no(len(gap)), np.concatenate([prompt, prompt])


def pair_log_odds(forecasts: Forecasts) -> tuple[FloatArray, IntArray]:
    """Return the log-odds that the correct response of each correct-versus-wrong pair wins, and its prompt.

    They are those of the scores' pairwise probabilities where there are some, and infinite where a judge is
    certain; pairs that are not known are left out. Else they follow from the rewards.

    >>> columns = {"item_id": ["a"] * 3, "category": ["x"] * 3, "response": [0, 1, 2],
    ...            "is_correct": [True, False, False], "reward": [2.0, 0.0, 3.0]}
    >>> pair_log_odds(forecast(Scores.from_columns(columns)))[0].round(4)
    array([ 2., -1.])
    """
    one, other, prompt = _pair_rows(forecasts)
    known = forecasts.scores.pair_probabilities
    if known is None:
        # Log-probabilities differ by r_i/T − r_j/T, so that pairs follow the forecast's temperature.
        return forecasts.log_probability[one] - forecasts.log_probability[other], prompt
    from scipy.special import logit

    sizes = np.diff(forecasts.scores.offsets)
    base = (np.cumsum(sizes * sizes) - sizes * sizes)[forecasts.source][prompt]
    start, width = forecasts.starts[prompt], forecasts.sizes[prompt]
    p = known[base + (one - start) * width + (other - start)]
    there = ~np.isnan(p)
    return np.asarray(logit(p[there])), prompt[there]


def _pair_rows(forecasts: Forecasts) -> tuple[IntArray, IntArray, IntArray]:
    """Rows of the correct and the wrong response of each pair, and its prompt."""
    correct = np.flatnonzero(forecasts.is_correct)
    wrong = np.flatnonzero(~forecasts.is_correct)
    n_wrong = np.add.reduceat(~forecasts.is_correct, forecasts.starts, dtype=np.int64)
    first_wrong = np.cumsum(n_wrong) - n_wrong
    owner = forecasts.prompt[correct]
    repeats = n_wrong[owner]
    # The number of each pair among those of its correct response.
    within = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    other = wrong[np.repeat(first_wrong[owner], repeats) + within]
    return np.repeat(correct, repeats), other, np.repeat(owner, repeats)


def set_forecasts(forecasts: Forecasts) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return P(a correct response is first) and P(a wrong one is): probabilities, outcomes, prompts (2n,).

    The sums over the correct and over the wrong responses of each prompt, with outcomes 1 and 0. This is the
    question to ask where several responses are correct.

    >>> columns = {"item_id": ["a"] * 4, "category": ["x"] * 4, "response": [0, 1, 2, 3],
    ...            "is_correct": [True, True, True, False], "reward": [0.0] * 4}
    >>> set_forecasts(forecast(Scores.from_columns(columns)))[:2]
    (array([0.75, 0.25]), array([1., 0.]))
    """
    from scipy.special import expit

    log_odds = _log_sum(forecasts, forecasts.is_correct) - _log_sum(forecasts, ~forecasts.is_correct)
    prompt = np.arange(len(forecasts))
    return (
        expit(np.concatenate([log_odds, -log_odds])),
        _yes_then_no(len(forecasts)),
        np.concatenate([prompt, prompt]),
    )


def outcomes(forecasts: Forecasts) -> FloatArray:
    """Return 1 for correct responses and 0 for the others: (N,)."""
    return forecasts.is_correct.astype(np.float64)


def accuracy_of(forecasts: Forecasts) -> FloatArray:
    """Return each prompt's accuracy (n,): the fraction of correct ones among those of the largest reward."""
    return fraction_correct(forecasts, forecasts.reward)


def fraction_correct(forecasts: Forecasts, key: FloatArray) -> FloatArray:
    """Return the fraction of correct responses among those with their prompt's largest ``key`` (N,): (n,)."""
    largest = key == np.repeat(np.maximum.reduceat(key, forecasts.starts), forecasts.sizes)
    hits = np.add.reduceat(largest & forecasts.is_correct, forecasts.starts, dtype=np.int64)
    return hits / np.add.reduceat(largest, forecasts.starts, dtype=np.int64)


@once
def picked_rows(forecasts: Forecasts, seed: int = 0) -> tuple[IntArray, FloatArray]:
    """Return the row of each prompt's most probable response, and whether it is correct: (n,), (n,).

    Equal rewards are decided at random (seeded): the first one would always be the correct one where correct
    responses come first.

    Parameters
    ----------
    forecasts : n prompts.
    seed : of the random choice.

    Examples
    --------
    >>> rows, right = picked_rows(forecast(Scores.from_arrays([[1.0, 0.0], [0.0, 1.0]])))
    >>> rows.tolist(), right.tolist()
    ([0, 3], [1.0, 0.0])
    """
    largest = forecasts.reward == np.repeat(
        np.maximum.reduceat(forecasts.reward, forecasts.starts), forecasts.sizes
    )
    lot = np.where(largest, np.random.default_rng(seed).random(len(largest)), -1.0)
    drawn = lot == np.repeat(np.maximum.reduceat(lot, forecasts.starts), forecasts.sizes)
    rows = np.flatnonzero(drawn)
    rows = rows[np.unique(forecasts.prompt[rows], return_index=True)[1]]
    return rows, forecasts.is_correct[rows].astype(np.float64)


def margins(forecasts: Forecasts) -> FloatArray:
    """Return the worst correct reward minus the best wrong one: (n,); positive if all correct ones win.

    Parameters
    ----------
    forecasts : n prompts.

    Examples
    --------
    >>> margins(forecast(Scores.from_arrays([[1.0, 0.0, 0.5], [0.0, 1.0, 2.0]])))
    array([ 0.5, -2. ])
    """
    correct = np.where(forecasts.is_correct, forecasts.reward, np.inf)
    wrong = np.where(forecasts.is_correct, -np.inf, forecasts.reward)
    return np.minimum.reduceat(correct, forecasts.starts) - np.maximum.reduceat(wrong, forecasts.starts)


def _yes_then_no(n: int) -> FloatArray:
    return np.repeat([1.0, 0.0], n)


def _log_sum(forecasts: Forecasts, rows: BoolArray) -> FloatArray:
    """Log of the summed probability of some rows of each prompt; every prompt has at least one: (n,)."""
    values = np.where(rows, forecasts.log_probability, -np.inf)
    peak = np.maximum.reduceat(values, forecasts.starts)
    total = np.add.reduceat(np.exp(values - np.repeat(peak, forecasts.sizes)), forecasts.starts)
    return peak + np.log(total)
