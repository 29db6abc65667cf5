"""Errors and scores of binary forecasts: the binned calibration error, Brier and log score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_groups, as_outcomes, as_probabilities
from rmcalib.calibration._binning import (
    BinSums,
    Discrepancy,
    ErrorOptions,
    Norm,
    Spacing,
    as_bins,
    bin_edges,
    bin_index,
    bin_sums,
    binned_error,
)

__all__ = ["Reliability", "brier_score", "ece", "log_score", "reliability"]


@dataclass(frozen=True)
class Reliability:
    """The numbers of a reliability diagram, for B bins.

    Attributes
    ----------
    low, high : float arrays (B,)
        Edges of each bin.
    count : float array (B,)
        Number of forecasts in the bin.
    confidence : float array (B,)
        Their mean; NaN in empty bins.
    frequency : float array (B,)
        How often the event happened; NaN in empty bins.

    Examples
    --------
    >>> diagram = reliability([0.2, 0.4, 0.9], [0, 1, 1], bins=2)
    >>> diagram.frequency - diagram.confidence
    array([0.2, 0.1])
    """

    low: FloatArray
    high: FloatArray
    count: FloatArray
    confidence: FloatArray
    frequency: FloatArray


def ece(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    bins: int | ArrayLike = 10,
    spacing: Spacing = "width",
    discrepancy: Discrepancy = "abs",
    norm: Norm = 1,
    debias: bool = False,
) -> float:
    """Return the expected calibration error (ECE) of forecasts of yes/no outcomes.

    ECE = Σ_b |I_b|/n · |freq(I_b) − conf(I_b)| over bins that are left-closed, with p = 1 in the last one.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.
    bins : int or float array (B + 1,)
        Number of bins, or their edges from 0 to 1.
    spacing : {"width", "mass", "log"}
        Bins of equal width, of equal mass, or logarithmic from 1e-12.
    discrepancy : {"abs", "kl", "jeffreys", "jeffreys_unit"}
        How the frequency f and the mean forecast c of a bin are compared. "abs" is |f − c|. "kl" is the
        Bernoulli divergence KL(f‖c). "jeffreys" is J = KL(f‖c) + KL(c‖f) with f smoothed to
        (n₁ + ½)/(n + 1). "jeffreys_unit" is 1 − exp(−J), which lies in [0, 1).
    norm : {1, 2, "max"}
        Weighted mean over bins, root of the weighted mean square, or the largest.
    debias : bool
        Subtract the sampling variance f(1 − f)/(n − 1) from each squared difference ("abs" only).

    Returns
    -------
    float
        The error; 0 if every bin's frequency equals its mean forecast.

    Examples
    --------
    >>> ece([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1])
    0.1
    >>> ece([0.25, 0.25, 0.25, 0.25], [0, 0, 0, 1])
    0.0
    """
    p, y = as_forecast(probabilities, outcomes)
    options = ErrorOptions(as_bins(bins), spacing, discrepancy, norm, debias)
    return round_off(float(binned_error(_sums(p, y, bin_edges(p, options)), options)))


def reliability(
    probabilities: ArrayLike, outcomes: ArrayLike, *, bins: int | ArrayLike = 10, spacing: Spacing = "width"
) -> Reliability:
    """Return the reliability diagram of forecasts of yes/no outcomes.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.
    bins, spacing
        As for `ece`.

    Returns
    -------
    Reliability
        Edges, counts, mean forecasts and frequencies of the bins.

    Examples
    --------
    >>> diagram = reliability([0.2, 0.4, 0.9], [0, 1, 1], bins=2)
    >>> diagram.count, diagram.confidence.round(2), diagram.frequency
    (array([2., 1.]), array([0.3, 0.9]), array([0.5, 1. ]))
    """
    p, y = as_forecast(probabilities, outcomes)
    edges = bin_edges(p, ErrorOptions(as_bins(bins), spacing))
    sums = _sums(p, y, edges)
    count = np.where(sums.count > 0, sums.count, np.nan)
    return Reliability(edges[:-1], edges[1:], sums.count, sums.probability / count, sums.outcome / count)


def brier_score(probabilities: ArrayLike, outcomes: ArrayLike, *, groups: ArrayLike | None = None) -> float:
    """Return the Brier score: the mean of (p − y)².

    With ``groups``, (p − y)² is summed over each group, and the result is the mean over groups.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.
    groups : array of shape (n,), optional
        Labels. The rows of a group are the possible answers to one question (multi-class score).

    Returns
    -------
    float
        The score; 0 is best.

    Examples
    --------
    >>> brier_score([0.75, 0.25], [1, 0])
    0.0625
    >>> brier_score([0.75, 0.25], [1, 0], groups=[0, 0])
    0.125
    """
    p, y = as_forecast(probabilities, outcomes)
    index = as_groups(groups, len(p))
    return float(((p - y) ** 2).sum() / (index.max() + 1))


def log_score(probabilities: ArrayLike, outcomes: ArrayLike, *, groups: ArrayLike | None = None) -> float:
    """Return the mean negative log-likelihood of the outcomes.

    The score is infinite if an outcome happened that had probability 0.

    Parameters
    ----------
    probabilities : array of shape (n,)
        Forecasts in [0, 1].
    outcomes : array of shape (n,)
        1 if the event happened, 0 otherwise.
    groups : array of shape (n,), optional
        Labels. Exactly one row of each group happened, and only its probability counts.

    Returns
    -------
    float
        The score in nats; 0 is best.

    Examples
    --------
    >>> round(log_score([0.5, 0.5], [1, 0]), 4)
    0.6931
    >>> round(log_score([0.8, 0.2], [1, 0], groups=["a", "a"]), 4)
    0.2231
    """
    p, y = as_forecast(probabilities, outcomes)
    if groups is not None:
        check_one_per_group(y, as_groups(groups, len(p)))
        likelihood = p[y == 1]
    else:
        likelihood = np.where(y == 1, p, 1 - p)
    with np.errstate(divide="ignore"):
        return float(-np.log(likelihood).mean() + 0.0)


def as_forecast(
    probabilities: ArrayLike, outcomes: ArrayLike, *, shares: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Return checked probabilities and outcomes (n,) of the same length; ``shares`` allows any in [0, 1].

    >>> as_forecast([0.5], [1, 0])
    Traceback (most recent call last):
    ...
    ValueError: outcomes: 2 outcomes for 1 probabilities
    """
    p = as_probabilities(probabilities)
    y = as_probabilities(outcomes, "outcomes") if shares else as_outcomes(outcomes)
    if len(p) != len(y):
        raise ValueError(f"outcomes: {len(y)} outcomes for {len(p)} probabilities")
    return p, y


def round_off(value: float, tolerance: float = 1e-15) -> float:
    """Return 0 for values below ``tolerance``, so that perfectly calibrated data has an error of exactly 0.

    >>> round_off(-1e-17)
    0.0
    """
    return 0.0 if abs(value) < tolerance else value


def check_one_per_group(outcomes: FloatArray, groups: IntArray) -> None:
    """Raise a ValueError unless exactly one outcome of each group happened.

    >>> check_one_per_group(np.array([1.0, 1.0]), np.array([0, 0]))
    Traceback (most recent call last):
    ...
    ValueError: outcomes: group number 0 has 2 outcomes of 1, expected exactly one
    """
    happened = np.bincount(groups, outcomes)
    bad = happened != 1
    if bad.any():
        group = int(np.argmax(bad))
        raise ValueError(
            f"outcomes: group number {group} has {int(happened[group])} outcomes of 1, expected exactly one"
        )


def _sums(p: FloatArray, y: FloatArray, edges: FloatArray) -> BinSums:
    return bin_sums(bin_index(p, edges), p, y, len(edges) - 1)
