"""Noise ceilings: the scores that the true shares of people's choices would have.

The true shares are not known, but their moments can be estimated without bias from several votes on the same
prompt: the mean product of k votes estimates a k-th moment. A single vote is not enough. What the moments
leave open is filled in by a Dirichlet distribution of the shares, fitted to the observed agreement between
voters.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, chunks
from rmcalib.calibration._votes._forecasts import VoteForecasts, pair_agreements, segment_sums

__all__ = ["vote_agreement_ceilings", "vote_brier_ceilings", "vote_log_loss_ceilings"]

_TERMS = 60  # terms of the entropy's series that are estimated from votes; the rest is small
_LOG_RANGE = (-8.0, 10.0)  # log concentration: from unanimous votes to votes by coin flips
_GRID: FloatArray = np.linspace(-30.0, 12.0, 1200)  # log of x in ∫ ... dx; enough for 160,000 votes
_STEP = 1e-3  # step of numerical derivatives with respect to the log concentration

Estimate = Callable[[float], FloatArray]


def vote_brier_ceilings(forecasts: VoteForecasts) -> FloatArray:
    """Estimate the Brier score that the true shares π of each prompt would have: 1 − Σ_i π_i².

    The estimate Σ_i v_i (N − v_i) / (N (N − 1)) has no bias, for any number N ≥ 2 of votes. The Brier score
    minus this is an unbiased estimate of Σ_i (p_i − π_i)², and can be negative by chance.

    Parameters
    ----------
    forecasts : VoteForecasts
        Votes on n prompts; the forecasts are not used.

    Returns
    -------
    float array (n,)
        Scores; NaN where only one person voted.

    Examples
    --------
    >>> vote_brier_ceilings(VoteForecasts.from_arrays([[0.5, 0.5]] * 3, [[4, 0], [3, 1], [1, 0]]))
    array([0. , 0.5, nan])
    """
    return forecasts.squares / forecasts.n_votes - pair_agreements(forecasts)


def vote_log_loss_ceilings(forecasts: VoteForecasts) -> FloatArray:
    """Estimate the log loss that the true shares π of each prompt would have: their entropy.

    H(π) = Σ_k (1/k) Σ_i π_i (1 − π_i)^k. With N votes, the terms up to k = N − 1 are estimated without bias
    (Zhang 2012). Later terms are extrapolated with a Dirichlet distribution of the shares. With many votes
    the ceiling depends on the votes alone; with two it also depends on that distribution.

    Parameters
    ----------
    forecasts : VoteForecasts
        Votes on n prompts; the forecasts are not used.

    Returns
    -------
    float array (n,)
        Estimates in nats; NaN where only one person voted. Their mean is the ceiling. Their spread includes
        the uncertainty of the fit.

    Examples
    --------
    >>> votes = np.random.default_rng(0).binomial(4, 0.5, 2000)
    >>> found = VoteForecasts.from_arrays([[0.5, 0.5]] * 2000, np.column_stack([votes, 4 - votes]))
    >>> bool(abs(vote_log_loss_ceilings(found).mean() - np.log(2)) < 0.01)
    True
    """

    def estimate(part: VoteForecasts) -> Estimate:
        (known, last), means = _first_terms(part), _mean_shares(part)
        return lambda log_size: known + last * _rest(part, means, log_size)

    return _estimated(forecasts, lambda part: (part, estimate(part)))


def vote_agreement_ceilings(forecasts: VoteForecasts) -> FloatArray:
    """Estimate the largest true share of each prompt: how many people agree with the most popular response.

    It is the mean of max_i π_i given the votes, where the shares π of the people who choose a response have a
    Dirichlet distribution. The largest observed share would be too large, because the same votes decide which
    one is the largest. A split vote for m responses agrees by 1/m. Where ties are a separate outcome,
    people who find the responses equally good agree with no response.

    Parameters
    ----------
    forecasts : VoteForecasts
        Votes on n prompts; the forecasts are not used.

    Returns
    -------
    float array (n,)
        Estimates; NaN where only one person voted. Their mean is the ceiling.

    Examples
    --------
    >>> p, rng = np.random.default_rng(0).random(2000), np.random.default_rng(1)
    >>> votes = rng.binomial(4, p)
    >>> found = VoteForecasts.from_arrays(np.column_stack([p, 1 - p]), np.column_stack([votes, 4 - votes]))
    >>> bool(abs(vote_agreement_ceilings(found).mean() - np.maximum(p, 1 - p).mean()) < 0.01)
    True
    """

    def estimate(part: VoteForecasts) -> tuple[VoteForecasts, Estimate]:
        responses = part.is_tie == 0
        m: IntArray = np.add.reduceat(responses, part.starts, dtype=np.int64)
        votes = part.votes[responses]
        none = np.zeros(len(part), dtype=np.int64)
        choices = VoteForecasts(
            part.log_probability[responses], votes, m, none, np.zeros(len(votes), dtype=bool)
        )
        chosen = choices.n_votes / part.n_votes
        split = part.ties / part.n_votes / m
        return choices, lambda log_size: chosen * _largest_shares(choices, log_size) + split

    return _estimated(forecasts, estimate)


def _estimated(
    forecasts: VoteForecasts, make: Callable[[VoteForecasts], tuple[VoteForecasts, Estimate]]
) -> FloatArray:
    """Return estimates (n,) that depend on the concentration of the shares; NaN for prompts with one vote.

    ``make`` returns what the concentration is fitted to, and the estimates (n,) as a function of its log.
    Each prompt also influences the fit, and the fit influences all estimates. This term is added; it does
    not change the mean, and it makes the spread right.
    """
    found = np.full(len(forecasts), np.nan)
    several = forecasts.n_votes > 1
    if not several.any():
        return found
    fitted, estimate = make(forecasts.take(several))
    if not (fitted.n_votes > 1).any():
        return found
    log_size, moves = _fit_concentration(fitted)
    up, down = (estimate(log_size + step).mean() for step in (_STEP, -_STEP))
    found[several] = estimate(log_size) + (up - down) / (2 * _STEP) * moves
    return found


def _mean_shares(forecasts: VoteForecasts) -> FloatArray:
    """Return the mean share of each outcome (N,): that of all ties for a tie, equal shares for responses."""
    if not forecasts.is_tie.any():
        return np.repeat(1 / forecasts.sizes, forecasts.sizes)
    tie = float(forecasts.shares[forecasts.is_tie].mean())
    others = np.repeat((1 - tie) / (forecasts.sizes - 1), forecasts.sizes)
    return np.where(forecasts.is_tie, tie, others)


def _fit_concentration(forecasts: VoteForecasts) -> tuple[float, FloatArray]:
    """Fit the log concentration log a of Dirichlet shares to how often two voters agree.

    If shares have the means μ, two voters agree with probability (a Σ μ_i² + 1) / (a + 1). Also return how
    much each prompt moves the fit (n,), times n.
    """
    from scipy.optimize import brentq

    agree = pair_agreements(forecasts)
    known = np.isfinite(agree)
    least = segment_sums(_mean_shares(forecasts) ** 2, forecasts)[known]

    def excess(log_size: float) -> FloatArray:
        size = np.exp(log_size)
        values: FloatArray = agree[known] - (size * least + 1) / (size + 1)
        return values

    moves, (low, high) = np.zeros(len(agree)), _LOG_RANGE
    if excess(low).mean() >= 0 or excess(high).mean() <= 0:  # all agree, or not more often than by chance
        return (low if excess(low).mean() >= 0 else high), moves
    found = float(brentq(lambda x: excess(x).mean(), low, high))
    slope = float((excess(found + _STEP) - excess(found - _STEP)).sum()) / (2 * _STEP)
    moves[known] = -excess(found) * len(agree) / slope
    return found, moves


def _first_terms(forecasts: VoteForecasts) -> tuple[FloatArray, FloatArray]:
    """Estimate the terms k < N of the entropy's series without bias: their sum, and k times the last: (n,).

    A term is the mean of x_a Π_b (1 − x_b) over distinct voters a, b_1, ..., b_k. A voter has x = 0 or 1, or
    x = 1/m for a split vote.
    """
    sizes = forecasts.sizes
    table = np.column_stack(
        [forecasts.votes, *(np.repeat(one, sizes) for one in (forecasts.ties, forecasts.n_votes, sizes))]
    )
    distinct, index = np.unique(table, axis=0, return_inverse=True)
    votes, ties, n, m = distinct.T
    total, last = np.zeros(len(distinct)), np.zeros(len(distinct))
    for k in range(1, min(int(n.max()) - 1, _TERMS) + 1):
        by_vote = votes * _without(n - votes - ties, ties, n - 1, m, k)
        by_tie = ties / m * _without(n - votes - ties, np.maximum(ties - 1, 0), n - 1, m, k)
        last = np.where(k < n, (by_vote + by_tie) / n, last)
        total += np.where(k < n, last / k, 0.0)
    places = index.reshape(-1)
    return segment_sums(total[places], forecasts), segment_sums(last[places], forecasts)


def _without(zeros: IntArray, ties: IntArray, pool: IntArray, m: IntArray, k: int) -> FloatArray:
    """Return the mean of Π (1 − x) over k of ``pool`` voters; ``zeros`` have x = 0 and ``ties`` have 1/m."""
    from scipy.special import comb

    total = np.zeros(len(zeros))
    for j in range(min(k, int(ties.max())) + 1):
        total += comb(ties, j) * comb(zeros, k - j) * (1 - 1 / m) ** j
    return total / np.maximum(comb(pool, k), 1.0)


def _rest(forecasts: VoteForecasts, means: FloatArray, log_size: float) -> FloatArray:
    """Return the terms k ≥ N as a multiple of N − 1 times the term before them (n,), for Dirichlet shares.

    ``means`` (N,) are the means of the shares.
    """
    from scipy.special import betaln, digamma

    n_votes = np.repeat(np.minimum(forecasts.n_votes, _TERMS + 1), forecasts.sizes)
    distinct, index = np.unique(np.column_stack([n_votes, means]), axis=0, return_inverse=True)
    n, mean = distinct.T
    size = float(np.exp(log_size))
    a, b = size * mean, size * (1 - mean)
    rest = mean * (digamma(size + 1) - digamma(a + 1))
    last = np.zeros(len(mean))
    for k in range(1, int(n.max())):
        last = np.where(k < n, np.exp(betaln(a + 1, b + k) - betaln(a, b)), last)
        rest = rest - np.where(k < n, last / k, 0.0)
    places = index.reshape(-1)
    above = segment_sums(np.maximum(rest, 0.0)[places], forecasts)
    return above / np.maximum(segment_sums(last[places], forecasts), 1e-300)


def _largest_shares(forecasts: VoteForecasts, log_size: float) -> FloatArray:
    """Return the mean of the largest share given the votes, under a symmetric Dirichlet distribution: (n,).

    Shares are Gamma variables g_i divided by their sum, which is independent of them. So the mean is
    E max g / E Σ g, where E max g = ∫ (1 − Π_i P(g_i ≤ x)) dx.
    """
    from scipy.special import gammainc

    size, sizes, x = float(np.exp(log_size)), forecasts.sizes, np.exp(_GRID)
    largest = np.empty(len(forecasts))
    for m in np.unique(sizes):
        mine = np.flatnonzero(sizes == m)
        # The order of the responses does not matter. Sorted, there are few distinct rows.
        votes = np.sort(forecasts.votes[forecasts.starts[mine][:, None] + np.arange(m)], axis=1)
        distinct, index = np.unique(votes, axis=0, return_inverse=True)
        area = np.empty(len(distinct))
        for part in chunks(len(distinct), len(x)):
            below = np.ones((part.stop - part.start, len(x)))
            for column in distinct[part].T:
                below *= gammainc(size / m + column[:, None], x)
            area[part] = ((1 - below) * x).sum(axis=1) * (_GRID[1] - _GRID[0])
        largest[mine] = (area / (size + distinct.sum(axis=1)))[index.reshape(-1)]
    return largest
