"""The Plackett-Luce distribution: items are chosen one after the other in proportion to their utility."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util import arrays
from rmcalib._util.arrays import FloatArray, IntArray, as_floats, check_integer, chunks
from rmcalib.ranking._distribution import RankingDistribution, as_temperatures
from rmcalib.ranking._listed import ExplicitRankings
from rmcalib.ranking._partial import PartialRankings
from rmcalib.ranking.events import MAX_ENUMERATED_ITEMS, all_rankings, as_events, as_orders, unique_rows

_LARGEST_BAG = 16


class PlackettLuce(RankingDistribution):
    """The Plackett-Luce distribution: P(π) = Π_i exp(u_π(i)) / Σ_{j≥i} exp(u_π(j)).

    Rewards of a Bradley-Terry reward model are log-utilities u. All computations use logarithms, so that
    log-utilities of ±1e4 do not overflow.

    Parameters
    ----------
    log_utilities : float array (n, m)
        Log-utilities u of m items for n instances: any finite numbers. Only differences within a row matter.

    Examples
    --------
    >>> model = PlackettLuce(np.log([[0.5, 0.3, 0.2]]))
    >>> model.top([[0], [1], [2]]).round(3)
    array([[0.5, 0.3, 0.2]])
    >>> model.sub([[2, 1]]).round(3)
    array([[0.4]])
    """

    def __init__(self, log_utilities: ArrayLike) -> None:
        """Check log-utilities (n, m), which are any finite numbers."""
        self.log_utilities = as_floats(log_utilities, "log_utilities", ndim=2)

    @classmethod
    def ragged(cls, utilities: ArrayLike, offsets: ArrayLike) -> "RaggedPlackettLuce":
        """Return the distributions of n prompts with different numbers of responses.

        ``utilities`` (N,) are the log-utilities of all responses, such as rewards; prompt i has the rows
        from ``offsets[i]`` up to, but not including, ``offsets[i + 1]``.

        >>> np.exp(PlackettLuce.ragged([1.0, 1.0, 5.0], [0, 2, 3]).log_top_1())
        array([0.5, 0.5, 1. ])
        """
        return RaggedPlackettLuce(utilities, offsets)

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.log_utilities)

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.log_utilities.shape[1])

    def log_prob(self, orders: ArrayLike) -> FloatArray:
        """Return log P(π) for each instance and order: (n, R).

        >>> np.exp(PlackettLuce(np.log([[0.5, 0.3, 0.2]])).log_prob([[0, 1, 2]])).round(3)
        array([[0.3]])
        """
        return self._log_sub(as_orders(orders, n_items=self.n_items))

    def sub(self, events: ArrayLike) -> FloatArray:
        """Return sub-k marginals (n, E): Plackett-Luce on the k items, which ignores the others.

        >>> PlackettLuce([[1.0, 1.0, 9.0]]).sub([[0, 1]])
        array([[0.5]])
        """
        return np.exp(self._log_sub(as_events(events, self.n_items, "sub")))

    def top(self, events: ArrayLike) -> FloatArray:
        """Return top-k marginals (n, E): the first k factors of the likelihood.

        >>> PlackettLuce([[0.0, 0.0, 0.0]]).top([[2, 0]]).round(4)
        array([[0.1667]])
        """
        return np.exp(self._log_top(as_events(events, self.n_items, "top")))

    def mode(self) -> IntArray:
        """Return the items by decreasing utility (ties: lower index first): (n, m).

        >>> PlackettLuce([[0.0, 2.0, 1.0]]).mode()
        array([[1, 2, 0]])
        """
        return np.argsort(-self.log_utilities, axis=1, kind="stable")

    def sample(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw (size, n, m) orders, by sorting log-utilities plus Gumbel noise.

        >>> PlackettLuce([[0.0, 1e4]]).sample(2, np.random.default_rng(0)).tolist()
        [[[1, 0]], [[1, 0]]]
        """
        check_integer(size, "size", 1)
        noise = rng.gumbel(size=(size, *self.log_utilities.shape))
        return np.argsort(-(self.log_utilities + noise), axis=2)

    def take(self, instances: IntArray) -> "PlackettLuce":
        """Return the distributions of the given instances, by number.

        >>> len(PlackettLuce([[0.0, 1.0]] * 3).take(np.array([0, 2])))
        2
        """
        return PlackettLuce(self.log_utilities[instances])

    def at_temperature(self, temperature: ArrayLike) -> "PlackettLuce":
        """Divide the log-utilities by ``temperature``, one number or one per instance (n,).

        >>> PlackettLuce([[2.0, 0.0]]).at_temperature(2.0).log_utilities
        array([[1., 0.]])
        """
        return PlackettLuce(self.log_utilities / as_temperatures(temperature, len(self))[:, None])

    def temperature_slope(self, orders: IntArray) -> Callable[[float], float]:
        """Return the derivative of the mean negative log-likelihood of ``orders`` (n, m) by β = 1/T.

        >>> PlackettLuce([[1.0, 0.0]]).temperature_slope(np.array([[0, 1]]))(0.0)
        -0.5
        """
        ordered = np.take_along_axis(self.log_utilities, orders, axis=1)[:, ::-1]
        return lambda beta: float((_running_mean(ordered, beta) - ordered).sum(axis=1).mean())

    def log_prob_partial(self, rankings: PartialRankings) -> FloatArray:
        """Return the log-probability of each partial ranking, summed over all rankings it allows: (n, R).

        Items that are not listed have no effect (independence of irrelevant alternatives). A bag that comes
        before other items takes 2^size steps; bags of more than 16 items raise a ValueError.

        >>> model = PlackettLuce(np.log([[0.5, 0.3, 0.2]]))
        >>> np.exp(model.log_prob_partial(PartialRankings([[0, 0, 1], [0, 1, -1]]))).round(4)
        array([[0.5143, 0.625 ]])
        """
        result = np.zeros((len(self), len(rankings)))
        for number in range(len(rankings)):
            bags = rankings.bags(number)
            for place, bag in enumerate(bags[:-1]):
                result[:, number] += self._log_first(bag, np.concatenate(bags[place + 1 :]))
        return result

    def within(self, bag: IntArray, later: IntArray) -> "PlackettLuce | ExplicitRankings":
        """Return the distribution of the order of ``bag``, given that all of it comes before ``later``.

        Without later items it is Plackett-Luce; otherwise all orders are listed, for at most 8 items.

        >>> model = PlackettLuce(np.log([[0.5, 0.3, 0.2]]))
        >>> model.within(np.array([0, 1]), np.array([2])).sub([[0, 1]]).round(4)
        array([[0.5833]])
        """
        if len(later) == 0:
            return PlackettLuce(self.log_utilities[:, bag])
        if len(bag) > MAX_ENUMERATED_ITEMS:
            raise ValueError(
                f"rankings: a tie of {len(bag)} items before other items has too many orders "
                f"(at most {MAX_ENUMERATED_ITEMS} tied items)"
            )
        orders = all_rankings(len(bag))
        log_prob = PlackettLuce(self.log_utilities[:, [*bag, *later]])._log_top(orders)
        log_prob -= np.logaddexp.reduce(log_prob, axis=1)[:, None]
        return ExplicitRankings(orders, np.exp(log_prob))

    def _log_first(self, bag: IntArray, later: IntArray) -> FloatArray:
        """Return the log-probability (n,) that ``bag`` comes before ``later``, by sets of chosen items."""
        if len(bag) > _LARGEST_BAG:
            raise ValueError(
                f"rankings: a tie of {len(bag)} items before other items is too large "
                f"(at most {_LARGEST_BAG} tied items)"
            )
        utilities = self.log_utilities[:, bag]
        log_later = np.logaddexp.reduce(self.log_utilities[:, later], axis=1)
        # Sets of items are binary numbers. A set is chosen first if one of its items comes after the others.
        log_prob = np.full((2 ** len(bag), len(self)), -np.inf)
        log_prob[0] = 0.0
        for chosen in range(len(log_prob) - 1):
            left = [item for item in range(len(bag)) if not chosen & (1 << item)]
            log_left = np.logaddexp(np.logaddexp.reduce(utilities[:, left], axis=1), log_later)
            for item in left:
                step = log_prob[chosen] + utilities[:, item] - log_left
                with_item = chosen | (1 << item)
                log_prob[with_item] = np.logaddexp(log_prob[with_item], step)
        return log_prob[-1]

    def _log_sub(self, events: IntArray) -> FloatArray:
        """Return the log of Π_i exp(u_i) / Σ_{j≥i} exp(u_j) over the items of each event."""
        log_prob = np.zeros((len(self), len(events)))
        for place in range(events.shape[1] - 1):
            log_prob += self.log_utilities[:, events[:, place]]
            # There are fewer sets of items than events: compute the denominator of each set once.
            left, which = unique_rows(np.sort(events[:, place:], axis=1), self.n_items)
            log_prob -= self._log_sums(left)[:, which]
        return log_prob

    def _log_top(self, events: IntArray) -> FloatArray:
        """Return the log of the first k factors of the likelihood, for the k items of each event."""
        log_prob = np.zeros((len(self), len(events)))
        for place in range(events.shape[1]):
            log_prob += self.log_utilities[:, events[:, place]]
            taken, which = unique_rows(np.sort(events[:, :place], axis=1), self.n_items)
            log_prob -= self._log_sums(_complements(taken, self.n_items))[:, which]
        return log_prob

    def _log_sums(self, sets: IntArray) -> FloatArray:
        """Return the log-sum-exp of the log-utilities of each set of items: sets (S, j) -> (n, S)."""
        result = np.empty((len(self), len(sets)))
        for rows in chunks(len(sets), len(self) * sets.shape[1]):
            utilities = self.log_utilities[:, sets[rows]]
            peak = utilities.max(axis=2)
            result[:, rows] = peak + np.log(np.exp(utilities - peak[:, :, None]).sum(axis=2))
        return result


