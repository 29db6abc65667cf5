"""What a calibrated model would show as its pairwise ECE, given that pairs of one prompt are dependent."""

from __future__ import annotations

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import (
    BinSums,
    ErrorOptions,
    NullTest,
    bin_edges,
    bin_index,
    binned_error,
    compare_with_null,
    draw_one_per_group,
)
from rmcalib.metrics._forecasts import Forecasts

__all__ = ["pairwise_null"]


def pairwise_null(forecasts: Forecasts, *, bins: int = 10, resamples: int = 1000, seed: int = 0) -> NullTest:
    """Compare the pairwise ECE with its distribution if the correct responses were drawn from the forecast.

    Every prompt has one correct response w, and its pairs are those of w with the others. The null draws w
    from P(i first), so that a prompt's pairs change together. Pairs drawn so are calibrated: under
    Plackett-Luce, P(w = i | w is i or j) = p_i / (p_i + p_j) = P(i before j).

    >>> from rmcalib.metrics import forecast
    >>> from rmcalib.scores import Scores
    >>> columns = {"item_id": ["a"] * 3, "category": ["x"] * 3, "response": [0, 1, 2],
    ...            "is_correct": [True, False, False], "reward": [0.0, 0.0, 0.0]}
    >>> pairwise_null(forecast(Scores.from_columns(columns))).p_value
    1.0
    """
    options = ErrorOptions(bins)
    sums = _sums_by_winner(forecasts, options)
    draws = np.empty((resamples, sums.shape[1]))
    rng = np.random.default_rng(seed)
    for part, winners in draw_one_per_group(forecasts.probability, forecasts.prompt, resamples, rng):
        n_rows = len(winners)
        cell = winners + len(sums) * np.arange(n_rows)[:, None]
        wins = np.bincount(cell.reshape(-1), minlength=n_rows * len(sums)).reshape(n_rows, len(sums))
        draws[part] = wins @ sums
    observed = sums[forecasts.is_correct].sum(axis=0)
    return compare_with_null(
        float(binned_error(_unpack(observed), options)), binned_error(_unpack(draws), options)
    )


def _sums_by_winner(forecasts: Forecasts, options: ErrorOptions) -> FloatArray:
    """Bin sums of a prompt's pairs if row i is the correct response, for every row: (N, 3 B)."""
    from scipy.special import expit

    winner, other = _ordered_pairs(forecasts.sizes)
    gap = forecasts.log_probability[winner] - forecasts.log_probability[other]
    edges = bin_edges(forecasts.probability, options)
    n_rows, n_bins = len(forecasts.prompt), len(edges) - 1
    sums = np.zeros((3, n_rows, n_bins))
    for probability, happened in ((expit(gap), 1.0), (expit(-gap), 0.0)):  # both orientations
        cell = winner * n_bins + bin_index(probability, edges)
        count = np.bincount(cell, minlength=n_rows * n_bins).reshape(n_rows, n_bins)
        total = np.bincount(cell, probability, n_rows * n_bins).reshape(n_rows, n_bins)
        sums += np.stack([count, total, happened * count])
    flat: FloatArray = sums.transpose(1, 0, 2).reshape(n_rows, 3 * n_bins)
    return flat


def _ordered_pairs(sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of all ordered pairs of different responses of a prompt."""
    repeats = np.repeat(sizes, sizes)  # how many responses each row's prompt has
    first = np.repeat(np.arange(len(repeats)), repeats)
    start = np.repeat(np.repeat(np.cumsum(sizes) - sizes, sizes), repeats)
    within = np.arange(len(first)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    second = start + within
    different = first != second
    return first[different], second[different]


def _unpack(sums: FloatArray) -> BinSums:
    count, probability, outcome = np.split(sums, 3, axis=-1)
    return BinSums(count, probability, outcome)
