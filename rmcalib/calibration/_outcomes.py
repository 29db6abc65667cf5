"""Groups of outcomes. One outcome of each group happens, and adds numbers to sums such as those of bins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rmcalib._util.arrays import FloatArray, IntArray, chunks

__all__ = [
    "CellOutcomes",
    "FeatureOutcomes",
    "Outcomes",
    "SmallInts",
    "choose_rows",
    "parts_of",
    "rows_of",
    "sparse_rows",
]

SmallInts = NDArray[np.int32]

_PART_ELEMENTS = 500_000  # features in memory at a time
_LEAST = 1e-9  # smallest probability of an outcome of a group


class Outcomes(Protocol):
    """Outcomes, group after group. Exactly one of each group happens and adds its features to the sums."""

    @property
    def sizes(self) -> IntArray:
        """Number of outcomes of each group (G,)."""

    @property
    def n_sums(self) -> int:
        """Number of sums, q."""

    def features(self, groups: slice) -> Any:
        """What each outcome of these groups adds to the sums: a sparse array (A', q) of compressed rows."""

    def counts(self, rows: SmallInts, step: SmallInts, n_steps: int) -> FloatArray:
        """Sums (R, n_steps, q) over outcomes (R, G) that happened, by ``step`` (R, G)."""


@dataclass(frozen=True)
class CellOutcomes:
    """Outcomes that each add 1 to one sum, the count of a cell.

    Attributes
    ----------
    sizes : int array (G,)
        Number of outcomes of each group.
    cell : int array (A,)
        The cell of each outcome; ``n_sums`` if it counts in none.
    n_sums : int
        Number of cells.
    """

    sizes: IntArray
    cell: IntArray
    n_sums: int

    @classmethod
    def of_rows(cls, groups: IntArray, cell: IntArray, n_cells: int, *, one_per_group: bool) -> CellOutcomes:
        """Return the outcomes of rows that are sorted by ``groups`` (N,), and the ``cell`` (N,) of each row.

        An independent row is a group with two outcomes: the row happens, or it does not.
        """
        if one_per_group:
            return cls(np.bincount(groups), cell, n_cells)
        both = np.column_stack([cell, np.full(len(cell), n_cells)]).reshape(-1)
        return cls(np.full(len(cell), 2), both, n_cells)

    def probabilities(self, p: FloatArray) -> FloatArray:
        """Return the outcomes' probabilities (A,) for rows that happen with probability p (N,)."""
        if len(p) == len(self.cell):
            q = np.maximum(p, _LEAST)
            return q / np.repeat(np.add.reduceat(q, np.cumsum(self.sizes) - self.sizes), self.sizes)
        q = np.clip(p, 0.0, 1.0)
        return np.column_stack([q, 1 - q]).reshape(-1)

    def features(self, groups: slice) -> Any:
        """Return one entry per outcome of these groups, in its cell: a sparse array (A', n_sums)."""
        cell = self.cell[rows_of(self.sizes, groups)]
        return sparse_rows(cell, np.ones(len(cell)), self.n_sums)

    def counts(self, rows: SmallInts, step: SmallInts, n_steps: int) -> FloatArray:
        """Count what happened, rows (R, G), by ``step`` (R, G) and cell: (R, n_steps, n_sums)."""
        width = self.n_sums + 1
        size = len(rows) * n_steps * width
        small: Any = np.int32 if size < 2**31 else np.int64  # small integers are faster
        cells = self.cell.astype(small).take(rows) + np.multiply(step, width, dtype=small)
        cells += np.multiply(np.arange(len(rows)), width * n_steps, dtype=small)[:, None]
        counts = np.bincount(cells.reshape(-1), minlength=size)
        return counts.reshape(len(rows), n_steps, width)[..., :-1].astype(np.float64)


@dataclass(frozen=True)
class FeatureOutcomes:
    """Outcomes that add any numbers to the sums.

    Attributes
    ----------
    sizes : int array (G,)
        Number of outcomes of each group.
    added : array (A, q)
        What each outcome adds; dense, or sparse with compressed rows.
    """

    sizes: IntArray
    added: Any

    @property
    def n_sums(self) -> int:
        """Number of sums, q."""
        return int(self.added.shape[1])

    def features(self, groups: slice) -> Any:
        """Return what the outcomes of these groups add: a sparse array (A', q)."""
        from scipy.sparse import csr_array

        return csr_array(self.added[rows_of(self.sizes, groups)])

    def counts(self, rows: SmallInts, step: SmallInts, n_steps: int) -> FloatArray:
        """Add up the features of what happened, rows (R, G), by ``step`` (R, G): (R, n_steps, q)."""
        from scipy.sparse import coo_array

        line = step + n_steps * np.arange(len(rows), dtype=np.int32)[:, None]
        places = np.broadcast_to(line, rows.shape).reshape(-1), rows.reshape(-1)
        shape = (len(rows) * n_steps, self.added.shape[0])
        happened = coo_array((np.ones(rows.size), places), shape).tocsr()  # one entry per group and line
        sums: Any = happened @ self.added
        dense = sums if isinstance(sums, np.ndarray) else sums.toarray()
        return np.asarray(dense).reshape(len(rows), n_steps, -1)


def parts_of(outcomes: Outcomes) -> Iterator[slice]:
    """Cut the groups into slices whose features fit into memory."""
    return chunks(len(outcomes.sizes), outcomes.n_sums * int(outcomes.sizes.max()), _PART_ELEMENTS)


def rows_of(sizes: IntArray, groups: slice) -> slice:
    """Return the slice of rows of a slice of groups with ``sizes`` (G,) rows each.

    >>> rows_of(np.array([2, 3, 4]), slice(1, 3))
    slice(2, 9, None)
    """
    before = int(sizes[: groups.start].sum())
    return slice(before, before + int(sizes[groups].sum()))


def sparse_rows(cell: IntArray, value: FloatArray, n_cells: int) -> Any:
    """Return a sparse array (A, n_cells) with one ``value`` (A,) per row, in its ``cell`` (A,).

    Rows whose cell is ``n_cells`` are empty.

    >>> sparse_rows(np.array([1, 2]), np.array([0.5, 1.0]), 2).toarray()
    array([[0. , 0.5],
           [0. , 0. ]])
    """
    from scipy.sparse import csr_array

    counted = cell < n_cells
    starts = np.concatenate([[0], np.cumsum(counted)])
    return csr_array((value[counted], cell[counted], starts), shape=(len(cell), n_cells))


def choose_rows(uniform: NDArray[np.float32], q: FloatArray, sizes: IntArray) -> SmallInts:
    """Draw an outcome of each group with probabilities ``q`` (A,) from uniform numbers (R, G): rows (R, G).

    >>> uniform = np.array([[0.1, 0.9]], dtype=np.float32)
    >>> choose_rows(uniform, np.array([0.5, 0.5, 0.2, 0.8]), np.array([2, 2]))
    array([[0, 3]], dtype=int32)
    """
    first = np.cumsum(sizes) - sizes
    total = np.cumsum(q)
    within = (total - np.repeat(total[first] - q[first], sizes)).astype(np.float32)
    chosen = np.zeros(uniform.shape, dtype=np.int32)
    for place in range(int(sizes.max()) - 1):
        longer = np.flatnonzero(sizes > place + 1)
        limit = within[first[longer] + place]
        if len(longer) == len(sizes):
            chosen += uniform >= limit
        else:
            chosen[:, longer] += uniform[:, longer] >= limit
    return chosen + first.astype(np.int32)
