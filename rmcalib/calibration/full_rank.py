"""The strong notions: full-rank, sub-k and top-k calibration, by the Dirichlet kernel (Popordanoska 2022).

For every instance j, the outcomes of the other instances are averaged with weights w_ji ∝ K(h_j; h_i), the
Dirichlet density at h_j with parameters h_i/bandwidth + 1. The average is compared with h_j. Logarithms are
used throughout, so that probabilities may be exactly 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, check_choice, chunks
from rmcalib.calibration.estimates import NullTest, compare_with_null
from rmcalib.calibration.intervals import Interval
from rmcalib.calibration.notions import NotionProtocol, NotionResult, check_complete, check_ranks, marginals
from rmcalib.calibration.reference import reference_strong_notion
from rmcalib.ranking import PairMarginals, events
from rmcalib.ranking.events import Family

_MAX_FORECAST = 200_000_000
_SHARES = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9])
_WIDER = (0.01, 0.1, 1.0)
# The estimated truth is smoother than the truth, and its draws vary less. Without this factor 95% intervals
# cover 0.89 to 0.92 for over-confident forecasts (scripts/measure_notions.py).
_WIDENED = 1.15
_SMALLEST = 1e-300
_BANDWIDTHS = np.logspace(-4, 0, 13)
_BANDWIDTH_INSTANCES = 1000


def full_rank(
    dist: PairMarginals,
    orders: ArrayLike,
    *,
    k: int | None = None,
    family: Family | None = None,
    bandwidth: float | None = None,
    norm: Literal[1, 2] | None = None,
    protocol: NotionProtocol = "exact",
    coverage: float | None = None,
    support: ArrayLike | None = None,
) -> NotionResult:
    """Return the canonical calibration error: the mean over j of ‖Σ_{i≠j} w_ji y_i − h_j‖_p^p.

    w_ji are kernel weights, which are largest for instances with forecasts similar to that of j.

    The value alone means little: with few similar forecasts it is mostly noise. A calibrated forecast of 24
    classes has an error of 0.75 with 800 instances. Use its excess over the null mean
    (``result.null().excess``), with its interval (``result.interval()``) and p-value. The excess is positive
    for over-confident forecasts. It can be negative for under-confident ones, whose outcomes are less noisy
    than the forecasts say.

    Parameters
    ----------
    dist : RankingDistribution, or PairMarginals for k = 2
        The forecast: n instances, m items.
    orders : int (n, m)
        What happened: the items of each instance, best first.
    k, family
        With neither, the classes are all m! rankings (Definition 1). With family "top" they are the top-k
        events (Definition 5); with "sub" the k! orders of each set of k items, averaged over sets
        (Definition 4).
    bandwidth : float, optional
        Bandwidth of the kernel. By default that of the largest leave-one-out likelihood. The paper's is 1, which
        gives other values (docs/protocols.md).
    norm : {1, 2}, optional
        The p of the formula; 2 by default, as in the paper. The reference protocol uses the p-norm without
        the power, with p = 1 and bandwidth 1 by default.
    protocol : {"exact", "reference"}
        "exact" estimates the error of the definition; "reference" does what the paper's public code does, and
        returns only the value.
    coverage, support
        For the reference protocol, as in `sub_k`.

    Returns
    -------
    NotionResult
        ``per_event`` has the contribution of each class, and ``value = weights @ per_event``. ``interval()``
        is the interval of the excess over the null mean.

    Examples
    --------
    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(300, 3, confidence=3.0, rng=np.random.default_rng(0))
    >>> null = full_rank(data.forecast, data.orders).null(resamples=50)
    >>> bool(null.excess > 0.2), null.p_value < 0.05
    (True, True)
    """
    check_choice(protocol, "protocol", ("exact", "reference"))
    check_choice(norm, "norm", (None, 1, 2))
    if bandwidth is not None and not (np.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(f"bandwidth: {bandwidth} is not a positive number")
    rankings = check_complete(dist, orders, "full_rank")
    if family is None:
        if k not in (None, dist.n_items):
            raise ValueError(f"family: k = {k} needs family='sub' or family='top'")
        family, k = "top", dist.n_items
    k = events.check_k(k, dist.n_items, family)
    n = len(rankings)
    if protocol == "reference":
        how = bandwidth or 1.0, norm or 1
        value = reference_strong_notion(dist, rankings, k, family, coverage, support, *how)
        none, no_events = np.empty(0), np.empty((0, k), np.int64)
        return NotionResult(value, none, no_events, none, family, k, n, "reference")
    if coverage is not None or support is not None:
        raise ValueError(
            "coverage, support: only for protocol='reference'; the exact notion uses all classes"
        )
    if n * math.perm(dist.n_items, k) > _MAX_FORECAST:
        raise ValueError(
            f"k: {n:,} instances × {math.perm(dist.n_items, k):,} classes do not fit in "
            "memory; use a smaller k, or the weak notions sub_k and top_k"
        )
    if n < 2:
        raise ValueError("orders: the kernel estimate compares instances and needs at least 2, got 1")
    chosen, n_sets = _grouped_events(dist.n_items, k, family)
    p = marginals(dist, chosen, family).reshape(n, n_sets, -1).transpose(1, 0, 2)
    widths = np.full(n_sets, bandwidth) if bandwidth is not None else _best_bandwidths(p)
    kernel = Kernel(dist, chosen, family, p, widths, norm or 2, rankings)
    per_event = kernel.class_errors(kernel.classes_of(rankings)[None])[0].reshape(-1)
    weights = np.full(len(per_event), 1 / n_sets)
    value = float(weights @ per_event)
    return NotionResult(value, per_event, chosen, weights, family, k, n, "exact", kernel)


@dataclass(frozen=True, eq=False)
class Kernel:
    """The kernel estimate with its null test and its interval.

    The classes of a set of items are events, of ``chosen`` (E, k) for all sets. ``p`` (sets, n, C) are their
    forecasts; each set has a bandwidth of ``widths`` (sets,).
    """

    dist: PairMarginals
    chosen: IntArray
    family: Family
    p: FloatArray
    widths: FloatArray
    norm: Literal[1, 2]
    orders: IntArray

    def null(self, resamples: int, rng: np.random.Generator) -> NullTest:
        """Compare the error with its distribution under outcomes drawn from the forecast."""
        return self._test(self.errors([self.orders, *self._drawn(resamples, rng)]))

    def interval(self, resamples: int, level: float, rng: np.random.Generator) -> Interval:
        """Return the excess over the null mean with a confidence interval, given the forecasts."""
        classes, drawn = self.classes_of(self.orders), self._drawn(resamples, rng)
        estimate, share = self._likely_truth(classes)
        donors = estimate.donors(resamples, rng)
        copied = rng.random(donors.shape) < share
        mixed = np.where(copied[:, :, None], self.orders[donors], drawn)
        errors = self.errors([self.orders, *drawn, *mixed])
        test, spread = self._test(errors[: 1 + resamples]), errors[1 + resamples :]
        moved = _WIDENED * (spread - spread.mean())
        low, high = test.excess - np.quantile(moved, [(1 + level) / 2, (1 - level) / 2])
        if test.p_value > 1 - level:
            low, high = min(low, 0.0), max(high, 0.0)
        return Interval(test.excess, float(low), float(high), level)

    def _drawn(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw rankings from the forecast: (size, n, m)."""
        return check_ranks(self.dist, "the null test").sample(size, rng)

    def _test(self, errors: FloatArray) -> NullTest:
        """Compare the first error with the others, on both sides."""
        value, draws = float(errors[0]), errors[1:]
        test, below = compare_with_null(value, draws), compare_with_null(-value, -draws)
        mean = self._expected_error() if self.norm == 2 else test.mean
        return replace(test, mean=mean, p_value=min(1.0, 2 * min(test.p_value, below.p_value)))

    def classes_of(self, orders: IntArray) -> IntArray:
        """Return the class that each ranking (n, m) has in every set of items: (sets, n)."""
        happened = events.occurs_unchecked(orders, self.chosen, self.family)
        return happened.reshape(len(orders), len(self.p), -1).argmax(axis=2).T

    def weights(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield rows j and their weights w_ji over all i, (sets, rows, n); w_jj = 0."""
        n_sets, n, n_classes = self.p.shape
        log_constant = _log_constants(self.p, self.widths)
        for rows in chunks(n, n_sets * max(n, n_classes)):
            log_kernel = log_constant[:, None, :] + _cross(self.p, rows) / self.widths[:, None, None]
            _leave_out(log_kernel, np.arange(rows.start, rows.stop))
            kernel = np.exp(log_kernel - log_kernel.max(axis=2, keepdims=True))
            yield rows, kernel / kernel.sum(axis=2, keepdims=True)

    def class_errors(self, outcomes: IntArray) -> FloatArray:
        """Return how much each class adds to the error of data sets with outcomes (D, sets, n): (D, sets, C)."""
        total = np.zeros((len(outcomes), len(self.p), self.p.shape[2]))
        for rows, weight in self.weights():
            for number, classes in enumerate(outcomes):
                gap = np.abs(weight @ self._targets(classes) - self.p[:, rows])
                total[number] += (gap**self.norm).sum(axis=1)
        return total / self.p.shape[1]

    def errors(self, data_sets: Sequence[IntArray]) -> FloatArray:
        """Return the errors, averaged over sets, of data sets of rankings (n, m): (D,)."""
        outcomes = np.array([self.classes_of(orders) for orders in data_sets])
        return np.asarray(self.class_errors(outcomes).sum(axis=(1, 2)) / len(self.p))

    def _targets(self, classes: IntArray) -> FloatArray:
        """Return outcomes (sets, n) as indicators (sets, n, C)."""
        return (np.arange(self.p.shape[2]) == classes[:, :, None]).astype(np.float64)

    def _expected_error(self) -> float:
        """Return the mean error if the forecasts are true, for norm 2."""
        variance = 1 - (self.p**2).sum(axis=2)
        total = 0.0
        for rows, weight in self.weights():
            total += float(((weight @ self.p - self.p[:, rows]) ** 2).sum())
            total += float((weight**2 @ variance[:, :, None]).sum())
        return total / (self.p.shape[0] * self.p.shape[1])

    def _likely_truth(self, classes: IntArray) -> tuple[Kernel, float]:
        """Return the kernel and the share of its frequencies that, mixed with the forecast, are most likely."""
        forecast = np.take_along_axis(self.p, classes[:, :, None], axis=2)
        candidates = [self, *(replace(self, widths=np.full_like(self.widths, w)) for w in _WIDER)]
        best = (-math.inf, self, 0.0)
        for candidate in candidates:
            local = np.take_along_axis(candidate.local_frequencies(classes), classes[:, :, None], axis=2)
            for share in _SHARES:
                mixture = np.maximum((1 - share) * forecast + share * local, 1e-12)
                likelihood = float(np.log(mixture).mean())
                if likelihood > best[0]:
                    best = (likelihood, candidate, float(share))
        return best[1], best[2]

    def donors(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw for every instance ``size`` others, by their mean weight over sets: (size, n)."""
        n = self.p.shape[1]
        result = np.empty((size, n), dtype=np.int64)
        for rows, weight in self.weights():
            totals = np.cumsum(weight.mean(axis=0), axis=1)
            for place, row in enumerate(range(rows.start, rows.stop)):
                drawn = np.searchsorted(totals[place], rng.random(size) * totals[place, -1], side="right")
                result[:, row] = np.minimum(drawn, n - 1)
        return result

    def local_frequencies(self, classes: IntArray) -> FloatArray:
        """Return frequencies of classes around each instance, by the mean weight over sets: (sets, n, C)."""
        result, target = np.empty_like(self.p), self._targets(classes)
        for rows, weight in self.weights():
            result[:, rows] = weight.mean(axis=0) @ target
        return result


def _grouped_events(n_items: int, k: int, family: Family) -> tuple[IntArray, int]:
    """Return the events, with the classes of each set of items next to each other, and the number of sets."""
    if family == "top" or k == n_items:
        return events.all_events(n_items, k), 1
    sets = events.subsets(n_items, k)
    return sets[:, events.all_events(k, k)].reshape(-1, k), math.comb(n_items, k)


def _best_bandwidths(p: FloatArray) -> FloatArray:
    """Return the bandwidth of largest leave-one-out likelihood for each set of forecasts (sets, n, C): (sets,)."""
    n_sets, n, _ = p.shape
    compared = np.unique(np.linspace(0, n - 1, min(n, _BANDWIDTH_INSTANCES)).astype(np.int64))
    constants = [_log_constants(p, np.full(n_sets, width)) for width in _BANDWIDTHS]
    likelihood = np.zeros((len(_BANDWIDTHS), n_sets))
    for part in chunks(len(compared), n_sets * n):
        cross = _cross(p, compared[part])
        for number, width in enumerate(_BANDWIDTHS):
            log_kernel = constants[number][:, None, :] + cross / width
            _leave_out(log_kernel, compared[part])
            peak = log_kernel.max(axis=2)
            total = np.exp(log_kernel - peak[:, :, None]).sum(axis=2)
            likelihood[number] += (peak + np.log(total)).sum(axis=1)
    return _BANDWIDTHS[likelihood.argmax(axis=0)]


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
