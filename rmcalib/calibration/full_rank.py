"""The strong notions: full-rank, sub-k and top-k calibration, by the Dirichlet kernel (Popordanoska 2022)."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import (
    FloatArray,
    IntArray,
    as_integers,
    as_probabilities,
    check_choice,
    check_integer,
)
from rmcalib.calibration.errors import NullTest, compare_with_null
from rmcalib.calibration.intervals import Interval, check_level
from rmcalib.calibration.kernel import KernelForecast, kernel_forecast
from rmcalib.calibration.notions import NotionProtocol, NotionResult, check_complete, check_ranks, marginals
from rmcalib.calibration.reference import reference_strong_notion
from rmcalib.ranking import PairMarginals
from rmcalib.ranking.events import Family, all_events, check_k, occurs_unchecked, subsets

_MAX_FORECAST = 200_000_000
_SHARES = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9])
_WIDER = (0.01, 0.1, 1.0)
# The estimated truth is smoother than the truth, and its draws vary less. Without this factor 95% intervals
# cover 0.89 to 0.92 for over-confident forecasts (scripts/measure_notions.py).
_WIDENED = 1.15


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
        forecast, classes = _as_classes(dist_or_probabilities, outcomes)
        kernel = _kernel(forecast, bandwidth, norm or 2)
        events = np.arange(forecast.shape[2])[:, None]
        return _result(_Strong(kernel, classes, _ClassDraws(forecast[0])), events, "top", "classes", 0.0)
    dist = dist_or_probabilities
    orders = check_complete(dist, outcomes, "full_rank")
    if family is None:
        if k not in (None, dist.n_items):
            raise ValueError(f"family: k = {k} needs family='sub' or family='top'")
        family, k = "top", dist.n_items
    k = check_k(k, dist.n_items, family)
    if protocol == "reference":
        return _reference(dist, orders, k, family, coverage, support, bandwidth, norm)
    if coverage is not None or support is not None:
        raise ValueError(
            "coverage, support: only for protocol='reference'; the exact notion uses all classes"
        )
    if len(orders) * math.perm(dist.n_items, k) > _MAX_FORECAST:
        raise ValueError(
            f"k: {len(orders):,} instances × {math.perm(dist.n_items, k):,} classes do not fit in memory; "
            "use a smaller k, or the weak notions sub_k and top_k"
        )
    events, n_sets = _grouped_events(dist.n_items, k, family)
    p, worst = marginals(dist, events, family, np.random.default_rng(rng))
    forecast = p.reshape(len(orders), n_sets, -1).transpose(1, 0, 2)
    draws = _RankingDraws(dist, events, n_sets, family)
    strong = _Strong(_kernel(forecast, bandwidth, norm or 2), draws.classes(orders), draws)
    return _result(strong, events, family, "all", worst)


@dataclass(frozen=True, eq=False)
class _Strong:
    """The null test and the interval of a kernel estimate."""

    kernel: KernelForecast
    classes: IntArray
    draws: "_ClassDraws | _RankingDraws"

    def null(self, *, resamples: int, rng: np.random.Generator | int) -> NullTest:
        """Compare the error with its distribution under outcomes drawn from the forecast."""
        generator = np.random.default_rng(rng)
        drawn = self.draws(check_integer(resamples, "resamples", 1), generator)
        value, *null = self.kernel.errors(np.concatenate([self.classes[None], drawn]))
        return _two_sided(float(value), np.array(null), self.kernel.expected_error(self.kernel.p))

    def interval(self, *, resamples: int, level: float, rng: np.random.Generator | int) -> Interval:
        """Return the excess over the null mean with a confidence interval, given the forecasts."""
        check_level(level)
        kernel, generator = self.kernel, np.random.default_rng(rng)
        n_replicates = check_integer(resamples, "resamples", 1)
        drawn = self.draws(n_replicates, generator)
        estimate, share = _likely_truth(kernel, self.classes)
        donors = estimate.donors(n_replicates, generator)
        copied = self.classes[:, donors].transpose(1, 0, 2)
        mixed = np.where((generator.random(donors.shape) < share)[:, None, :], copied, drawn)
        value, *errors = kernel.errors(np.concatenate([self.classes[None], drawn, mixed]))
        null, spread = np.array(errors[:n_replicates]), np.array(errors[n_replicates:])
        test = _two_sided(float(value), null, kernel.expected_error(kernel.p))
        moved = _WIDENED * (spread - spread.mean())
        low, high = test.excess - np.quantile(moved, [(1 + level) / 2, (1 - level) / 2])
        if test.p_value > 1 - level:
            low, high = min(low, 0.0), max(high, 0.0)
        return Interval(test.excess, float(low), float(high), level, n_replicates)


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


@dataclass(frozen=True, eq=False)
class _ClassDraws:
    """Draws of classes from probabilities (n, C)."""

    probabilities: FloatArray

    def __call__(self, size: int, rng: np.random.Generator) -> IntArray:
        totals = np.cumsum(self.probabilities, axis=1)
        uniform = rng.random((size, len(totals))) * totals[:, -1]
        return (uniform[:, :, None] >= totals[None, :, :-1]).sum(axis=2)[:, None, :]


@dataclass(frozen=True, eq=False)
class _RankingDraws:
    """Draws of rankings, as the class (size, sets, n) that each has in every set of items."""

    dist: PairMarginals
    events: IntArray
    n_sets: int
    family: Family

    def __call__(self, size: int, rng: np.random.Generator) -> IntArray:
        dist = check_ranks(self.dist, "the null test")
        return np.array([self.classes(orders) for orders in dist.sample(size, rng)])

    def classes(self, orders: IntArray) -> IntArray:
        happened = occurs_unchecked(orders, self.events, self.family)
        return happened.reshape(len(orders), self.n_sets, -1).argmax(axis=2).T


def _kernel(forecast: FloatArray, bandwidth: float | None, norm: Literal[1, 2]) -> KernelForecast:
    if forecast.shape[1] < 2:
        raise ValueError("outcomes: the kernel estimate compares instances and needs at least 2, got 1")
    return kernel_forecast(forecast, bandwidth, norm)


def _result(
    strong: _Strong, events: IntArray, family: Family, selection: str, marginal_error: float
) -> NotionResult:
    n_sets, n, _ = strong.kernel.p.shape
    per_event = strong.kernel.class_errors(strong.classes).reshape(-1)
    weights = np.full(len(per_event), 1 / n_sets)
    return NotionResult(
        float(weights @ per_event),
        per_event,
        events,
        weights,
        family,
        events.shape[1],
        n,
        "exact",
        selection,
        marginal_error,
        strong,
    )


def _reference(
    dist: PairMarginals,
    orders: IntArray,
    k: int,
    family: Family,
    coverage: float | None,
    support: ArrayLike | None,
    bandwidth: float | None,
    norm: Literal[1, 2] | None,
) -> NotionResult:
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
    events = np.empty((0, k), np.int64)
    return NotionResult(value, none, events, none, family, k, len(orders), "reference", "")


def _grouped_events(n_items: int, k: int, family: Family) -> tuple[IntArray, int]:
    """Return the events, with the classes of each set of items next to each other, and the number of sets."""
    if family == "top" or k == n_items:
        return all_events(n_items, k), 1
    sets = subsets(n_items, k)
    return sets[:, all_events(k, k)].reshape(-1, k), math.comb(n_items, k)


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
