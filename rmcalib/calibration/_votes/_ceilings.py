"""Noise ceilings: what the true shares themselves would score against so few votes.

The truth is not known, but much about it can be estimated without bias from votes of different people on the
same prompt: the mean product of k votes estimates the k-th moments of the shares. One vote says nothing.
"""

from __future__ import annotations

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration._votes._forecasts import VoteForecasts, pair_agreements, segment_sums

__all__ = ["vote_brier_ceilings", "vote_log_loss_ceilings"]

_TERMS = 60  # of the series of the entropy that are estimated from votes; the rest is small
_LOG_RANGE = (-8.0, 8.0)  # of the concentration: from unanimous votes to votes by coin flips
_STEP = 1e-3  # of numerical derivatives by the log concentration


def vote_brier_ceilings(forecasts: VoteForecasts) -> FloatArray:
    """Estimate the Brier score that the true shares π of each prompt would have: 1 − Σ_i π_i².

    The estimate Σ_i v_i (N − v_i) / (N (N − 1)) has no bias, for any number N ≥ 2 of votes. The Brier score
    minus this is an unbiased estimate of Σ_i (p_i − π_i)², and can be negative by chance.

    Parameters
    ----------
    forecasts : n prompts; only their votes matter.

    Returns
    -------
    (n,) scores; NaN where only one person voted.

    Examples
    --------
    >>> vote_brier_ceilings(VoteForecasts.from_arrays([[0.5, 0.5]] * 3, [[4, 0], [3, 1], [1, 0]]))
    array([0. , 0.5, nan])
    """
    return forecasts.squares / forecasts.n_votes - pair_agreements(forecasts)


def vote_log_loss_ceilings(forecasts: VoteForecasts) -> FloatArray:
    """Estimate the log loss that the true shares π of each prompt would have: their entropy.

    H(π) = Σ_k (1/k) Σ_i π_i (1 − π_i)^k. With N votes, the terms up to k = N − 1 are estimated without bias
    (Zhang 2012). The rest comes from a symmetric Dirichlet distribution of the shares, which is fitted to the
    votes of all prompts. So the mean over prompts rests on the votes alone for many votes, and with two votes
    also on the shape of that distribution.

    Parameters
    ----------
    forecasts : n prompts; only their votes matter.

    Returns
    -------
    (n,) estimates in nats; NaN where only one person voted. Their mean is the ceiling. Their spread includes
    the uncertainty of the fit.

    Examples
    --------
    >>> votes = np.random.default_rng(0).binomial(4, 0.5, 2000)
    >>> found = VoteForecasts.from_arrays([[0.5, 0.5]] * 2000, np.column_stack([votes, 4 - votes]))
    >>> bool(abs(vote_log_loss_ceilings(found).mean() - np.log(2)) < 0.01)
    True
    """
    found = np.full(len(forecasts), np.nan)
    several = forecasts.n_votes > 1
    if not several.any():
        return found
    part = forecasts.take(several)
    log_alpha = _fit_concentration(part)
    values = _first_terms(part) + _rest(part, log_alpha)
    # How much each prompt moves the fit, and the fit the rest: the mean stays, the spread becomes right.
    up, down = (_rest(part, log_alpha + step).mean() for step in (_STEP, -_STEP))
    likelihoods = [_log_likelihoods(part, log_alpha + step) for step in (_STEP, 0.0, -_STEP)]
    score = (likelihoods[0] - likelihoods[2]) / (2 * _STEP)
    curvature = -float((likelihoods[0] - 2 * likelihoods[1] + likelihoods[2]).mean()) / _STEP**2
    if curvature > 0:
        values += (up - down) / (2 * _STEP) * (score - score.mean()) / curvature
    found[several] = values
    return found


def _first_terms(forecasts: VoteForecasts) -> FloatArray:
    """Estimate the terms k < N of the entropy's series without bias: (n,).

    The mean of x_a Π_b (1 − x_b) over different voters a, b_1, ..., b_k. Of the others than a, n₀ have x = 0,
    and t have a split vote, x = 1/m; none may have x = 1.
    """
    sizes = forecasts.sizes
    table = np.column_stack(
        [forecasts.votes, *(np.repeat(one, sizes) for one in (forecasts.ties, forecasts.n_votes, sizes))]
    )
    distinct, index = np.unique(table, axis=0, return_inverse=True)
    votes, ties, n, m = distinct.T
    total = np.zeros(len(distinct))
    for k in range(1, min(int(n.max()) - 1, _TERMS) + 1):
        by_vote = votes * _without(n - votes - ties, ties, n - 1, m, k)
        by_tie = ties / m * _without(n - votes - ties, np.maximum(ties - 1, 0), n - 1, m, k)
        total += np.where(k < n, (by_vote + by_tie) / n, 0.0) / k
    return segment_sums(total[index.reshape(-1)], forecasts)


def _without(zeros: IntArray, ties: IntArray, pool: IntArray, m: IntArray, k: int) -> FloatArray:
    """Mean of Π (1 − x) over k of ``pool`` voters, of whom ``zeros`` have x = 0 and ``ties`` have 1/m."""
    from scipy.special import comb

    total = np.zeros(len(zeros))
    for j in range(min(k, int(ties.max())) + 1):
        total += comb(ties, j) * comb(zeros, k - j) * (1 - 1 / m) ** j
    return total / np.maximum(comb(pool, k), 1.0)


def _rest(forecasts: VoteForecasts, log_alpha: float) -> FloatArray:
    """Mean of the terms k ≥ N under a Dirichlet distribution of the shares: (n,)."""
    from scipy.special import betaln, digamma

    table = np.column_stack([np.minimum(forecasts.n_votes, _TERMS + 1), forecasts.sizes])
    distinct, index = np.unique(table, axis=0, return_inverse=True)
    (n, m), alpha = distinct.T, float(np.exp(log_alpha))
    whole = digamma(m * alpha + 1) - digamma(alpha + 1)
    for k in range(1, int(n.max())):
        term = m * np.exp(betaln(alpha + 1, (m - 1) * alpha + k) - betaln(alpha, (m - 1) * alpha)) / k
        whole = whole - np.where(k < n, term, 0.0)
    rest: FloatArray = np.maximum(whole, 0.0)[index.reshape(-1)]
    return rest


def _fit_concentration(forecasts: VoteForecasts) -> float:
    """Return the log concentration of the symmetric Dirichlet distribution that fits the votes best."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda x: -_log_likelihoods(forecasts, x).mean(), bounds=_LOG_RANGE, method="bounded"
    )
    return float(found.x)


def _log_likelihoods(forecasts: VoteForecasts, log_alpha: float) -> FloatArray:
    """Log-likelihood of each prompt's votes (n,), up to a constant; a split vote counts 1/m for each."""
    from scipy.special import gammaln

    alpha, m, weight = float(np.exp(log_alpha)), forecasts.sizes, forecasts.weights
    each = segment_sums(gammaln(alpha + weight) - gammaln(alpha), forecasts)
    total: FloatArray = gammaln(m * alpha) - gammaln(m * alpha + forecasts.n_votes) + each
    return total
