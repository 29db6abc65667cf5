"""Partial rankings: rankings with ties and with items that are not listed, and PrefLib files of them.

Tied items form a bag: they are next to each other, in an order that was not observed. A partial ranking
therefore stands for the set of all complete rankings that are consistent with it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmcalib._util.arrays import FloatArray, IntArray, as_integers
from rmcalib.ranking._distribution import RankingDistribution
from rmcalib.ranking.events import MAX_ENUMERATED_ITEMS, Family, all_rankings, as_events, occurs_unchecked


class PartialRankings:
    """Rankings of m items with ties and unlisted items.

    Parameters
    ----------
    buckets : int array (n, m)
        The bucket of each item, 0 for the best. Items of one bucket are tied. −1 means that the item is not
        listed, and that nothing is known about its place (unless you use `with_unlisted_last`).

    Examples
    --------
    >>> rankings = PartialRankings.from_lists([[2, {0, 1}], [1]], n_items=3)
    >>> rankings.buckets.tolist()
    [[1, 1, 0], [-1, 0, -1]]
    >>> rankings.with_unlisted_last().buckets.tolist()
    [[1, 1, 0], [1, 0, 1]]
    """

    def __init__(self, buckets: ArrayLike) -> None:
        """Check buckets (n, m); every row uses the numbers 0, 1, ... without gaps."""
        array = as_integers(buckets, "buckets", ndim=2)
        largest = array.max(axis=1, keepdims=True)
        used = (array[:, :, None] == np.arange(array.shape[1])).any(axis=1)
        bad = (used.sum(axis=1) != largest[:, 0] + 1) | (array.min(axis=1) < -1) | (largest[:, 0] < 0)
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(
                f"buckets: row {row} is {array[row].tolist()}; expected bucket numbers 0, 1, ... without "
                "gaps, at least one, and -1 for items that are not listed"
            )
        self.buckets = array

    @staticmethod
    def from_lists(rankings: Iterable[Sequence[int | Iterable[int]]], *, n_items: int) -> "PartialRankings":
        """Make partial rankings from lists of items, best first; a tie is a set or list of items.

        >>> PartialRankings.from_lists([[0, [1, 2]]], n_items=4).buckets
        array([[ 0,  1,  1, -1]])
        """
        rows = []
        for number, ranking in enumerate(rankings):
            row = np.full(n_items, -1, dtype=np.int64)
            for bucket, entry in enumerate(ranking):
                for item in [entry] if isinstance(entry, int | np.integer) else entry:
                    if not 0 <= item < n_items or row[item] >= 0:
                        raise ValueError(
                            f"rankings: row {number} has item {item}; items are 0 to {n_items - 1}, each once"
                        )
                    row[item] = bucket
            rows.append(row)
        return PartialRankings(np.array(rows, dtype=np.int64).reshape(-1, n_items))

    def __len__(self) -> int:
        """Return the number of rankings."""
        return len(self.buckets)

    def __repr__(self) -> str:
        """Show the size."""
        return f"PartialRankings({len(self)} rankings, {self.n_items} items)"

    @property
    def n_items(self) -> int:
        """The number m of items."""
        return int(self.buckets.shape[1])

    def take(self, rows: IntArray) -> "PartialRankings":
        """Return the rankings of the given rows, by number.

        >>> len(PartialRankings([[0, 1], [1, 0]]).take(np.array([0, 0, 1])))
        3
        """
        return PartialRankings(self.buckets[rows])

    def with_unlisted_last(self) -> "PartialRankings":
        """Return the rankings with all unlisted items tied after the listed ones, as in a top-k list.

        >>> PartialRankings([[0, -1, -1]]).with_unlisted_last().buckets
        array([[0, 1, 1]])
        """
        last = self.buckets.max(axis=1, keepdims=True) + 1
        return PartialRankings(np.where(self.buckets < 0, last, self.buckets))

    def bags(self, row: int) -> list[IntArray]:
        """Return the items of each bucket of one ranking, best bucket first.

        >>> [bag.tolist() for bag in PartialRankings([[1, 0, 1, -1]]).bags(0)]
        [[1], [0, 2]]
        """
        buckets = self.buckets[row]
        return [np.flatnonzero(buckets == number) for number in range(int(buckets.max()) + 1)]

    def distinct(self) -> tuple["PartialRankings", IntArray]:
        """Return the distinct rankings and the number of each row's ranking among them: (n,).

        >>> PartialRankings([[1, 0], [0, 1], [1, 0]]).distinct()[1]
        array([1, 0, 1])
        """
        rows, index = np.unique(self.buckets, axis=0, return_inverse=True)
        return PartialRankings(rows), index.reshape(-1)

    def coarsen(self, orders: IntArray) -> "PartialRankings":
        """Return what would have been observed if the complete rankings had been ``orders`` (n, m).

        In each row the same items are listed, and the bags have the same sizes.

        >>> PartialRankings([[0, 1, 1], [-1, 0, 1]]).coarsen(np.array([[2, 1, 0], [2, 1, 0]])).buckets
        array([[ 1,  1,  0],
               [-1,  1,  0]])
        """
        beyond = self.n_items
        listed = self.buckets >= 0
        places = np.argsort(np.where(listed, np.argsort(orders, axis=1), beyond), axis=1, kind="stable")
        numbers = np.sort(np.where(listed, self.buckets, beyond), axis=1)
        result = np.empty_like(self.buckets)
        np.put_along_axis(result, places, numbers, axis=1)
        return PartialRankings(np.where(listed, result, -1))

    def outcomes(self, events: IntArray, family: Family) -> NDArray[np.int8]:
        """Return which ``events`` (E, k) happened in each ranking: (n, E), 1 yes, 0 no, −1 undecided.

        An event is undecided if it happens in some of the complete rankings that are consistent with the
        observation, but not in all of them.

        >>> PartialRankings([[0, 1, 1]]).outcomes(np.array([[0, 1], [1, 0], [1, 2]]), "sub")
        array([[ 1,  0, -1]], dtype=int8)
        """
        array = as_events(events, self.n_items, family)
        buckets = self.buckets[:, array]
        unknown = buckets < 0
        possible = (unknown | (buckets == np.maximum.accumulate(buckets, axis=2))).all(axis=2)
        certain = (np.diff(buckets, axis=2) > 0).all(axis=2) & ~unknown.any(axis=2)
        if family == "top":
            # All listed items before the last item of the event must be in the event.
            last = buckets.max(axis=2)
            inside = ((buckets < last[:, :, None]) & ~unknown).sum(axis=2)
            listed = self.buckets >= 0
            earlier = self.buckets[:, :, None] < np.arange(self.n_items)
            before = (listed[:, :, None] & earlier).sum(axis=1)
            possible &= inside == np.take_along_axis(before, np.maximum(last, 0), axis=1)
            sizes = (self.buckets[:, :, None] == self.buckets[:, None, :]).sum(axis=2)
            complete = listed.all(axis=1, keepdims=True)
            certain = (sizes[:, array] == 1).all(axis=2) & complete
        return np.where(possible, np.where(certain, 1, -1), 0).astype(np.int8)


@runtime_checkable
class HasPartialRankings(RankingDistribution, Protocol):
    """A distribution with probabilities of partial rankings."""

    def log_prob_partial(self, rankings: PartialRankings) -> FloatArray:
        """Return the log-probability of all rankings consistent with each partial one: (n, R)."""

    def within(self, bag: IntArray, later: IntArray) -> RankingDistribution:
        """Return the order of the items of ``bag``, given that they come before ``later`` and after the rest.

        It is a distribution. The items of the result are the positions in ``bag``.
        """


def conditional_probabilities(
    dist: HasPartialRankings, rankings: PartialRankings, events: ArrayLike, family: Family
) -> FloatArray:
    """Return the probability of each event, given the partial ranking that was observed of each instance.

    It is 0 or 1 where the observation decides the event. Under a calibrated forecast its mean is the
    probability of the event, so it can replace an outcome that was not observed.

    Parameters
    ----------
    dist : PlackettLuce or Mallows
        One distribution per instance.
    rankings : PartialRankings
        What was observed, one ranking per instance.
    events : int array (E, k)
        Items of each event.
    family : {"sub", "top"}
        Whether events are about relative order or about the first places.

    Returns
    -------
    float array (n, E)
        The probabilities.

    Raises
    ------
    ValueError
        If all orders of more than 8 items are needed: for a tie in Plackett-Luce that is not the last one, or
        for items that are not listed.

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> dist = PlackettLuce(np.log([[0.5, 0.3, 0.2]]))
    >>> seen = PartialRankings.from_lists([[0]], n_items=3).with_unlisted_last()  # 0 came first
    >>> conditional_probabilities(dist, seen, [[0, 1], [1, 2]], "sub").round(3)
    array([[1. , 0.6]])
    """
    array = as_events(events, dist.n_items, family)
    if (len(rankings), rankings.n_items) != (len(dist), dist.n_items):
        raise ValueError(
            f"rankings: {len(rankings)} of {rankings.n_items} items for {len(dist)} instances of "
            f"{dist.n_items} items"
        )
    decided = rankings.outcomes(array, family)
    result = decided.astype(np.float64)
    distinct, which = rankings.distinct()
    for number in range(len(distinct)):
        rows = np.flatnonzero(which == number)
        columns = np.flatnonzero(decided[rows[0]] < 0)
        if len(columns):
            complete = (distinct.buckets[number] >= 0).all()
            compute = _by_bags if complete else _by_enumeration
            result[np.ix_(rows, columns)] = compute(dist.take(rows), distinct, number, array[columns], family)
    return result


def _by_bags(
    dist: HasPartialRankings, rankings: PartialRankings, row: int, events: IntArray, family: Family
) -> FloatArray:
    """Multiply the probabilities of each event's part within each bag: (n, E); all events are possible."""
    result = np.ones((len(dist), len(events)))
    bags = rankings.bags(row)
    buckets = rankings.buckets[row]
    for number, bag in enumerate(bags):
        inside = buckets[events] == number
        least = 2 if family == "sub" else 1
        involved = np.flatnonzero(inside.sum(axis=1) >= least)
        if len(bag) == 1 or not len(involved):
            continue
        order = dist.within(bag, np.concatenate([*bags[number + 1 :], bag[:0]]))
        place = np.full(len(buckets), -1)
        place[bag] = np.arange(len(bag))
        for size in np.unique(inside[involved].sum(axis=1)):
            chosen = involved[inside[involved].sum(axis=1) == size]
            parts = place[events[chosen][inside[chosen]].reshape(-1, size)]
            result[:, chosen] *= order.sub(parts) if family == "sub" else order.top(parts)
    return result


