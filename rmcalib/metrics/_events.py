"""Forecasts of events: the first choice, pairs of responses, and sets of correct responses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, first_and_next
from rmcalib.metrics._forecasts import Forecasts, once

__all__ = [
    "accuracy_of",
    "centred",
    "confidence_of",
    "correct_first_probability",
    "first_correct_probability",
    "first_shares",
    "fraction_correct",
    "if_right_and_if_wrong",
    "margins",
    "of_first_choice",
    "outcomes",
    "pair_log_odds",
    "pairwise_forecasts",
    "scale_free_rewards",
]


def outcomes(forecasts: Forecasts) -> FloatArray:
    """Return 1 for correct responses and 0 for the others: (N,)."""
    return forecasts.is_correct.astype(np.float64)


def accuracy_of(forecasts: Forecasts) -> FloatArray:
    """Return the accuracy of each prompt: the fraction of correct responses with the top reward.

    Parameters
    ----------
    forecasts : Forecasts
        Forecasts of n prompts.

    Returns
    -------
    float array (n,)
        1 or 0, or a share if several responses tie for the first place.

    Examples
    --------
    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
    >>> accuracy_of(forecast(Scores.from_arrays([[1.0, 1.0, 0.0], [2.0, 1.0, 0.0]])))
    array([0.5, 1. ])
    """
    return of_first_choice(forecasts, outcomes(forecasts))


def confidence_of(forecasts: Forecasts) -> FloatArray:
    """Return the probability of each prompt's first choice: (n,)."""
    return np.exp(np.maximum.reduceat(forecasts.log_probability, forecasts.starts))


def of_first_choice(forecasts: Forecasts, values: FloatArray) -> FloatArray:
    """Return the value of each prompt's first choice (n,): the mean of ``values`` (N,) over tied responses.

    No order of the responses and no lot decides among responses of the same reward.

    Parameters
    ----------
    forecasts : Forecasts
        Forecasts of n prompts with N responses.
    values : float array (N,)
        One number per response.

    Examples
    --------
    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
    >>> forecasts = forecast(Scores.from_arrays([[1.0, 1.0, 0.0], [0.0, 1.0, 2.0]]))
    >>> of_first_choice(forecasts, forecasts.is_correct.astype(float))
    array([0.5, 0. ])
    """
    share = first_shares(forecasts)
    return np.add.reduceat(np.where(share > 0, values, 0.0) * share, forecasts.starts)


@once
def first_shares(forecasts: Forecasts) -> FloatArray:
    """Return each response's share of the first place (N,): 1/t for t responses with the largest reward."""
    largest = _is_largest(forecasts, forecasts.reward)
    tied = np.add.reduceat(largest, forecasts.starts, dtype=np.int64)
    return np.asarray(largest / np.repeat(tied, forecasts.sizes))


def fraction_correct(forecasts: Forecasts, key: FloatArray) -> FloatArray:
    """Return the fraction of correct responses among those with their prompt's largest ``key`` (N,): (n,)."""
    largest = _is_largest(forecasts, key)
    hits = np.add.reduceat(largest & forecasts.is_correct, forecasts.starts, dtype=np.int64)
    return hits / np.add.reduceat(largest, forecasts.starts, dtype=np.int64)


@once
def if_right_and_if_wrong(forecasts: Forecasts) -> tuple[Forecasts, Forecasts]:
    """Return the forecasts with other outcomes: the first choice, or the runner-up, is the correct response.

    Intervals need what a metric would be then; see `rmcalib.calibration.jump_interval`. If all rewards of a
    prompt are equal, it has no runner-up, and nothing changes.
    """

    def alternative(rows: IntArray) -> Forecasts:
        correct = np.zeros(len(forecasts.reward), dtype=bool)
        correct[rows] = True
        return replace(forecasts, is_correct=correct, memory={})

    first, second = first_and_next(forecasts.reward, forecasts.sizes)
    return alternative(first), alternative(second)


@once
def scale_free_rewards(forecasts: Forecasts) -> FloatArray:
    """Return the rewards minus the largest of their prompt, divided by the largest such distance: (N,)."""
    distance = forecasts.reward - np.repeat(
        np.maximum.reduceat(forecasts.reward, forecasts.starts), forecasts.sizes
    )
    return np.asarray(distance / (np.abs(distance).max() or 1.0))


