"""Repeated insertion: the probability that k chosen items of a Mallows ranking have a given order.

A Mallows ranking arises by inserting the items of the centre one after the other. The (i+1)-th is put where v
items are on its right, with probability φ^v / (1 + φ + ... + φ^i). The order of the k chosen items depends
only on how many *other* items are in each gap between them. This gives a dynamic programme with (i choose r)
states after i insertions, r of them chosen. Items of the centre before the first and after the last chosen
one have no effect. All terms are positive, so results keep full relative precision for every φ.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, chunks
from rmcalib.ranking.events import unique_rows

_CHUNK_STATES = 4_000_000


@dataclass(frozen=True)
class Patterns:
    """Events as paths of insertions, with items named by their place in the centre.

    ``steps`` (Q, L) has one entry for each insertion after the first item, which is always a chosen one:
    0 for an item that is not chosen; g + 1 for a chosen item that is inserted behind g of the chosen ones;
    -1 after the end of the path. Rows are sorted, so that the programme computes a shared beginning once.
    ``n_chosen`` is k.
    """

    steps: IntArray
    n_chosen: int

    @staticmethod
    def from_positions(positions: IntArray) -> tuple["Patterns", IntArray]:
        """Return the patterns of ``positions`` (Q, k), places in the centre, and the index of each row.

        >>> patterns, index = Patterns.from_positions(np.array([[4, 2], [1, 2], [3, 1]]))
        >>> patterns.steps.tolist(), index.tolist()
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
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        return Patterns(steps[order], k), position[index]

    def work(self) -> FloatArray:
        """Return the number of state updates for each row, without those shared with the row before: (Q,)."""
        chosen = 1 + np.cumsum(self.steps > 0, axis=1)
        chosen_before = np.column_stack([np.ones(len(chosen), dtype=np.int64), chosen[:, :-1]])
        size = np.arange(1, self.steps.shape[1] + 1)
        table = np.array([[math.comb(i, r) * (r + 1.0) for r in range(self.n_chosen + 1)] for i in size])
        updates = table[np.arange(len(size)), chosen_before]
        updates[self.steps < 0] = 0.0
        # Rows share their steps with the row before, up to the first step where the two differ.
        differs = np.ones_like(self.steps, dtype=bool)
        differs[1:] = np.logical_or.accumulate(self.steps[1:] != self.steps[:-1], axis=1)
        result: FloatArray = (updates * differs).sum(axis=1)
        return result


def pattern_probabilities(patterns: Patterns, dispersion: FloatArray) -> FloatArray:
    """Return the probability of each pattern under each dispersion λ (φ = exp(−λ)): (len(dispersion), Q)."""
    steps = patterns.steps
    length = steps.shape[1]
    powers = np.exp(-np.outer(dispersion, np.arange(length + 1)))
    sums = np.concatenate([np.zeros((len(dispersion), 1)), np.cumsum(powers, axis=1)], axis=1)
    result = np.empty((len(dispersion), len(steps)))
    states = math.comb(length, min(patterns.n_chosen - 1, length // 2))
    for rows in chunks(len(steps), states * len(dispersion), _CHUNK_STATES):
        result[:, rows] = _run(steps[rows], patterns.n_chosen, powers, sums)
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
        into = np.flatnonzero(after[:, gap] > 0)
        shrunk = after[into].copy()
        shrunk[:, gap] -= 1
        right = after[into, gap + 1 :].sum(axis=1) + (r - gap)
        weight = powers[:, right] * sums[:, after[into, gap]]
        result[:, :, into] += source[:, :, _find(shrunk, others)] * weight[:, None, :]
    return result


def _insert_chosen(source: FloatArray, others: int, r: int, gap: int, powers: FloatArray) -> FloatArray:
    """Insert a chosen item into a gap, which it splits into two."""
    after = _compositions(others, r + 2)
    merged = np.delete(after, gap + 1, axis=1)
    merged[:, gap] += after[:, gap + 1]
    right = after[:, gap + 1 :].sum(axis=1) + (r - gap)
    return source[:, :, _find(merged, others)] * powers[:, None, right]


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


def _find(rows: IntArray, total: int) -> IntArray:
    """Index of each row among the compositions of ``total``: the last part follows from the others."""
    parts = rows.shape[1]
    index = np.zeros(len(rows), dtype=np.int64)
    left = np.full(len(rows), total, dtype=np.int64)
    for part in range(parts - 1):
        # Earlier compositions have a smaller number here. Their count is a sum of binomial coefficients.
        table = _earlier(total, parts - 1 - part)
        index += table[left, rows[:, part]]
        left -= rows[:, part]
    return index


@lru_cache(maxsize=256)
def _earlier(total: int, parts_after: int) -> IntArray:
    """Entry [s, v]: how many compositions of s into 1 + parts_after parts start with less than v."""
    table = np.zeros((total + 1, total + 2), dtype=np.int64)
    for s in range(total + 1):
        counts = [math.comb(s - v + parts_after - 1, parts_after - 1) for v in range(s + 1)]
        table[s, 1 : s + 2] = np.cumsum(counts)
    return table
