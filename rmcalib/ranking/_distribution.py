"""What distributions over rankings can do, and the smallest of them: pairwise probabilities."""

from collections.abc import Callable
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats, as_integers, as_probabilities
from rmcalib.ranking.events import as_events


@runtime_checkable
class PairMarginals(Protocol):
    """P(i before j) for n instances and m items, which is enough for ``sub_k`` with k = 2.

    ``events`` are int arrays (E, k) of items, numbered from 0.
    """

    def __repr__(self) -> str:
        """Show the size."""
        return f"{type(self).__name__}({len(self)} instances, {self.n_items} items)"

    @property
    def n_items(self) -> int:
        """The number m of items."""

    def __len__(self) -> int:
        """The number n of instances."""

    def sub(self, events: ArrayLike) -> FloatArray:
        """Return the exact sub-k marginals (Definition 3 of the paper) of ``events`` (E, k): (n, E)."""

    def mode(self) -> IntArray:
        """Return the predicted ranking of each instance: (n, m)."""

    def take(self, instances: IntArray) -> Self:
        """Return the forecasts of the given instances, by number."""


@runtime_checkable
class RankingDistribution(PairMarginals, Protocol):
    """One distribution over the rankings of m items for each of n instances.

    It has the marginals of every k. ``orders`` are int arrays (R, m), best item first, numbered from 0.
    """

    def log_prob(self, orders: ArrayLike) -> FloatArray:
        """Return log h(x_i)[π_r] for every instance i and each of the ``orders`` r: (n, R)."""

    def top(self, events: ArrayLike) -> FloatArray:
        """Return the exact top-k marginals (Definition 3 of the paper) of ``events`` (E, k): (n, E)."""

    def sample(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw ``size`` rankings for every instance: (size, n, m)."""


@runtime_checkable
class HasTemperature(RankingDistribution, Protocol):
    """A distribution with a temperature T, which makes it less (T > 1) or more (T < 1) confident."""

    def at_temperature(self, temperature: ArrayLike) -> Self:
        """Return the distribution at ``temperature``, one number or one per instance (n,)."""

    def temperature_slope(self, orders: IntArray) -> Callable[[float], float]:
        """Return the derivative of the mean negative log-likelihood of ``orders`` (n, m) by β = 1/T.

        It is a function of β that never decreases, because the negative log-likelihood is convex in β.
        """


def as_temperatures(temperature: ArrayLike, n: int) -> FloatArray:
    """Return checked temperatures, (1,) or (n,)."""
    t = as_floats(np.atleast_1d(np.asarray(temperature, dtype=np.float64)), "temperature", ndim=1)
    if (t <= 0).any():
        raise ValueError(f"temperature: {t.min()} is not positive")
    if len(t) not in (1, n):
        raise ValueError(f"temperature: {len(t)} values for {n} instances")
    return t


class PairwiseProbabilities(PairMarginals):
    """P(i before j) for every pair of items and every instance: pair marginals without a distribution.

    Parameters
    ----------
    matrix : float array (n, m, m)
        Entry [·, i, j] is P(i before j); it and [·, j, i] sum to 1. The diagonal is ignored.

    Examples
    --------
    >>> model = PairwiseProbabilities([[[0.5, 0.8], [0.2, 0.5]]])
    >>> model.sub([[0, 1], [1, 0]])
    array([[0.8, 0.2]])
    """

    def __init__(self, matrix: ArrayLike) -> None:
        """Check a matrix (n, m, m) whose entries [·, i, j] and [·, j, i] sum to 1."""
        array = as_probabilities(matrix, "matrix", ndim=3)
        if array.shape[1] != array.shape[2] or array.shape[1] < 2:
            raise ValueError(f"matrix: expected shape (n, m, m) with m ≥ 2, got {array.shape}")
        gap = np.abs(array + array.transpose(0, 2, 1) - 1)
        gap[:, np.arange(array.shape[1]), np.arange(array.shape[1])] = 0
        if gap.max() > 1e-6:
            i, a, b = (int(index) for index in np.unravel_index(gap.argmax(), gap.shape))
            raise ValueError(f"matrix: instance {i}: [{a}, {b}] and [{b}, {a}] must sum to 1")
        self.matrix = array

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.matrix)

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.matrix.shape[1])

    def sub(self, events: ArrayLike) -> FloatArray:
        """Return the marginals (n, E) of pairs ``events`` (E, 2).

        >>> PairwiseProbabilities(np.full((1, 3, 3), 0.5)).sub([[0, 1, 2]])
        Traceback (most recent call last):
        ValueError: k: 3 is not available: pairwise probabilities are known for k = 2 only
        """
        array = as_integers(events, "events", ndim=2)
        if array.shape[1] != 2:
            raise ValueError(
                f"k: {array.shape[1]} is not available: pairwise probabilities are known for k = 2 only"
            )
        pairs = as_events(array, self.n_items, "sub")
        return self.matrix[:, pairs[:, 0], pairs[:, 1]]

    def mode(self) -> IntArray:
        """Return the Borda order, by decreasing sum of P(i before j) (ties: lower index first): (n, m).

        >>> PairwiseProbabilities([[[0.5, 0.2], [0.8, 0.5]]]).mode()
        array([[1, 0]])
        """
        off_diagonal = ~np.eye(self.n_items, dtype=bool)
        return np.argsort(-(self.matrix * off_diagonal).sum(axis=2), axis=1, kind="stable")

    def take(self, instances: IntArray) -> "PairwiseProbabilities":
        """Return the probabilities of the given instances, by number.

        >>> len(PairwiseProbabilities(np.full((3, 2, 2), 0.5)).take(np.array([0, 2])))
        2
        """
        return PairwiseProbabilities(self.matrix[instances])
