"""The strong notions: full-rank, sub-k and top-k calibration, by the Dirichlet kernel (Popordanoska 2022).

For every instance j, the outcomes of the other instances are averaged with weights w_ji ∝ K(h_j; h_i), the
Dirichlet density at h_j with parameters h_i/bandwidth + 1. The average is compared with h_j. Logarithms are
used throughout, so that probabilities may be exactly 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_integers, as_probabilities, check_choice, chunks
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
Draws = Callable[[int, np.random.Generator], IntArray]


def full_rank(
    dist_or_probabilities: PairMarginals | ArrayLike,
    outcomes: ArrayLike,
    *,
    k: int | None = None,
    family: Family | None = None,
    bandwidth: float | None = None,
    norm: Literal[1, 2] | None = None,
    protocol: NotionProtocol = "exact",
    coverage: float | None = None,
    support: ArrayLike | None = None,
    rng: np.random.Generator | int = 0,
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
    dist_or_probabilities : RankingDistribution, or float array (n, C)
        The forecast. With an array the classes are its columns.
    outcomes : int array (n, m), or (n,) with an array
        What happened: rankings, or class numbers.
    k, family
        With neither, the classes are all m! rankings (Definition 1). With family "top" they are the top-k
        events (Definition 5); with "sub" the k! orders of each set of k items, averaged over sets
        (Definition 4).
    bandwidth : float, optional
        Bandwidth of the kernel. By default that of the largest leave-one-out likelihood.
    norm : {1, 2}, optional
        The p of the formula; 2 by default, as in the paper. The reference protocol uses the p-norm without
        the power, with p = 1 and bandwidth 1 by default.
    protocol : {"exact", "reference"}
        "exact" follows the definition; "reference" does what the paper's public code does, and returns only
        the value.
    coverage, support
        For the reference protocol, as in `sub_k`.
    rng : numpy Generator or int
        Used only if marginals have to be estimated by sampling.

    Returns
    -------
    NotionResult
        ``per_event`` has the contribution of each class, and ``value = weights @ per_event``. ``interval()``
        is the interval of the excess over the null mean.

    Examples
    --------
    >>> round(full_rank([[0.5, 0.5]] * 4, [0, 1, 0, 1], norm=1).value, 4)
    0.3333
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
    if not isinstance(dist_or_probabilities, PairMarginals):
        if protocol == "reference" or family is not None or k is not None:
            raise ValueError("protocol, family, k: need a RankingDistribution, got an array of probabilities")
        p, classes = _as_classes(dist_or_probabilities, outcomes)
        strong = Strong(kernel_forecast(p[None], bandwidth, norm or 2), classes[None], _class_draws(p))
        return strong.result(np.arange(p.shape[1])[:, None], "top", "classes", 0.0)
    dist = dist_or_probabilities
    orders = check_complete(dist, outcomes, "full_rank")
    if family is None:
        if k not in (None, dist.n_items):
            raise ValueError(f"family: k = {k} needs family='sub' or family='top'")
        family, k = "top", dist.n_items
    k = events.check_k(k, dist.n_items, family)
    if protocol == "reference":
        value = reference_strong_notion(
            dist,
            orders,
            k,
            family,
            coverage=coverage,
            support=support,
            bandwidth=bandwidth or 1.0,
            norm=norm or 1,
        )
        none, no_events = np.empty(0), np.empty((0, k), np.int64)
        return NotionResult(value, none, no_events, none, family, k, len(orders), "reference", "")
    if coverage is not None or support is not None:
        raise ValueError(
            "coverage, support: only for protocol='reference'; the exact notion uses all classes"
        )
    if len(orders) * math.perm(dist.n_items, k) > _MAX_FORECAST:
        raise ValueError(
            f"k: {len(orders):,} instances × {math.perm(dist.n_items, k):,} classes do not fit in "
            "memory; use a smaller k, or the weak notions sub_k and top_k"
        )
    chosen, n_sets = _grouped_events(dist.n_items, k, family)
    p, worst = marginals(dist, chosen, family, np.random.default_rng(rng))
    forecast = p.reshape(len(orders), n_sets, -1).transpose(1, 0, 2)

    def classes_of(rankings: IntArray) -> IntArray:
        """Return the class that each ranking has in every set of items: (sets, n)."""
        happened = events.occurs_unchecked(rankings, chosen, family)
        return happened.reshape(len(rankings), n_sets, -1).argmax(axis=2).T

    def draw(size: int, rng: np.random.Generator) -> IntArray:
        return np.array([classes_of(one) for one in check_ranks(dist, "the null test").sample(size, rng)])

    strong = Strong(kernel_forecast(forecast, bandwidth, norm or 2), classes_of(orders), draw)
    return strong.result(chosen, family, "all", worst)


@dataclass(frozen=True, eq=False)
class Strong:
    """A kernel estimate with its null test and interval.

    ``classes`` (sets, n) are what happened, and ``draw`` draws such classes from the forecast: (size, sets, n).
    """

    kernel: KernelForecast
    classes: IntArray
    draw: Draws

    def result(self, chosen: IntArray, family: Family, selection: str, worst: float) -> NotionResult:
        """Return the error of the classes, which are events (E, k)."""
        n_sets, n, _ = self.kernel.p.shape
        per_event = self.kernel.class_errors(self.classes).reshape(-1)
        weights = np.full(len(per_event), 1 / n_sets)
        value, k = float(weights @ per_event), chosen.shape[1]
        return NotionResult(value, per_event, chosen, weights, family, k, n, "exact", selection, worst, self)

    def null(self, resamples: int, rng: np.random.Generator) -> NullTest:
        """Compare the error with its distribution under outcomes drawn from the forecast."""
        value, *null = self.kernel.errors(np.concatenate([self.classes[None], self.draw(resamples, rng)]))
        return _two_sided(float(value), np.array(null), self.kernel.expected_error(self.kernel.p))

    def interval(self, resamples: int, level: float, rng: np.random.Generator) -> Interval:
        """Return the excess over the null mean with a confidence interval, given the forecasts."""
        kernel, drawn = self.kernel, self.draw(resamples, rng)
        estimate, share = _likely_truth(kernel, self.classes)
        donors = estimate.donors(resamples, rng)
        copied = self.classes[:, donors].transpose(1, 0, 2)
        mixed = np.where((rng.random(donors.shape) < share)[:, None, :], copied, drawn)
        value, *errors = kernel.errors(np.concatenate([self.classes[None], drawn, mixed]))
        null, spread = np.array(errors[:resamples]), np.array(errors[resamples:])
        test = _two_sided(float(value), null, kernel.expected_error(kernel.p))
        moved = _WIDENED * (spread - spread.mean())
        low, high = test.excess - np.quantile(moved, [(1 + level) / 2, (1 - level) / 2])
        if test.p_value > 1 - level:
            low, high = min(low, 0.0), max(high, 0.0)
        return Interval(test.excess, float(low), float(high), level)


def _two_sided(value: float, draws: FloatArray, exact_mean: float | None) -> NullTest:
    test = compare_with_null(value, draws)
    below = compare_with_null(-value, -draws)
    mean = test.mean if exact_mean is None else exact_mean
    return replace(test, mean=mean, p_value=min(1.0, 2 * min(test.p_value, below.p_value)))


def _likely_truth(kernel: KernelForecast, classes: IntArray) -> tuple[KernelForecast, float]:
    """Return the kernel and the share of its frequencies that, mixed with the forecast, are most likely."""
    forecast = np.take_along_axis(kernel.p, classes[:, :, None], axis=2)
    candidates = [kernel, *(replace(kernel, widths=np.full_like(kernel.widths, w)) for w in _WIDER)]
    best = (-math.inf, kernel, 0.0)
    for candidate in candidates:
        local = np.take_along_axis(candidate.local_frequencies(classes), classes[:, :, None], axis=2)
        for share in _SHARES:
            mixture = np.maximum((1 - share) * forecast + share * local, 1e-12)
            likelihood = float(np.log(mixture).mean())
            if likelihood > best[0]:
                best = (likelihood, candidate, float(share))
    return best[1], best[2]


def _class_draws(probabilities: FloatArray) -> Draws:
    """Return draws of classes from probabilities (n, C)."""
    totals = np.cumsum(probabilities, axis=1)

    def draw(size: int, rng: np.random.Generator) -> IntArray:
        uniform = rng.random((size, len(totals))) * totals[:, -1]
        return (uniform[:, :, None] >= totals[None, :, :-1]).sum(axis=2)[:, None, :]

    return draw


def _grouped_events(n_items: int, k: int, family: Family) -> tuple[IntArray, int]:
    """Return the events, with the classes of each set of items next to each other, and the number of sets."""
    if family == "top" or k == n_items:
        return events.all_events(n_items, k), 1
    sets = events.subsets(n_items, k)
    return sets[:, events.all_events(k, k)].reshape(-1, k), math.comb(n_items, k)


def _as_classes(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[FloatArray, IntArray]:
    p, classes = as_probabilities(probabilities, ndim=2), as_integers(outcomes, "outcomes", ndim=1)
    bad = np.abs(p.sum(axis=1) - 1) > 1e-5
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"probabilities: row {row} sums to {p[row].sum():.6g}, expected 1")
    if len(classes) != len(p):
        raise ValueError(f"outcomes: {len(classes)} outcomes for {len(p)} rows of probabilities")
    wrong = classes[(classes < 0) | (classes >= p.shape[1])]
    if len(wrong):
        raise ValueError(f"outcomes: class {wrong[0]} is out of range, expected 0 to {p.shape[1] - 1}")
    return p, classes


@dataclass(frozen=True, eq=False)
class KernelForecast:
    """Forecasts of classes (sets, n, C), each set with a bandwidth (sets,), and the norm of the error."""

    p: FloatArray
    widths: FloatArray
    norm: Literal[1, 2]

    def weights(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield rows j and their weights w_ji over all i, (sets, rows, n); w_jj = 0."""
        n_sets, n, n_classes = self.p.shape
        log_constant = _log_constants(self.p, self.widths)
        for rows in chunks(n, n_sets * max(n, n_classes)):
            log_kernel = log_constant[:, None, :] + _cross(self.p, rows) / self.widths[:, None, None]
            _leave_out(log_kernel, np.arange(rows.start, rows.stop))
            kernel = np.exp(log_kernel - log_kernel.max(axis=2, keepdims=True))
            yield rows, kernel / kernel.sum(axis=2, keepdims=True)

    def class_errors(self, classes: IntArray) -> FloatArray:
        """Return how much each class adds to the error, given outcomes (sets, n): (sets, C)."""
        target = self.targets(classes)
        total = np.zeros((len(self.p), self.p.shape[2]))
        for rows, weight in self.weights():
            total += (np.abs(weight @ target - self.p[:, rows]) ** self.norm).sum(axis=1)
        return total / self.p.shape[1]

    def errors(self, outcomes: IntArray) -> FloatArray:
        """Return the errors, averaged over sets, of many data sets with outcomes (D, sets, n): (D,)."""
        total = np.zeros(len(outcomes))
        for rows, weight in self.weights():
            for number, classes in enumerate(outcomes):
                gap = np.abs(weight @ self.targets(classes) - self.p[:, rows])
                total[number] += (gap**self.norm).sum() if self.norm == 2 else gap.sum()
        return total / (self.p.shape[0] * self.p.shape[1])

    def targets(self, classes: IntArray) -> FloatArray:
        """Return outcomes (sets, n) as indicators (sets, n, C)."""
        return (np.arange(self.p.shape[2]) == classes[:, :, None]).astype(np.float64)

    def expected_error(self, truth: FloatArray) -> float | None:
        """Return the mean error if outcomes have the probabilities ``truth`` (sets, n, C); norm 2 only."""
        if self.norm != 2:
            return None
        variance = 1 - (truth**2).sum(axis=2)
        total = 0.0
        for rows, weight in self.weights():
            total += float(((weight @ truth - self.p[:, rows]) ** 2).sum())
            total += float((weight**2 @ variance[:, :, None]).sum())
        return total / (self.p.shape[0] * self.p.shape[1])

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
        result = np.empty_like(self.p)
        target = self.targets(classes)
        for rows, weight in self.weights():
            result[:, rows] = weight.mean(axis=0) @ target
        return result


