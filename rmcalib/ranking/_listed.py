"""Distributions over listed rankings (explicit, rank classifier), and mixtures."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats, as_probabilities, check_integer, chunks
from rmcalib.ranking._distribution import RankingDistribution, as_temperatures
from rmcalib.ranking.events import (
    MAX_ENUMERATED_ITEMS,
    Family,
    all_rankings,
    as_events,
    as_orders,
    index_of_rows,
    occurs_unchecked,
    unique_rows,
)

_SUM_TOLERANCE = 1e-5
_EM_STEPS = 10_000


class _ListedRankings(RankingDistribution):
    """N listed rankings, each with its own probability; all others share one."""

    orders: IntArray

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.orders.shape[1])

    @property
    def n_unseen(self) -> int:
        """How many rankings are not listed: m! − N."""
        return math.factorial(self.n_items) - len(self.orders)

    def _probabilities(self) -> FloatArray:
        """Return the probability of each listed ranking: (n, N)."""
        return np.exp(self._log_probabilities()[0])

    @abstractmethod
    def _log_probabilities(self) -> tuple[FloatArray, FloatArray]:
        """Return the log-probability of each listed ranking (n, N) and of any other one (n,)."""

    def log_prob(self, orders: ArrayLike) -> FloatArray:
        """Return log-probabilities (n, R), also of rankings that are not listed."""
        index = index_of_rows(self.orders, as_orders(orders, n_items=self.n_items))
        return np.column_stack(self._log_probabilities())[:, index]

    def sub(self, events: ArrayLike) -> FloatArray:
        """Return sub-k marginals (n, E).

        An event has m!/k! rankings: the listed ones have their own probabilities, the others the shared one.
        """
        array = as_events(events, self.n_items, "sub")
        return self._marginals(array, "sub", math.factorial(self.n_items) // math.factorial(array.shape[1]))

    def top(self, events: ArrayLike) -> FloatArray:
        """Return top-k marginals (n, E), as `sub` but for the (m − k)! rankings of the event."""
        array = as_events(events, self.n_items, "top")
        return self._marginals(array, "top", math.factorial(self.n_items - array.shape[1]))

    def mode(self) -> IntArray:
        """Return the most probable ranking (n, m); if that is an unlisted one, the first of them."""
        log_listed, log_unseen = self._log_probabilities()
        best = self.orders[log_listed.argmax(axis=1)]
        if self.n_unseen == 0:
            return best
        listed = {tuple(order) for order in self.orders.tolist()}
        first = next(order for order in permutations(range(self.n_items)) if order not in listed)
        return np.where((log_unseen > log_listed.max(axis=1))[:, None], first, best)

    def sample(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw (size, n, m) orders; unlisted ones are drawn uniformly."""
        check_integer(size, "size", 1)
        rest = np.exp(self._log_probabilities()[1] + log_integer(self.n_unseen))
        index = _sample_columns(np.column_stack([self._probabilities(), rest]), size, rng)
        result = self.orders[np.minimum(index, len(self.orders) - 1)]
        unlisted = index == len(self.orders)
        result[unlisted] = self._sample_unlisted(int(unlisted.sum()), rng)
        return result

    def _marginals(self, events: IntArray, family: Family, n_rankings: int) -> FloatArray:
        listed, log_unseen = self._probabilities(), self._log_probabilities()[1]
        result = np.empty((len(self), len(events)))
        for columns in chunks(len(events), len(self.orders) + len(self)):
            happens = occurs_unchecked(self.orders, events[columns], family)
            # Counts of rankings overflow int64 from 21 items on: subtract in Python, then use logarithms.
            seen, index = np.unique(happens.sum(axis=0), return_inverse=True)
            log_others = np.array([log_integer(n_rankings - int(count)) for count in seen])[index]
            others = np.exp(log_unseen[:, None] + log_others)
            result[:, columns] = listed @ happens.astype(np.float64) + others
        return result

    def _sample_unlisted(self, size: int, rng: np.random.Generator) -> IntArray:
        if self.n_items <= MAX_ENUMERATED_ITEMS and size:
            everything = all_rankings(self.n_items)
            unlisted = everything[index_of_rows(self.orders, everything) == len(self.orders)]
            return unlisted[rng.integers(len(unlisted), size=size)]
        result = np.empty((size, self.n_items), dtype=np.int64)
        missing = np.arange(size)
        while len(missing):
            drawn = rng.permuted(np.tile(np.arange(self.n_items), (len(missing), 1)), axis=1)
            result[missing] = drawn
            missing = missing[index_of_rows(self.orders, drawn) < len(self.orders)]
        return result