class RaggedPlackettLuce:
    """Plackett-Luce distributions of prompts that differ in their number of responses.

    Utilities and temperature are kept apart, and only differences within a prompt are divided by the
    temperature. So no finite reward gives NaN: at worst a log-probability is −inf.

    Parameters
    ----------
    utilities : float array (N,)
        Log-utilities u of all responses, such as rewards: one row per response, any finite numbers.
    offsets : int array (n + 1,)
        Prompt i has the rows ``offsets[i]`` to ``offsets[i + 1] - 1``. The first offset is 0, the last N, and
        every prompt has at least one response.
    temperature : float or float array (n,)
        T > 0, one for all prompts or one per prompt; P(j first) = exp(u_j/T) / Σ_i exp(u_i/T).

    Examples
    --------
    >>> rewards = RaggedPlackettLuce([0.0, np.log(3.0), 2.0, 2.0], [0, 2, 4])
    >>> np.exp(rewards.log_top_1()).round(4)
    array([0.25, 0.75, 0.5 , 0.5 ])
    >>> rewards.at_temperature([1.0, 2.0]).pair_log_odds([1], [0]).round(4)
    array([1.0986])
    """

    def __init__(self, utilities: ArrayLike, offsets: ArrayLike, temperature: ArrayLike = 1.0) -> None:
        """Check the flat utilities, the offsets and the temperature."""
        self.utilities = as_floats(utilities, "utilities", ndim=1)
        self.offsets = arrays.as_integers(offsets, "offsets", ndim=1)
        ends = self.offsets[0] == 0 and self.offsets[-1] == len(self.utilities)
        if not ends or len(self.offsets) < 2 or (np.diff(self.offsets) < 1).any():
            raise ValueError(
                f"offsets: expected increasing numbers from 0 to the {len(self.utilities)} rows of utilities"
            )
        self.temperature = as_temperatures(temperature, len(self))

    def __len__(self) -> int:
        """Return the number of prompts."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> IntArray:
        """The number of responses of each prompt: (n,)."""
        return np.diff(self.offsets)

    def log_top_1(self) -> FloatArray:
        """Return the exact log-probability that each response is the best of its prompt: (N,).

        >>> RaggedPlackettLuce([900.0, 0.0], [0, 2]).log_top_1()
        array([   0., -900.])
        """
        peaks = np.repeat(arrays.group_max(self.utilities, self.sizes), self.sizes)
        logits = self._scaled(self.utilities, peaks, np.arange(len(self.utilities)))
        return arrays.segment_log_softmax(logits, self.sizes)

    def pair_log_odds(self, i_rows: ArrayLike, j_rows: ArrayLike) -> FloatArray:
        """Return log P(i before j) − log P(j before i) = (u_i − u_j)/T for pairs of rows of one prompt.

        >>> RaggedPlackettLuce([3.0, 1.0], [0, 2]).at_temperature(2.0).pair_log_odds([0, 1], [1, 0])
        array([ 1., -1.])
        """
        i, j = np.asarray(i_rows, dtype=np.int64), np.asarray(j_rows, dtype=np.int64)
        return self._scaled(self.utilities[i], self.utilities[j], i)

    def at_temperature(self, temperature: ArrayLike) -> "RaggedPlackettLuce":
        """Return the distributions with utilities divided by ``temperature``: one number or one per prompt.

        >>> RaggedPlackettLuce([2.0, 0.0], [0, 2]).at_temperature(2.0).pair_log_odds([0], [1])
        array([1.])
        """
        factor = as_temperatures(temperature, len(self))
        return RaggedPlackettLuce(self.utilities, self.offsets, self.temperature * factor)

    def _scaled(self, u: FloatArray, v: FloatArray, rows: IntArray) -> FloatArray:
        """Return (u − v)/T, where ``rows`` say whose temperature it is; ±inf if too large."""
        t = self.temperature
        if len(t) > 1:
            t = t[np.searchsorted(self.offsets, rows, side="right") - 1]
        with np.errstate(over="ignore"):
            return (u - v) / t


def _running_mean(values: FloatArray, beta: float) -> FloatArray:
    """Return the mean of the first j values under weights exp(β·value), for every j: (n, m)."""
    logits = beta * values
    # Utilities may be far apart: the weights of each prefix are relative to its own largest one.
    peaks = np.maximum.accumulate(logits, axis=1)
    prefix = np.tri(values.shape[1], dtype=bool)
    weights = np.exp(np.where(prefix, logits[:, None, :] - peaks[:, :, None], -np.inf))
    result: FloatArray = (weights * values[:, None, :]).sum(axis=2) / weights.sum(axis=2)
    return result


def _complements(sets: IntArray, n_items: int) -> IntArray:
    """Return the items that are not in each set: (S, j) -> (S, m − j)."""
    outside = np.ones((len(sets), n_items), dtype=bool)
    np.put_along_axis(outside, sets, False, axis=1)
    return np.nonzero(outside)[1].reshape(len(sets), -1)
