"""The reference protocol: what the paper's public code computes, kept apart from the exact code.

It differs from the paper's text in ways that change conclusions (docs/protocols.md has the numbers):
marginals are float32 sums over a finite list of rankings, whatever its probability, and the 95% filter drops
rankings and instances. Use it to reproduce published numbers, not to measure calibration.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.calibration import binning
from rmcalib.calibration.notions import MAX_EVENTS, Notion, NotionResult, check_complete, check_ranks
from rmcalib.ranking import PairMarginals, RankingDistribution, all_rankings, events
from rmcalib.ranking.events import Family

_KERNEL_EPSILON = 1e-8
ENUMERATED_BELOW = 8
"""With fewer items, all rankings are summed over; otherwise, those that occur in the data set."""


def reference_notion(notion: Notion) -> NotionResult:
    """Compute ``sub_k(..., protocol="reference")``."""
    allowed = {
        "bins": notion.bins == 10,
        "norm": notion.norm == 1,
        "debias": not notion.debias,
        "spacing": notion.spacing != "mass",
        "discrepancy": notion.discrepancy != "jeffreys",
        "counted_on": notion.counted_on is None,
        "max_events": notion.max_events == MAX_EVENTS,
        "weighting": notion.coverage is None or notion.weighting == "uniform",
    }
    for option, fine in allowed.items():
        if not fine:
            raise ValueError(f"{option}: the reference protocol does not have this value")
    orders = check_complete(notion.dist, notion.orders, "the reference protocol")
    chosen, p, happened = _forecasts(
        notion.dist, orders, notion.k, notion.family, notion.coverage, notion.support
    )
    edges = _rounded(binning.bin_edges(p, notion))
    sums = binning.bin_sums(binning.bin_index(p, edges), p, happened.astype(np.float64), 10)
    per_event = binning.binned_error(sums, notion)
    weights = np.ones(len(chosen))
    if notion.weighting != "uniform":
        weights = happened.mean(axis=0) if notion.weighting == "frequency" else p.mean(axis=0)
    weights = weights / weights.sum()
    value, n = float(weights @ per_event), len(happened)
    return NotionResult(value, per_event, chosen, weights, notion.family, notion.k, n, "reference")


def reference_strong_notion(
    dist: PairMarginals,
    orders: IntArray,
    k: int,
    family: Family,
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
    return float(np.mean([_kernel_error(p[:, part], target[:, part], bandwidth, norm) for part in sets]))


def _support(dist: RankingDistribution, support: ArrayLike | None) -> IntArray:
    """Return the rankings over which the public code sums: ``support``, or all rankings below 8 items."""
    if support is not None:
        return np.unique(events.as_orders(support, "support", dist.n_items), axis=0)
    if dist.n_items < ENUMERATED_BELOW:
        return all_rankings(dist.n_items)
    raise ValueError(
        f"support: with {dist.n_items} items the reference protocol needs the rankings that occur in the "
        "data set; pass them as support="
    )


def _forecasts(
    dist: PairMarginals,
    orders: IntArray,
    k: int,
    family: Family,
    coverage: float | None,
    support: ArrayLike | None,
) -> tuple[IntArray, FloatArray, BoolArray]:
    """Return events (E, k), their probabilities, rounded to float32, and whether they happened: (n, E) each.

    Sum over listed rankings if ``dist`` is a distribution; otherwise use its pair marginals.
    """
    if coverage not in (None, 0.95):
        raise ValueError(f"coverage: the reference protocol has coverage=0.95 or None, not {coverage}")
    m = orders.shape[1]
    chosen = events.all_events(m, k) if m < ENUMERATED_BELOW else events.observed(orders, k, family)
    kept = _kept_rankings(orders, 1.0 if coverage is None else coverage)
    rows = events.index_of_rows(kept, orders) < len(kept)
    if family == "sub" and not isinstance(dist, RankingDistribution):
        p = dist.sub(chosen)[rows]
        if coverage is not None:
            # Pair marginals are not truncated; a pair stays if a kept ranking agrees with it.
            p = p * events.occurs_unchecked(kept, chosen, family).any(axis=0)
    else:
        ranks = check_ranks(dist, "top_k")
        listed = _support(ranks, support)
        if coverage is not None:
            listed = listed[events.index_of_rows(kept, listed) < len(kept)]
        each = _rounded(np.exp(ranks.log_prob(listed))[rows])
        p = each @ events.occurs_unchecked(listed, chosen, family)
    return chosen, _rounded(p), events.occurs_unchecked(orders[rows], chosen, family)


def _rounded(p: FloatArray) -> FloatArray:
    """Round to float32, as the public code does. Sums are in float64, because those of float32 differ between
    processors."""
    return p.astype(np.float32).astype(np.float64)


def _kept_rankings(orders: IntArray, coverage: float) -> IntArray:
    """Return the rankings of the 95% filter: the most frequent, and of equally frequent ones the first."""
    distinct, which = events.unique_rows(orders, orders.shape[1])
    counts = np.bincount(which)
    first_seen = np.full(len(distinct), len(orders))
    np.minimum.at(first_seen, which, np.arange(len(orders)))
    ranking = np.lexsort([first_seen, -counts])
    reached = np.cumsum(counts[ranking]) >= coverage * len(orders)
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
