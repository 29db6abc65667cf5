"""Event tables: what was stated, and whether it happened. Every error, null and interval is measured on them.

A view of rewards or of rankings is a function that returns `Events`. How the outcomes of a prompt come
together is its ``joint``: it lists what could happen to a prompt, with probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util import arrays
from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.calibration.simulation import Alternatives, Cells, Features, rows_of

Draw = Literal["auto", "independent", "one_per_group"]
"""How outcomes come together: each row by itself, or exactly one row of each group happens."""
_LEAST = 1e-9  # smallest probability of an alternative
_MOST_VOTES = 200  # votes that are drawn for a prompt: more would hardly be less noisy


class Joint(Protocol):
    """How the outcomes of a table come together: one of a prompt's alternatives happens."""

    def alternatives(self, cell: IntArray, n_cells: int) -> Alternatives:
        """Return the alternatives of each prompt, which add to the sums of the rows' cells (N,)."""

    def probabilities(self, shift: FloatArray | None = None) -> FloatArray:
        """Return the probabilities of the alternatives if the stated ones are moved by ``shift`` (N,)."""

    def happened(self, y: FloatArray) -> FloatArray | None:
        """Return 1 for the alternatives (A,) that happened; None if shares are observed."""


@dataclass(frozen=True, eq=False)
class Events:
    """A table of events: one row per stated probability.

    Attributes
    ----------
    p : float (N,)
        The stated probability of each event.
    y : float (N,)
        1 if it happened, 0 if not, a share in between (votes, tied first places), NaN if it was not observed.
    prompt : int (N,)
        Whose event this is: 0 to n − 1. Rows of a prompt are next to each other.
    joint : Joint
        How the outcomes of a prompt come together.
    log_p : float (N,)
        The exact logarithm of ``p``: −log p of a margin of 900 is 900, not infinite.
    logit : float (N,), optional
        The rewards behind the probabilities, for temperatures.
    cluster : int (n,), optional
        Which prompts belong together: 0 to C − 1. Without, every prompt stands alone.
    weight : float (n,), optional
        What each prompt counts, with mean 1, if prompts were drawn with unequal probabilities. Means use it;
        binned errors do not.

    Examples
    --------
    >>> events = Events.from_arrays([0.7, 0.3, 0.6, 0.4], [1, 0, 0, 1], groups=[0, 0, 1, 1])
    >>> events.n_prompts, type(events.joint).__name__
    (2, 'OneOf')
    >>> events.joint.probabilities().round(1)
    array([0.3, 0.7, 0.4, 0.6])
    """

    p: FloatArray
    y: FloatArray
    prompt: IntArray
    joint: Joint
    log_p: FloatArray = field(repr=False, kw_only=True)
    logit: FloatArray | None = field(default=None, kw_only=True)
    cluster: IntArray | None = field(default=None, kw_only=True)
    weight: FloatArray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the arrays: a wrong view would still give plausible numbers."""
        if not len(self.p) == len(self.y) == len(self.prompt) == len(self.log_p):
            sizes = f"{len(self.p)} p, {len(self.y)} y, {len(self.prompt)} prompt, {len(self.log_p)} log_p"
            raise ValueError(f"events: expected one value per event, got {sizes}")
        for name, values in (("p", self.p), ("y", self.y)):
            # These skip NaN, an outcome that was not observed, without a copy.
            low, high = (np.fmin.reduce(values), np.fmax.reduce(values)) if len(values) else (0.0, 0.0)
            if low < 0 or high > 1 + 1e-9:
                raise ValueError(f"events: {name} is between {low:g} and {high:g}, outside [0, 1]")
        if np.isnan(self.p).any():
            raise ValueError("events: p is not a number; only outcomes may be unknown")

    @classmethod
    def from_arrays(
        cls,
        probabilities: ArrayLike,
        outcomes: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        draw: Draw = "auto",
        clusters: ArrayLike | None = None,
    ) -> Events:
        """Build a table from checked arrays; results do not depend on the order of the rows.

        Parameters
        ----------
        probabilities, outcomes : float (N,)
            Stated probabilities, and outcomes in [0, 1] (NaN if unknown).
        groups : array (N,), optional
            The prompt of each row; by default, every row is a separate prompt.
        draw : {"auto", "independent", "one_per_group"}
            Whether exactly one row of each group happens. ``"auto"`` looks: probabilities of a group sum to 1
            and one outcome is 1.
        clusters : array (N,), optional
            Which rows belong together, beyond their groups.

        Returns
        -------
        Events
        """
        arrays.check_choice(draw, "draw", ("auto", "independent", "one_per_group"))
        p, y = arrays.as_probabilities(probabilities), np.asarray(outcomes, dtype=np.float64)
        if p.shape != y.shape:
            raise ValueError(f"outcomes: {y.size} outcomes for {len(p)} probabilities")
        observed = y[~np.isnan(y)]
        if len(observed) and (observed.min() < 0 or observed.max() > 1):
            bad = observed.min() if observed.min() < 0 else observed.max()
            raise ValueError(f"outcomes: {bad} is outside [0, 1]")
        prompt = arrays.as_groups(groups, len(p))
        exclusive = _one_per_group(p, y, prompt, groups is not None, draw)
        # Rows that are prompts of their own are in order.
        order: Any = slice(None) if groups is None else np.lexsort((y, p, prompt))
        p, y, prompt = p[order], y[order], prompt[order]
        cluster = None
        if clusters is not None:
            first = np.unique(prompt, return_index=True)[1]
            cluster = arrays.as_groups(np.asarray(clusters)[order][first], len(first), "clusters")
        joint: Joint = OneOf(p, np.bincount(prompt)) if exclusive else Independent(p)
        with np.errstate(divide="ignore"):
            return cls(p, y, prompt, joint, log_p=np.log(p), cluster=cluster)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.p)

    @cached_property
    def n_prompts(self) -> int:
        """The number of prompts."""
        return int(self.prompt[-1]) + 1 if len(self.prompt) else 0

    @cached_property
    def observed(self) -> BoolArray:
        """Which events were observed: (N,)."""
        return ~np.isnan(self.y)

    def per_prompt(self, values: FloatArray) -> FloatArray:
        """Return the mean of values (N,) over the observed rows of each prompt: (n,); NaN without any."""
        rows = self.observed
        count = np.bincount(self.prompt[rows], minlength=self.n_prompts)
        total = np.bincount(self.prompt[rows], values[rows], self.n_prompts)
        return total / np.where(count > 0, count, np.nan)


@dataclass(frozen=True, eq=False)
class Independent:
    """Every event happens or not by itself, with expectation p (N,).

    An event that is shared, such as one of t tied first places, counts ``share`` (N,) if it happens.
    """

    p: FloatArray
    share: FloatArray | None = None

    def alternatives(self, cell: IntArray, n_cells: int) -> Alternatives:
        """Two alternatives per row: it happens, or not."""
        both = np.column_stack([cell, np.full(len(cell), n_cells)]).reshape(-1)
        weight = None if self.share is None or (self.share == 1).all() else np.repeat(self.share, 2)
        return Cells(np.full(len(cell), 2), both, n_cells, weight)

    def probabilities(self, shift: FloatArray | None = None) -> FloatArray:
        """Return the probabilities that each row happens, and that it does not."""
        q = self.p if shift is None else self.p + shift
        q = np.clip(q if self.share is None else q / self.share, 0.0, 1.0)
        return np.column_stack([q, 1 - q]).reshape(-1)

    def happened(self, y: FloatArray) -> FloatArray:
        """Return both alternatives of each row."""
        return np.column_stack([y > 0, y <= 0]).reshape(-1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class OneOf:
    """Exactly one event of each prompt happens; ``sizes`` (n,) are the numbers of rows of each prompt."""

    p: FloatArray
    sizes: IntArray

    def alternatives(self, cell: IntArray, n_cells: int) -> Alternatives:
        """One alternative per row: it is the one that happens."""
        return Cells(self.sizes, cell, n_cells)

    def probabilities(self, shift: FloatArray | None = None) -> FloatArray:
        """Return q ∝ p + shift within each prompt."""
        q = np.maximum(self.p if shift is None else self.p + shift, _LEAST)
        return q / np.repeat(arrays.group_sums(q, self.sizes), self.sizes)

    def happened(self, y: FloatArray) -> FloatArray:
        """Return the outcomes themselves."""
        return y


@dataclass(frozen=True, eq=False)
class Winners:
    """One response of each prompt wins, and decides its pairs; the other pairs are not observed.

    ``winner`` and ``other`` (N,) are the responses of each ordered pair, among M responses with
    log-probabilities ``log_p`` (M,) of winning, ``sizes`` (n,) of each prompt. Which pairs are observed
    depends on who wins, so the rows are all ordered pairs.
    """

    log_p: FloatArray
    sizes: IntArray
    winner: IntArray
    other: IntArray
    p: FloatArray

    def alternatives(self, cell: IntArray, n_cells: int) -> Alternatives:
        """One alternative per response: it wins, and adds the bin sums (3B,) of its pairs."""
        pairs = self.sizes * (self.sizes - 1)

        def sums(prompts: slice) -> FloatArray:
            rows = rows_of(pairs, prompts)
            first = rows_of(self.sizes, prompts)
            n = first.stop - first.start
            won = (self.winner[rows] - first.start) * n_cells + cell[rows]
            lost = (self.other[rows] - first.start) * n_cells + cell[rows]
            both, p = np.concatenate([won, lost]), self.p[rows]
            parts = [
                np.bincount(both, minlength=n * n_cells),
                np.bincount(both, np.concatenate([p, p]), n * n_cells),
                np.bincount(won, minlength=n * n_cells),
            ]
            return np.concatenate([part.reshape(n, n_cells) for part in parts], axis=1).astype(np.float64)

        return Features(self.sizes, 3 * n_cells, sums)

    def probabilities(self, shift: FloatArray | None = None) -> FloatArray:
        """Return P(response wins) if every pair's probability is moved: the softmax of its mean log-odds."""
        if shift is None:
            return np.exp(self.log_p)
        # The pairs are many: in place.
        moved = self.p + shift
        np.clip(moved, _LEAST, 1 - _LEAST, out=moved)
        log_odds = np.log(moved)
        log_odds -= np.log1p(np.negative(moved, out=moved), out=moved)
        odds = np.bincount(self.winner, log_odds, len(self.log_p))
        return np.exp(arrays.segment_log_softmax(odds / np.repeat(self.sizes, self.sizes), self.sizes))

    def happened(self, y: FloatArray) -> FloatArray:
        """Return which response won."""
        won = np.zeros(len(self.log_p))
        won[self.winner[y == 1]] = 1.0
        return won


