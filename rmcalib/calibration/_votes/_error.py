"""Calibration error of forecasts against shares of votes, with its interval and null test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats, as_integers, as_probabilities
from rmcalib.calibration._binning import (
    BinSums,
    ErrorOptions,
    as_bins,
    bin_edges,
    bin_index,
    binned_error,
    grouped_sums,
    unpack_bins,
)
from rmcalib.calibration._inference import Inference
from rmcalib.calibration._inference._binned import binned_influence
from rmcalib.calibration._inference._simulation import STEPS, simulate
from rmcalib.calibration._outcomes import SmallInts, rows_of, sparse_rows
from rmcalib.calibration._votes._forecasts import VoteForecasts

__all__ = ["effective_votes", "vote_error", "vote_inference"]

_MOST_VOTES = 200  # votes that are drawn for a prompt: more would hardly be less noisy
_LEAST = 1e-9  # smallest probability of a vote
_GOLDEN = 0.6180339887498949  # its multiples modulo 1 are spread evenly
_LARGEST_AGREEMENT = 0.999
_LEAST_VARIANCE = 0.1  # of votes with ties, as a fraction of that of votes without


def vote_error(probabilities: ArrayLike, shares: ArrayLike, *, bins: int | ArrayLike = 10) -> float:
    """Return the calibration error of forecasts against shares of votes.

    Σ_b (n_b / n) |mean forecast − mean share| over bins of the forecast. Every prompt counts the same,
    however many people voted on it.

    Parameters
    ----------
    probabilities : array (n,)
        Forecast of the fraction of people who choose a response, one for each prompt.
    shares : array (n,)
        The fraction of votes that the response got.
    bins : int or float array
        Number of equal-width bins, or their edges.

    Returns
    -------
    float
        The error.

    Examples
    --------
    >>> round(vote_error([0.9, 0.9, 0.6], [0.5, 0.75, 0.6]), 4)
    0.1833
    """
    p, s = _checked(probabilities, shares)
    options = ErrorOptions(as_bins(bins))
    edges = bin_edges(p, options)
    sums = grouped_sums(p, s, np.zeros(len(p), dtype=np.int64), bin_index(p, edges), len(edges) - 1)
    return float(binned_error(unpack_bins(sums[0]), options))


def vote_inference(
    probabilities: ArrayLike,
    shares: ArrayLike,
    n_votes: ArrayLike,
    *,
    bins: int | ArrayLike = 10,
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
) -> Inference:
    """Return the inference of `vote_error`: interval, null test, and what differences need.

    Under the null, N votes are drawn for a prompt with N voters, each with the forecast probability. People
    who see the same prompt agree more with each other than a forecast that knows less than they do allows
    for, so votes on one prompt are not independent: they are drawn from a beta-binomial distribution, with
    the correlation between voters that the data shows. A forecast may therefore be calibrated without knowing
    the share of every prompt. Alternatives shift the forecasts by a growing multiple of the observed gaps,
    as in `binned_inference`.

    Parameters
    ----------
    probabilities : array (n,)
        Forecast of the fraction of people who choose a response, one for each prompt.
    shares : array (n,)
        The fraction of votes that the response got.
    n_votes : array (n,)
        How many people voted; where votes are split, `effective_votes`. Prompts with more than 200 are drawn
        as if they had 200.
    bins : int or float array
        Number of equal-width bins, or their edges.
    resamples : int
        Data sets drawn under the null; at most 400 are drawn under each alternative.
    rng : numpy Generator or int
        Generator or seed.

    Returns
    -------
    Inference

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.5, 1.0, 400)
    >>> fair, bold = (rng.binomial(4, q) / 4 for q in (p, 0.5 + 0.5 * (p - 0.5)))
    >>> [vote_inference(p, share, np.full(400, 4)).test().p_value > 0.05 for share in (fair, bold)]
    [True, False]
    """
    p, s = _checked(probabilities, shares)
    n = as_integers(n_votes, "n_votes", ndim=1)
    if n.shape != p.shape or (n < 1).any():
        raise ValueError(f"n_votes: expected a number of at least 1 for each of the {len(p)} prompts")
    order = np.lexsort((n, s, p))  # results do not depend on the order of the prompts
    p, s, n = p[order], s[order], n[order]
    options = ErrorOptions(as_bins(bins))
    edges = bin_edges(p, options)
    n_bins, index = len(edges) - 1, bin_index(p, edges)
    sums = grouped_sums(p, s, np.arange(len(p)), index, n_bins)
    total = unpack_bins(sums.sum(axis=0))
    gap = ((total.outcome - total.probability) / np.maximum(total.count, 1))[index]
    correlation = vote_correlation(s, np.clip(p + gap, 0.0, 1.0), n, total.count[index])
    outcomes = _ShareOutcomes.of(index, np.minimum(n, _MOST_VOTES), n_bins)

    def errors(happened: FloatArray) -> FloatArray:
        count = np.broadcast_to(total.count, happened.shape)
        return binned_error(
            BinSums(count, np.broadcast_to(total.probability, happened.shape), happened), options
        )

    null, draws, truths = simulate(
        outcomes,
        lambda size: outcomes.probabilities(p + size * gap, correlation),
        errors,
        errors,
        steps=STEPS,
        resamples=resamples,
        rng=rng,
    )
    value = float(binned_error(total, options))
    return Inference(value, null, draws, truths, binned_influence(sums, options))


def effective_votes(forecasts: VoteForecasts, probabilities: ArrayLike) -> IntArray:
    """Return the number of whole votes whose share varies as much as that of votes with split ties.

    A vote for one of m responses varies by p(1 − p), and a split vote does not vary: with a fraction t of
    ties, a vote varies by p(1 − p) − t(1 − 1/m)/m. Both are averaged over prompts.

    Parameters
    ----------
    forecasts : VoteForecasts
        Votes on n prompts; the forecasts are not used.
    probabilities : array (n,)
        Forecast of the fraction of people who choose a response, one for each prompt.

    Returns
    -------
    int array (n,)
        Numbers of votes, for `vote_inference`; the number of people where no votes are split.

    Examples
    --------
    >>> found = VoteForecasts.from_arrays([[0.5, 0.5]] * 2, [[2, 0], [0, 1]], ties=[2, 2])
    >>> effective_votes(found, [0.5, 0.5])
    array([9, 7])
    """
    p = as_probabilities(probabilities)
    whole = float((p * (1 - p)).mean())
    spared = float((forecasts.ties / forecasts.n_votes * (1 - 1 / forecasts.sizes) / forecasts.sizes).mean())
    varies = max(1 - spared / whole, _LEAST_VARIANCE) if whole > 0 else 1.0
    # Rounded up in some prompts and down in others, so that the mean is right.
    turn = np.arange(len(forecasts)) * _GOLDEN % 1
    return np.floor(forecasts.n_votes / varies + turn).astype(np.int64)


def vote_correlation(share: FloatArray, centre: FloatArray, n_votes: IntArray, count: FloatArray) -> float:
    """Return the correlation ρ between votes on the same prompt, given their expectation.

    The share s of N votes with expectation c has the variance c(1 − c)(1 + (N − 1)ρ)/N. ``count`` (n,) is the
    number of prompts in each prompt's bin, whose mean the centre was fitted to. ρ is at least 0.

    >>> shares = np.array([0.0, 1.0] * 50)
    >>> vote_correlation(shares, np.full(100, 0.5), np.full(100, 4), np.full(100, 100.0))
    0.999
    """
    single = centre * (1 - centre)
    several = count > 1
    square = (share - centre) ** 2 * count / np.maximum(count - 1, 1)
    extra = float((square - single / n_votes)[several].sum())
    most = float((single * (1 - 1 / n_votes))[several].sum())
    return min(max(extra / most, 0.0), _LARGEST_AGREEMENT) if most > 0 else 0.0


@dataclass(frozen=True)
class _ShareOutcomes:
    """The outcomes of each prompt: k of its N voters choose the response, for k = 0, ..., N.

    sizes: (G,) N + 1. cell: (A,) the prompt's bin. chosen: (A,) k. voters: (A,) N.
    """

    sizes: IntArray
    cell: IntArray
    chosen: IntArray
    voters: IntArray
    n_sums: int

    @classmethod
    def of(cls, index: IntArray, n_votes: IntArray, n_bins: int) -> _ShareOutcomes:
        sizes = n_votes + 1
        first = np.cumsum(sizes) - sizes
        chosen = np.arange(int(sizes.sum())) - np.repeat(first, sizes)
        return cls(sizes, np.repeat(index, sizes), chosen, np.repeat(n_votes, sizes), n_bins)

    def probabilities(self, p: FloatArray, correlation: float) -> FloatArray:
        """Return the beta-binomial probabilities (A,) of outcomes whose mean shares are p (G,)."""
        from scipy.special import betaln, gammaln, xlog1py, xlogy

        q = np.repeat(np.clip(p, _LEAST, 1 - _LEAST), self.sizes)
        k, n = self.chosen, self.voters
        choices = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        if correlation < 1e-6:
            return np.asarray(np.exp(choices + xlogy(k, q) + xlog1py(n - k, -q)))
        size = (1 - correlation) / correlation
        a, b = q * size, (1 - q) * size
        return np.asarray(np.exp(choices + betaln(k + a, n - k + b) - betaln(a, b)))

    def features(self, groups: slice) -> Any:
        rows = rows_of(self.sizes, groups)
        return sparse_rows(self.cell[rows], (self.chosen / self.voters)[rows], self.n_sums)

    def counts(self, rows: SmallInts, step: SmallInts, n_steps: int) -> FloatArray:
        cells = self.cell[rows] + self.n_sums * (step + n_steps * np.arange(len(rows))[:, None])
        share = (self.chosen / self.voters)[rows]
        total = np.bincount(cells.reshape(-1), share.reshape(-1), len(rows) * n_steps * self.n_sums)
        return total.reshape(len(rows), n_steps, self.n_sums).astype(np.float64)


def _checked(probabilities: ArrayLike, shares: ArrayLike) -> tuple[FloatArray, FloatArray]:
    p, s = as_probabilities(probabilities), as_floats(shares, "shares", ndim=1)
    if p.shape != s.shape:
        raise ValueError(f"shares: {len(s)} shares for {len(p)} probabilities")
    return p, as_probabilities(s, "shares")
