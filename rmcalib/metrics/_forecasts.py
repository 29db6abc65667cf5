"""Forecasts: the probability of each response to be the best one of its prompt.

Prompts have different numbers of responses, so arrays are flat: one entry per response, prompt after prompt,
with offsets that say where each prompt starts. Sums and maxima are computed per prompt.
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
    "forecast",
    "log_softmax",
    "once",
    "select_prompts",
    "single_answers",
    "top_1_prompts",
]

Options = ParamSpec("Options")
Result = TypeVar("Result")
Names = np.ndarray[tuple[int], np.dtype[np.str_]]


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Plackett-Luce forecasts of n prompts: the probability of each of their N responses to be the best.

    Attributes
    ----------
    log_probability : float array (N,)
        Log P(i is the best), one entry per response.
    logit : float array (N,)
        Rewards divided by the temperature. Log-probabilities have the same differences, up to rounding.
    is_correct : bool array (N,)
        Whether each response is correct.
    reward, length : float array (N,)
        The rewards, and the lengths of the responses (NaN where unknown).
    offsets : int array (n + 1,)
        Where each of the n prompts starts.
    source : int array (n,)
        The position of each prompt in the scores.
    category : str array (n,)
        The category of each prompt.
    one_answer : bool array (n,)
        Whether a single right answer exists; False for RewardBench 2's Ties.
    scores : Scores
        The scores that the forecasts were made from.
    whole : Forecasts, optional
        The forecasts of all prompts, if these are a selection; else None.
    official : tuple[OfficialScore, ...]
        The scores that the benchmark's authors define, if known.
    memory : dict[Hashable, object]
        Results that several metrics share.

    Examples
    --------
    >>> forecasts = forecast(Scores.from_arrays([[1.0, 0.0], [0.0, 2.0]]))
    >>> len(forecasts), forecasts.probability.round(2).tolist()
    (2, [0.73, 0.27, 0.12, 0.88])
    """

    log_probability: FloatArray
    logit: FloatArray
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
        """P(i is the best): (N,)."""
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
    """Store the result of a function of forecasts, because several metrics share it."""

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
    """Turn rewards into probabilities: P(i is the best) = exp(r_i/T) / Σ_j exp(r_j/T).

    The sum is over the responses of a prompt.

    Parameters
    ----------
    scores : Scores
        The scores of one model, with N responses to n prompts.
    temperature : float or float array (n,)
        T, for all prompts or for each of them.
    lengths : array (N,), optional
        Lengths of the responses; by default the scores' numbers of tokens, NaN where unknown.
    official : Iterable[OfficialScore]
        The scores that the benchmark's authors define (`rmcalib.benchmarks.official_score`).

    Returns
    -------
    Forecasts

    Examples
    --------
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
        raise ValueError(f"lengths: {length.shape[0]} lengths for {len(scores)} responses; expected one each")
    log_probability = log_softmax(scores.reward, offsets, temperature=temperature)
    sizes = np.diff(offsets)
    return Forecasts(
        log_probability=log_probability,
        logit=scores.reward / np.repeat(np.broadcast_to(temperature, sizes.shape), sizes),
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
    """Return r_i/T − log Σ_j exp(r_j/T) over the responses of each prompt: (N,), without overflow.

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
    """Return which prompts have exactly one correct response and a single right answer.

    Parameters
    ----------
    forecasts : Forecasts
        Forecasts of n prompts.

    Returns
    -------
    bool array (n,)
        Prompts of RewardBench 2's Ties are False.

    Examples
    --------
    >>> columns = {"item_id": ["ref:1", "ref:1"], "category": ["Ties"] * 2, "response": [0, 1],
    ...            "is_correct": [True, False], "reward": [1.0, 0.0]}
    >>> top_1_prompts(forecast(Scores.from_columns(columns)))
    array([False])
    """
    correct = np.add.reduceat(forecasts.is_correct, forecasts.starts, dtype=np.int64)
    return np.asarray((correct == 1) & forecasts.one_answer)


def single_answers(scores: Scores) -> Forecasts | None:
    """Return the forecasts of the prompts with exactly one correct response.

    Parameters
    ----------
    scores : Scores
        The scores of one model.

    Returns
    -------
    Forecasts or None
        None if there are no such prompts.

    Examples
    --------
    >>> single_answers(Scores.from_arrays([[1.0, 0.0], [2.0, 0.0]])).reward.tolist()
    [1.0, 0.0, 2.0, 0.0]
    """
    if not scores.is_correct.any():
        return None
    everything = forecast(scores.decided())
    kept = top_1_prompts(everything)
    return select_prompts(everything, kept) if kept.any() else None


def select_prompts(forecasts: Forecasts, kept: BoolArray) -> Forecasts:
    """Return the forecasts of some of the prompts.

    Parameters
    ----------
    forecasts : Forecasts
        Forecasts of n prompts.
    kept : bool array (n,)
        Which of them to keep.

    Returns
    -------
    Forecasts

    Examples
    --------
    >>> columns = {"item_id": ["a", "a", "b", "b"], "category": ["x", "x", "y", "y"], "response": [0, 1] * 2,
    ...            "is_correct": [True, False] * 2, "reward": [1.0, 0.0, 2.0, 0.0]}
    >>> select_prompts(forecast(Scores.from_columns(columns)), np.array([False, True])).reward
    array([2., 0.])
    """
    rows = np.repeat(kept, forecasts.sizes)
    return Forecasts(
        log_probability=forecasts.log_probability[rows],
        logit=forecasts.logit[rows],
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
