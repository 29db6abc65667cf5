"""What a calibrated forecast would show: null distributions, p-values, consistency bands.

An ECE is above zero even for a perfect forecast. Outcomes drawn from the forecast itself show by how much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_groups, check_choice
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
from rmcalib.calibration._draws import draw_sums
from rmcalib.calibration._ece import as_forecast
from rmcalib.calibration._intervals import check_level
from rmcalib.calibration._outcomes import CellOutcomes

__all__ = ["Band", "Draw", "NullTest", "consistency_band", "ece_null"]

Draw = Literal["auto", "independent", "one_per_group"]
"""How outcomes are simulated; see `ece_null`."""


@dataclass(frozen=True)
class NullTest:
    """An observed error beside that of a calibrated forecast with as much data.

    Attributes
    ----------
    value : float
        The observed error.
    mean, high : float
        Mean and 95% point of the error of a calibrated forecast.
    p_value : float
        How often a calibrated forecast has an error at least as large as the observed one.
    resamples : int
        Number of simulated data sets.

    Examples
    --------
    >>> round(NullTest(value=0.08, mean=0.03, high=0.05, p_value=0.001, resamples=999).excess, 2)
    0.05
    """

    value: float
    mean: float
    high: float
    p_value: float
    resamples: int

    @property
    def excess(self) -> float:
        """How much the error exceeds that of a calibrated forecast: value − mean."""
        return self.value - self.mean


@dataclass(frozen=True)
class Band:
    """Where the frequency of each bin would lie if the forecast were calibrated.

    Attributes
    ----------
    low, high : float array (B,)
        Limits of the frequency; NaN in empty bins.
    level : float
        Probability that a frequency lies within its limits.

    Examples
    --------
    >>> consistency_band([0.5] * 100, bins=2).low.round(1)
    array([nan, 0.4])
    """

    low: FloatArray
    high: FloatArray
    level: float


def ece_null(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    draw: Draw = "auto",
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
    bins: int | ArrayLike = 10,
    spacing: Spacing = "width",
    discrepancy: Discrepancy = "abs",
    norm: Norm = 1,
    debias: bool = False,
) -> NullTest:
    """Compare the binned error with its distribution under outcomes drawn from the forecast itself.

    With more than 10,000 groups, the sums of the bins are drawn instead, from the normal distribution with
    their exact mean and covariance.

    Parameters
    ----------
    probabilities : array (n,)
        Forecasts in [0, 1].
    outcomes : array (n,)
        1 if the event happened, 0 otherwise.
    groups : array (n,), optional
        Labels of rows that belong together, such as the responses to one prompt.
    draw : Draw
        "one_per_group" draws exactly one row of each group, whose probabilities sum to 1; "independent" draws
        every row by itself; "auto" takes the former where the data has this form.
    resamples : int
        Number of simulated data sets.
    rng : numpy Generator or int
        Generator or seed.
    bins, spacing, discrepancy, norm, debias
        As for `ece`.

    Returns
    -------
    NullTest
        The error, the mean and 95% point of its null distribution, and the p-value.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(500)
    >>> bool(ece_null(p, rng.random(500) < p).p_value > 0.05), ece_null(p, np.ones(500)).p_value < 0.01
    (True, True)
    """
    p, y = as_forecast(probabilities, outcomes)
    error = ErrorOptions(as_bins(bins), spacing, discrepancy, norm, debias)
    edges = bin_edges(p, error)
    observed = bin_sums(bin_index(p, edges), p, y, len(edges) - 1)
    happened = _simulated_bins(p, y, groups, edges, draw, resamples, rng)
    count, probability = (np.broadcast_to(x, happened.shape) for x in (observed.count, observed.probability))
    drawn = binned_error(BinSums(count, probability, happened), error)
    return compare_with_null(float(binned_error(observed, error)), drawn)


def consistency_band(
    probabilities: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    draw: Draw = "auto",
    bins: int | ArrayLike = 10,
    spacing: Spacing = "width",
    level: float = 0.95,
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
) -> Band:
    """Return where the bars of a reliability diagram would lie if the forecast were calibrated.

    Parameters
    ----------
    probabilities : array (n,)
        Forecasts in [0, 1].
    groups, draw, resamples, rng
        As for `ece_null`; here "auto" only looks at the probabilities.
    bins, spacing
        As for `ece`.
    level : float
        Probability that a bar lies within the band.

    Returns
    -------
    Band
        Lower and upper limits of the bars.

    Examples
    --------
    >>> band = consistency_band(np.full(100, 0.5), bins=1)
    >>> bool(0.3 < band.low[0] < 0.5 < band.high[0] < 0.7)
    True
    """
    check_level(level)
    p, y = as_forecast(probabilities, np.zeros(np.size(probabilities)))
    edges = bin_edges(p, ErrorOptions(as_bins(bins), spacing))
    happened = _simulated_bins(p, y, groups, edges, draw, resamples, rng)
    count = np.bincount(bin_index(p, edges), minlength=len(edges) - 1).astype(np.float64)
    low, high = np.quantile(happened, [(1 - level) / 2, (1 + level) / 2], axis=0)
    nonempty = np.where(count > 0, count, np.nan)
    return Band(low / nonempty, high / nonempty, level)


def compare_with_null(observed: float, draws: FloatArray) -> NullTest:
    """Return where ``observed`` stands among ``draws`` (R,) of a calibrated forecast.

    >>> compare_with_null(2.0, np.array([0.0, 1.0, 3.0])).p_value
    0.5
    """
    # Equal up to rounding counts as "at least as large".
    reached = int((draws >= observed - 1e-12).sum())
    p_value = (1 + reached) / (1 + len(draws))
    return NullTest(observed, float(draws.mean()), float(np.quantile(draws, 0.95)), p_value, len(draws))


def is_one_per_group(draw: Draw, groups: ArrayLike | None, p: FloatArray, y: FloatArray | None) -> bool:
    """Return whether exactly one row of each group happens; check that its probabilities sum to 1 if so.

    >>> is_one_per_group("auto", [0, 0], np.array([0.25, 0.75]), np.array([1.0, 0.0]))
    True
    """
    check_choice(draw, "draw", ("auto", "independent", "one_per_group"))
    if draw == "independent" or (draw == "auto" and groups is None):
        return False
    if groups is None:
        raise ValueError("groups: needed for draw='one_per_group'")
    index = as_groups(groups, len(p))
    sums = np.bincount(index, p)
    bad = np.abs(sums - 1) > 1e-5
    if draw == "auto":
        return not bad.any() and (y is None or bool((np.bincount(index, y) == 1).all()))
    if bad.any():
        group = int(np.argmax(bad))
        raise ValueError(
            f"probabilities: those of group number {group} sum to {sums[group]:.6g}, "
            "expected 1 for draw='one_per_group'"
        )
    return True


def _simulated_bins(
    p: FloatArray,
    y: FloatArray,
    groups: ArrayLike | None,
    edges: FloatArray,
    draw: Draw,
    resamples: int,
    rng: np.random.Generator | int,
) -> FloatArray:
    """Number of outcomes in each bin, drawn from the forecast: (R, B)."""
    one_per_group = is_one_per_group(draw, groups, p, y if y.any() else None)
    order, index = sorted_rows(p, y, as_groups(groups, len(p)))
    n_bins = len(edges) - 1
    outcomes = CellOutcomes.of_rows(index, bin_index(p[order], edges), n_bins, one_per_group=one_per_group)
    q = outcomes.probabilities(p[order])
    generator = np.random.default_rng(rng)
    return draw_sums(outcomes, [q], (), resamples=resamples, most=0, rng=generator)[0]


def sorted_rows(p: FloatArray, y: FloatArray, groups: IntArray) -> tuple[IntArray, IntArray]:
    """Return an order of rows by group, then by forecast, and the groups in that order.

    With rows in this order, results do not depend on the order in which they are given.

    >>> sorted_rows(np.array([0.6, 0.4, 1.0]), np.array([1.0, 0.0, 1.0]), np.array([1, 1, 0]))
    (array([2, 1, 0]), array([0, 1, 1]))
    """
    order = np.lexsort((y, p, groups))
    return order, groups[order]
