"""Turn arrays of rewards, with one row per prompt, into the columns of scores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, IntArray, as_floats, as_integers

__all__ = ["columns_of_arrays"]


def columns_of_arrays(
    rewards: ArrayLike,
    correct: ArrayLike | None,
    category: str | Iterable[str] | None,
    item_id: Iterable[str] | None,
    votes: ArrayLike | None,
    ties: ArrayLike | None,
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns (n * m,) of `Scores` for rewards (n, m); see `Scores.from_arrays`.

    >>> columns_of_arrays([[1.0, 0.0]], 0, None, None, None, None)["response"].tolist()
    [0, 1]
    """
    reward = as_floats(rewards, "rewards", ndim=2)
    n, m = reward.shape
    if m < 2:
        raise ValueError(f"rewards: expected at least 2 responses per prompt, got shape {reward.shape}")
    columns: dict[str, Any] = {
        "item_id": np.repeat(_names(item_id, n, "item_id", [str(i) for i in range(n)]), m),
        "category": np.repeat(_names(category, n, "category", ["all"] * n), m),
        "response": np.tile(np.arange(m), n),
        "reward": reward.ravel(),
    }
    counts = None
    if votes is not None:
        counts = _counts(votes, "votes", (n, m))
        columns["votes"] = counts.ravel()
        columns["ties"] = np.repeat(_counts(0 if ties is None else ties, "ties", (n,)), m)
    elif ties is not None:
        raise ValueError("ties: give votes too")
    columns["is_correct"] = _correct(correct, counts, (n, m)).ravel()
    return columns


def _names(
    given: str | Iterable[str] | None, n: int, name: str, default: list[str]
) -> npt.NDArray[np.object_]:
    # As objects, so that `checked_columns` can refuse values that are not texts, and name their row.
    values = default if given is None else [given] * n if isinstance(given, str) else list(given)
    if len(values) != n:
        raise ValueError(f"{name}: expected one for each of the {n} prompts, got {len(values)}")
    array = np.empty(n, dtype=object)
    array[:] = values
    return array


def _counts(values: ArrayLike, name: str, shape: tuple[int, ...]) -> IntArray:
    array = np.asarray(values)
    if array.ndim == 0 and len(shape) == 1:
        array = np.full(shape, array)
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, like the rewards, got {array.shape}")
    return as_integers(array, name, ndim=len(shape))


def _correct(correct: ArrayLike | None, votes: IntArray | None, shape: tuple[int, int]) -> BoolArray:
    """Return which responses are correct: (n, m)."""
    n, m = shape
    if correct is None and votes is not None:  # the one with most votes; none if two share first place
        most = votes == votes.max(axis=1, keepdims=True)
        return np.asarray(most & (most.sum(axis=1, keepdims=True) == 1))
    array = np.asarray(0 if correct is None else correct)
    if array.dtype == bool:
        if array.shape != shape:
            raise ValueError(f"correct: expected shape {shape}, like the rewards, got {array.shape}")
        return array
    if array.ndim == 0:
        array = np.full(n, array)
    if array.shape != (n,):
        raise ValueError(
            f"correct: expected an index, one index for each of the {n} prompts, or bool {shape}; "
            f"got shape {array.shape}"
        )
    index = as_integers(array, "correct", ndim=1)
    bad = np.flatnonzero((index < 0) | (index >= m))
    if len(bad):
        raise ValueError(f"correct: row {bad[0]} is {index[bad[0]]}, but responses are numbered 0 to {m - 1}")
    return np.asarray(np.arange(m) == index[:, None])
