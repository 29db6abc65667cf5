"""The Dirichlet kernel of the strong notions: local frequencies of classes around each forecast.

For every instance j, the outcomes of the other instances are averaged with weights w_ji ∝ K(h_j; h_i), the
Dirichlet density at h_j with parameters h_i/bandwidth + 1. The average is compared with h_j. Logarithms are
used throughout, so that probabilities may be exactly 0 or 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, chunks

_SMALLEST = 1e-300
_BANDWIDTHS = np.logspace(-4, 0, 13)
_BANDWIDTH_INSTANCES = 1000


@dataclass(frozen=True, eq=False)
class KernelForecast:
    """Forecasts of classes (sets, n, C), each set with a bandwidth (sets,), and the norm of the error."""

    p: FloatArray
    widths: FloatArray
    norm: Literal[1, 2]

    def weights(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield rows j and their weights w_ji over all i, (sets, rows, n); w_jj = 0."""
        for rows, kernel in self._kernels():
            yield rows, kernel / kernel.sum(axis=2, keepdims=True)

    def class_errors(self, classes: IntArray) -> FloatArray:
        """Return how much each class adds to the error, given outcomes (sets, n): (sets, C)."""
        target = self.targets(classes)
        total = np.zeros((len(self.p), self.p.shape[2]))
        for rows, kernel in self._kernels():
            local = kernel @ target / kernel.sum(axis=2, keepdims=True)
            total += (np.abs(local - self.p[:, rows]) ** self.norm).sum(axis=1)
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

    def _kernels(self) -> Iterator[tuple[slice, FloatArray]]:
        n_sets, n, n_classes = self.p.shape
        log_constant = _log_constants(self.p, self.widths)
        for rows in chunks(n, n_sets * max(n, n_classes)):
            log_kernel = log_constant[:, None, :] + _cross(self.p, rows) / self.widths[:, None, None]
            _leave_out(log_kernel, np.arange(rows.start, rows.stop))
            yield rows, np.exp(log_kernel - log_kernel.max(axis=2, keepdims=True))


def kernel_forecast(p: FloatArray, bandwidth: float | None, norm: Literal[1, 2]) -> KernelForecast:
    """Return the kernel of forecasts (sets, n, C); the default bandwidth has the largest likelihood."""
    n_sets, n, n_classes = p.shape
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
