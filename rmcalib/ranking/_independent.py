"""Independent random rewards, such as normal ones: P(one beats another), and P(one is the largest)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats, as_integers, chunks
from rmcalib.ranking.events import as_events

_NODES = 8  # Gauss-Legendre nodes on each piece
# Ends of the pieces, in standard deviations: around each reward, and between each two.
_REACH = (-9.0, -6.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0)
_BETWEEN = (-6.0, -3.0, -1.5, 0.0, 1.5, 3.0, 6.0)
_NARROW = 1e-9  # smallest distance between two quantiles, as a fraction of their range


class IndependentRewards:
    """Independent random rewards R_i, with the probabilities that R_i > R_j and that R_i is the largest.

    The distribution function of each reward is Φ(z(x)), where Φ is that of the standard normal distribution
    and z is piecewise linear. With one piece, the reward is normal (`normal`). With more pieces it has given
    quantiles (`from_quantiles`).

    Parameters
    ----------
    points : float array (n, m, k)
        Points x of each reward, in increasing order.
    scores : float array (k,)
        Their normal scores z, in increasing order.

    Examples
    --------
    >>> rewards = IndependentRewards.normal([[1.0, 0.0, 0.0]], [[1.0, 1.0, 1.0]])
    >>> rewards.sub([[0, 1]]).round(4), rewards.first().round(4)
    (array([[0.7602]]), array([[0.6337, 0.1831, 0.1831]]))
    """

    def __init__(self, points: ArrayLike, scores: ArrayLike) -> None:
        """Check points (n, m, k) and scores (k,), which increase along their last axis."""
        self.points = as_floats(points, "points", ndim=3)
        self.scores = as_floats(scores, "scores", ndim=1)
        n, m, k = self.points.shape
        if m < 2 or k < 2 or len(self.scores) != k:
            raise ValueError(
                f"points: expected shape (n, m, k) with m and k from 2 up and {len(self.scores)} "
                f"scores, got {self.points.shape}"
            )
        if n and not ((np.diff(self.points) > 0).all() and (np.diff(self.scores) > 0).all()):
            raise ValueError("points: the points of every reward must increase, as must the scores")

    @classmethod
    def normal(cls, mean: ArrayLike, spread: ArrayLike) -> IndependentRewards:
        """Return normal rewards with these means and standard deviations, each (n, m).

        >>> IndependentRewards.normal([[0.0, 1.0]], [[1.0, 0.0]])
        Traceback (most recent call last):
        ...
        ValueError: spread: instance 0, item 1 has 0; a spread must be positive
        """
        centre, width = as_floats(mean, "mean", ndim=2), as_floats(spread, "spread", ndim=2)
        if centre.shape != width.shape:
            raise ValueError(f"spread: expected shape {centre.shape}, like the means, got {width.shape}")
        bad = np.argwhere(width <= 0)
        if len(bad):
            i, j = (int(number) for number in bad[0])
            raise ValueError(f"spread: instance {i}, item {j} has {width[i, j]:g}; a spread must be positive")
        return cls(np.stack([centre - width, centre + width], axis=2), np.array([-1.0, 1.0]))

    @classmethod
    def from_quantiles(cls, quantiles: ArrayLike) -> IndependentRewards:
        """Return rewards with given quantiles (n, m, k) at the levels 1/(k + 1), ..., k/(k + 1).

        The normal score of the level is linear in the reward between two quantiles, and also beyond the first
        and the last one. The quantiles of a normal distribution therefore give that distribution. Quantiles
        in the wrong order are sorted.

        >>> IndependentRewards.from_quantiles([[[-1.0, 0.0, 1.0], [0.0, 1.0, 2.0]]]).sub([[1, 0]]).round(4)
        array([[0.6833]])
        """
        from scipy.special import ndtri

        sorted_ones = np.sort(as_floats(quantiles, "quantiles", ndim=3), axis=2)
        k = sorted_ones.shape[2]
        if k < 2:
            raise ValueError(f"quantiles: expected at least 2 for each reward, got {k}")
        width = sorted_ones[..., -1:] - sorted_ones[..., :1]
        bad = np.argwhere(width[..., 0] <= 0)
        if len(bad):
            i, j = (int(number) for number in bad[0])
            raise ValueError(f"quantiles: those of instance {i}, item {j} are all equal")
        gaps = np.maximum(np.diff(sorted_ones), _NARROW * width)
        points = np.concatenate(
            [sorted_ones[..., :1], sorted_ones[..., :1] + np.cumsum(gaps, axis=2)], axis=2
        )
        return cls(points, ndtri(np.arange(1, k + 1) / (k + 1)))

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.points)

    def __repr__(self) -> str:
        """Show the size."""
        return f"IndependentRewards({len(self)} instances, {self.n_items} items)"

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.points.shape[1])

    def sub(self, events: ArrayLike) -> FloatArray:
        """Return P(R_i > R_j) for pairs (i, j), ``events`` (E, 2): (n, E).

        >>> IndependentRewards.normal([[0.0, 0.0]], [[1.0, 2.0]]).sub([[0, 1], [1, 0]])
        array([[0.5, 0.5]])
        """
        array = as_integers(events, "events", ndim=2)
        if array.shape[1] != 2:
            raise ValueError(f"k: {array.shape[1]} is not available: these rewards are compared in pairs")
        pairs = as_events(array, self.n_items, "sub")
        if len(self.scores) == 2:  # normal: their difference is normal, too
            from scipy.special import ndtr

            mean, spread = self._centre_and_spread()
            one, other = pairs[:, 0], pairs[:, 1]
            gap = (mean[:, one] - mean[:, other]) / np.hypot(spread[:, one], spread[:, other])
            return np.asarray(ndtr(gap))
        result = np.empty((len(self), len(pairs)))
        for number, pair in enumerate(pairs):
            result[:, number] = IndependentRewards(self.points[:, pair], self.scores).first()[:, 0]
        return result

    def first(self) -> FloatArray:
        """Return P(R_i is the largest): (n, m), by quadrature with an error below 1e-8.

        >>> IndependentRewards.normal([[0.0, 0.0]], [[1.0, 3.0]]).first().round(6)
        array([[0.5, 0.5]])
        """
        return np.exp(self.log_first())

    def log_first(self) -> FloatArray:
        """Return log P(R_i is the largest): (n, m), finite even where the probability underflows to 0.

        P(R_i is the largest) = ∫ f_i(x) Π_{j≠i} F_j(x) dx. All rewards share one set of nodes, with pieces
        around each reward and between each two, where the integrand of an unlikely winner is largest.

        >>> IndependentRewards.normal([[0.0, 50.0]], [[1.0, 1.0]]).log_first().round(1)
        array([[-629.5,    0. ]])
        """
        from scipy.special import log_ndtr, logsumexp

        n, m, k = self.points.shape
        pieces = m * (len(_REACH) + k) + m * (m - 1) // 2 * len(_BETWEEN)
        result = np.empty((n, m))
        for rows in chunks(n, pieces * _NODES * m):
            x, log_weight = self.take(np.arange(n)[rows])._nodes()
            z, log_slope = self._normal_scores(x, rows)
            log_cdf = log_ndtr(z)
            log_density = -0.5 * z * z - 0.5 * np.log(2 * np.pi) + log_slope
            others = log_cdf.sum(axis=1, keepdims=True) - log_cdf
            result[rows] = logsumexp(log_weight[:, None] + log_density + others, axis=2)
        return np.asarray(result - logsumexp(result, axis=1, keepdims=True))

    def mode(self) -> IntArray:
        """Return the items by decreasing median (ties: lower index first): (n, m).

        >>> IndependentRewards.normal([[0.0, 1.0]], [[1.0, 1.0]]).mode()
        array([[1, 0]])
        """
        return np.argsort(-self._centre_and_spread()[0], axis=1, kind="stable")

    def take(self, instances: IntArray) -> IndependentRewards:
        """Return the rewards of the given instances, by number.

        >>> len(IndependentRewards.normal([[0.0, 1.0]] * 3, [[1.0, 1.0]] * 3).take(np.array([0, 2])))
        2
        """
        return IndependentRewards(self.points[instances], self.scores)

    def _centre_and_spread(self) -> tuple[FloatArray, FloatArray]:
        """Return median and overall standard deviation, as if the rewards were normal: (n, m) each."""
        first, last = self.points[..., 0], self.points[..., -1]
        spread = (last - first) / (self.scores[-1] - self.scores[0])
        if len(self.scores) == 2:
            return first - self.scores[0] * spread, spread
        middle = np.interp(0.0, self.scores, np.arange(len(self.scores)))
        left = int(middle)
        right = min(left + 1, len(self.scores) - 1)
        weight = middle - left
        return (1 - weight) * self.points[..., left] + weight * self.points[..., right], spread

    def _nodes(self) -> tuple[FloatArray, FloatArray]:
        """Return the nodes of the quadrature (n, Q), and the logarithms of their weights."""
        centre, spread = self._centre_and_spread()
        reach = np.array(_REACH)
        cuts = [(centre[..., None] + spread[..., None] * reach).reshape(len(self), -1)]
        if len(self.scores) > 2:
            cuts.append(self.points.reshape(len(self), -1))
        one, other = np.triu_indices(self.n_items, 1)
        # The density of R_i times that of R_j is a normal curve with this centre and this width.
        precision = 1 / spread[:, one] ** 2 + 1 / spread[:, other] ** 2
        between = (
            centre[:, one] / spread[:, one] ** 2 + centre[:, other] / spread[:, other] ** 2
        ) / precision
        width = 1 / np.sqrt(precision)
        cuts.append((between[..., None] + width[..., None] * np.array(_BETWEEN)).reshape(len(self), -1))
        edges = np.sort(np.concatenate(cuts, axis=1), axis=1)
        place, weight = np.polynomial.legendre.leggauss(_NODES)
        half = np.diff(edges)[..., None] / 2
        x = (edges[:, :-1, None] + half * (1 + place)).reshape(len(self), -1)
        with np.errstate(divide="ignore"):
            return x, np.log(half * weight).reshape(len(self), -1)

    def _normal_scores(self, x: FloatArray, rows: slice) -> tuple[FloatArray, FloatArray]:
        """Return z(x) of every reward, and log z'(x), at nodes (n, Q): (n, m, Q) each."""
        points = self.points[rows]
        slopes = np.diff(self.scores) / np.diff(points)
        if slopes.shape[2] == 1:
            z = self.scores[0] + (x[:, None, :] - points[..., :1]) * slopes
            return z, np.broadcast_to(np.log(slopes), z.shape)
        overall = (self.scores[-1] - self.scores[0]) / (points[..., -1:] - points[..., :1])
        slopes = np.concatenate([overall, slopes, overall], axis=2)
        piece = (x[:, None, :, None] >= points[:, :, None, :]).sum(axis=3)  # 0 is before the first point
        start = np.maximum(piece - 1, 0)
        slope = np.take_along_axis(slopes, piece, axis=2)
        z = self.scores[start] + (x[:, None, :] - np.take_along_axis(points, start, axis=2)) * slope
        return z, np.log(slope)
