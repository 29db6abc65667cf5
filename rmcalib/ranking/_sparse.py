"""The distribution of the rank classifier: a logit for every listed ranking, and one for all others."""

import math
from collections.abc import Callable
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats, check_integer, chunks
from rmcalib.ranking._distribution import as_temperatures
from rmcalib.ranking._encodings import MAX_ENUMERATED_ITEMS, all_rankings, as_orders
from rmcalib.ranking._explicit import check_distinct, index_of_orders, sample_rows
from rmcalib.ranking.events import Family, as_events, occurs_unchecked

__all__ = ["SparseRankings"]


class SparseRankings:
    """The distribution of a rank classifier: N listed rankings with logits z; all others share one logit c.

    This is the paper's modified softmax: P(r) = exp(z_r) / (Σ exp(z) + (m! − N) exp(c)) for a listed ranking,
    and exp(c) divided by the same sum for any other.

    Parameters
    ----------
    orders : int array (N, m)
        Distinct rankings, best item first.
    logits : float array (n, N)
        Their logits z for each instance.
    unseen_logit : float array (n,) or float
        The logit c of each ranking that is not listed; −inf gives them probability 0.

    Examples
    --------
    >>> model = SparseRankings([[0, 1, 2]], [[np.log(5.0)]], 0.0)
    >>> np.exp(model.log_prob([[0, 1, 2], [2, 1, 0]])).round(2)
    array([[0.5, 0.1]])
    >>> model.top([[0]]).round(2)
    array([[0.6]])
    """

    def __init__(self, orders: ArrayLike, logits: ArrayLike, unseen_logit: ArrayLike) -> None:
        """Check distinct orders (N, m), logits (n, N), and the logit of the others, one number or (n,)."""
        self.orders = as_orders(orders)
        self.logits = as_floats(logits, "logits", ndim=2)
        check_distinct(self.orders)
        if self.logits.shape[1] != len(self.orders):
            raise ValueError(f"logits: {self.logits.shape[1]} columns for {len(self.orders)} orders")
        unseen = as_floats(np.atleast_1d(np.asarray(unseen_logit)), "unseen_logit", ndim=1, allow="-inf")
        if len(unseen) not in (1, len(self.logits)):
            raise ValueError(f"unseen_logit: {len(unseen)} values for {len(self.logits)} instances")
        self.unseen_logit: FloatArray = np.broadcast_to(unseen, (len(self.logits),))

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.logits)

    def __repr__(self) -> str:
        """Show the size."""
        return f"SparseRankings({len(self)} instances, {self.n_items} items, {len(self.orders)} rankings)"

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.orders.shape[1])

    @property
    def n_unseen(self) -> int:
        """How many rankings are not listed: m! − N."""
        return math.factorial(self.n_items) - len(self.orders)

    def log_prob(self, orders: ArrayLike) -> FloatArray:
        """Return log-probabilities (n, R), also of rankings that are not listed.

        >>> SparseRankings([[0, 1]], [[0.0]], 0.0).log_prob([[1, 0]]).round(4)
        array([[-0.6931]])
        """
        index = index_of_orders(self.orders, as_orders(orders, n_items=self.n_items))
        log_listed, log_unseen = self._log_probabilities()
        return np.column_stack([log_listed, log_unseen])[:, index]

    def sub(self, events: ArrayLike) -> FloatArray:
        """Return sub-k marginals (n, E).

        An event has m!/k! rankings: the listed ones have their own probabilities, the others the shared one.

        >>> SparseRankings([[0, 1, 2]], [[0.0]], 0.0).sub([[0, 1]])
        array([[0.5]])
        """
        array = as_events(events, self.n_items, "sub")
        return self._marginals(array, "sub", math.factorial(self.n_items) // math.factorial(array.shape[1]))

    def top(self, events: ArrayLike) -> FloatArray:
        """Return top-k marginals (n, E), as `sub` but for the (m − k)! rankings of the event.

        >>> SparseRankings([[0, 1, 2]], [[0.0]], -np.inf).top([[0], [1]])
        array([[1., 0.]])
        """
        array = as_events(events, self.n_items, "top")
        return self._marginals(array, "top", math.factorial(self.n_items - array.shape[1]))

    def mode(self) -> IntArray:
        """Return the ranking of largest logit (n, m); if that is the shared one, the first unlisted ranking.

        >>> SparseRankings([[0, 1]], [[0.0], [0.0]], [-1.0, 1.0]).mode().tolist()
        [[0, 1], [1, 0]]
        """
        best = self.orders[self.logits.argmax(axis=1)]
        unlisted = self._first_unlisted()
        if unlisted is None:
            return best
        return np.where((self.unseen_logit > self.logits.max(axis=1))[:, None], unlisted, best)

    def sample(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw (size, n, m) orders; unlisted ones are drawn uniformly.

        >>> SparseRankings([[1, 0]], [[0.0]], -np.inf).sample(1, np.random.default_rng(0)).tolist()
        [[[1, 0]]]
        """
        check_integer(size, "size", 1)
        log_listed, log_unseen = self._log_probabilities()
        rest = np.exp(log_unseen + log_integer(self.n_unseen))
        index = sample_rows(np.column_stack([np.exp(log_listed), rest]), size, rng)
        result = self.orders[np.minimum(index, len(self.orders) - 1)]
        unlisted = index == len(self.orders)
        result[unlisted] = self._sample_unlisted(int(unlisted.sum()), rng)
        return result

    def take(self, instances: IntArray) -> "SparseRankings":
        """Return the distributions of the given instances, by number.

        >>> len(SparseRankings([[0, 1]], [[0.0]] * 3, 0.0).take(np.array([0, 2])))
        2
        """
        return SparseRankings(self.orders, self.logits[instances], self.unseen_logit[instances])

    def at_temperature(self, temperature: ArrayLike) -> "SparseRankings":
        """Divide all logits by ``temperature``, one number or one per instance (n,).

        >>> SparseRankings([[0, 1]], [[3.0]], 1.0).at_temperature(2.0).unseen_logit
        array([0.5])
        """
        t = as_temperatures(temperature, len(self))
        return SparseRankings(self.orders, self.logits / t[:, None], self.unseen_logit / t)

    def temperature_slope(self, orders: IntArray) -> Callable[[float], float]:
        """Return the derivative of the mean negative log-likelihood of ``orders`` (n, m) by β = 1/T.

        >>> SparseRankings([[0, 1]], [[1.0]], 0.0).temperature_slope(np.array([[0, 1]]))(0.0)
        -0.5
        """
        index = index_of_orders(self.orders, orders)
        extended = np.column_stack([self.logits, self.unseen_logit])
        happened = extended[np.arange(len(orders)), index]
        if np.isneginf(happened).any():
            row = int(np.argmax(np.isneginf(happened)))
            raise ValueError(
                f"orders: row {row} has probability 0 at every temperature (unseen_logit is -inf)"
            )
        multiplicity = np.zeros(extended.shape[1])
        multiplicity[-1] = log_integer(self.n_unseen)
        possible = np.isfinite(extended) & np.isfinite(multiplicity)
        values = np.where(possible, extended, 0.0)

        def slope(beta: float) -> float:
            logits = np.where(possible, beta * values + multiplicity, -np.inf)
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            return float(((weights * values).sum(axis=1) / weights.sum(axis=1) - happened).mean())

        return slope

    def _log_probabilities(self) -> tuple[FloatArray, FloatArray]:
        """Return the log-probability of each listed ranking (n, N) and of any other one (n,)."""
        log_total = np.logaddexp(
            np.logaddexp.reduce(self.logits, axis=1), self.unseen_logit + log_integer(self.n_unseen)
        )
        return self.logits - log_total[:, None], self.unseen_logit - log_total

    def _marginals(self, events: IntArray, family: Family, n_rankings: int) -> FloatArray:
        log_listed, log_unseen = self._log_probabilities()
        listed = np.exp(log_listed)
        result = np.empty((len(self), len(events)))
        for columns in chunks(len(events), len(self.orders) + len(self)):
            happens = occurs_unchecked(self.orders, events[columns], family)
            # Counts of rankings overflow int64 from 21 items on: subtract in Python, then use logarithms.
            seen, index = np.unique(happens.sum(axis=0), return_inverse=True)
            log_others = np.array([log_integer(n_rankings - int(count)) for count in seen])[index]
            others = np.exp(log_unseen[:, None] + log_others)
            result[:, columns] = listed @ happens.astype(np.float64) + others
        return result

    def _first_unlisted(self) -> IntArray | None:
        if self.n_unseen == 0:
            return None
        listed = {tuple(order) for order in self.orders.tolist()}
        first = next(order for order in permutations(range(self.n_items)) if order not in listed)
        return np.array(first, dtype=np.int64)

    def _sample_unlisted(self, size: int, rng: np.random.Generator) -> IntArray:
        if self.n_items <= MAX_ENUMERATED_ITEMS and size:
            everything = all_rankings(self.n_items)
            unlisted = everything[index_of_orders(self.orders, everything) == len(self.orders)]
            return unlisted[rng.integers(len(unlisted), size=size)]
        result = np.empty((size, self.n_items), dtype=np.int64)
        missing = np.arange(size)
        while len(missing):
            drawn = rng.permuted(np.tile(np.arange(self.n_items), (len(missing), 1)), axis=1)
            result[missing] = drawn
            missing = missing[index_of_orders(self.orders, drawn) < len(self.orders)]
        return result


def log_integer(count: int) -> float:
    """Return the logarithm of an integer of any size; −inf for 0.

    Parameters
    ----------
    count : int
        A number of at least 0, such as m! for many items, which may be too large for a float.

    Returns
    -------
    float
        The logarithm.

    Examples
    --------
    >>> log_integer(0), round(log_integer(10**400), 1)
    (-inf, 921.0)
    """
    return math.log(count) if count > 0 else -math.inf