def _by_enumeration(
    dist: HasPartialRankings, rankings: PartialRankings, row: int, events: IntArray, family: Family
) -> FloatArray:
    """Sum over all orders of the relevant items, which are listed or in the event: (n, E)."""
    result = np.empty((len(dist), len(events)))
    buckets = rankings.buckets[row]
    for number, event in enumerate(events):
        matters = np.union1d(np.flatnonzero(buckets >= 0), event)
        if family == "top":
            matters = np.arange(len(buckets))
        if len(matters) > MAX_ENUMERATED_ITEMS:
            raise ValueError(
                f"rankings: an event with unlisted items needs all orders of {len(matters)} items "
                f"(at most {MAX_ENUMERATED_ITEMS}); leave such events out, or say that unlisted items come "
                "last (with_unlisted_last)"
            )
        orders = all_rankings(len(matters))  # of places in ``matters``
        placed = buckets[matters[orders]]
        consistent = ((placed < 0) | (placed == np.maximum.accumulate(placed, axis=1))).all(axis=1)
        happens = occurs_unchecked(orders, np.searchsorted(matters, event)[None], family)[:, 0]
        p = dist.sub(matters[orders])
        result[:, number] = p[:, consistent & happens].sum(axis=1) / p[:, consistent].sum(axis=1)
    return result


