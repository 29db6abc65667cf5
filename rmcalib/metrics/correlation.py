"""Correlations of calibration errors with scores over models, with bootstrap intervals and p-values.

A resample of models is a vector of weights that says how often each model was drawn. Each coefficient is a
function of weighted sums, so a thousand resamples take a few matrix products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, as_floats, check_choice, check_integer
from rmcalib.calibration.intervals import check_level

Method = Literal["kendall", "spearman", "pearson"]
"""A coefficient of correlation."""
METHODS: dict[str, str] = {
    "kendall": "Kendall's tau-b",
    "spearman": "Spearman's rho",
    "pearson": "Pearson's r",
}
"""The name of each coefficient of correlation."""
_FEWEST = 3
_LEADERBOARD = "leaderboard"
_FEW = 6  # models: resamples of fewer hardly differ, so their interval would be far too narrow


@dataclass(frozen=True)
class Correlation:
    """A coefficient over n models, with interval and p-value; ``note`` says why a value is missing."""

    value: float | None
    low: float | None
    high: float | None
    p_value: float | None
    n: int
    method: str
    note: str = ""


def correlate(
    x: ArrayLike,
    y: ArrayLike,
    *,
    method: Method = "kendall",
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Correlation:
    """Correlate two numbers of each model (n,), with a percentile bootstrap interval over the models."""
    a, b = as_floats(x, "x", ndim=1), as_floats(y, "y", ndim=1)
    if len(a) != len(b):
        raise ValueError(f"x and y: {len(a)} and {len(b)} values; expected one of each for every model")
    check_choice(method, "method", tuple(METHODS))
    check_level(level)
    n = len(a)
    if n < _FEWEST:
        return Correlation(None, None, None, None, n, method, f"needs at least {_FEWEST} models")
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return Correlation(None, None, None, None, n, method, "all models are equal")
    weights = resampling_weights(check_integer(resamples, "resamples", 1), n, np.random.default_rng(seed))
    coefficient = {"kendall": kendall, "spearman": _spearman, "pearson": _pearson}[method]
    value = float(coefficient(a, b, np.ones((1, n)))[0])
    draws = coefficient(a, b, weights)
    # A resample of one model many times has no coefficient.
    low, high = np.nanquantile(draws, [(1 - level) / 2, (1 + level) / 2])
    if n < _FEW:
        low, high = -1.0, 1.0
    return Correlation(value, float(low), float(high), _p_value(a, b, method), n, method)


def correlation_rows(
    calibration: ArrayLike,
    scores: Mapping[str, ArrayLike],
    *,
    metric: str,
    leaderboard: ArrayLike | None = None,
    method: Method = "kendall",
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Correlate a calibration error (n,) with the leaderboard and each category's score; NaN is left out."""
    errors = np.asarray(calibration, dtype=np.float64)
    targets: dict[str, ArrayLike] = {} if leaderboard is None else {_LEADERBOARD: leaderboard}
    for key, one in scores.items():
        targets[f"{key} (category)" if key == _LEADERBOARD else key] = one
    rows = []
    for name, target in targets.items():
        values = np.asarray(target, dtype=np.float64)
        kept = np.isfinite(errors) & np.isfinite(values)
        if not kept.any():
            found = Correlation(None, None, None, None, 0, method, "no model has both numbers")
        else:
            by_rank = name == _LEADERBOARD and method != "pearson"
            worse = ranks_from_scores(values[kept]) if by_rank else -values[kept]
            found = correlate(errors[kept], worse, method=method, resamples=resamples, level=level, seed=seed)
        rows.append(
            {
                "metric": metric,
                "target": name,
                "method": method,
                "value": found.value,
                "low": found.low,
                "high": found.high,
                "p_value": found.p_value,
                "n": found.n,
                "note": found.note,
            }
        )
    return rows


def resampling_weights(resamples: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw how often each of n models occurs in each bootstrap resample: (R, n)."""
    drawn = rng.integers(n, size=(resamples, n)) + n * np.arange(resamples)[:, None]
    return np.bincount(drawn.reshape(-1), minlength=resamples * n).reshape(resamples, n).astype(np.float64)


def ranks_from_scores(scores: ArrayLike) -> FloatArray:
    """Number models 1, 2, ... from the best score down; equal scores keep their order."""
    values = np.asarray(scores, dtype=np.float64)
    if len(values) and np.ptp(values) == 0:
        return np.ones(len(values))  # equal models have no order
    ranks = np.empty(len(values))
    ranks[np.argsort(-values, kind="stable")] = np.arange(1, len(values) + 1)
    return ranks


def kendall(x: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
    """Return tau-b of weighted models: (R, n) weights -> (R,). Copies of a model are tied with each other."""
    sx, sy = np.sign(x[:, None] - x), np.sign(y[:, None] - y)

    def pairs(signs: FloatArray) -> FloatArray:
        return np.einsum("rn,rn->r", weights @ signs, weights)

    return _ratio(pairs(sx * sy), pairs(np.abs(sx)), pairs(np.abs(sy)))


def _spearman(x: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
    """Pearson's r of mid-ranks within each resample."""

    def ranks(values: FloatArray) -> FloatArray:
        below = (values[:, None] < values).astype(np.float64) + 0.5 * (values[:, None] == values)
        return weights @ below

    return _weighted_pearson(ranks(x), ranks(y), weights)


def _pearson(x: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
    return _weighted_pearson(np.broadcast_to(x, weights.shape), np.broadcast_to(y, weights.shape), weights)


def _weighted_pearson(x: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
    total = weights.sum(axis=1, keepdims=True)
    x = x - (weights * x).sum(axis=1, keepdims=True) / total
    y = y - (weights * y).sum(axis=1, keepdims=True) / total
    return _ratio(*((weights * term).sum(axis=1) for term in (x * y, x * x, y * y)))


def _ratio(together: FloatArray, alone_x: FloatArray, alone_y: FloatArray) -> FloatArray:
    spread = np.sqrt(alone_x * alone_y)
    defined = spread > 0
    return np.where(defined, np.clip(together / np.where(defined, spread, 1.0), -1, 1), np.nan)


def _p_value(x: FloatArray, y: FloatArray, method: Method) -> float:
    from scipy import stats

    if method == "kendall":
        return float(stats.kendalltau(x, y).pvalue)
    if method == "spearman":
        return float(stats.spearmanr(x, y).pvalue)
    return float(stats.pearsonr(x, y).pvalue)
