"""A threshold with a guarantee: accept everything, or fixed-sequence testing, with exact binomial bounds.

Given t, the number of errors among the N prompts with p ≥ t is binomial with the error rate R(t) = P(wrong |
p ≥ t). The hypothesis R(t) > α is rejected if the Clopper-Pearson upper bound for R(t) is at most α. The
thresholds are fixed in advance and tested from the highest down until one is not rejected. So the chance that
any threshold with R(t) > α passes is at most the level of one test, whatever the number of thresholds.

The sequence stops early if the surest choices are not the best ones. So accepting everything is tested before
it, with a small share of 1 − level (`ALL_SHARE`). The sequence has the rest, so that judges whose
probabilities are sharp lose little. The chance that any wrong threshold passes is at most the sum, 1 − level.

Very high thresholds accept too few prompts for any test to pass. The sequence starts at the first threshold
that accepts enough of them (`_first_size`). That depends on the probabilities only, not on which responses
are correct. The guarantee is exact if the error rate falls as the threshold rises. `results/decisions.md`
includes a case where it does not fall.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, FloatArray

THRESHOLDS = (*(1 - float(f"{1 / (1 + np.exp(x)):.3g}") for x in np.arange(16.0, -4.05, -0.1)), 0.0)
"""The thresholds in descending order: steps of 0.1 in log-odds, rounded. The last, 0, accepts everything."""
ALL_SHARE = 0.2
"""The share of 1 − level with which accepting everything is tested first."""


@dataclass(frozen=True)
class Threshold:
    """A threshold for the probability of a judge's first choice, and the prompts that it accepts.

    Attributes
    ----------
    threshold : float, optional
        Accept if the probability is at least this; 0 accepts everything, None accepts nothing.
    accepted : float
        Fraction of prompts that are accepted.
    n : int
        Number of accepted prompts; if none are accepted, the number in the first test.
    wrong, high : float, optional
        Fraction of wrong choices among these n, and its one-sided exact upper bound; None if no test was
        possible.
    fewest : int
        The smallest number of accepted prompts for which a test can pass.

    Examples
    --------
    >>> from rmcalib.repair import decide
    >>> from rmcalib.scores import Scores
    >>> decide(Scores.from_arrays([[9.0, 0.0]] * 100)).choice.threshold
    0.0
    """

    threshold: float | None
    accepted: float
    n: int
    wrong: float | None
    high: float | None
    fewest: int


def safe_threshold(
    odds: FloatArray, wrong: BoolArray, *, alpha: float = 0.1, level: float = 0.95, design: float = 1.0
) -> Threshold:
    """Return 0 if everything can be accepted, or the lowest threshold that passes the sequence of tests.

    Parameters
    ----------
    odds : float array (n,)
        Log-odds of the probability of each prompt's first choice.
    wrong : bool array (n,)
        True if that choice is wrong.
    alpha, level : float
        The largest error rate, and the confidence that it is not exceeded.
    design : float
        How many prompts count as one, because they belong together.

    Returns
    -------
    Threshold

    Examples
    --------
    >>> odds = np.repeat([4.0, 1.0], 200)
    >>> wrong = np.repeat([False, True, False], [200, 100, 100])
    >>> found = safe_threshold(odds, wrong, alpha=0.05)
    >>> round(found.threshold, 3), found.n, found.wrong, round(found.high, 4)
    (0.75, 200, 0.0, 0.016)
    """
    rest = 1 - (1 - ALL_SHARE) * (1 - level)
    fewest = int(np.ceil(_fewest(alpha, rest) * design))
    everything = float(_upper(wrong.sum() / design, len(wrong) / design, 1 - ALL_SHARE * (1 - level)))
    if everything <= alpha:
        return Threshold(0.0, 1.0, len(odds), float(wrong.mean()), everything, fewest)
    return _sequence(odds, wrong, alpha, rest, design)


def _sequence(odds: FloatArray, wrong: BoolArray, alpha: float, level: float, design: float) -> Threshold:
    """Return the lowest threshold that passes the fixed sequence of tests, each at this level."""
    grid = _grid_odds()
    order = np.argsort(-odds, kind="stable")
    counts = np.searchsorted(-odds[order], -grid, side="right")
    errors = np.concatenate([[0], np.cumsum(wrong[order])])[counts]
    fewest = int(np.ceil(_fewest(alpha, level) * design))
    if len(odds) < fewest:
        return Threshold(None, 0.0, 0, None, None, fewest)
    start = int(np.argmax(counts >= _first_size(int(len(odds) / design), alpha, level) * design))
    high = _upper(errors / design, counts / design, level)
    passed = high[start:] <= alpha
    last = start + int(np.argmin(passed) if not passed.all() else len(passed)) - 1
    shown = max(last, start)
    n = int(counts[shown])
    return Threshold(
        threshold=None if last < start else THRESHOLDS[last],
        accepted=0.0 if last < start else n / len(odds),
        n=n,
        wrong=float(errors[shown] / n),
        high=float(high[shown]),
        fewest=fewest,
    )


def log_odds(log_p: FloatArray) -> FloatArray:
    """Return log(p / (1 − p)) for log-probabilities (n,); exact even if p rounds to 1.

    >>> log_odds(np.log([0.5, 0.75])).round(3)
    array([0.   , 1.099])
    """
    with np.errstate(divide="ignore"):
        return log_p - np.log(-np.expm1(log_p))


def exact_limits(successes: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Return the two-sided Clopper-Pearson limits of proportions.

    >>> low, high = exact_limits([0, 5], [10, 10])
    >>> low.round(3), high.round(3)
    (array([0.   , 0.187]), array([0.308, 0.813]))
    """
    k, total = np.asarray(successes), np.asarray(n)
    high = _upper(k, total, (1 + level) / 2)
    return 1 - _upper(total - k, total, (1 + level) / 2), high


