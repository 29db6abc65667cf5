"""The reference protocol: what the paper's public code computes, kept apart from the exact code.

It differs from the paper's text in ways that change conclusions (docs/protocols.md has the numbers):
marginals are float32 sums over a finite list of rankings, whatever its probability, and the 95% filter drops
rankings and instances. Use it to reproduce published numbers, not to measure calibration.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.calibration import binning
from rmcalib.calibration.notions import MAX_EVENTS, Notion, NotionResult, check_complete, check_ranks
from rmcalib.ranking import PairMarginals, RankingDistribution, all_rankings, events
from rmcalib.ranking._listed import index_of_orders
from rmcalib.ranking.events import Family

_KERNEL_EPSILON = 1e-8
_ENUMERATED_BELOW = 8


def reference_notion(notion: Notion) -> NotionResult:
    """Compute ``sub_k(..., protocol="reference")``."""
    error, weighting = notion.error, notion.weighting
    if notion.events is not None or notion.counted_on is not None or notion.max_events != MAX_EVENTS:
        raise ValueError("events, counted_on, max_events: the reference protocol chooses its own events")
    if (error.bins, error.norm, error.debias) != (10, 1, False) or error.spacing == "mass":
        raise ValueError(
            "protocol: the reference protocol has 10 bins, spacing 'width' or 'log', norm 1, no debias"
        )
    if error.discrepancy == "jeffreys":
        raise ValueError("discrepancy: the reference protocol reports jeffreys_unit, not raw jeffreys")
    if notion.coverage is not None and weighting != "uniform":
        raise ValueError("weighting: the reference protocol has coverage=0.95 with uniform weighting only")
    orders = check_complete(notion.dist, notion.orders, "the reference protocol")
    chosen, p, happened = _forecasts(
        notion.dist, orders, notion.k, notion.family, notion.coverage, notion.support
    )
    edges = _rounded(binning.bin_edges(p, error))
    sums = binning.bin_sums(binning.bin_index(p, edges), p, happened.astype(np.float64), 10)
    per_event = binning.binned_error(sums, error)
    weights = np.ones(len(chosen))
    if weighting != "uniform":
        weights = happened.mean(axis=0) if weighting == "frequency" else p.mean(axis=0)
    weights = weights / weights.sum()
    value, n, how = float(weights @ per_event), len(happened), "95% filter" if notion.coverage else "all"
    return NotionResult(value, per_event, chosen, weights, notion.family, notion.k, n, "reference", how)


def reference_strong_notion(
    dist: PairMarginals,
    orders: IntArray,
    k: int,
    family: Family,
    *,
    coverage: float | None,
    support: ArrayLike | None,
    bandwidth: float,
    norm: Literal[1, 2],
) -> float:
    """Compute ``full_rank(..., protocol="reference")``."""
    chosen, p, happened = _forecasts(dist, orders, k, family, coverage, support)
    target = happened.astype(np.float64)
    if family == "top":
        return _kernel_error(p, target, bandwidth, norm)
    _, which = events.unique_rows(np.sort(chosen, axis=1), int(chosen.max()) + 1)
    sets = [which == number for number in range(int(which.max()) + 1)]
    return float(np.mean([_kernel_error(p[:, one], target[:, one], bandwidth, norm) for one in sets]))


def reference_support(dist: RankingDistribution, support: ArrayLike | None) -> IntArray:
    """Return the rankings over which the public code sums: ``support``, or all rankings below 8 items."""
    if support is not None:
        return np.unique(events.as_orders(support, "support", dist.n_items), axis=0)
    if dist.n_items < _ENUMERATED_BELOW:
        return all_rankings(dist.n_items)
    raise ValueError(
        f"support: with {dist.n_items} items the reference protocol needs the rankings that occur in the "
        "data set; pass them as support="
    )


class _Forecasts(NamedTuple):
    """Events (E, k), their probabilities (n, E), rounded to float32, and whether they happened (n, E)."""

    events: IntArray
    marginals: FloatArray
    happened: BoolArray


def _forecasts(
    dist: PairMarginals,
    orders: IntArray,
    k: int,
    family: Family,
    coverage: float | None,
    support: ArrayLike | None,
) -> _Forecasts:
    """Sum over listed rankings if ``dist`` is a distribution; otherwise use its pair marginals."""
    if coverage not in (None, 0.95):
        raise ValueError(f"coverage: the reference protocol has coverage=0.95 or None, not {coverage}")
    m = orders.shape[1]
    chosen = events.all_events(m, k) if m < _ENUMERATED_BELOW else events.observed(orders, k, family)
    kept = None if coverage is None else _kept_rankings(orders)
    rows = np.ones(len(orders), dtype=bool) if kept is None else index_of_orders(kept, orders) < len(kept)
    if family == "sub" and not isinstance(dist, RankingDistribution):
        p = dist.sub(chosen)[rows]
        if (
            kept is not None
        ):  # pair marginals are not truncated; a pair stays if a kept ranking agrees with it
            p = p * events.occurs_unchecked(kept, chosen, family).any(axis=0)
    else:
        ranks = check_ranks(dist, "top_k")
        listed = reference_support(ranks, support)
        if kept is not None:
            listed = listed[index_of_orders(kept, listed) < len(kept)]
        each = _rounded(np.exp(ranks.log_prob(listed))[rows])
        p = each @ events.occurs_unchecked(listed, chosen, family)
    return _Forecasts(chosen, _rounded(p), events.occurs_unchecked(orders[rows], chosen, family))


def _rounded(p: FloatArray) -> FloatArray:
    """Round to float32, as the public code does. Sums are in float64, because those of float32 differ between
    processors."""
    return p.astype(np.float32).astype(np.float64)


def _kept_rankings(orders: IntArray) -> IntArray:
    """Return the rankings of the 95% filter: the most frequent, and of equally frequent ones the first."""
    distinct, which = events.unique_rows(orders, orders.shape[1])
    counts = np.bincount(which)
    first_seen = np.full(len(distinct), len(orders))
    np.minimum.at(first_seen, which, np.arange(len(orders)))
    ranking = np.lexsort([first_seen, -counts])
    reached = np.cumsum(counts[ranking]) >= 0.95 * len(orders)
    return distinct[ranking[: int(np.argmax(reached)) + 1]]


def _kernel_error(p: FloatArray, target: FloatArray, bandwidth: float, norm: int) -> float:
    from scipy.special import gammaln

    alpha = p / bandwidth + 1
    log_constant = gammaln(alpha.sum(axis=1)) - gammaln(alpha).sum(axis=1)
    log_kernel = log_constant + np.log(np.maximum(p, _KERNEL_EPSILON)) @ (alpha - 1).T
    np.fill_diagonal(log_kernel, -np.inf)
    # Relative to the largest kernel of the row, because the public code adds its 1e-8 there.
    kernel = np.exp(log_kernel - log_kernel.max(axis=1, keepdims=True))
    local = kernel @ target / (kernel.sum(axis=1, keepdims=True) + _KERNEL_EPSILON)
    gap = np.abs(local - p)
    return float(np.mean(gap.sum(axis=1) if norm == 1 else np.sqrt((gap**2).sum(axis=1))))
