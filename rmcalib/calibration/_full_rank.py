"""The strong notions: full-rank, sub-k and top-k calibration, by the Dirichlet kernel (Popordanoska 2022).

For every instance j the outcomes of the other instances are averaged with weights K(h_j; h_i), the Dirichlet
density at h_j with parameters h_i/bandwidth + 1, and compared with h_j itself. All in logarithms:
probabilities of exactly 0 and 1 are fine.
"""

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_integers, as_probabilities, check_choice, chunks
from rmcalib.calibration._notions import NotionResult, Protocol, check_orders_for, marginals
from rmcalib.calibration._reference import reference_strong_notion
from rmcalib.ranking import RankingDistribution, arrangements
from rmcalib.ranking.events import Family, all_events, check_k, count_events, occurs_unchecked, subsets

__all__ = ["full_rank"]

_SMALLEST = 1e-300
_BANDWIDTHS = np.logspace(-4, 0, 13)
_MAX_FORECAST = 200_000_000
_BANDWIDTH_INSTANCES = 1000


def full_rank(
    dist_or_probabilities: RankingDistribution | ArrayLike,
    outcomes: ArrayLike,
    *,
    k: int | None = None,
    family: Family | None = None,
    bandwidth: float | None = None,
    norm: Literal[1, 2] | None = None,
    protocol: Protocol = "exact",
    coverage: float | None = None,
    support: ArrayLike | None = None,
    rng: np.random.Generator | int = 0,
) -> NotionResult:
    """Return the canonical calibration error: mean over j of ‖Σ_{i≠j} K_ji y_i / Σ_{i≠j} K_ji − h_j‖_p^p.

    Given a distribution and rankings (n, m): with neither ``family`` nor ``k`` the classes are all m!
    rankings (Definition 1); with family "top" the top-k events (Definition 5); with "sub" the k! orders of
    each set of k items, averaged over sets (Definition 4). Given probabilities (n, C) and class numbers
    (n,), the classes are the columns.

    bandwidth: by default the one of largest leave-one-out likelihood (13 candidates from 1e-4 to 1, judged
    on at most 1,000 evenly spaced instances). norm p: 2 by default (the paper); the reference protocol takes
    the p-norm itself, p = 1 and bandwidth 1, and gives the value alone. per_event holds each class's share,
    value = weights @ per_event. coverage, support: the reference protocol's, as in
    :class:`~rmcalib.calibration.NotionOptions`. Memory stays near the forecast itself plus 32 MB for each
    work array, whatever n is.

    >>> full_rank([[0.5, 0.5]] * 4, [0, 1, 0, 1], norm=1).value.__round__(4)
    0.3333
    """
    check_choice(protocol, "protocol", ("exact", "reference"))
    check_choice(norm, "norm", (None, 1, 2))
    if bandwidth is not None and not (np.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(f"bandwidth: {bandwidth} is not a positive number")
    if not isinstance(dist_or_probabilities, RankingDistribution):
        if protocol == "reference" or family is not None or k is not None:
            raise ValueError("protocol, family, k: need a RankingDistribution, got an array of probabilities")
        forecast, classes = _as_classes(dist_or_probabilities, outcomes)
        events = np.arange(forecast.shape[2])[:, None]
        return _result(forecast, classes, events, "top", bandwidth, norm or 2, "classes", 0.0)
    dist = dist_or_probabilities
    orders = check_orders_for(dist, outcomes)
    if family is None:
        if k not in (None, dist.n_items):
            raise ValueError(f"family: k = {k} needs family='sub' or family='top'")
        family, k = "top", dist.n_items
    k = check_k(k, dist.n_items, family)
    if protocol == "reference":
        value = reference_strong_notion(
            dist,
            orders,
            k,
            family,
            coverage=coverage,
            support=support,
            bandwidth=1.0 if bandwidth is None else bandwidth,
            norm=norm or 1,
        )
        none = np.empty(0)
        return NotionResult(
            value, none, np.empty((0, k), np.int64), none, family, k, len(orders), protocol, ""
        )
    if coverage is not None or support is not None:
        raise ValueError(
            "coverage, support: belong to protocol='reference'; the exact notion has all classes"
        )
    if len(orders) * count_events(dist.n_items, k) > _MAX_FORECAST:
        raise ValueError(
            f"k: {len(orders):,} instances × {count_events(dist.n_items, k):,} classes do not fit in memory; "
            "use a smaller k, or the weak notions sub_k and top_k"
        )
    events, n_sets = _grouped_events(dist.n_items, k, family)
    p, worst = marginals(dist, events, family, np.random.default_rng(rng))
    happened = occurs_unchecked(orders, events, family)
    # (n, E) -> (sets, n, classes of a set)
    shape = (len(orders), n_sets, len(events) // n_sets)
    forecast = p.reshape(shape).transpose(1, 0, 2)
    classes = happened.reshape(shape).argmax(axis=2).T
    return _result(forecast, classes, events, family, bandwidth, norm or 2, "all", worst)


def _result(
    forecast: FloatArray,
    classes: IntArray,
    events: IntArray,
    family: Family,
    bandwidth: float | None,
    norm: Literal[1, 2],
    selection: str,
    marginal_error: float,
) -> NotionResult:
    n_sets, n, n_classes = forecast.shape
    if n < 2:
        raise ValueError("outcomes: the kernel estimate compares instances and needs at least 2, got 1")
    shares = np.empty((n_sets, n_classes))
    for sets in chunks(n_sets, n * max(n, n_classes)):
        shares[sets] = _canonical(forecast[sets], classes[sets], bandwidth, norm)
    per_event = shares.reshape(-1)
    weights = np.full(len(per_event), 1 / n_sets)
    value = float(weights @ per_event)
    k = events.shape[1]
    return NotionResult(value, per_event, events, weights, family, k, n, "exact", selection, marginal_error)


def _canonical(p: FloatArray, classes: IntArray, bandwidth: float | None, norm: int) -> FloatArray:
    """Share of each class in the error of forecasts (sets, n, C): (sets, C)."""
    n_sets, n, n_classes = p.shape
    widths = np.full(n_sets, bandwidth) if bandwidth is not None else _best_bandwidths(p)
    log_constant = _log_constants(p, widths)
    target = np.arange(n_classes) == classes[:, :, None]
    shares = np.zeros((n_sets, n_classes))
    for rows in chunks(n, n_sets * max(n, n_classes)):
        log_kernel = log_constant[:, None, :] + _cross(p, rows) / widths[:, None, None]
        _leave_out(log_kernel, np.arange(rows.start, rows.stop))
        kernel = np.exp(log_kernel - log_kernel.max(axis=2, keepdims=True))
        local = kernel @ target.astype(np.float64) / kernel.sum(axis=2, keepdims=True)
        shares += (np.abs(local - p[:, rows]) ** norm).sum(axis=1)
    return shares / n


def _best_bandwidths(p: FloatArray) -> FloatArray:
    """Bandwidth of largest leave-one-out likelihood for each set: (sets,)."""
    n_sets, n, _ = p.shape
    judged = np.unique(np.linspace(0, n - 1, min(n, _BANDWIDTH_INSTANCES)).astype(np.int64))
    likelihood = np.zeros((len(_BANDWIDTHS), n_sets))
    for number, width in enumerate(_BANDWIDTHS):
        log_constant = _log_constants(p, np.full(n_sets, width))
        for part in chunks(len(judged), n_sets * n):
            log_kernel = log_constant[:, None, :] + _cross(p, judged[part]) / width
            _leave_out(log_kernel, judged[part])
            peak = log_kernel.max(axis=2)
            total = np.exp(log_kernel - peak[:, :, None]).sum(axis=2)
            likelihood[number] += (peak + np.log(total)).sum(axis=1)
    best: FloatArray = _BANDWIDTHS[likelihood.argmax(axis=0)]
    return best


def _log_constants(p: FloatArray, widths: FloatArray) -> FloatArray:
    """Log Γ(Σ α) − Σ log Γ(α) with α = p/bandwidth + 1: (sets, n)."""
    from scipy.special import gammaln

    n_classes = p.shape[2]
    total: FloatArray = gammaln(p.sum(axis=2) / widths[:, None] + n_classes)
    for columns in chunks(n_classes, p.shape[0] * p.shape[1]):
        total = total - gammaln(p[:, :, columns] / widths[:, None, None] + 1).sum(axis=2)
    return total


def _cross(p: FloatArray, rows: slice | IntArray) -> FloatArray:
    """Σ_c h_ic log h_jc for the instances j in ``rows`` and all i: (sets, rows, n)."""
    return np.log(np.maximum(p[:, rows], _SMALLEST)) @ p.transpose(0, 2, 1)


def _leave_out(log_kernel: FloatArray, instances: IntArray) -> None:
    log_kernel[:, np.arange(len(instances)), instances] = -np.inf


def _grouped_events(n_items: int, k: int, family: Family) -> tuple[IntArray, int]:
    """Events ordered so that the classes of one classification stand together, and how many there are."""
    if family == "top" or k == n_items:
        return all_events(n_items, k), 1
    sets = subsets(n_items, k)
    return sets[:, arrangements(k, k)].reshape(-1, k), math.comb(n_items, k)


def _as_classes(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[FloatArray, IntArray]:
    p = as_probabilities(probabilities, ndim=2)
    sums = p.sum(axis=1)
    bad = np.abs(sums - 1) > 1e-5
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"probabilities: row {row} sums to {sums[row]:.6g}, expected 1")
    classes = as_integers(outcomes, "outcomes", ndim=1)
    if len(classes) != len(p):
        raise ValueError(f"outcomes: {len(classes)} outcomes for {len(p)} rows of probabilities")
    if classes.min() < 0 or classes.max() >= p.shape[1]:
        wrong = classes[(classes < 0) | (classes >= p.shape[1])][0]
        raise ValueError(f"outcomes: class {wrong} is out of range, expected 0 to {p.shape[1] - 1}")
    return p[None], classes[None]
