"""Forecasts against people's votes: scores over all votes, ties, and noise ceilings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, chunks, find_root
from rmcalib.calibration.temperature import cross_fit

_LOG_TIE_RANGE = (-20.0, 20.0)  # of Davidson's parameter
_LARGEST_AGREEMENT = 0.999
_Estimate = Callable[[float], FloatArray]


@dataclass(frozen=True, eq=False)
class VoteForecasts:
    """Forecasts of which outcome a person chooses, and how many people chose each.

    ``log_probability``, ``votes`` and ``is_tie`` (N,) are those of the outcomes, prompt by prompt; ``sizes``
    (n,) are the numbers of outcomes. An outcome may be "equally good" (``is_tie``).
    """

    log_probability: FloatArray
    votes: IntArray
    sizes: IntArray
    is_tie: BoolArray

    def __len__(self) -> int:
        """Return the number of prompts."""
        return len(self.sizes)

    @property
    def starts(self) -> IntArray:
        """Where each prompt's outcomes start: (n,)."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def probability(self) -> FloatArray:
        """The forecasts: (N,)."""
        return np.exp(self.log_probability)

    @property
    def n_votes(self) -> IntArray:
        """How many people voted on each prompt: (n,)."""
        total: IntArray = np.add.reduceat(self.votes, self.starts)
        return total

    @property
    def shares(self) -> FloatArray:
        """The fraction of votes of each outcome: (N,)."""
        return self.votes / np.repeat(self.n_votes, self.sizes)

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the sums over the outcomes of each prompt: (N,) -> (n,)."""
        return np.asarray(np.add.reduceat(values, self.starts))

    def take(self, kept: BoolArray) -> VoteForecasts:
        """Return the prompts where ``kept`` (n,) is true."""
        rows = np.repeat(kept, self.sizes)
        return VoteForecasts(
            self.log_probability[rows], self.votes[rows], self.sizes[kept], self.is_tie[rows]
        )


def vote_log_losses(forecasts: VoteForecasts) -> FloatArray:
    """Return the log loss of each prompt: the mean over its votes of −log P(chosen outcome)."""
    share = forecasts.shares
    # Outcomes without votes add nothing, even if their probability is 0.
    return forecasts.sums(-share * np.where(share > 0, forecasts.log_probability, 0.0))


def vote_briers(forecasts: VoteForecasts) -> FloatArray:
    """Return the Brier score of each prompt: the mean over its votes x of Σ_i (p_i − x_i)²."""
    p = forecasts.probability
    return forecasts.sums(p * (p - 2 * forecasts.shares)) + 1


def voter_disagreements(forecasts: VoteForecasts) -> FloatArray:
    """Return how often two different voters on a prompt disagree: (n,), NaN for one vote.

    It estimates the Brier score that the true shares π of each prompt would have: 1 − Σ_i π_i².
    """
    return 1 - pair_agreements(forecasts)


def pair_agreements(forecasts: VoteForecasts) -> FloatArray:
    """Return how often two different voters on a prompt agree: (n,), NaN for one vote."""
    n = forecasts.n_votes
    with np.errstate(divide="ignore", invalid="ignore"):
        total = forecasts.sums(forecasts.votes.astype(np.float64) ** 2) - n
        return np.where(n > 1, total / (n * (n - 1)), np.nan)


def vote_correlation(share: FloatArray, centre: FloatArray, n_votes: IntArray, count: FloatArray) -> float:
    """Return the correlation between votes on the same prompt, given their expectation ``centre`` (n,).

    ``count`` (n,) is the number of prompts in the bin whose mean share the centre is.
    """
    single = centre * (1 - centre)
    several = count > 1
    square = (share - centre) ** 2 * count / np.maximum(count - 1, 1)
    extra = float((square - single / n_votes)[several].sum())
    most = float((single * (1 - 1 / n_votes))[several].sum())
    return min(max(extra / most, 0.0), _LARGEST_AGREEMENT) if most > 0 else 0.0


def with_tie_outcome(
    forecasts: VoteForecasts, ties: IntArray, *, rng: np.random.Generator | int = 0
) -> VoteForecasts:
    """Return forecasts with one more outcome per prompt, "equally good", chosen by ``ties`` (n,) people.

    Davidson's model: P(tie) ∝ ν times the geometric mean of the responses' probabilities. ν is cross-fitted.
    """
    n = len(forecasts)
    if n < 2:
        raise ValueError("ties: at least two prompts are needed to cross-fit a model of ties")
    share = ties / (forecasts.n_votes + ties)
    level = forecasts.sums(forecasts.log_probability) / forecasts.sizes
    nu = cross_fit(
        n,
        lambda train: _fit_davidson(level[train], share[train]),
        lambda fitted, test: np.full(len(test), fitted),
        rng=rng,
    )
    from scipy.special import log_expit

    with np.errstate(divide="ignore"):
        odds = np.log(nu) + level
    chosen = forecasts.log_probability + np.repeat(log_expit(-odds), forecasts.sizes)
    ends = np.cumsum(forecasts.sizes)
    return VoteForecasts(
        np.insert(chosen, ends, log_expit(odds)),
        np.insert(forecasts.votes, ends, ties),
        forecasts.sizes + 1,
        np.insert(np.zeros(len(chosen), dtype=bool), ends, True),
    )


def _fit_davidson(level: FloatArray, tied: FloatArray) -> float:
    """Fit ν by maximum likelihood: expected and observed ties are equally many."""
    from scipy.special import expit

    low, high = _LOG_TIE_RANGE[0], _LOG_TIE_RANGE[1] - float(level.min())

    def excess(log_nu: float) -> float:
        return float((expit(log_nu + level) - tied).mean())

    if excess(high) <= 0:
        return float(np.exp(min(high, 700.0)))
    return 0.0 if excess(low) >= 0 else float(np.exp(find_root(excess, low, high, tolerance=1e-12)))


# Noise ceilings: the scores that the true shares of people's choices would have.
_TERMS = 60  # terms of the entropy's series that are estimated from votes; the rest is small
_LOG_RANGE = (-8.0, 10.0)  # log concentration: from unanimous votes to votes by coin flips
_GRID: FloatArray = np.linspace(-30.0, 12.0, 1200)  # log of x in ∫ ... dx; enough for 160,000 votes
_STEP = 1e-3  # step of numerical derivatives with respect to the log concentration


def vote_log_loss_ceilings(forecasts: VoteForecasts) -> FloatArray:
    """Estimate the log loss that the true shares π of each prompt would have: their entropy."""

    def estimate(part: VoteForecasts) -> _Estimate:
        (first, last), means = _first_terms(part), _mean_shares(part)
        return lambda log_size: first + last * _rest(part, means, log_size)

    return _estimated(forecasts, lambda part: (part, estimate(part)))


def vote_agreement_ceilings(forecasts: VoteForecasts) -> FloatArray:
    """Estimate the largest true share of each prompt: how many people agree with the most popular response."""

    def estimate(part: VoteForecasts) -> tuple[VoteForecasts, _Estimate]:
        responses = ~part.is_tie
        m: IntArray = np.add.reduceat(responses, part.starts, dtype=np.int64)
        choices = VoteForecasts(
            part.log_probability[responses], part.votes[responses], m, np.zeros(int(m.sum()), dtype=bool)
        )
        chosen = choices.n_votes / part.n_votes
        return choices, lambda log_size: chosen * _largest_shares(choices, log_size)

    return _estimated(forecasts, estimate)


def _estimated(
    forecasts: VoteForecasts, make: Callable[[VoteForecasts], tuple[VoteForecasts, _Estimate]]
) -> FloatArray:
    """Return estimates (n,) that depend on the concentration of the shares; NaN for prompts with one vote."""
    values = np.full(len(forecasts), np.nan)
    several = forecasts.n_votes > 1
    if not several.any():
        return values
    fitted, estimate = make(forecasts.take(several))
    if not (fitted.n_votes > 1).any():
        return values
    log_size, moves = _fit_concentration(fitted)
    up, down = (estimate(log_size + step).mean() for step in (_STEP, -_STEP))
    values[several] = estimate(log_size) + (up - down) / (2 * _STEP) * moves
    return values


def _mean_shares(forecasts: VoteForecasts) -> FloatArray:
    """Return the mean share of each outcome (N,): that of all ties for a tie, equal shares for responses."""
    if not forecasts.is_tie.any():
        return np.repeat(1 / forecasts.sizes, forecasts.sizes)
    tie = float(forecasts.shares[forecasts.is_tie].mean())
    others = np.repeat((1 - tie) / (forecasts.sizes - 1), forecasts.sizes)
    return np.where(forecasts.is_tie, tie, others)


def _fit_concentration(forecasts: VoteForecasts) -> tuple[float, FloatArray]:
    """Fit the log concentration log a of Dirichlet shares to how often two voters agree."""
    agree = pair_agreements(forecasts)
    several = np.isfinite(agree)
    least = forecasts.sums(_mean_shares(forecasts) ** 2)[several]

    def excess(log_size: float) -> FloatArray:
        size = np.exp(log_size)
        values: FloatArray = agree[several] - (size * least + 1) / (size + 1)
        return values

    moves, (low, high) = np.zeros(len(agree)), _LOG_RANGE
    if excess(low).mean() >= 0 or excess(high).mean() <= 0:  # all agree, or not more often than by chance
        return (low if excess(low).mean() >= 0 else high), moves
    fitted = find_root(lambda x: float(excess(x).mean()), low, high)
    slope = float((excess(fitted + _STEP) - excess(fitted - _STEP)).sum()) / (2 * _STEP)
    moves[several] = -excess(fitted) * len(agree) / slope
    return fitted, moves


def _first_terms(forecasts: VoteForecasts) -> tuple[FloatArray, FloatArray]:
    """Estimate the terms k < N of the entropy's series without bias: their sum, and k times the last: (n,)."""
    from scipy.special import comb

    table = np.column_stack([forecasts.votes, np.repeat(forecasts.n_votes, forecasts.sizes)])
    distinct, index = np.unique(table, axis=0, return_inverse=True)
    votes, n = distinct.T
    total, last = np.zeros(len(distinct)), np.zeros(len(distinct))
    for k in range(1, min(int(n.max()) - 1, _TERMS) + 1):
        # The chance that k others of the n − 1 did not choose it.
        without = comb(n - votes, k) / np.maximum(comb(n - 1, k), 1.0)
        last = np.where(k < n, votes * without / n, last)
        total += np.where(k < n, last / k, 0.0)
    places = index.reshape(-1)
    return forecasts.sums(total[places]), forecasts.sums(last[places])


def _rest(forecasts: VoteForecasts, means: FloatArray, log_size: float) -> FloatArray:
    """Return the terms k ≥ N as a multiple of N − 1 times the term before them (n,), for Dirichlet shares."""
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
    above = forecasts.sums(np.maximum(rest, 0.0)[places])
    return above / np.maximum(forecasts.sums(last[places]), 1e-300)


def _largest_shares(forecasts: VoteForecasts, log_size: float) -> FloatArray:
    """Return the mean of the largest share given the votes, under a symmetric Dirichlet distribution: (n,)."""
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
