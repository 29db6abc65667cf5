"""Prompts that belong together: one engine for standard errors, their degrees of freedom, and design effects.

An estimate deviates from the truth by a sum of what each prompt contributes. The prompts of a cluster
contribute together, so their contributions are added up first. With few clusters, or one large one, the squares
of these sums are too small on average, because the estimate itself was fitted to them, and they vary much. Both
are corrected: CR2 (Bell and McCaffrey 2002) divides the square of a cluster that has a fraction h of all prompts by
1 − h, and Satterthwaite's degrees of freedom measure how reliable the sum of squares is.

References
----------
Bell, R. M., and McCaffrey, D. F. (2002). Bias reduction in standard errors for linear regression with
multi-stage samples. Survey Methodology 28.
Cameron, A. C., and Miller, D. L. (2015). A practitioner's guide to cluster-robust inference. Journal of Human
Resources 50.
Korn, E. L., and Graubard, B. I. (1998). Confidence intervals for proportions with small expected number of
positive counts estimated from survey data. Survey Methodology 24.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray

FEWEST_FREEDOM = 3.5
"""With fewer degrees of freedom, clusters are too few or too unequal for an interval, a test or a verdict."""
FEW_DECIDE = 20.0
"""With fewer degrees of freedom, a variance is known from few prompts."""
_LEAST_CORRELATION = 0.1  # within clusters: moments of few clusters may miss it


@dataclass(frozen=True)
class MeanError:
    """How far a mean may be from the truth.

    Attributes
    ----------
    se : float
        Its standard error.
    freedom : float
        The degrees of freedom of ``se``.
    skewness : float
        The third moment of the mean over ``se³``.
    """

    se: float
    freedom: float
    skewness: float

    def margin(self, level: float) -> float:
        """Return the distance of the limits of a two-sided interval by Student's t."""
        return student_quantile(level, self.freedom) * self.se


def by_cluster(values: FloatArray, cluster: IntArray | None) -> FloatArray:
    """Return sums (C, ...) of numbers of each prompt (n,) or (n, q) over the prompts of each cluster."""
    if cluster is None:
        return values
    if values.ndim == 1:
        return np.bincount(cluster, values).astype(np.float64)
    return np.column_stack([np.bincount(cluster, column) for column in values.T]).astype(np.float64)


def mean_error(values: FloatArray, cluster: IntArray | None = None) -> MeanError:
    """Return the standard error of the mean of ``values`` (n,) and its degrees of freedom, by clusters (n,).

    For another estimate, ``values`` are n times what each prompt contributes to its deviation.
    """
    n, moved = len(values), values - values.mean()
    sums, freedom = by_cluster(moved, cluster), float(n - 1)
    share: FloatArray | float = 1 / n
    if cluster is not None:
        sizes = np.bincount(cluster)
        share = sizes / n
        freedom = cluster_freedom(sizes, _correlation(moved, sums, sizes))
    if freedom <= 0:
        return MeanError(0.0, 0.0, 0.0)
    se = float(np.sqrt((sums**2 / (1 - share)).sum())) / n
    cube = (n * se) ** 3  # 0 also for a tiny se
    return MeanError(se, freedom, float((sums**2 * sums).sum()) / cube if cube > 0 else 0.0)


def cluster_freedom(sizes: IntArray, correlation: float = _LEAST_CORRELATION) -> float:
    """Return Satterthwaite's degrees of freedom of a standard error from clusters of these ``sizes`` (C,).

    They are (Σλ)²/Σλ², where λ are the eigenvalues of the covariance A P D P′ A of the cluster sums: D is diagonal
    with n_c (1 + ρ (n_c − 1)), P subtracts each cluster's share h of the total, and A divides by √(1 − h). Equal
    clusters have C − 1; one that dominates leaves little more than 1.

    >>> round(cluster_freedom(np.full(5, 60)), 6), round(cluster_freedom(np.array([150] + [1] * 150)), 2)
    (4.0, 1.25)
    """
    sizes = sizes[sizes > 0]
    if len(sizes) < 2:
        return 0.0
    share = sizes / sizes.sum()
    variance = sizes * (1 + correlation * (sizes - 1.0))
    total, weight = float(variance.sum()), 1 / np.sqrt(1 - share)
    # The covariance is diag(g) + s uu′ − uv′ − vu′, so its trace and the sum of its squares need no matrix.
    g, u, v = weight**2 * variance, weight * share, weight * variance
    diagonal = total * u**2 - 2 * u * v
    uu, uv, vv = float(u @ u), float(u @ v), float(v @ v)
    squares = float((g**2 + 2 * g * diagonal).sum())
    squares += total**2 * uu**2 - 4 * total * uu * uv + 2 * uu * vv + 2 * uv**2
    return float((g + diagonal).sum()) ** 2 / squares


