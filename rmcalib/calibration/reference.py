"""The reference protocol: what the paper's public code computes, kept apart from the exact code.

It differs from the paper's text in ways that change conclusions (docs/protocols.md has the numbers):
marginals are sums over a finite list of rankings, whatever its probability; the 95% filter drops rankings and
instances; everything is float32. Use it to reproduce published numbers, not to measure calibration.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmcalib._util.arrays import BoolArray, IntArray, as_floats, check_choice
from rmcalib.calibration.notions import MAX_EVENTS, Notion, NotionResult, check_complete, check_ranks
from rmcalib.ranking import PairMarginals, RankingDistribution, all_rankings
from rmcalib.ranking._listed import index_of_orders
from rmcalib.ranking.events import (
    Family,
    all_events,
    as_orders,
    check_k,
    observed,
    occurs_unchecked,
    unique_rows,
)

Float32Array = NDArray[np.float32]
ReferenceWeighting = Literal["uniform", "prevalence", "pred_mass", "most_confident", "95_prob_mass", "top_10"]
ReferenceDiscrepancy = Literal["abs", "rel_p", "rel_q", "log_ratio", "kl", "jeff"]

_WEIGHTINGS = ("uniform", "prevalence", "pred_mass", "most_confident", "95_prob_mass", "top_10")
_DISCREPANCIES = ("abs", "rel_p", "rel_q", "log_ratio", "kl", "jeff")
_EPSILON = np.float32(1e-12)
_KERNEL_EPSILON = 1e-8
_ENUMERATED_BELOW = 8
_N_BINS = 10


def reference_rankwise(
    listed: ArrayLike,
    probabilities: ArrayLike,
    orders: ArrayLike,
    k: int,
    family: Family,
    *,
    weighting: ReferenceWeighting = "uniform",
    discrepancy: ReferenceDiscrepancy = "abs",
    spacing: Literal["linear", "log"] = "linear",
) -> NotionResult:
    """Return the sub-k or top-k "ECE" of the public code."""
    check_choice(weighting, "weighting", _WEIGHTINGS)
    check_choice(discrepancy, "discrepancy", _DISCREPANCIES)
    check_choice(spacing, "spacing", ("linear", "log"))
    forecasts = _listed_forecasts(listed, probabilities, orders, k, family, weighting)
    return _averaged(forecasts, family, weighting, discrepancy, spacing)


def reference_full_rank(
    listed: ArrayLike,
    probabilities: ArrayLike,
    orders: ArrayLike,
    k: int,
    family: Family,
    *,
    weighting: ReferenceWeighting = "uniform",
    bandwidth: float = 1.0,
    norm: Literal[1, 2] = 1,
) -> float:
    """Return the kernel estimate of strong sub-k or top-k calibration as the public code computes it."""
    check_choice(weighting, "weighting", ("uniform", "95_prob_mass", "top_10"))
    forecasts = _listed_forecasts(listed, probabilities, orders, k, family, weighting)
    return _strong(forecasts, family, bandwidth, norm)


def reference_notion(notion: Notion, support: ArrayLike | None) -> NotionResult:
    """Compute ``sub_k(..., protocol="reference")``: translate its options to those of the public code."""
    error, chosen, weighting = notion.error, notion.selection, notion.weighting
    given = {"events": chosen.events, "counted_on": chosen.counted_on}
    named = [name for name, value in given.items() if value is not None]
    if chosen.max_events != MAX_EVENTS:
        named.append("max_events")
    if named:
        raise ValueError(f"{', '.join(named)}: the reference protocol chooses its own events")
    if (error.bins, error.norm, error.debias) != (_N_BINS, 1, False) or error.spacing == "mass":
        raise ValueError(
            "protocol: the reference protocol has 10 bins, spacing 'width' or 'log', norm 1, no debias"
        )
    if chosen.coverage not in (None, 0.95) or (chosen.coverage is not None and weighting != "uniform"):
        raise ValueError("coverage: the reference protocol has coverage=0.95 with uniform weighting, or None")
    names: dict[str, Any] = {"uniform": "uniform", "frequency": "prevalence", "probability": "pred_mass"}
    name: ReferenceWeighting = "95_prob_mass" if chosen.coverage else names[weighting]
    discrepancies: dict[str, Any] = {"abs": "abs", "kl": "kl", "jeffreys_unit": "jeff"}
    if error.discrepancy not in discrepancies:
        raise ValueError("discrepancy: the reference protocol reports jeffreys_unit, not raw jeffreys")
    spacing: Literal["linear", "log"] = "linear" if error.spacing == "width" else "log"
    orders = check_complete(notion.dist, notion.orders, "the reference protocol")
    forecasts = _forecasts(notion.dist, orders, notion.k, notion.family, name, support)
    return _averaged(forecasts, notion.family, name, discrepancies[error.discrepancy], spacing)


def reference_strong_notion(
    dist: PairMarginals,
    orders: IntArray,
    k: int,
    family: Family,
    *,
    coverage: float | None = None,
    support: ArrayLike | None = None,
    bandwidth: float = 1.0,
    norm: Literal[1, 2] = 1,
) -> float:
    """Compute ``full_rank(..., protocol="reference")``."""
    if coverage not in (None, 0.95):
        raise ValueError(f"coverage: the reference protocol has coverage=0.95 or None, not {coverage}")
    weighting: ReferenceWeighting = "95_prob_mass" if coverage else "uniform"
    forecasts = _forecasts(dist, orders, k, family, weighting, support)
    return _strong(forecasts, family, bandwidth, norm)


def reference_support(dist: RankingDistribution, support: ArrayLike | None) -> IntArray:
    """Return the rankings over which the public code sums: ``support``, or all rankings below 8 items."""
    if support is not None:
        return np.unique(as_orders(support, "support", dist.n_items), axis=0)
    if dist.n_items < _ENUMERATED_BELOW:
        return all_rankings(dist.n_items)
    raise ValueError(
        f"support: with {dist.n_items} items the reference protocol needs the rankings that occur in the "
        "data set; pass them as support="
    )


class _Forecasts(NamedTuple):
    """Events (E, k), their float32 probabilities (n, E), and whether they happened (n, E)."""

    events: IntArray
    marginals: Float32Array
    happened: BoolArray


def _checked(
    listed: ArrayLike, probabilities: ArrayLike, orders: ArrayLike
) -> tuple[IntArray, Float32Array, IntArray]:
    ranks = as_orders(listed, "listed")
    array = as_orders(orders, n_items=ranks.shape[1])
    p = as_floats(probabilities, "probabilities", ndim=2).astype(np.float32)
    if p.shape != (len(array), len(ranks)):
        raise ValueError(
            f"probabilities: shape {p.shape}, expected {(len(array), len(ranks))} "
            "for these orders and listed rankings"
        )
    return ranks, p, array


def _events(orders: IntArray, k: int, family: Family) -> IntArray:
    m = orders.shape[1]
    return all_events(m, k) if m < _ENUMERATED_BELOW else observed(orders, k, family)


def _kept_rankings(orders: IntArray, weighting: str) -> IntArray:
    """Return the rankings that a filter keeps: the most frequent, and of equally frequent ones the first."""
    distinct, which = unique_rows(orders, orders.shape[1])
    counts = np.bincount(which)
    first_seen = np.full(len(distinct), len(orders))
    np.minimum.at(first_seen, which, np.arange(len(orders)))
    ranking = np.lexsort([first_seen, -counts])
    if weighting == "top_10":
        return distinct[ranking[:10]]
    reached = np.cumsum(counts[ranking]) >= 0.95 * len(orders)
    return distinct[ranking[: int(np.argmax(reached)) + 1]]


def _filtered(
    listed: IntArray, probabilities: Float32Array, orders: IntArray, weighting: str
) -> tuple[IntArray, Float32Array, IntArray]:
    if weighting not in ("95_prob_mass", "top_10"):
        return listed, probabilities, orders
    kept = _kept_rankings(orders, weighting)
    rows = index_of_orders(kept, orders) < len(kept)
    columns = index_of_orders(kept, listed) < len(kept)
    return listed[columns], probabilities[np.ix_(rows, columns)], orders[rows]


def _listed_forecasts(
    listed: ArrayLike, probabilities: ArrayLike, orders: ArrayLike, k: int, family: Family, weighting: str
) -> _Forecasts:
    ranks, p, array = _checked(listed, probabilities, orders)
    events = _events(array, check_k(k, array.shape[1], family), family)
    ranks, p, array = _filtered(ranks, p, array, weighting)
    # Summed in float64, because sums of float32 differ between processors.
    marginals = (p.astype(np.float64) @ occurs_unchecked(ranks, events, family)).astype(np.float32)
    return _Forecasts(events, marginals, occurs_unchecked(array, events, family))


def _forecasts(
    dist: PairMarginals, orders: IntArray, k: int, family: Family, weighting: str, support: ArrayLike | None
) -> _Forecasts:
    """Sum over listed rankings if ``dist`` is a distribution; otherwise use its pair marginals."""
    if family == "sub" and not isinstance(dist, RankingDistribution):
        return _pairwise_forecasts(dist, orders, k, family, weighting)
    ranks = check_ranks(dist, "top_k")
    listed = reference_support(ranks, support)
    return _listed_forecasts(listed, np.exp(ranks.log_prob(listed)), orders, k, family, weighting)


def _pairwise_forecasts(
    dist: PairMarginals, orders: IntArray, k: int, family: Family, weighting: str
) -> _Forecasts:
    """Return pair marginals. Filters do not truncate them; a pair stays if a kept ranking agrees with it."""
    events = _events(orders, k, family)
    marginals = dist.sub(events).astype(np.float32)
    if weighting in ("95_prob_mass", "top_10"):
        kept = _kept_rankings(orders, weighting)
        rows = index_of_orders(kept, orders) < len(kept)
        marginals = marginals[rows] * occurs_unchecked(kept, events, family).any(axis=0)
        orders = orders[rows]
    return _Forecasts(events, marginals, occurs_unchecked(orders, events, family))


def _averaged(
    forecasts: _Forecasts,
    family: Family,
    weighting: ReferenceWeighting,
    discrepancy: ReferenceDiscrepancy,
    spacing: Literal["linear", "log"],
) -> NotionResult:
    events, marginals, happened = forecasts
    per_event = _binary_errors(marginals, happened, discrepancy, spacing)
    weights = np.ones(len(events))
    if weighting == "prevalence":
        weights = happened.mean(axis=0)
    elif weighting == "pred_mass":
        weights = marginals.mean(axis=0).astype(np.float64)
    if weighting == "most_confident":
        leaders = np.argsort(-marginals.mean(axis=0), kind="stable")[:5]
        weights = np.zeros(len(events))
        # The public code divides by five even if there are fewer events.
        weights[leaders] = 1 / 5
    else:
        weights /= weights.sum()
    value, k = float(weights @ per_event), events.shape[1]
    return NotionResult(value, per_event, events, weights, family, k, len(happened), "reference", weighting)


def _strong(forecasts: _Forecasts, family: Family, bandwidth: float, norm: int) -> float:
    events, marginals, happened = forecasts
    p, target = marginals.astype(np.float64), happened.astype(np.float64)
    if family == "top":
        return _kernel_error(p, target, bandwidth, norm)
    _, which = unique_rows(np.sort(events, axis=1), int(events.max()) + 1)
    sets = [which == number for number in range(int(which.max()) + 1)]
    return float(np.mean([_kernel_error(p[:, one], target[:, one], bandwidth, norm) for one in sets]))


def _binary_errors(p: Float32Array, y: BoolArray, discrepancy: str, spacing: str) -> NDArray[np.float64]:
    """Return the binned error of every column, computed in float32 as in the public code."""
    edges = np.linspace(0, 1, _N_BINS + 1, dtype=np.float32)
    if spacing == "log":
        edges = np.concatenate([[0.0], np.logspace(-12, 0, _N_BINS + 1)[1:]]).astype(np.float32)
    index = np.searchsorted(edges[1:-1], p, side="right") + _N_BINS * np.arange(p.shape[1])
    shape = (p.shape[1], _N_BINS)

    def total(weights: NDArray[Any] | None) -> NDArray[np.float64]:
        flat = None if weights is None else weights.reshape(-1).astype(np.float64)
        sums = np.bincount(index.reshape(-1), flat, minlength=shape[0] * shape[1])
        return sums.reshape(shape).astype(np.float64)

    count, happened = total(None), total(y)
    safe = np.maximum(count, 1)
    frequency, confidence = (happened / safe).astype(np.float32), (total(p) / safe).astype(np.float32)
    gap = _reference_gaps(frequency, confidence, happened, count, discrepancy)
    return np.asarray((np.where(count > 0, gap, 0.0) * count).sum(axis=1) / len(p))


def _reference_gaps(
    f: Float32Array,
    c: Float32Array,
    happened: NDArray[np.float64],
    count: NDArray[np.float64],
    discrepancy: str,
) -> NDArray[Any]:
    if discrepancy == "abs":
        return np.abs(f - c)
    if discrepancy == "rel_p":
        return np.abs(f - c) / (f + _EPSILON)
    if discrepancy == "rel_q":
        return np.abs(f - c) / (c + _EPSILON)
    if discrepancy == "log_ratio":
        return np.abs(np.log((f + _EPSILON) / (c + _EPSILON)))
    q = np.clip(c.astype(np.float64), 1e-12, 1 - 1e-12)
    if discrepancy == "kl":
        p = np.clip(f.astype(np.float64), 1e-12, 1 - 1e-12)
        return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    p = (happened + 0.5) / (count + 1)
    return -np.expm1(-(p - q) * (np.log(p / q) - np.log((1 - p) / (1 - q))))


def _kernel_error(p: NDArray[np.float64], target: NDArray[np.float64], bandwidth: float, norm: int) -> float:
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
