"""The Mallows distribution with Kendall's distance: rankings scatter around a centre.

Exact sub-k marginals come from repeated insertion. A Mallows ranking arises by inserting the items of the centre
one after the other. The (i+1)-th is put where v items are on its right, with probability
φ^v / (1 + φ + ... + φ^i). The order of the k chosen items depends only on how many *other* items are in each gap
between them. This gives a dynamic programme with (i choose r) states after i insertions, r of them chosen. Items
of the centre before the first and after the last chosen one have no effect. All terms are positive, so results
keep full relative precision for every φ.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats, check_integer, chunks
from rmcalib.ranking._distribution import RankingDistribution, as_temperatures
from rmcalib.ranking._partial import PartialRankings
from rmcalib.ranking.events import as_events, as_orders, index_of_rows, unique_rows

MAX_WORK = 1e10
"""Largest number of state updates for exact sub-k marginals (about a minute on one core)."""
_MOST_ORDERS = 5040
_CHUNK_STATES = 4_000_000


class Mallows(RankingDistribution):
    """The Mallows distribution: P(π) ∝ exp(−λ d(π, center)), where d counts discordant pairs.

    λ = 0 is the uniform distribution. Instances with the same parameters are computed once.

    Parameters
    ----------
    center : int array (n, m) or (m,)
        The centre of each instance, best item first, or one for all.
    dispersion : float array (n,) or float
        λ ≥ 0 of each instance, or one for all.

    Examples
    --------
    >>> model = Mallows([[0, 1, 2]], np.log(2))
    >>> model.top([[0], [1], [2]]).round(4)
    array([[0.5714, 0.2857, 0.1429]])
    >>> model.sub([[0, 2]]).round(4)
    array([[0.7619]])
    """

    def __init__(self, center: ArrayLike, dispersion: ArrayLike) -> None:
        """Check centres (n, m) or (m,), best item first, and dispersions (n,) or one number."""
        centers = as_orders(np.atleast_2d(np.asarray(center)), "center")
        values = as_floats(np.atleast_1d(np.asarray(dispersion, dtype=object)), "dispersion", ndim=1)
        if (values < 0).any():
            raise ValueError(f"dispersion: {values.min()} is negative, expected λ ≥ 0")
        if len(centers) != len(values) and 1 not in (len(centers), len(values)):
            raise ValueError(f"dispersion: {len(values)} values for {len(centers)} centers")
        n = max(len(centers), len(values))
        self.center: IntArray = np.broadcast_to(centers, (n, centers.shape[1]))
        self.dispersion: FloatArray = np.broadcast_to(values, (n,))

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.dispersion)

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.center.shape[1])

    def log_prob(self, orders: ArrayLike) -> FloatArray:
        """Return −λ d(π, center) − log Z for each instance and order: (n, R).

        >>> np.exp(Mallows([[0, 1]], np.log(3)).log_prob([[0, 1], [1, 0]])).round(4)
        array([[0.75, 0.25]])
        """
        return self._log_top(as_orders(orders, n_items=self.n_items))

    def sub(self, events: ArrayLike) -> FloatArray:
        """Return sub-k marginals (n, E) by the dynamic programme over gaps; k = m is the likelihood.

        They depend only on the gaps between the k items in the centre and on their order: at most
        (m−1 choose k−1) · k! numbers are computed for each distinct λ. If this would take more than 1e10
        steps, a ValueError is raised.

        >>> Mallows([[0, 1, 2, 3]], 0.0).sub([[3, 0], [0, 1]])
        array([[0.5, 0.5]])
        """
        array = as_events(events, self.n_items, "sub")
        if array.shape[1] == self.n_items:
            return np.exp(self._log_top(array))
        centers, center_of, dispersions, dispersion_of = self._distinct()
        places = np.argsort(centers, axis=1)[:, array].reshape(-1, array.shape[1])
        steps, index = _insertion_steps(places)
        work = _updates(steps, array.shape[1]) * len(dispersions)
        if work > MAX_WORK:
            raise ValueError(
                f"events: exact sub-{array.shape[1]} marginals of {len(array):,} events would take "
                f"{work:.1e} steps (at most {MAX_WORK:.0e}); use fewer events or a smaller k"
            )
        table = _step_probabilities(steps, array.shape[1], dispersions)
        return table[dispersion_of[:, None], index.reshape(len(centers), len(array))[center_of]]

    def top(self, events: ArrayLike) -> FloatArray:
        """Return top-k marginals (n, E): Π φ^(place among those left) / (1 + φ + ... + φ^(left−1)).

        >>> Mallows([[0, 1, 2]], 50.0).top([[0, 1]])
        array([[1.]])
        """
        return np.exp(self._log_top(as_events(events, self.n_items, "top")))

    def mode(self) -> IntArray:
        """Return the centres: (n, m).

        >>> Mallows([[2, 0, 1]], 1.0).mode()
        array([[2, 0, 1]])
        """
        return self.center.copy()

    def sample(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw (size, n, m) orders by repeated insertion.

        >>> Mallows([[1, 0]], 50.0).sample(2, np.random.default_rng(0)).tolist()
        [[[1, 0]], [[1, 0]]]
        """
        check_integer(size, "size", 1)
        n, m = self.center.shape
        # The positions of the items of the centre: column j is for the j-th one.
        ranks = np.zeros((size, n, m), dtype=np.int64)
        rate = self.dispersion
        for item in range(1, m):
            uniform = rng.random((size, n))
            with np.errstate(divide="ignore", invalid="ignore"):
                geometric = -np.log1p(uniform * np.expm1(-rate * (item + 1))) / rate
            behind = np.where(rate > 0, geometric, uniform * (item + 1))
            place = item - np.minimum(behind.astype(np.int64), item)
            ranks[:, :, :item] += ranks[:, :, :item] >= place[:, :, None]
            ranks[:, :, item] = place
        places = np.argsort(ranks, axis=2)
        return np.take_along_axis(np.broadcast_to(self.center, places.shape), places, axis=2)

    def log_prob_partial(self, rankings: PartialRankings) -> FloatArray:
        """Return the log-probability of each partial ranking, summed over all rankings it allows: (n, R).

        If every item is listed, it is −λ · (discordant pairs between bags) + Σ log [bag size]! − log [m]!
        with [j]! = Π_{i≤j} (1 + φ + ... + φ^(i−1)). Otherwise sub-k marginals are summed over the orders
        within bags.

        >>> model = Mallows([[0, 1, 2]], np.log(2))
        >>> np.exp(model.log_prob_partial(PartialRankings([[0, 0, 1], [0, 1, -1]]))).round(4)
        array([[0.5714, 0.6667]])
        """
        places = np.argsort(self.center, axis=1)
        log_factorials = np.cumsum(_log_geometric_sums(self.dispersion, self.n_items), axis=1)
        result = np.empty((len(self), len(rankings)))
        for number in range(len(rankings)):
            bags = rankings.bags(number)
            if (rankings.buckets[number] < 0).any():
                result[:, number] = self._log_sub_partial(bags)
                continue
            distance = np.zeros(len(self))
            for later, bag in enumerate(bags):
                for earlier in bags[:later]:
                    distance += (places[:, earlier, None] > places[:, None, bag]).sum(axis=(1, 2))
            within = sum(log_factorials[:, len(bag) - 1] for bag in bags)
            result[:, number] = within - self.dispersion * distance - log_factorials[:, -1]
        return result

    def within(self, bag: IntArray, later: IntArray) -> "Mallows":  # noqa: ARG002 (later items have no effect)
        """Return the Mallows distribution of the order of ``bag``, given that no other item comes in between.

        >>> Mallows([[2, 0, 1]], 1.0).within(np.array([0, 2]), np.array([1])).center
        array([[1, 0]])
        """
        places = np.argsort(self.center, axis=1)[:, bag]
        return Mallows(np.argsort(places, axis=1), self.dispersion)

    def _log_sub_partial(self, bags: list[IntArray]) -> FloatArray:
        if sum(map(len, bags)) == 1:
            return np.zeros(len(self))
        n_orders = math.prod(math.factorial(len(bag)) for bag in bags)
        if n_orders > _MOST_ORDERS:
            raise ValueError(
                f"rankings: ties allow {n_orders:,} orders of the listed items (at most {_MOST_ORDERS:,}); "
                "say that unlisted items come last (with_unlisted_last), or leave out the ranking"
            )
        parts = [bag[np.array(list(permutations(range(len(bag)))))] for bag in bags]
        index = np.indices([len(part) for part in parts]).reshape(len(parts), -1)
        events = np.concatenate([part[rows] for part, rows in zip(parts, index, strict=True)], axis=1)
        with np.errstate(divide="ignore"):
            return np.log(self.sub(events).sum(axis=1))

    def take(self, instances: IntArray) -> "Mallows":
        """Return the distributions of the given instances, by number.

        >>> len(Mallows([0, 1], [1.0, 2.0, 3.0]).take(np.array([0, 2])))
        2
        """
        return Mallows(self.center[instances], self.dispersion[instances])

    def at_temperature(self, temperature: ArrayLike) -> "Mallows":
        """Divide the dispersions by ``temperature``, one number or one per instance (n,).

        >>> Mallows([[0, 1]], 3.0).at_temperature(2.0).dispersion
        array([1.5])
        """
        return Mallows(self.center, self.dispersion / as_temperatures(temperature, len(self)))

    def temperature_slope(self, orders: IntArray) -> Callable[[float], float]:
        """Return the derivative of the mean negative log-likelihood of ``orders`` (n, m) by β = 1/T.

        It is the mean of λ · (distance − expected distance at βλ).

        >>> Mallows([[0, 1]], 1.0).temperature_slope(np.array([[0, 1]]))(0.0)
        -0.5
        """
        places = np.take_along_axis(np.argsort(self.center, axis=1), orders, axis=1)
        distance = np.zeros(len(orders))
        for later in range(1, places.shape[1]):
            distance += (places[:, :later] > places[:, later, None]).sum(axis=1)
        rate, exponents = self.dispersion, np.arange(self.n_items)

        def slope(beta: float) -> float:
            powers = np.exp(-beta * rate[:, None] * exponents)
            expected = np.cumsum(powers * exponents, axis=1) / np.cumsum(powers, axis=1)
            return float((rate * (distance - expected.sum(axis=1))).mean())

        return slope

    def _log_top(self, events: IntArray) -> FloatArray:
        centers, center_of, _, _ = self._distinct()
        k = events.shape[1]
        result = np.empty((len(self), len(events)))
        log_normaliser = _log_geometric_sums(self.dispersion, self.n_items)[:, self.n_items - k :].sum(axis=1)
        for rows in chunks(len(events), len(centers) * k):
            places = np.argsort(centers, axis=1)[:, events[rows]]
            passed = places.sum(axis=2)
            for later in range(1, k):
                passed -= (places[:, :, :later] < places[:, :, later, None]).sum(axis=2)
            result[:, rows] = -self.dispersion[:, None] * passed[center_of] - log_normaliser[:, None]
        return result

    def _distinct(self) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
        """Return the distinct centres and dispersions, and the index of each instance's own."""
        centers, center_of = np.unique(self.center, axis=0, return_inverse=True)
        dispersions, dispersion_of = np.unique(self.dispersion, return_inverse=True)
        return centers, center_of.reshape(-1), dispersions, dispersion_of.reshape(-1)