def kernel_forecast(p: FloatArray, bandwidth: float | None, norm: Literal[1, 2]) -> KernelForecast:
    """Return the kernel of forecasts (sets, n, C); the default bandwidth has the largest likelihood."""
    n_sets, n, n_classes = p.shape
    if n < 2:
        raise ValueError("outcomes: the kernel estimate compares instances and needs at least 2, got 1")
    widths = np.full(n_sets, bandwidth) if bandwidth is not None else np.empty(n_sets)
    if bandwidth is None:
        for sets in chunks(n_sets, n * max(n, n_classes)):
            widths[sets] = _best_bandwidths(p[sets])
    return KernelForecast(p, widths, norm)


def _best_bandwidths(p: FloatArray) -> FloatArray:
    """Bandwidth of largest leave-one-out likelihood for each set: (sets,)."""
    n_sets, n, _ = p.shape
    compared = np.unique(np.linspace(0, n - 1, min(n, _BANDWIDTH_INSTANCES)).astype(np.int64))
    likelihood = np.zeros((len(_BANDWIDTHS), n_sets))
    for number, width in enumerate(_BANDWIDTHS):
        log_constant = _log_constants(p, np.full(n_sets, width))
        for part in chunks(len(compared), n_sets * n):
            log_kernel = log_constant[:, None, :] + _cross(p, compared[part]) / width
            _leave_out(log_kernel, compared[part])
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
