"""Pairwise probabilities of a prompt's responses: the column `beats`.

Row i of a prompt with m responses has a list of m entries: entry j is P(i beats j), or None if it is
unknown. Computations use one flat array of all lists, in the order of prompts and rows, with NaN for None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import FloatArray, IntArray

__all__ = ["as_lists", "flat_beats", "is_beats", "soften", "star", "transposed"]

_TOLERANCE = 1e-6
Lists = npt.NDArray[np.object_]


def is_beats(value: Any) -> bool:
    """Return whether a value is a list of probabilities, with None or NaN where one is unknown.

    >>> is_beats([None, 0.5]), is_beats([0.5, 2.0]), is_beats(0.5)
    (True, False, False)
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        return False
    known = [one for one in value if one is not None]
    numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in known)
    return numbers and all(0 <= one <= 1 or one != one for one in known)


def as_lists(values: Iterable[Sequence[float | None]]) -> Lists:
    """Return lists as a column (N,) of tuples, with None where a probability is unknown.

    >>> as_lists([[float("nan"), 1], [0, None]]).tolist()
    [(None, 1.0), (0.0, None)]
    """
    rows = [
        tuple(None if one is None or one != one else float(one) for one in np.asarray(row, dtype=object))
        for row in values
    ]
    column = np.empty(len(rows), dtype=object)
    column[:] = rows
    return column


def flat_beats(column: Lists, sizes: IntArray) -> FloatArray:
    """Return the column as one array (Σ m²,), NaN where unknown; a ValueError names the first bad row.

    >>> flat_beats(as_lists([[None, 1], [0, None]]), np.array([2]))
    array([nan,  1.,  0., nan])
    """
    wanted = np.repeat(sizes, sizes)
    lengths = np.fromiter((len(row) for row in column), dtype=np.int64, count=len(column))
    if (lengths != wanted).any():
        row = int(np.flatnonzero(lengths != wanted)[0])
        raise ValueError(f"row {row}: beats has {lengths[row]} entries for {wanted[row]} responses")
    flat = np.array([one for row in column for one in row], dtype=np.float64)
    other = flat[transposed(sizes)]
    wrong = (np.abs(flat + other - 1) > _TOLERANCE) | (np.isnan(flat) != np.isnan(other))
    i, j = _indices(sizes)
    wrong[i == j] = False
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        row = int(np.searchsorted(np.cumsum(wanted), first, side="right"))
        raise ValueError(
            f"row {row}: beats says P({i[first]} beats {j[first]}) = {flat[first]:g} and "
            f"P({j[first]} beats {i[first]}) = {other[first]:g}; the two must sum to 1"
        )
    flat[i == j] = np.nan
    return flat


def transposed(sizes: IntArray) -> IntArray:
    """Return the index of entry (j, i) for each entry (i, j) of the flat array.

    >>> transposed(np.array([2]))
    array([0, 2, 1, 3])
    """
    i, j = _indices(sizes)
    squares = sizes * sizes
    base = np.repeat(np.cumsum(squares) - squares, squares)
    return base + j * np.repeat(sizes, squares) + i


def star(wins: Sequence[Sequence[float | None]]) -> Lists:
    """Return the column for comparisons of the first response of each prompt with all its others.

    Parameters
    ----------
    wins : Sequence[Sequence[float | None]]
        For each prompt, P(response 0 beats response j) for j = 1, 2, ...; None if it is unknown.

    Examples
    --------
    >>> star([[1.0, 0.25]]).tolist()
    [(None, 1.0, 0.25), (0.0, None, None), (0.75, None, None)]
    """
    rows: list[list[float | None]] = []
    for own in wins:
        rows.append([None, *own])
        rows += [[None if p is None else 1 - p, *[None] * len(own)] for p in own]
    return as_lists(rows)


def soften(column: Lists, temperature: float) -> Lists:
    """Return the column with all log-odds divided by a temperature.

    >>> soften(as_lists([[None, 0.9], [0.1, None]]), 2.0).tolist()
    [(None, 0.75), (0.25, None)]
    """
    from scipy.special import expit, logit

    return as_lists(
        [[None if p is None else float(expit(logit(p) / temperature)) for p in row] for row in column]
    )


def _indices(sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Return row and column of each entry within its prompt: (Σ m²,) each."""
    squares = sizes * sizes
    within = np.arange(squares.sum()) - np.repeat(np.cumsum(squares) - squares, squares)
    width = np.repeat(sizes, squares)
    return within // width, within % width