_SUFFIXES = (".soc", ".soi", ".toc", ".toi")
_ENTRY = re.compile(r"\{[^{}]*\}|[^,{}]+")


@dataclass(frozen=True, eq=False)
class Profile:
    """The rankings of a group of voters.

    Parameters
    ----------
    alternatives : tuple of str
        Names of the m alternatives.
    rankings : PartialRankings
        The distinct rankings, (R, m).
    counts : int array (R,)
        How many voters gave each ranking.

    Examples
    --------
    >>> profile = Profile(("tea", "coffee"), PartialRankings([[0, 1], [1, 0]]), np.array([2, 1]))
    >>> len(profile)
    3
    """

    alternatives: tuple[str, ...]
    rankings: PartialRankings
    counts: IntArray

    def __len__(self) -> int:
        """Return the number of voters."""
        return int(self.counts.sum())

    def per_voter(self) -> PartialRankings:
        """Return one ranking per voter, as the calibration notions need them: (voters, m).

        >>> profile = Profile(("a", "b"), PartialRankings([[0, 1], [1, 0]]), np.array([2, 1]))
        >>> profile.per_voter().buckets.tolist()
        [[0, 1], [0, 1], [1, 0]]
        """
        return self.rankings.take(np.repeat(np.arange(len(self.counts)), self.counts))