def _upper(k: ArrayLike, n: ArrayLike, level: float) -> FloatArray:
    """Return the one-sided Clopper-Pearson upper bound of the proportions k / n; 1 where all succeed."""
    from scipy.special import betaincinv

    successes, total = np.asarray(k, dtype=float), np.asarray(n, dtype=float)
    rest = total - successes
    found = betaincinv(successes + 1, np.where(rest > 0, rest, 1.0), level)
    return np.where(rest > 0, found, 1.0)


@cache
def _grid_odds() -> FloatArray:
    with np.errstate(divide="ignore"):
        return log_odds(np.log(np.array(THRESHOLDS)))


def _first_size(n: int, alpha: float, level: float) -> int:
    """Return how many of n prompts the first tested threshold must accept.

    With too few of them, one error ends the sequence; with too many, less confident choices are included.

    >>> [_first_size(n, 0.1, 0.95) for n in (30, 150, 300, 2000)]
    [30, 58, 100, 200]
    """
    small = min(_enough(alpha, level), max(2 * _fewest(alpha, level), n // 3))
    return min(n, max(small, n // 10))


@cache
def _fewest(alpha: float, level: float) -> int:
    """Return the smallest number of accepted prompts that passes a test if none of them is wrong.

    >>> _fewest(0.05, 0.95)
    59
    """
    return int(np.ceil(np.log1p(-level) / np.log1p(-alpha)))


@cache
def _enough(alpha: float, level: float) -> int:
    """Return the number of accepted prompts that passes a test if half of the allowed errors occur.

    >>> _enough(0.1, 0.95)
    103
    """
    n = np.arange(_fewest(alpha, level), int(50 / alpha))
    passed = _upper(np.floor(n * alpha / 2), n, level) <= alpha
    # The smallest size such that it and all larger ones pass.
    return int(n[np.flatnonzero(~passed)[-1] + 1] if not passed.all() else n[0])
