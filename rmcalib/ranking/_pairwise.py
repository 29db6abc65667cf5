"""Pairwise probabilities (ranking by pairwise comparison): sub-2 marginals only."""

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_integers, as_probabilities
from rmcalib.ranking.events import as_events

__all__ = ["PairwiseProbabilities"]


class PairwiseProbabilities:
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
            raise ValueError(
                f"matrix: instance {i} has P({a} before {b}) = {array[i, a, b]:.6g} and "
                f"P({b} before {a}) = {array[i, b, a]:.6g}; the two must sum to 1"
            )
        self.matrix = array

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.matrix)

    def __repr__(self) -> str:
        """Show the size."""
        return f"PairwiseProbabilities({len(self)} instances, {self.n_items} items)"

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.matrix.shape[1])

    def sub(self, events: ArrayLike) -> FloatArray:
        """Return the marginals (n, E) of pairs ``events`` (E, 2).

        >>> PairwiseProbabilities(np.full((1, 3, 3), 0.5)).sub([[0, 1, 2]])
        Traceback (most recent call last):
        ...
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
