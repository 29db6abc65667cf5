"""Forecasts with votes, and scores over all votes: one number per prompt, to be averaged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_floats,
    as_integers,
    as_probabilities,
)

__all__ = [
    "VoteForecasts",
    "majority_agreements",
    "segment_sums",
    "vote_briers",
    "vote_log_losses",
    "voter_disagreements",
]


@dataclass(frozen=True)
class VoteForecasts:
    """Forecasts of which outcome a person chooses, and how many people chose each.

    Prompts can have different numbers of outcomes, so arrays are flat: one entry per outcome (N,), prompt
    after prompt. People who find the responses equally good are counted in ``ties``, and their votes are
    split: 1/m of a vote for each of the m outcomes. `with_tie_outcome` makes ties a separate outcome
    instead.

    Attributes
    ----------
    log_probability : float array (N,)
        Log of the forecasts, which sum to 1 within each prompt.
    votes : int array (N,)
        How many people chose the outcome.
    sizes : int array (n,)
        Number of outcomes of each prompt.
    ties : int array (n,)
        Number of people whose vote is split.
    is_tie : bool array (N,)
        True for the outcome "equally good".

    Examples
    --------
    >>> found = VoteForecasts.from_arrays([[0.8, 0.2], [0.5, 0.5]], [[3, 1], [0, 1]])
    >>> found.n_votes, found.shares
    (array([4, 1]), array([0.75, 0.25, 0.  , 1.  ]))
    """

    log_probability: FloatArray
    votes: IntArray
    sizes: IntArray
    ties: IntArray
    is_tie: BoolArray

    @classmethod
    def from_arrays(
        cls, probabilities: ArrayLike, votes: ArrayLike, ties: ArrayLike | None = None
    ) -> VoteForecasts:
        """Build forecasts from arrays with one row per prompt.

        Parameters
        ----------
        probabilities : float array (n, m)
            Forecasts; rows sum to 1.
        votes : int array (n, m)
            How many people preferred each response.
        ties : int array (n,), optional
            How many people found the responses equally good; 0 by default.

        Returns
        -------
        VoteForecasts

        Examples
        --------
        >>> VoteForecasts.from_arrays([[0.8, 0.2]], [[3, 1]], ties=[1]).n_votes
        array([5])
        """
        p = as_probabilities(probabilities, "probabilities", ndim=2)
        n, m = p.shape
        if (np.abs(p.sum(axis=1) - 1) > 1e-5).any():
            row = int(np.argmax(np.abs(p.sum(axis=1) - 1)))
            raise ValueError(f"probabilities: row {row} sums to {p[row].sum():.6g}, expected 1")
        counts = as_integers(votes, "votes", ndim=2)
        if counts.shape != p.shape:
            raise ValueError(f"votes: expected shape {p.shape}, like the probabilities, got {counts.shape}")
        level = np.zeros(n, dtype=np.int64) if ties is None else as_integers(ties, "ties", ndim=1)
        if level.shape != (n,):
            raise ValueError(f"ties: expected one number for each of the {n} prompts, got {level.shape}")
        with np.errstate(divide="ignore"):
            logs = np.log(p).ravel()
        return cls.checked(logs, counts.ravel(), np.full(n, m), level)

    @classmethod
    def checked(
        cls, log_probability: ArrayLike, votes: ArrayLike, sizes: ArrayLike, ties: ArrayLike
    ) -> VoteForecasts:
        """Build forecasts from flat arrays; every prompt needs a vote, and no count may be negative."""
        logs = as_floats(log_probability, "log_probability", ndim=1, allow="-inf")
        counts, level = as_integers(votes, "votes", ndim=1), as_integers(ties, "ties", ndim=1)
        if (counts < 0).any() or (level < 0).any():
            raise ValueError("votes and ties: negative counts; a number of votes is 0 or more")
        found = cls(logs, counts, as_integers(sizes, "sizes", ndim=1), level, np.zeros(len(logs), dtype=bool))
        if (found.n_votes == 0).any():
            raise ValueError(f"votes: nobody voted on prompt {int(np.argmin(found.n_votes))}; leave it out")
        return found

    def __len__(self) -> int:
        """Return the number of prompts."""
        return len(self.sizes)

    @property
    def starts(self) -> IntArray:
        """Where each prompt's outcomes start: (n,)."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def prompt(self) -> IntArray:
        """Which prompt each outcome belongs to: (N,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def probability(self) -> FloatArray:
        """The forecasts: (N,)."""
        return np.exp(self.log_probability)

    @property
    def n_votes(self) -> IntArray:
        """How many people voted on each prompt, ties included: (n,)."""
        total: IntArray = np.add.reduceat(self.votes, self.starts) + self.ties
        return total

    @property
    def weights(self) -> FloatArray:
        """The votes of each outcome, with split ties: (N,)."""
        return np.asarray(self.votes + np.repeat(self.ties / self.sizes, self.sizes), dtype=np.float64)

    @property
    def shares(self) -> FloatArray:
        """The fraction of votes of each outcome, with split ties: (N,)."""
        return self.weights / np.repeat(self.n_votes, self.sizes)

    @property
    def squares(self) -> FloatArray:
        """Σ_k |x_k|² over the votes x_k of each prompt (n,): 1 for a vote, 1/m for a split one."""
        return np.asarray(self.n_votes - self.ties * (1 - 1 / self.sizes), dtype=np.float64)

    def take(self, kept: BoolArray) -> VoteForecasts:
        """Return the prompts where ``kept`` (n,) is true.

        >>> found = VoteForecasts.from_arrays([[0.8, 0.2], [0.5, 0.5]], [[3, 1], [0, 1]])
        >>> found.take(found.n_votes > 1).votes
        array([3, 1])
        """
        rows = np.repeat(kept, self.sizes)
        return VoteForecasts(
            self.log_probability[rows],
            self.votes[rows],
            self.sizes[kept],
            self.ties[kept],
            self.is_tie[rows],
        )


def vote_log_losses(forecasts: VoteForecasts) -> FloatArray:
    """Return the log loss of each prompt: the mean over its votes of −log P(chosen outcome).

    A split vote has the mean of −log P over the outcomes. The log loss of the data is the mean over prompts,
    each with the same weight, however many people voted on it.

    Parameters
    ----------
    forecasts : VoteForecasts
        Forecasts and votes of n prompts.

    Returns
    -------
    float array (n,)
        Losses in nats; infinite if an outcome with a vote has probability 0.

    Examples
    --------
    >>> vote_log_losses(VoteForecasts.from_arrays([[0.5, 0.5]], [[3, 1]])).round(4)
    array([0.6931])
    """
    share = forecasts.shares
    losses = np.zeros(len(share))
    chosen = share > 0  # 0 · log 0 is 0
    losses[chosen] = -share[chosen] * forecasts.log_probability[chosen]
    return segment_sums(losses, forecasts)


def vote_briers(forecasts: VoteForecasts) -> FloatArray:
    """Return the Brier score of each prompt: the mean over its votes x of Σ_i (p_i − x_i)².

    Parameters
    ----------
    forecasts : VoteForecasts
        Forecasts and votes of n prompts.

    Returns
    -------
    float array (n,)
        Scores; 0 is best, and 2 the worst.

    Examples
    --------
    >>> vote_briers(VoteForecasts.from_arrays([[0.75, 0.25]], [[3, 1]]))
    array([0.375])
    """
    p = forecasts.probability
    return segment_sums(p * (p - 2 * forecasts.shares), forecasts) + forecasts.squares / forecasts.n_votes


def voter_disagreements(forecasts: VoteForecasts) -> FloatArray:
    """Return how often two different voters on a prompt disagree.

    1 − Σ_i v_i (v_i − 1) / (N (N − 1)) for votes v_i of N people, without bias. A split vote agrees
    with any vote by 1/m.

    Parameters
    ----------
    forecasts : VoteForecasts
        Votes on n prompts; the forecasts are not used.

    Returns
    -------
    float array (n,)
        Fractions; NaN where only one person voted.

    Examples
    --------
    >>> voter_disagreements(VoteForecasts.from_arrays([[0.5, 0.5]] * 2, [[3, 1], [1, 0]]))
    array([0.5, nan])
    """
    return 1 - pair_agreements(forecasts)


def majority_agreements(forecasts: VoteForecasts) -> FloatArray:
    """Return how often a voter agrees with the majority of the other voters.

    A voter's own vote is left out of the majority. If k responses have the most votes, each counts 1/k. A
    model that knew the other votes could reach this agreement.

    Parameters
    ----------
    forecasts : VoteForecasts
        Votes on n prompts; the forecasts are not used.

    Returns
    -------
    float array (n,)
        Fractions; NaN where only one person voted.

    Examples
    --------
    >>> majority_agreements(VoteForecasts.from_arrays([[0.5, 0.5]] * 3, [[3, 1], [2, 1], [1, 1]]))
    array([0.75      , 0.33333333, 0.        ])
    """
    votes = np.where(forecasts.is_tie, -2, forecasts.votes)
    starts, sizes = forecasts.starts, forecasts.sizes
    most = np.maximum.reduceat(votes, starts)
    leads = votes == np.repeat(most, sizes)
    leaders = np.add.reduceat(leads, starts, dtype=np.int64)
    behind = np.where(leads, -1, votes)
    second = np.maximum.reduceat(behind, starts)
    seconds = np.add.reduceat(behind == np.repeat(second, sizes), starts, dtype=np.int64)
    # A vote can agree with the others only if it is for the single leader. Without it, that response still
    # leads, or is level with the second.
    agree = np.where(most > second + 1, 1.0, 1 / (1 + seconds))
    found = np.where(leaders == 1, most * agree, 0.0) + forecasts.ties / sizes
    return np.where(forecasts.n_votes > 1, found / forecasts.n_votes, np.nan)


def pair_agreements(forecasts: VoteForecasts) -> FloatArray:
    """Return the mean of x_k · x_l over pairs of different votes of each prompt: (n,), NaN for one vote.

    Its expectation is Σ_i π_i² for the true shares π. The mean over all pairs would have a bias, because it
    squares the noise of each vote.
    """
    n = forecasts.n_votes
    with np.errstate(divide="ignore", invalid="ignore"):
        total = segment_sums(forecasts.weights**2, forecasts) - forecasts.squares
        return np.where(n > 1, total / (n * (n - 1)), np.nan)


def segment_sums(values: FloatArray, forecasts: VoteForecasts) -> FloatArray:
    """Return the sums over the outcomes of each prompt: (N,) -> (n,)."""
    total: FloatArray = np.add.reduceat(values, forecasts.starts)
    return total
