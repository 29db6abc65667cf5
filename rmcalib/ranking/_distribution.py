"""What every distribution over rankings can be asked."""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray

__all__ = ["RankingDistribution", "TooCostlyError"]


class TooCostlyError(ValueError):
    """An exact marginal would take more work than allowed; ``sub_estimate`` gives a Monte Carlo answer."""


@runtime_checkable
class RankingDistribution(Protocol):
    """One distribution over the rankings of m items for each of n instances.

    ``events`` are int arrays (E, k), ``orders`` int arrays (R, m) with the best item first, both 0-based.
    """

    @property
    def n_items(self) -> int:
        """The number m of items."""
        ...

    def __len__(self) -> int:
        """The number n of instances."""
        ...

    def log_prob(self, orders: ArrayLike) -> FloatArray:
        """Return log h(x_i)[π_r] for every instance and every one of the ``orders``: (n, R)."""
        ...

    def sub(self, events: ArrayLike) -> FloatArray:
        """Return the sub-k marginals (Definition 3 of the paper): (n, E), exact."""
        ...

    def top(self, events: ArrayLike) -> FloatArray:
        """Return the top-k marginals (Definition 3 of the paper): (n, E), exact."""
        ...

    def mode(self) -> IntArray:
        """Return a most probable ranking of each instance: (n, m)."""
        ...

    def sample(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw ``size`` rankings for every instance: (size, n, m)."""
        ...
