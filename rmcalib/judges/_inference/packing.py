"""Which responses go through the model together.

Two plans. The plain one sorts responses by length and pads them to the longest of their batch. The shared one
puts a prompt into a row once, with its responses behind it as the branches of a tree: a token sees the tokens
of its own prompt and of its own branch that come before it, and its position is the one it has in its own
text. Several trees share a row, so that rows are full whatever the lengths.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rmcalib.judges._inference.templates import Encoded

if TYPE_CHECKING:
    import torch

ROW_TOKENS = 1_024


@dataclass(frozen=True)
class Text:
    """One response in the works: its place in the chunk, its prompt's number, its ids, where it is pooled."""

    index: int
    prompt: int
    encoded: Encoded
    pooled: int

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.encoded)


@dataclass(frozen=True)
class Tree:
    """Responses of one prompt in a row, where the tokens they have in common stand once."""

    texts: tuple[Text, ...]

    @property
    def prefix_len(self) -> int:
        """Return how many tokens the responses of the prompt have in common."""
        return self.texts[0].encoded.prefix_len

    def __len__(self) -> int:
        """Return the number of different tokens."""
        return self.prefix_len + sum(len(text) - self.prefix_len for text in self.texts)


Row = tuple[Tree, ...]


def plain_batches(texts: Iterable[Text], *, budget: int, same_length: bool = False) -> list[list[Text]]:
    """Sort `texts` by length into batches of at most `budget` tokens, padding included.

    A text longer than the budget is a batch of its own. With `same_length` no batch needs padding at all.
    """
    batches: list[list[Text]] = []
    for text in sorted(texts, key=lambda text: (-len(text), text.index)):
        if batches:
            longest = len(batches[-1][0])
            fits = (len(batches[-1]) + 1) * longest <= budget
            if fits and (len(text) == longest or not same_length):
                batches[-1].append(text)
                continue
        batches.append([text])
    return batches


def shared_batches(
    texts: Iterable[Text], *, budget: int, kappa: float, usual: int = ROW_TOKENS
) -> list[list[Row]]:
    """Pack `texts` into rows of about 1,024 tokens, and rows into batches of at most `budget` tokens.

    `kappa` is the row length at which attention costs as much as everything else (see `grow_trees`). If a
    row's length costs nothing by itself (`kappa` is infinite), every row is a batch of about `usual` tokens,
    and nothing is padded.
    """
    full = min(usual if math.isinf(kappa) else ROW_TOKENS, budget)
    trees = grow_trees(texts, budget=budget, kappa=kappa)
    rows: list[list[Tree]] = []
    room: list[int] = []
    # First fit, longest first: the trees that are longer than a row get rows of their own.
    for tree in sorted(trees, key=lambda tree: (-len(tree), tree.texts[0].index)):
        place = next((number for number, left in enumerate(room) if len(tree) <= left), None)
        if place is None:
            rows.append([tree])
            room.append(full - len(tree))
        else:
            rows[place].append(tree)
            room[place] -= len(tree)
    packed = sorted((tuple(row) for row in rows), key=row_length, reverse=True)
    if math.isinf(kappa):
        return [[row] for row in packed]
    batches: list[list[Row]] = []
    for row in packed:
        if batches and (len(batches[-1]) + 1) * row_length(batches[-1][0]) <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def grow_trees(texts: Iterable[Text], *, budget: int, kappa: float) -> list[Tree]:
    """Gather the texts of each prompt into trees.

    A row of L tokens costs L (1 + L/kappa): attention looks at all of the row, whatever the mask says. A text
    joins the tree of its prompt when that is cheaper than going alone with its own copy of the prompt, and
    when the tree still fits into `budget`.
    """

    def cost(length: int) -> float:
        return length * (1 + length / kappa)

    prompts: dict[int, list[Text]] = {}
    for text in texts:
        prompts.setdefault(text.prompt, []).append(text)
    trees = []
    for group in prompts.values():
        branch = [group[0]]
        length = len(group[0])
        for text in group[1:]:
            longer = length + len(text) - text.encoded.prefix_len
            if longer <= budget and cost(longer) <= cost(length) + cost(len(text)):
                branch.append(text)
                length = longer
            else:
                trees.append(Tree(tuple(branch)))
                branch, length = [text], len(text)
        trees.append(Tree(tuple(branch)))
    return trees


def row_length(row: Row) -> int:
    """Return the number of tokens in a row."""
    return sum(len(tree) for tree in row)


IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PackedRows:
    """Rows as arrays of shape (rows, tokens); `pooled` has shape (rows, texts), filled up with 0."""

    input_ids: IntArray
    positions: IntArray
    trees: IntArray  # which tree of the row a token belongs to
    branches: IntArray  # which branch of the row; 0 for the tokens that a prompt's responses share
    pooled: IntArray
    order: IntArray  # the texts' places in the chunk, in the order in which `pooled[valid]` yields them
    valid: npt.NDArray[np.bool_]


def pack(rows: Sequence[Row]) -> PackedRows:
    """Write `rows` down as arrays, padded on the right; padding is a tree of its own in each row."""
    length = max(row_length(row) for row in rows)
    n_texts = max(sum(len(tree.texts) for tree in row) for row in rows)
    input_ids, positions, branches = (np.zeros((len(rows), length), dtype=np.int64) for _ in range(3))
    tree_ids = np.full((len(rows), length), -1, dtype=np.int64)
    pooled = np.zeros((len(rows), n_texts), dtype=np.int64)
    valid = np.zeros((len(rows), n_texts), dtype=np.bool_)
    order = []
    for r, row in enumerate(rows):
        at = branch = column = 0
        for t, tree in enumerate(row):
            shared = tree.prefix_len
            prefix = slice(at, at + shared)
            input_ids[r, prefix] = tree.texts[0].encoded.input_ids[:shared]
            positions[r, prefix] = np.arange(shared)
            tree_ids[r, at : at + len(tree)] = t
            own = at + shared
            for text in tree.texts:
                branch += 1
                end = own + len(text) - shared
                input_ids[r, own:end] = text.encoded.input_ids[shared:]
                positions[r, own:end] = np.arange(shared, len(text))
                branches[r, own:end] = branch
                # The pooled token may be one that all responses share, when a response adds nothing to it.
                pooled[r, column] = at + text.pooled if text.pooled < shared else own + text.pooled - shared
                valid[r, column] = True
                order.append(text.index)
                own, column = end, column + 1
            at += len(tree)
    return PackedRows(input_ids, positions, tree_ids, branches, pooled, np.array(order), valid)


def tree_mask(
    trees: torch.Tensor,
    branches: torch.Tensor,
    positions: torch.Tensor,
    *,
    dtype: torch.dtype,
    window: int | None = None,
    queries: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the additive attention mask (rows, 1, tokens, tokens): 0 where a token sees another.

    A token sees those of its tree that all responses share or that are on its own branch, up to its own
    position, and with a `window` only the last `window` positions, itself included. With `queries` (rows, n)
    only the lines of these tokens are made: (rows, 1, n, tokens).
    """
    import torch

    def lines(of: torch.Tensor) -> torch.Tensor:
        return (of if queries is None else of.gather(1, queries))[:, :, None]

    distance = lines(positions) - positions[:, None, :]
    sees = (lines(trees) == trees[:, None, :]) & (distance >= 0)
    sees &= (branches[:, None, :] == 0) | (lines(branches) == branches[:, None, :])
    if window is not None:
        sees &= distance < window
    mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min)[:, None]