@dataclass(frozen=True, eq=False)
class Voters:
    """The outcome is the share of ``votes`` (N,) voters who choose the event.

    Voters on one prompt agree more often than the stated probability says, because it is not the true share:
    ``correlation`` is that of two votes on a prompt.
    """

    p: FloatArray
    votes: IntArray
    correlation: float = 0.0

    def alternatives(self, cell: IntArray, n_cells: int) -> Alternatives:
        """One alternative per number of voters k = 0, ..., N, which adds k/N."""
        sizes, chosen, voters = self._counts
        return Cells(sizes, np.repeat(cell, sizes), n_cells, chosen / voters)

    def probabilities(self, shift: FloatArray | None = None) -> FloatArray:
        """Return the beta-binomial probabilities of k = 0, ..., N."""
        from scipy.special import betaln, gammaln, xlog1py, xlogy

        mean = self.p if shift is None else self.p + shift
        sizes, k, n = self._counts
        q = np.repeat(np.clip(mean, _LEAST, 1 - _LEAST), sizes)
        ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        if self.correlation < 1e-6:
            return np.asarray(np.exp(ways + xlogy(k, q) + xlog1py(n - k, -q)))
        size = (1 - self.correlation) / self.correlation
        a, b = q * size, (1 - q) * size
        return np.asarray(np.exp(ways + betaln(k + a, n - k + b) - betaln(a, b)))

    def happened(self, y: FloatArray) -> None:
        """Shares of votes are not right or wrong."""

    @cached_property
    def _counts(self) -> tuple[IntArray, IntArray, IntArray]:
        """The number of alternatives of each row (N,), and k and N of each alternative (A,)."""
        voters = np.minimum(self.votes, _MOST_VOTES)
        sizes = voters + 1
        first = np.repeat(np.cumsum(sizes) - sizes, sizes)
        return sizes, np.arange(len(first)) - first, np.repeat(voters, sizes)


def _one_per_group(p: FloatArray, y: FloatArray, prompt: IntArray, grouped: bool, draw: Draw) -> bool:
    """Return whether exactly one row of each group happens; check that its probabilities sum to 1 if so."""
    if draw == "independent" or (draw == "auto" and not grouped):
        return False
    if not grouped:
        raise ValueError("groups: needed for draw='one_per_group'")
    sums = np.bincount(prompt, p)
    bad = np.abs(sums - 1) > 1e-5
    if draw == "auto":
        return not bad.any() and bool((np.bincount(prompt, np.nan_to_num(y)) == 1).all())
    if bad.any():
        group = int(np.argmax(bad))
        raise ValueError(
            f"probabilities: those of group number {group} sum to {sums[group]:.6g}, "
            "expected 1 for draw='one_per_group'"
        )
    return True