def read_preflib(path: str | Path) -> Profile:
    """Read a PrefLib file: ``.soc``, ``.soi``, ``.toc`` or ``.toi``.

    Nothing is guessed about alternatives that an incomplete order does not list. If the voters meant that
    these come last, say so with ``profile.rankings.with_unlisted_last()``.

    Parameters
    ----------
    path : str or Path
        The file. Lines that start with ``#`` are metadata; every other line is ``count: order``, with
        alternatives numbered from 1 and ties in braces, such as ``10: 1,2,{3,4}``.

    Returns
    -------
    Profile
        Names, distinct rankings (items numbered from 0) and counts.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> text = "# NUMBER ALTERNATIVES: 3\\n# ALTERNATIVE NAME 1: tea\\n2: 1,{2,3}\\n1: 3,1,2\\n"
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "votes.toc").write_text(text)
    ...     profile = read_preflib(Path(folder) / "votes.toc")
    >>> profile.alternatives, profile.rankings.buckets.tolist(), profile.counts.tolist()
    (('tea', '2', '3'), [[0, 1, 1], [1, 2, 0]], [2, 1])
    """
    source = Path(path)
    suffix = source.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ValueError(f"{source}: not a PrefLib file of orders (expected {', '.join(_SUFFIXES)})")
    try:
        lines = source.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{source}: cannot be read: {error}") from error
    header = {}
    votes = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            header[key.strip().upper()] = value.strip()
        elif line:
            votes.append((f"{source}: line {number}", line))
    m = _whole(header.get("NUMBER ALTERNATIVES", ""))
    if m < 2 or not votes:
        raise ValueError(f"{source}: expected '# NUMBER ALTERNATIVES: m' with m of at least 2, and orders")
    counts, rankings = zip(*(_vote(line, m, suffix, where) for where, line in votes), strict=True)
    for name, counted in (("NUMBER VOTERS", sum(counts)), ("NUMBER UNIQUE ORDERS", len(counts))):
        if name in header and _whole(header[name]) != counted:
            raise ValueError(
                f"{source}: the header says {name}: {header[name]}, but the file has {counted}; is it complete?"
            )
    names = tuple(header.get(f"ALTERNATIVE NAME {number}", str(number)) for number in range(1, m + 1))
    return Profile(names, PartialRankings(np.concatenate(rankings)), np.array(counts, dtype=np.int64))


def _vote(line: str, m: int, suffix: str, where: str) -> tuple[int, IntArray]:
    """Parse 'count: order' into the count and the bucket of each alternative: (1, m)."""
    head, _, order = line.partition(":")
    order = re.sub(r"\s", "", order)
    entries = _ENTRY.findall(order)
    bags = [[_whole(text) - 1 for text in entry.strip("{}").split(",")] for entry in entries]
    try:
        if _whole(head) < 1 or order != ",".join(entries):
            raise ValueError("expected 'count: order', such as '10: 1,2,{3,4}'")
        buckets = PartialRankings.from_lists([bags], n_items=m).buckets
        if (suffix[1] == "s" and max(map(len, bags)) > 1) or (suffix[3] == "c" and buckets.min() < 0):
            raise ValueError(f"{suffix} files have no such orders (t: with ties, i: incomplete)")
    except ValueError as error:
        raise ValueError(f"{where} is {line[:40]!r}; {error}") from None
    return _whole(head), buckets


def _whole(text: str) -> int:
    """Return the value as an int of at least 0, or -1 if it is not one."""
    return int(text) if re.fullmatch(r"\s*[0-9]{1,17}\s*", text) else -1
