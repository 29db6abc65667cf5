"""Protocols for what distributions over rankings can do, from small to large."""

from collections.abc import Callable
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats

__all__ = ["HasTemperature", "PairMarginals", "RankingDistribution", "TooCostlyError", "as_temperatures"]


class TooCostlyError(ValueError):
    """An exact result would take more steps than allowed."""


@runtime_checkable
class PairMarginals(Protocol):
    """P(i before j) for n instances and m items, which is enough for ``sub_k`` with k = 2.

    ``events`` are int arrays (E, k) of items, numbered from 0.
    """

    @property
    def n_items(self) -> int:
        """The number m of items."""
        ...

    def __len__(self) -> int:
        """The number n of instances."""
        ...

    def sub(self, events: ArrayLike) -> FloatArray:
        """Return the exact sub-k marginals (Definition 3 of the paper) of ``events`` (E, k): (n, E)."""
        ...

    def mode(self) -> IntArray:
        """Return the predicted ranking of each instance: (n, m)."""
        ...

    def take(self, instances: IntArray) -> Self:
        """Return the forecasts of the given instances, by number."""
        ...


@runtime_checkable
class RankingDistribution(PairMarginals, Protocol):
    """One distribution over the rankings of m items for each of n instances.

    It has the marginals of every k. ``orders`` are int arrays (R, m), best item first, numbered from 0.
    """

    def log_prob(self, orders: ArrayLike) -> FloatArray:
        """Return log h(x_i)[π_r] for every instance i and each of the ``orders`` r: (n, R)."""
        ...

    def top(self, events: ArrayLike) -> FloatArray:
        """Return the exact top-k marginals (Definition 3 of the paper) of ``events`` (E, k): (n, E)."""
        ...

    def sample(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw ``size`` rankings for every instance: (size, n, m)."""
        ...


@runtime_checkable
class HasTemperature(RankingDistribution, Protocol):
    """A distribution with a temperature T, which makes it less (T > 1) or more (T < 1) confident."""

    def at_temperature(self, temperature: ArrayLike) -> Self:
        """Return the distribution at ``temperature``, one number or one per instance (n,)."""
        ...

    def temperature_slope(self, orders: IntArray) -> Callable[[float], float]:
        """Return the derivative of the mean negative log-likelihood of ``orders`` (n, m) by β = 1/T.

        It is a function of β that never decreases, because the negative log-likelihood is convex in β.
        """
        ...


def as_temperatures(temperature: ArrayLike, n: int) -> FloatArray:
    """Return checked temperatures, (1,) or (n,).

    >>> as_temperatures(2.0, 3)
    array([2.])
    """
    t = as_floats(np.atleast_1d(np.asarray(temperature, dtype=np.float64)), "temperature", ndim=1)
    if (t <= 0).any():
        raise ValueError(f"temperature: {t.min()} is not positive")
    if len(t) not in (1, n):
        raise ValueError(f"temperature: {len(t)} values for {n} instances")
    return t