class ExplicitRankings(_ListedRankings):
    """A distribution with a probability for each listed ranking; other rankings have probability 0.

    Parameters
    ----------
    orders : int array (R, m)
        Distinct rankings, best item first.
    probabilities : float array (n, R)
        Their probabilities for each instance; rows sum to 1.

    Examples
    --------
    >>> model = ExplicitRankings([[0, 1], [1, 0]], [[0.7, 0.3]])
    >>> model.sub([[0, 1]])
    array([[0.7]])
    """

    def __init__(self, orders: ArrayLike, probabilities: ArrayLike) -> None:
        """Check distinct orders (R, m) and probabilities (n, R), whose rows sum to 1 within 1e-5."""
        self.probabilities = as_probabilities(probabilities, ndim=2)
        self.orders = _listed_orders(orders, self.probabilities, "probabilities")
        sums = self.probabilities.sum(axis=1)
        bad = np.abs(sums - 1) > _SUM_TOLERANCE
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(f"probabilities: row {row} sums to {sums[row]:.6g}, expected 1")

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.probabilities)

    def take(self, instances: IntArray) -> "ExplicitRankings":
        """Return the distributions of the given instances, by number."""
        return ExplicitRankings(self.orders, self.probabilities[instances])

    def _probabilities(self) -> FloatArray:
        return self.probabilities

    def _log_probabilities(self) -> tuple[FloatArray, FloatArray]:
        with np.errstate(divide="ignore"):
            return np.log(self.probabilities), np.full(len(self), -np.inf)


class SparseRankings(_ListedRankings):
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
        self.logits = as_floats(logits, "logits", ndim=2)
        self.orders = _listed_orders(orders, self.logits, "logits")
        unseen = as_floats(np.atleast_1d(np.asarray(unseen_logit)), "unseen_logit", ndim=1, allow="-inf")
        if len(unseen) not in (1, len(self.logits)):
            raise ValueError(f"unseen_logit: {len(unseen)} values for {len(self.logits)} instances")
        self.unseen_logit: FloatArray = np.broadcast_to(unseen, (len(self.logits),))

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.logits)

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
        index = index_of_rows(self.orders, orders)
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


