"""Group responses into batches.

There are two ways. The plain way sorts responses by length and pads them to the longest of their batch. The
shared way puts a prompt into a row once, followed by its responses as the branches of a tree. A token attends
to the earlier tokens of its own prompt and its own branch, and its position is that in its own text. Several
trees share a row, so that rows are full whatever the lengths are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rmcalib._util.arrays import BoolArray, IntArray
from rmcalib.judges._inference.templates import Encoded

if TYPE_CHECKING:
    import torch

ROW_TOKENS = 1_024


@dataclass(frozen=True)
class Text:
    """A response to score: index in the chunk, number of its prompt, token ids, and the pooled position."""

    index: int
    prompt: int
    encoded: Encoded
    pooled: int

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.encoded)


@dataclass(frozen=True)
class Tree:
    """Responses of one prompt in a row, with the tokens that they have in common only once."""

    texts: tuple[Text, ...]

    @property
    def prefix_len(self) -> int:
        """Number of tokens at the beginning that all responses have in common."""
        return self.texts[0].encoded.prefix_len

    def __len__(self) -> int:
        """Return the number of tokens in the row."""
        return self.prefix_len + sum(len(text) - self.prefix_len for text in self.texts)


Row = tuple[Tree, ...]


def plain_batches(
    texts: Iterable[Text], *, budget: int, pass_cost: int = 0, same_length: bool = False
) -> list[list[Text]]:
    """Sort `texts` by length into batches of at most `budget` tokens, padding included.

    A text longer than the budget is a separate batch. With `same_length`, all texts of a batch have the
    same length. Otherwise the batches minimise the number of tokens, including padding and `pass_cost` per
    batch.
    """
    ordered = sorted(texts, key=lambda text: (-len(text), text.index))
    if not same_length:
        lengths = [len(text) for text in ordered]
        return [ordered[part] for part in cheapest_cuts(lengths, budget=budget, pass_cost=pass_cost)]
    batches: list[list[Text]] = []
    for text in ordered:
        alike = batches and len(batches[-1][0]) == len(text)
        if alike and (len(batches[-1]) + 1) * len(text) <= budget:
            batches[-1].append(text)
        else:
            batches.append([text])
    return batches


def shared_batches(
    texts: Iterable[Text],
    *,
    budget: int,
    kappa: float,
    usual: int = ROW_TOKENS,
    pass_cost: int = 0,
    longest_row: int | None = None,
) -> list[list[Row]]:
    """Pack `texts` into rows of about 1,024 tokens, and rows into batches of at most `budget` tokens.

    `kappa` is the row length at which attention costs as much as everything else (see `grow_trees`). If it is
    infinite, every row is a batch of about `usual` tokens, and there is no padding. Otherwise a batch has
    rows of similar length, as in `plain_batches`. The responses of a prompt do not share a row of more than
    `longest_row` tokens.
    """
    full = min(usual if math.isinf(kappa) else ROW_TOKENS, budget)
    trees = grow_trees(texts, budget=min(budget, longest_row or budget), kappa=kappa)
    rows: list[list[Tree]] = []
    room: list[int] = []
    # First fit, longest first. A tree that is longer than a row gets its own row.
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
    lengths = [row_length(row) for row in packed]
    return [packed[part] for part in cheapest_cuts(lengths, budget=budget, pass_cost=pass_cost)]


def cheapest_cuts(lengths: Sequence[int], *, budget: int, pass_cost: int) -> list[slice]:
    """Divide rows, sorted from long to short, into batches with the smallest total cost.

    A batch of n rows, padded to the longest of L tokens, costs n L + `pass_cost`. It must have n L <=
    `budget`, unless n = 1. The minimum is found by dynamic programming over the beginning of the last batch.

    >>> cheapest_cuts([100, 90, 10, 10], budget=1_000, pass_cost=20)
    [slice(0, 2, None), slice(2, 4, None)]
    >>> cheapest_cuts([100, 90, 10, 10], budget=1_000, pass_cost=200)
    [slice(0, 4, None)]
    """
    n_rows = len(lengths)
    longest = np.asarray(lengths, dtype=np.int64)
    cost = np.zeros(n_rows + 1)
    begins = np.zeros(n_rows + 1, dtype=np.int64)
    for end in range(1, n_rows + 1):
        begin = np.arange(end)
        tokens = (end - begin) * longest[:end]
        total = np.where((tokens <= budget) | (begin == end - 1), cost[:end] + tokens + pass_cost, np.inf)
        begins[end] = int(total.argmin())
        cost[end] = total[begins[end]]
    cuts: list[slice] = []
    end = n_rows
    while end > 0:
        cuts.append(slice(int(begins[end]), end))
        end = int(begins[end])
    return cuts[::-1]


def grow_trees(texts: Iterable[Text], *, budget: int, kappa: float) -> list[Tree]:
    """Gather the texts of each prompt into trees.

    A row of L tokens costs L (1 + L/kappa), because attention is computed for the whole row and then masked.
    A text is added to the tree of its prompt if this costs less than a separate row with another copy of
    the prompt, and if the tree still fits into `budget`.
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


