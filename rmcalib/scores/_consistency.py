"""Check what every metric assumes about scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, IntArray
from rmcalib.scores._beats import flat_beats

if TYPE_CHECKING:
    from rmcalib.scores._scores import Scores

__all__ = ["check", "is_ordered", "starts_of"]


def starts_of(item_id: npt.NDArray[np.str_]) -> IntArray:
    """Return where each prompt starts."""
    return np.flatnonzero(np.r_[True, item_id[1:] != item_id[:-1]])


def is_ordered(item_id: npt.NDArray[np.str_], response: IntArray) -> bool:
    """Return whether the responses of each prompt are already next to each other and in order."""
    starts = starts_of(item_id)
    sizes = np.diff(np.r_[starts, len(item_id)])
    in_order = np.array_equal(response, np.arange(len(item_id)) - np.repeat(starts, sizes))
    return in_order and len(np.unique(item_id[starts])) == len(starts)


def check(scores: Scores) -> None:
    """Raise a ValueError that names the first bad prompt."""

    def first(wrong: BoolArray) -> int:
        return int(np.flatnonzero(wrong)[0])

    def name(row: int) -> str:
        return f"item {str(scores.item_id[row])!r}, response {scores.response[row]}"

    if (scores.votes is None) != (scores.ties is None):
        raise ValueError("votes and ties: give both or none")
    if len({len(array) for array in scores.columns().values()}) != 1:
        raise ValueError("the columns have different lengths")
    bad = ~np.isfinite(scores.reward)
    if bad.any():
        row = first(bad)
        raise ValueError(
            f"{name(row)}: the reward is {scores.reward[row]} ({bad.sum()} of them are not finite)"
        )
    starts = scores.offsets[:-1]
    sizes = np.diff(scores.offsets)
    if len(np.unique(scores.item_id[starts])) != len(starts):
        raise ValueError("the responses of an item are not next to each other")
    bad = scores.response != np.arange(len(scores)) - np.repeat(starts, sizes)
    if bad.any():
        row = first(bad)
        twice = row and scores.response[row] == scores.response[row - 1]
        expected = row - int(np.repeat(starts, sizes)[row])
        problem = " appears twice" if twice else f": expected response {expected} next"
        raise ValueError(f"{name(row)}{problem}; an item's responses are numbered 0, 1, 2, ...")
    bad = scores.category != np.repeat(scores.category[starts], sizes)
    if bad.any():
        raise ValueError(f"{name(first(bad))}: its category differs from that of the item's other responses")
    if scores.ties is not None:
        bad = scores.ties != np.repeat(scores.ties[starts], sizes)
        if bad.any():
            raise ValueError(f"{name(first(bad))}: its ties differ from those of the item's other responses")
    correct = np.add.reduceat(scores.is_correct, starts, dtype=np.int64)
    unanswered = (correct == 0) & (scores.n_votes == 0)
    for kind, wrong in (("correct", unanswered), ("wrong", correct == sizes)):
        if wrong.any():
            raise ValueError(f"item {str(scores.item_id[starts[first(wrong)]])!r}: no {kind} response")
    if scores.beats is not None:
        flat_beats(scores.beats, sizes)