class Mixture(RankingDistribution):
    """A weighted mixture of distributions over the same items, with exact marginals.

    Parameters
    ----------
    components : sequence of RankingDistribution
        C distributions with the same numbers of instances and items.
    weights : float array (C,)
        Their weights, which sum to 1.

    Examples
    --------
    >>> sides = [ExplicitRankings([[0, 1]], [[1.0]]), ExplicitRankings([[1, 0]], [[1.0]])]
    >>> Mixture(sides, [0.25, 0.75]).top([[1]])
    array([[0.75]])
    """

    def __init__(self, components: Sequence[RankingDistribution], weights: ArrayLike) -> None:
        """Check components of equal sizes, and their weights (C,), which sum to 1."""
        self.components = tuple(components)
        self.weights = as_probabilities(weights, "weights")
        if len(self.components) != len(self.weights):
            raise ValueError(f"weights: {len(self.weights)} weights for {len(self.components)} components")
        if abs(self.weights.sum() - 1) > _SUM_TOLERANCE:
            raise ValueError(f"weights: sum to {self.weights.sum():.6g}, expected 1")
        sizes = {(len(part), part.n_items) for part in self.components}
        if len(sizes) != 1:
            raise ValueError(f"components: different (instances, items): {sorted(sizes)}")

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.components[0])

    @property
    def n_items(self) -> int:
        """The number of items."""
        return self.components[0].n_items

    def log_prob(self, orders: ArrayLike) -> FloatArray:
        """Return the log of the weighted sum of likelihoods: (n, R).

        >>> part = ExplicitRankings([[0, 1], [1, 0]], [[0.5, 0.5]])
        >>> np.exp(Mixture([part, part], [0.5, 0.5]).log_prob([[0, 1]]))
        array([[0.5]])
        """
        with np.errstate(divide="ignore"):
            logs = [
                np.log(w) + part.log_prob(orders)
                for w, part in zip(self.weights, self.components, strict=True)
            ]
        result: FloatArray = np.logaddexp.reduce(logs, axis=0)
        return result

    def sub(self, events: ArrayLike) -> FloatArray:
        """Return sub-k marginals: (n, E).

        >>> part = ExplicitRankings([[0, 1], [1, 0]], [[0.5, 0.5]])
        >>> Mixture([part], [1.0]).sub([[0, 1]])
        array([[0.5]])
        """
        return sum(w * part.sub(events) for w, part in zip(self.weights, self.components, strict=True))

    def top(self, events: ArrayLike) -> FloatArray:
        """Return top-k marginals: (n, E).

        >>> part = ExplicitRankings([[0, 1], [1, 0]], [[0.5, 0.5]])
        >>> Mixture([part], [1.0]).top([[0, 1]])
        array([[0.5]])
        """
        return sum(w * part.top(events) for w, part in zip(self.weights, self.components, strict=True))

    @classmethod
    def fit(cls, components: Sequence[RankingDistribution], orders: ArrayLike) -> "Mixture":
        """Return the mixture whose weights make ``orders`` (n, m), one ranking per instance, most likely.

        The likelihood is concave in the weights, and the EM algorithm finds its maximum. Use rankings that
        the components were not fitted to.

        >>> parts = [ExplicitRankings([[0, 1]], [[1.0]] * 4), ExplicitRankings([[1, 0]], [[1.0]] * 4)]
        >>> Mixture.fit(parts, [[0, 1], [0, 1], [0, 1], [1, 0]]).weights.round(3)
        array([0.75, 0.25])
        """
        ranked = as_orders(orders)
        logs = np.array([own_log_prob(part, ranked) for part in components])
        impossible = np.isneginf(logs).all(axis=0)
        if impossible.any():
            raise ValueError(
                f"orders: row {int(np.argmax(impossible))} has probability 0 under every component"
            )
        likelihood = np.exp(logs - logs.max(axis=0))
        weights = np.full(len(logs), 1 / len(logs))
        for _ in range(_EM_STEPS):
            shares = weights[:, None] * likelihood
            updated = (shares / shares.sum(axis=0)).mean(axis=1)
            done = np.abs(updated - weights).max() < 1e-9
            weights = updated
            if done:
                break
        return cls(components, weights / weights.sum())

    def mode(self) -> IntArray:
        """Return the most probable ranking (n, m): of all, or of the components' modes if m > 8.

        >>> part = ExplicitRankings([[0, 1], [1, 0]], [[0.4, 0.6]])
        >>> Mixture([part], [1.0]).mode()
        array([[1, 0]])
        """
        if self.n_items <= MAX_ENUMERATED_ITEMS:
            orders = all_rankings(self.n_items)
            return orders[self.log_prob(orders).argmax(axis=1)]
        candidates = np.array([part.mode() for part in self.components])
        values = np.array([own_log_prob(self, orders) for orders in candidates])
        return candidates[values.argmax(axis=0), np.arange(len(self))]

    def sample(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw (size, n, m) orders: a component for each draw, then a ranking from it.

        >>> part = ExplicitRankings([[0, 1]], [[1.0]])
        >>> Mixture([part], [1.0]).sample(1, np.random.default_rng(0)).tolist()
        [[[0, 1]]]
        """
        check_integer(size, "size", 1)
        chosen = rng.choice(len(self.components), p=self.weights / self.weights.sum(), size=(size, len(self)))
        result = np.empty((size, len(self), self.n_items), dtype=np.int64)
        for index, part in enumerate(self.components):
            result = np.where((chosen == index)[:, :, None], part.sample(size, rng), result)
        return result

    def take(self, instances: IntArray) -> "Mixture":
        """Return the distributions of the given instances, by number.

        >>> part = ExplicitRankings([[0, 1]], [[1.0]] * 3)
        >>> len(Mixture([part], [1.0]).take(np.array([0, 2])))
        2
        """
        return Mixture([part.take(instances) for part in self.components], self.weights)


def own_log_prob(dist: RankingDistribution, orders: IntArray) -> FloatArray:
    """Return the log-probability of each instance's own ranking: (n,)."""
    distinct, which = np.unique(orders, axis=0, return_inverse=True)
    return dist.log_prob(distinct)[np.arange(len(dist)), which.reshape(-1)]


def _sample_columns(probabilities: FloatArray, size: int, rng: np.random.Generator) -> IntArray:
    """Draw ``size`` column numbers for each row of ``probabilities`` (n, R): (size, n)."""
    totals = np.cumsum(probabilities, axis=1)
    totals /= totals[:, -1:]
    draws = rng.random((size, len(totals)))
    pairs = zip(totals, draws.T, strict=True)
    return np.column_stack([np.searchsorted(row, drawn, side="right") for row, drawn in pairs])


def _listed_orders(orders: ArrayLike, values: FloatArray, name: str) -> IntArray:
    """Return distinct rankings (N, m), one for each column of ``values`` (n, N)."""
    array = as_orders(orders)
    if values.shape[1] != len(array):
        raise ValueError(f"{name}: {values.shape[1]} columns for {len(array)} orders")
    if len(unique_rows(array, array.shape[1])[0]) < len(array):
        raise ValueError("orders: a ranking is listed twice")
    return array


def log_integer(count: int) -> float:
    """Return the logarithm of an integer of any size, such as m!; −inf for 0."""
    return math.log(count) if count > 0 else -math.inf