def tail_freedom(sums: FloatArray) -> float:
    """Return the degrees of freedom of the variance of deviations (C,) with their kurtosis κ: 2C/(κ − 1).

    If few of them decide the variance, this is about twice their number.
    """
    largest = float(np.abs(sums).max(initial=0.0))
    if largest == 0:
        return np.inf
    squares = (sums / largest) ** 2
    kurtosis = len(sums) * float((squares**2).sum()) / float(squares.sum()) ** 2
    return 2 * len(sums) / max(kurtosis - 1, 1e-9)


def too_few_clusters(cluster: IntArray | None) -> bool:
    """Return whether clusters (n,) are too few, or one of them too large, for any statement about chance."""
    return cluster is not None and cluster_freedom(np.bincount(cluster)) < FEWEST_FREEDOM - 1e-9


def prompts_per_observation(values: FloatArray, cluster: IntArray | None, level: float = 0.95) -> float:
    """Return how many prompts with these ``values`` (n,) count as one independent observation; at least 1.

    This is the factor by which clusters multiply the variance of the mean. It is not known exactly, which
    (t/t₀)² allows for: t and t₀ are quantiles of Student's t with the degrees of freedom of clusters and of prompts
    (Korn and Graubard 1998). If all values are equal, or so few differ from the others that few clusters would decide
    the variance, all prompts of a cluster may be alike: no more observations than clusters are counted.
    """
    if cluster is None:
        return 1.0
    n, moved, alike = len(values), values - values.mean(), size_of_cluster(cluster)
    alone = float((moved**2).sum()) / (n * max(n - 1, 1))
    if alone <= 1e-30 or int(cluster.max()) < 1:
        return alike
    error = mean_error(values, cluster)
    spread = student_quantile(level, error.freedom) / student_quantile(level, n - 1)
    effect = max(1.0, error.se**2 / alone) * max(1.0, spread) ** 2
    return max(_least_effect(moved, alike), effect)


def design_effect(
    residuals: FloatArray, weights: FloatArray, cluster: IntArray | None
) -> tuple[float, float]:
    """Return how much clusters multiply the variance of sums of residuals (n, q), and its degrees of freedom.

    The residuals of a calibrated forecast have expectation 0; ``weights`` (n, q) are their numbers of events. Of a
    cluster with sums T and the share h of all weights of a column, the variance is estimated by (T − h ΣT)² + h T².
    Under calibration, this has no bias. The first part leaves out a common miscalibration; the second one counts
    where a cluster has a column for itself. The factor is at least 1, or the size of a cluster where few clusters
    would decide it; it is 1, with infinite degrees of freedom, without clusters.
    """
    if cluster is None or int(cluster.max()) < 1:
        return 1.0, np.inf
    total, weight = residuals.sum(axis=0), np.maximum(weights.sum(axis=0), 1e-300)

    def squares(sums: FloatArray, share: FloatArray) -> float:
        return float(((sums - share * total) ** 2 + share * sums**2).sum())

    together = squares(by_cluster(residuals, cluster), by_cluster(weights, cluster) / weight)
    alone = squares(residuals, weights / weight)
    alike = size_of_cluster(cluster)
    least = _least_effect(np.linalg.norm(residuals, axis=1), alike)
    effect = max(least, together / alone) if alone > 0 else least
    correlation = (effect - 1) / (alike - 1) if alike > 1 else 0.0
    return effect, cluster_freedom(np.bincount(cluster), float(np.clip(correlation, _LEAST_CORRELATION, 1.0)))


def size_of_cluster(cluster: IntArray | None) -> float:
    """Return the mean size of the cluster of a prompt: the variance factor if all prompts of a cluster are alike."""
    if cluster is None:
        return 1.0
    sizes = np.bincount(cluster).astype(np.float64)
    return float((sizes**2).sum() / sizes.sum())


def _least_effect(moved: FloatArray, alike: float) -> float:
    """Return ``alike``, or 1 if many clusters would decide the variance of deviations (n,) even if they were alike.

    Where few prompts are wrong, clusters that are wrong as a whole may all have been missed.
    """
    return alike if tail_freedom(moved) < FEW_DECIDE * alike else 1.0


def student_quantile(level: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 1.0), (1 + level) / 2))


def _correlation(moved: FloatArray, sums: FloatArray, sizes: IntArray) -> float:
    """Return the correlation of two deviations of a cluster by the method of moments, at least 0.1."""
    single, pairs = float((moved**2).sum()), float((sizes * (sizes - 1.0)).sum())
    if single <= 0 or pairs <= 0:
        return _LEAST_CORRELATION
    correlation = (float((sums**2).sum()) - single) / (single / len(moved) * pairs)
    return float(np.clip(correlation, _LEAST_CORRELATION, 1.0))
