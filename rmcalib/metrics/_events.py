"""Forecasts of events: the first choice, pairs of responses, and sets of correct responses."""

from __future__ import annotations

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.metrics._forecasts import Forecasts, once

__all__ = [
    "accuracy_of",
    "centred",
    "first_correct_probability",
    "fraction_correct",
    "margins",
    "outcomes",
    "pair_log_odds",
    "pairwise_forecasts",
    "picked_rows",
    "set_forecasts",
]


def outcomes(forecasts: Forecasts) -> FloatArray:
    """Return 1 for correct responses and 0 for the others: (N,)."""
    return forecasts.is_correct.astype(np.float64)


def accuracy_of(forecasts: Forecasts) -> FloatArray:
    """Return the accuracy of each prompt (n,): the fraction of correct responses with the largest reward."""
    return fraction_correct(forecasts, forecasts.reward)


def fraction_correct(forecasts: Forecasts, key: FloatArray) -> FloatArray:
    """Return the fraction of correct responses among those with their prompt's largest ``key`` (N,): (n,)."""
    largest = key == np.repeat(np.maximum.reduceat(key, forecasts.starts), forecasts.sizes)
    hits = np.add.reduceat(largest & forecasts.is_correct, forecasts.starts, dtype=np.int64)
    return hits / np.add.reduceat(largest, forecasts.starts, dtype=np.int64)


@once
def picked_rows(forecasts: Forecasts, seed: int = 0) -> tuple[IntArray, FloatArray]:
    """Return the most probable response of each prompt, and whether it is correct.

    Among equal rewards the choice is random: in benchmarks that list correct responses first, the first one
    would always be correct.

    Parameters
    ----------
    forecasts : Forecasts
        Forecasts of n prompts.
    seed : int
        Seed of the random choice.

    Returns
    -------
    rows : int array (n,)
        The row of each chosen response.
    right : float array (n,)
        1 if it is correct, else 0.

    Examples
    --------
    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
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
        # Log-probabilities differ by r_i/T − r_j/T, so that pairs follow the forecast's temperature.
        return forecasts.log_probability[one] - forecasts.log_probability[other], prompt
    from scipy.special import logit

    sizes = np.diff(forecasts.scores.offsets)
    base = (np.cumsum(sizes * sizes) - sizes * sizes)[forecasts.source][prompt]
    start, width = forecasts.starts[prompt], forecasts.sizes[prompt]
    p = known[base + (one - start) * width + (other - start)]
    there = ~np.isnan(p)
    return np.asarray(logit(p[there])), prompt[there]


def set_forecasts(forecasts: Forecasts) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return P(a correct response is first) and P(a wrong one is): probabilities, outcomes, prompts (2n,).

    These are the sums over the correct and over the wrong responses of each prompt, with outcomes 1 and 0.
    They are used where several responses are correct.

    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
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


def _log_sum(forecasts: Forecasts, rows: BoolArray) -> FloatArray:
    """Log of the summed probability of some rows of each prompt; every prompt has at least one: (n,)."""
    values = np.where(rows, forecasts.log_probability, -np.inf)
    peak = np.maximum.reduceat(values, forecasts.starts)
    total = np.add.reduceat(np.exp(values - np.repeat(peak, forecasts.sizes)), forecasts.starts)
    return peak + np.log(total)
