"""Intervals and null tests of binned calibration errors."""

from __future__ import annotations

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
    binned_error,
    grouped_sums,
    unpack_bins,
)
from rmcalib.calibration._ece import (
    as_forecast,
)
from rmcalib.calibration._inference._estimates import Inference
from rmcalib.calibration._inference._simulation import STEPS, rare_errors, simulate
from rmcalib.calibration._intervals import (
    Interval,
    bootstrap_sums,
    check_level,
    recentred_alternatives,
    recentred_interval,
    resampled_sums,
)
from rmcalib.calibration._nulls import (
    Draw,
    is_one_per_group,
    sorted_rows,
)
from rmcalib.calibration._outcomes import CellOutcomes, FeatureOutcomes, Outcomes, sparse_rows

__all__ = ["binned_inference", "binned_influence", "ece_interval"]

IntervalMethod = Literal["inverted", "recentred", "percentile"]


def ece_interval(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    draw: Draw = "auto",
    resamples: int = 1000,
    level: float = 0.95,
    method: IntervalMethod = "inverted",
    rng: np.random.Generator | int = 0,
    bins: int | ArrayLike = 10,
    spacing: Spacing = "width",
    discrepancy: Discrepancy = "abs",
    norm: Norm = 1,
    debias: bool = False,
) -> Interval:
    """Return the binned calibration error with a confidence interval.

    Sampling noise increases an ECE, so quantiles of resampled errors lie too high and never reach 0,
    even for a calibrated forecast. The default method asks instead which true errors make the observed one
    likely: see `binned_inference`. ``results/statistics.md`` has the measured coverage. With more than 10,000
    groups, data sets are simulated as in `ece_null`.

    Parameters
    ----------
    probabilities : array (n,)
        Forecasts in [0, 1].
    outcomes : array (n,)
        1 if the event happened, 0 otherwise.
    groups : array (n,), optional
        Labels of rows that belong together, such as the responses to one prompt.
    draw : Draw
        How outcomes are simulated, as for `ece_null`.
    resamples : int
        Number of simulated data sets, or of bootstrap resamples.
    level : float
        Confidence level.
    method : IntervalMethod
        "inverted" simulates alternatives and inverts. "recentred" does the same with resampled bin sums whose
        observed gaps are scaled; "percentile" takes quantiles of resampled errors. Bin edges stay those of
        the data.
    rng : numpy Generator or int
        Generator or seed. With the same seed, "inverted" excludes 0 exactly if `ece_null` rejects.
    bins, spacing, discrepancy, norm, debias
        As for `ece`.

    Returns
    -------
    Interval
        The error and its limits.

    Examples
    --------
    >>> p = np.linspace(0.05, 0.95, 200)
    >>> y = np.random.default_rng(0).random(200) < p ** 2
    >>> interval = ece_interval(p, y)
    >>> 0 < interval.low < interval.value < interval.high
    True
    """
    check_choice(method, "method", ("inverted", "recentred", "percentile"))
    check_level(level)
    p, y = as_forecast(probabilities, outcomes)
    options = ErrorOptions(as_bins(bins), spacing, discrepancy, norm, debias)
    index = as_groups(groups, len(p))
    if method == "inverted":
        one = is_one_per_group(draw, groups, p, y)
        found = binned_inference(p, y, index, options, one_per_group=one, resamples=resamples, rng=rng)
        return found.interval(level)
    edges = bin_edges(p, options)
    sums = grouped_sums(p, y, index, bin_index(p, edges), len(edges) - 1)
    generator = np.random.default_rng(rng)
    if method == "percentile":
        return bootstrap_sums(
            sums,
            lambda rows: binned_error(unpack_bins(rows), options),
            resamples=resamples,
            level=level,
            rng=generator,
        )
    total, replicates = unpack_bins(sums.sum(axis=0)), unpack_bins(resampled_sums(sums, resamples, generator))
    alternatives = recentred_alternatives(total, replicates, options)
    return recentred_interval(float(binned_error(total, options)), *alternatives, level=level)