@dataclass
class Work:
    """The work of a scorer's forward passes.

    Parameters
    ----------
    passes : int
        Number of forward passes.
    tokens : int
        Tokens of all texts, each with its prompt.
    shared : int
        Tokens that were not computed again, because another response had the same prompt.
    padding : int
        Tokens of padding that were computed.
    """

    passes: int = 0
    tokens: int = 0
    shared: int = 0
    padding: int = 0

    def add(self, texts: Sequence[Text], rows: Sequence[Row], bucket: int) -> None:
        """Count one pass."""
        tokens = sum(map(len, texts))
        lengths = [row_length(row) for row in rows] if rows else [len(text) for text in texts]
        self.passes += 1
        self.tokens += tokens
        self.shared += tokens - sum(lengths)
        self.padding += len(lengths) * rounded_up(max(lengths), bucket) - sum(lengths)


@dataclass(frozen=True)
class PackedRows:
    """Rows as arrays of shape (rows, tokens); `pooled` has shape (rows, texts), padded with 0."""

    input_ids: IntArray
    positions: IntArray
    trees: IntArray  # the tree of each token; -1 for padding
    branches: IntArray  # the branch of each token; 0 for tokens that a prompt's responses share
    pooled: IntArray
    order: IntArray  # the texts' indices in the chunk, in the order of `pooled[valid]`
    valid: BoolArray


def pack(rows: Sequence[Row], *, multiple: int = 1, texts_multiple: int = 1) -> PackedRows:
    """Return `rows` as arrays, padded on the right. Padding is a separate tree in each row.

    The numbers of tokens and of texts per row are rounded up to multiples of `multiple` and `texts_multiple`.
    """
    length = rounded_up(max(row_length(row) for row in rows), multiple)
    n_texts = rounded_up(max(sum(len(tree.texts) for tree in row) for row in rows), texts_multiple)
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
                # If a response adds no tokens, its pooled token is one that all responses share.
                pooled[r, column] = at + text.pooled if text.pooled < shared else own + text.pooled - shared
                valid[r, column] = True
                order.append(text.index)
                own, column = end, column + 1
            at += len(tree)
    return PackedRows(input_ids, positions, tree_ids, branches, pooled, np.array(order), valid)


def rounded_up(number: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is at least `number`.

    >>> rounded_up(130, 128)
    256
    """
    return -(-number // multiple) * multiple


def tree_mask(
    trees: torch.Tensor,
    branches: torch.Tensor,
    positions: torch.Tensor,
    *,
    dtype: torch.dtype,
    window: int | None = None,
    queries: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the additive attention mask (rows, 1, tokens, tokens): 0 where a token attends to another.

    A token attends to the tokens of its tree that all responses share or that are on its own branch, up to
    its own position. With a `window`, only to the last `window` positions, itself included. With `queries`
    (rows, n), the mask has only these tokens as queries: (rows, 1, n, tokens).
    """
    import torch

    trees, branches, positions = (part.int() for part in (trees, branches, positions))  # half the memory

    def lines(of: torch.Tensor) -> torch.Tensor:
        return (of if queries is None else of.gather(1, queries))[:, :, None]

    distance = lines(positions) - positions[:, None, :]
    sees = (lines(trees) == trees[:, None, :]) & (distance >= 0)
    sees &= (branches[:, None, :] == 0) | (lines(branches) == branches[:, None, :])
    if window is not None:
        sees &= distance < window
    mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min)[:, None]