def margins(forecasts: Forecasts) -> FloatArray:
    """Return the worst correct reward minus the best wrong one: (n,); positive if all correct ones win.

    Parameters
    ----------
    forecasts : Forecasts
        Forecasts of n prompts.

    Examples
    --------
    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
    >>> margins(forecast(Scores.from_arrays([[1.0, 0.0, 0.5], [0.0, 1.0, 2.0]])))
    array([ 0.5, -2. ])
    """
    correct = np.where(forecasts.is_correct, forecasts.reward, np.inf)
    wrong = np.where(forecasts.is_correct, -np.inf, forecasts.reward)
    return np.minimum.reduceat(correct, forecasts.starts) - np.maximum.reduceat(wrong, forecasts.starts)


def centred(values: FloatArray, forecasts: Forecasts) -> FloatArray:
    """Return values (N,) minus the mean of their prompt.

    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
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
    """Return the forecasts of all pairs of a correct and a wrong response: probabilities, outcomes, prompts.

    P(i before j) = 1 / (1 + exp(r_j − r_i)). Each pair is counted in both orientations, (p, 1) and
    (1 − p, 0): with only one of them every outcome would be 1.

    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
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
    """Return the log-odds that the correct response of each pair wins, and the prompt of the pair.

    If the scores have pairwise probabilities, the log-odds are theirs: infinite where a judge is certain, and
    without unknown pairs. Otherwise they follow from the rewards.

    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
    >>> columns = {"item_id": ["a"] * 3, "category": ["x"] * 3, "response": [0, 1, 2],
    ...            "is_correct": [True, False, False], "reward": [2.0, 0.0, 3.0]}
    >>> pair_log_odds(forecast(Scores.from_columns(columns)))[0].round(4)
    array([ 2., -1.])
    """
    one, other, prompt = _pair_rows(forecasts)
    known = forecasts.scores.pair_probabilities
    if known is None:
        return forecasts.logit[one] - forecasts.logit[other], prompt
    from scipy.special import logit

    sizes = np.diff(forecasts.scores.offsets)
    base = (np.cumsum(sizes * sizes) - sizes * sizes)[forecasts.source][prompt]
    start, width = forecasts.starts[prompt], forecasts.sizes[prompt]
    p = known[base + (one - start) * width + (other - start)]
    there = ~np.isnan(p)
    return np.asarray(logit(p[there])), prompt[there]


def correct_first_probability(forecasts: Forecasts) -> FloatArray:
    """Return P(a correct response is first) of each prompt (n,): the sum over its correct responses.

    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
    >>> columns = {"item_id": ["a"] * 4, "category": ["x"] * 4, "response": [0, 1, 2, 3],
    ...            "is_correct": [True, True, True, False], "reward": [0.0] * 4}
    >>> correct_first_probability(forecast(Scores.from_columns(columns)))
    array([0.75])
    """
    total = np.add.reduceat(forecasts.probability * forecasts.is_correct, forecasts.starts)
    return np.minimum(total, 1.0)


def _pair_rows(forecasts: Forecasts) -> tuple[IntArray, IntArray, IntArray]:
    """Rows of the correct and the wrong response of each pair, and its prompt."""
    correct = np.flatnonzero(forecasts.is_correct)
    wrong = np.flatnonzero(~forecasts.is_correct)
    n_wrong = np.add.reduceat(~forecasts.is_correct, forecasts.starts, dtype=np.int64)
    first_wrong = np.cumsum(n_wrong) - n_wrong
    owner = forecasts.prompt[correct]
    repeats = n_wrong[owner]
    # The position of each pair among those of its correct response.
    within = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    other = wrong[np.repeat(first_wrong[owner], repeats) + within]
    return np.repeat(correct, repeats), other, np.repeat(owner, repeats)


def _yes_then_no(n: int) -> FloatArray:
    return np.repeat([1.0, 0.0], n)


def _is_largest(forecasts: Forecasts, key: FloatArray) -> BoolArray:
    return np.asarray(key == np.repeat(np.maximum.reduceat(key, forecasts.starts), forecasts.sizes))