def binned_inference(
    p: FloatArray,
    y: FloatArray,
    groups: IntArray,
    options: ErrorOptions,
    *,
    one_per_group: bool,
    share: FloatArray | None = None,
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
) -> Inference:
    """Return the inference of a binned error: its interval, null test, and what differences need.

    Under the alternative of size s, a row of bin b happens with probability p + s · gap_b, where gap_b is the
    observed frequency minus the mean forecast of the bin. With ``one_per_group`` these are scaled to sum to 1
    within each group and exactly one row happens; otherwise rows are independent.

    Parameters
    ----------
    p, y, groups
        Forecasts, 0/1 outcomes, and group numbers 0, ..., G − 1.
    options : ErrorOptions
        How the error is computed.
    one_per_group : bool
        Whether exactly one row of each group happens.
    share : float array (n,), optional
        What the outcome of an independent row is if it happens, where it is not 1: 1/t for the choice among
        t tied responses, one of which is correct. Such a row happens with probability p / share.
    resamples : int
        Data sets drawn under the null; at most 400 are drawn under each alternative.
    rng : numpy Generator or int
        Generator or seed. The same seed gives the same null as `ece_null`.

    Returns
    -------
    Inference

    Examples
    --------
    >>> p, groups = np.tile([0.9, 0.1], 50), np.repeat(np.arange(50), 2)
    >>> y = np.where(np.arange(100) < 60, np.tile([1.0, 0.0], 50), np.tile([0.0, 1.0], 50))
    >>> found = binned_inference(p, y, groups, ErrorOptions(), one_per_group=True)
    >>> round(found.value, 3), found.test().p_value < 0.01, found.interval().low > 0.1
    (0.3, True, True)
    """
    order, groups = sorted_rows(p, y, groups)
    p, y = p[order], y[order]
    edges = bin_edges(p, options)
    n_bins, index = len(edges) - 1, bin_index(p, edges)
    sums = grouped_sums(p, y, groups, index, n_bins)
    total = unpack_bins(sums.sum(axis=0))
    gap = ((total.outcome - total.probability) / np.maximum(total.count, 1))[index]
    scale = unlimited(options)
    cells = CellOutcomes.of_rows(groups, index, n_bins, one_per_group=one_per_group)
    outcomes: Outcomes = cells
    most = np.ones(len(p)) if share is None else share[order]
    if (most < 1).any():
        added = sparse_rows(cells.cell, np.repeat(most, 2), n_bins)
        outcomes = FeatureOutcomes(cells.sizes, added)
    happened = y if one_per_group else np.column_stack([y > 0, y <= 0]).reshape(-1).astype(np.float64)

    def errors(happened: FloatArray, scale: float = 1.0) -> FloatArray:
        count = np.broadcast_to(scale * total.count, happened.shape)
        probability = np.broadcast_to(scale * total.probability, happened.shape)
        return binned_error(BinSums(count, probability, happened), options)

    def true_error(expected: FloatArray) -> FloatArray:
        return errors(scale * np.minimum(expected, total.count), scale)

    null, draws, truths = simulate(
        outcomes,
        lambda size: cells.probabilities((p + size * gap) / most),
        errors,
        true_error,
        steps=STEPS,
        resamples=resamples,
        rng=rng,
    )
    squared = options.debias and options.norm == 2 and len(sums) > 1
    return Inference(
        value=float(binned_error(total, options)),
        null=null,
        draws=draws,
        truths=truths,
        influence=binned_influence(sums, options),
        largest=1.0 if options.discrepancy in ("abs", "jeffreys_unit") else np.inf,
        square=_squared_error(sums) if squared else None,
        # Exactly one row of each group happens, so a single bin has no gap, whatever the forecast.
        rarely=rare_errors(outcomes, cells.probabilities(p / most), happened, true_error),
        unseen=2 * len(sums) / len(p) if one_per_group and (total.count > 0).sum() == 1 else 0.0,
    )


def binned_influence(sums: FloatArray, options: ErrorOptions) -> FloatArray:
    """Return the influence of each group (G,) on a binned error, for bin sums (G, 3B) of the groups.

    The derivative of the error by the total sums, times what the group adds to them.
    """
    scale = unlimited(options)
    total, step = scale * sums.sum(axis=0), 1e-4 * scale
    moved = np.concatenate([total + step * np.eye(len(total)), total - step * np.eye(len(total))])
    bins = unpack_bins(np.maximum(moved, 0.0))
    errors = binned_error(
        BinSums(bins.count, bins.probability, np.minimum(bins.outcome, bins.count)), options
    )
    up, down = np.split(errors, 2)
    influence: FloatArray = scale * sums @ ((up - down) / (2 * step))
    return influence - influence.mean()


def unlimited(options: ErrorOptions) -> float:
    """Return a factor on bin sums that makes them those of unlimited data, without corrections for few rows.

    The smoothing of the Jeffreys divergence stays: without it, a bin where all or none happened is infinite.
    """
    return 1e6 if options.discrepancy == "abs" else 1.0


def _squared_error(sums: FloatArray) -> tuple[float, float]:
    """Estimate Σ_b π_b gap_b² without bias, and its standard error, for bin sums (G, 3B) of the groups.

    With z_gb the residual sum of group g in bin b, c_gb its number of rows, m the mean number of rows and π_b
    the fraction of rows in bin b: U = Σ_b [(Σ_g z_gb)² − Σ_g z_gb²] / (G(G − 1) π_b m²), a U-statistic.
    """
    count, probability, outcome = np.split(sums, 3, axis=1)
    filled = count.sum(axis=0) > 0
    count, z = count[:, filled], (outcome - probability)[:, filled]
    n, rows = len(sums), float(count.sum()) / len(sums)
    weight = count.sum(axis=0) / count.sum()
    total = z.sum(axis=0)
    value = float(((total**2 - (z**2).sum(axis=0)) / weight).sum()) / (n * (n - 1) * rows**2)
    mean = total / (n * rows)
    linear = (2 * mean * z / (weight * rows) - mean**2 * count / (weight**2 * rows)).sum(axis=1)
    cross = np.cov(z.T / rows, ddof=1).reshape(len(weight), -1) / np.sqrt(np.outer(weight, weight))
    variance = float(linear.var(ddof=1)) / n + 2 * float((cross**2).sum()) / n**2
    return value, float(np.sqrt(variance))