def _log_geometric_sums(dispersion: FloatArray, m: int) -> FloatArray:
    """Log(1 + φ + ... + φ^(j−1)) for j = 1..m: (n, m)."""
    powers = np.exp(-dispersion[:, None] * np.arange(m))
    return np.log(np.cumsum(powers, axis=1))


def _insertion_steps(positions: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct paths of insertions for chosen places in the centre (Q, k), and each row's path.

    A path has one entry for each insertion after the first item, which is always a chosen one: 0 for an item
    that is not chosen; g + 1 for a chosen item that is inserted behind g of the chosen ones; -1 after the end.
    Paths are sorted, so that the programme computes a shared beginning once.

    >>> steps, index = _insertion_steps(np.array([[4, 2], [1, 2], [3, 1]]))
    >>> steps.tolist(), index.tolist()
    ([[0, 1], [2, -1]], [0, 1, 0])
    """
    relative = positions - positions.min(axis=1, keepdims=True)
    distinct, index = unique_rows(relative, int(relative.max()) + 1)
    k = distinct.shape[1]
    by_place = np.argsort(distinct, axis=1)
    offsets = np.take_along_axis(distinct, by_place, axis=1)
    # behind: how many chosen items come before this one both in the centre and in the event.
    before = np.tril(np.ones((k, k), dtype=bool), -1)
    behind = ((distinct[:, :, None] > distinct[:, None, :]) & before).sum(axis=2)
    behind = np.take_along_axis(behind, by_place, axis=1)
    steps = np.where(np.arange(1, int(offsets.max()) + 1) <= offsets[:, -1:], 0, -1)
    np.put_along_axis(steps, offsets[:, 1:] - 1, behind[:, 1:] + 1, axis=1)
    order = np.lexsort(steps.T[::-1])
    return steps[order], np.argsort(order)[index]


def _updates(steps: IntArray, k: int) -> float:
    """Return the number of state updates that the paths take; shared beginnings count once."""
    chosen = 1 + np.cumsum(steps > 0, axis=1)
    chosen_before = np.column_stack([np.ones(len(chosen), dtype=np.int64), chosen[:, :-1]])
    size = np.arange(1, steps.shape[1] + 1)
    table = np.array([[math.comb(i, r) * (r + 1.0) for r in range(k + 1)] for i in size])
    updates = table[np.arange(len(size)), chosen_before]
    updates[steps < 0] = 0.0
    differs = np.ones_like(steps, dtype=bool)
    differs[1:] = np.logical_or.accumulate(steps[1:] != steps[:-1], axis=1)
    return float((updates * differs).sum())


def _step_probabilities(steps: IntArray, k: int, dispersion: FloatArray) -> FloatArray:
    """Return the probability of each path under each dispersion λ (φ = exp(−λ)): (len(dispersion), Q)."""
    length = steps.shape[1]
    powers = np.exp(-np.outer(dispersion, np.arange(length + 1)))
    sums = np.concatenate([np.zeros((len(dispersion), 1)), np.cumsum(powers, axis=1)], axis=1)
    result = np.empty((len(dispersion), len(steps)))
    states = math.comb(length, min(k - 1, length // 2))
    for rows in chunks(len(steps), states * len(dispersion), _CHUNK_STATES):
        result[:, rows] = _run(steps[rows], k, powers, sums)
    return result


def _run(steps: IntArray, k: int, powers: FloatArray, sums: FloatArray) -> FloatArray:
    """Insert item after item for all paths at once; paths with a common beginning share a node."""
    result = np.empty((len(powers), len(steps)))
    # layers[r]: the nodes with r chosen items, (dispersions, nodes, states); node[q]: where path q stands.
    layers = {1: np.ones((len(powers), 1, 1))}
    chosen = np.ones(len(steps), dtype=np.int64)
    node = np.zeros(len(steps), dtype=np.int64)
    for size in range(1, steps.shape[1] + 1):
        step = steps[:, size - 1]
        grown: dict[int, list[FloatArray]] = {}
        moved_node = node.copy()
        moved_chosen = chosen.copy()
        for r, layer in layers.items():
            here = chosen == r
            others = size - r
            for choice in range(r + 2):
                paths = here & (step == choice)
                if not paths.any():
                    continue
                parents, index = np.unique(node[paths], return_inverse=True)
                source = layer[:, parents]
                if choice and r == k - 1:
                    weight = _gap_weights(others, r, choice - 1, powers, sums)
                    last = np.einsum("lns,ls->ln", source, weight) / sums[:, size + 1, None]
                    result[:, paths] = last[:, index]
                    continue
                if choice:
                    child, r_child = _insert_chosen(source, others, r, choice - 1, powers), r + 1
                else:
                    child, r_child = _insert_other(source, others, r, powers, sums), r
                siblings = grown.setdefault(r_child, [])
                moved_node[paths] = index + sum(block.shape[1] for block in siblings)
                moved_chosen[paths] = r_child
                siblings.append(child / sums[:, size + 1, None, None])
        layers = {r: np.concatenate(blocks, axis=1) for r, blocks in grown.items()}
        node, chosen = moved_node, moved_chosen
        chosen[step < 0] = 0
    return result


def _insert_other(
    source: FloatArray, others: int, r: int, powers: FloatArray, sums: FloatArray
) -> FloatArray:
    """Insert an item that is not chosen, into any of the r + 1 gaps."""
    after = _compositions(others + 1, r + 1)
    result = np.zeros((*source.shape[:2], len(after)))
    for gap in range(r + 1):
        # One more item in the gap: every state becomes another one, and their order stays.
        into = np.flatnonzero(after[:, gap] > 0)
        right = after[into, gap + 1 :].sum(axis=1) + (r - gap)
        weight = powers[:, right] * sums[:, after[into, gap]]
        result[:, :, into] += source * weight[:, None, :]
    return result


def _insert_chosen(source: FloatArray, others: int, r: int, gap: int, powers: FloatArray) -> FloatArray:
    """Insert a chosen item into a gap, which it splits into two."""
    after = _compositions(others, r + 2)
    merged = np.delete(after, gap + 1, axis=1)
    merged[:, gap] += after[:, gap + 1]
    right = after[:, gap + 1 :].sum(axis=1) + (r - gap)
    before = index_of_rows(_compositions(others, r + 1), merged)
    return source[:, :, before] * powers[:, None, right]


def _gap_weights(others: int, r: int, gap: int, powers: FloatArray, sums: FloatArray) -> FloatArray:
    """Sum of φ^(items on the right) over the places of a gap, in every state: (dispersions, states)."""
    states = _compositions(others, r + 1)
    right = states[:, gap + 1 :].sum(axis=1) + (r - gap)
    return powers[:, right] * sums[:, states[:, gap] + 1]


@lru_cache(maxsize=256)
def _compositions(total: int, parts: int) -> IntArray:
    """All ways to write ``total`` as an ordered sum of ``parts`` numbers ≥ 0, sorted."""
    if parts == 1:
        return np.array([[total]], dtype=np.int64)
    blocks = []
    for first in range(total + 1):
        rest = _compositions(total - first, parts - 1)
        blocks.append(np.column_stack([np.full(len(rest), first), rest]))
    return np.concatenate(blocks)
