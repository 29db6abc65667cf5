"""Attention over packed trees with FlexAttention: one kernel that skips unneeded blocks.

All tokens are in one row, which is divided into blocks of 128 tokens. For every block of queries, the kernel
gets two lists: the blocks of keys that every query attends to in full, which need no mask, and those that
only some queries attend to. Both lists are computed from the lengths of the texts, on the CPU, while the GPU
is busy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import BoolArray, IntArray
from rmcalib.judges._inference.attention import AttentionInputs
from rmcalib.judges._inference.devices import upload
from rmcalib.judges._inference.packing import PackedRows

if TYPE_CHECKING:
    import torch

BLOCK = 128


class FlexTree:
    """Computes attention over the trees of one packed row.

    Parameters
    ----------
    packed : PackedRows
        One row, whose length is a multiple of 128.
    softcap : bool
        Whether to apply the soft-capping of the layers. The `sdpa` attention of transformers ignores it.
    """

    def __init__(self, packed: PackedRows, *, softcap: bool) -> None:
        """Keep the layout. Masks are made when a layer first needs them, once per device."""
        rows, length = packed.input_ids.shape
        if rows != 1 or length % BLOCK:
            raise ValueError(f"FlexAttention takes one row of a multiple of {BLOCK} tokens")
        self._packed, self._softcap = packed, softcap
        self._queries: IntArray | None = None
        self._masks: dict[tuple[int | None, torch.device], Any] = {}

    def at_pooled(self) -> FlexTree:
        """Return the same attention with only the pooled tokens as queries."""
        other = FlexTree(self._packed, softcap=self._softcap)
        other._queries = self._packed.pooled[0]
        return other

    def attend(self, inputs: AttentionInputs) -> torch.Tensor:
        """Return the attended values (1, queries, heads, head size)."""
        query, key, cap = inputs.query, inputs.key, inputs.softcap
        where = (inputs.window, query.device)
        if where not in self._masks:
            self._masks[where] = self._block_mask(*where)
        attended = _kernel(query.device.type)(
            query,
            key,
            inputs.value,
            score_mod=_capped(cap) if self._softcap and cap is not None else None,
            block_mask=self._masks[where],
            scale=inputs.scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return attended.transpose(1, 2).contiguous()

    def _block_mask(self, window: int | None, device: torch.device) -> Any:
        from torch.nn.attention.flex_attention import BlockMask

        packed = self._packed
        some, full = visible_blocks(packed, window, self._queries)
        lists = [part for blocks in (some & ~full, full) for part in _as_lists(blocks)]
        layout = np.stack([packed.trees[0], packed.branches[0], packed.positions[0]])
        of_queries = layout if self._queries is None else layout[:, self._queries]
        n_queries = of_queries.shape[1]
        parts = upload([*lists, layout, of_queries], device)
        counts, indices, full_counts, full_indices = (part.int()[None, None] for part in parts[:4])
        trees, branches, positions = parts[4].unbind()
        own_trees, own_branches, own_positions = parts[5].unbind()

        def sees(_batch: Any, _head: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            distance = own_positions[q] - positions[k]
            seen = (own_trees[q] == trees[k]) & (distance >= 0)
            seen = seen & ((branches[k] == 0) | (own_branches[q] == branches[k]))
            return seen if window is None else seen & (distance < window)

        return BlockMask.from_kv_blocks(
            counts,
            indices,
            full_counts,
            full_indices,
            BLOCK_SIZE=BLOCK,
            mask_mod=sees,
            seq_lengths=(n_queries, layout.shape[1]),
        )


def visible_blocks(
    packed: PackedRows, window: int | None = None, queries: IntArray | None = None
) -> tuple[BoolArray, BoolArray]:
    """Return the blocks of keys that a block of queries needs, and those that it attends to in full.

    Both are arrays of shape (blocks of queries, blocks of keys). They may be too cautious: a needed block may
    contain no key that is attended to, and a full block may not be marked as full. The mask is exact. With
    `queries`, the queries are these tokens of the row.

    >>> from rmcalib.judges._inference.packing import Text, Tree, pack
    >>> from rmcalib.judges._inference.templates import Encoded
    >>> texts = [Text(i, 0, Encoded((1,) * 384, 128, False, False), 383) for i in range(2)]
    >>> some, full = visible_blocks(pack([(Tree(tuple(texts)),)]))
    >>> some.astype(int)
    array([[1, 0, 0, 0, 0],
           [1, 1, 0, 0, 0],
           [1, 1, 1, 0, 0],
           [1, 0, 0, 1, 0],
           [1, 0, 0, 1, 1]])
    >>> int(full.sum())
    6
    """
    tokens = np.arange(packed.input_ids.shape[1]) if queries is None else queries
    n_queries, n_keys = -(-len(tokens) // BLOCK), packed.input_ids.shape[1] // BLOCK
    some = np.zeros((n_queries, n_keys), dtype=np.bool_)
    full = np.zeros_like(some)
    trees, branches, positions = packed.trees[0], packed.branches[0], packed.positions[0]
    segment = np.cumsum(np.r_[0, (np.diff(trees) != 0) | (np.diff(branches) != 0)])
    starts = np.searchsorted(segment, np.arange(segment[-1] + 2))
    # A token attends to the keys of its prompt, and to those before it in its own segment.
    prompt_of = {int(trees[s]): n for n, s in enumerate(starts[:-1]) if branches[s] == 0}
    for block in range(n_queries):
        own = tokens[block * BLOCK : (block + 1) * BLOCK]
        for part in np.unique(segment[own]):
            mine = own[segment[own] == part]
            first, last = int(mine.min()), int(mine.max())
            if trees[first] < 0:  # padding, whose result is not used
                some[block, first // BLOCK : last // BLOCK + 1] = True
                continue
            ranges = [(int(starts[part]), last + 1)]
            prompt = prompt_of.get(int(trees[first]))
            if prompt is not None and prompt != part:
                ranges.append((int(starts[prompt]), int(starts[prompt + 1])))
            for begin, end in ranges:
                if window is not None:  # the keys of a range have consecutive positions
                    oldest = int(positions[first]) - window + 1
                    begin = max(begin, begin + oldest - int(positions[begin]))
                if begin >= end:
                    continue
                some[block, begin // BLOCK : (end - 1) // BLOCK + 1] = True
                # In full: the block has one segment, and its first and last token attend to the keys.
                if len(mine) < len(own):
                    continue
                seen_from = begin
                if window is not None:
                    newest = int(positions[last]) - window + 1
                    seen_from = max(begin, begin + newest - int(positions[begin]))
                seen_to = min(end, first + 1) if end == last + 1 else end
                full[block, -(-seen_from // BLOCK) : seen_to // BLOCK] = True
    return some, full


def _as_lists(blocks: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the number of blocks in each row, and their indices, followed by those of the other blocks."""
    return blocks.sum(1).astype(np.int64), np.argsort(~blocks, axis=1, kind="stable").astype(np.int64)


def _capped(cap: float) -> Callable[..., torch.Tensor]:
    def cap_scores(score: torch.Tensor, _b: Any, _h: Any, _q: Any, _k: Any) -> torch.Tensor:
        import torch

        return cap * torch.tanh(score / cap)

    return cap_scores


@functools.cache
def _kernel(device: str) -> Callable[..., torch.Tensor]:
    """Return FlexAttention. It is compiled on CUDA; uncompiled it would store all pairs of tokens."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    plain: Callable[..., torch.Tensor] = flex_attention
    if device != "cuda":
        return plain
    torch._dynamo.config.cache_size_limit = max(64, torch._dynamo.config.cache_size_limit)
    return torch.compile(plain, dynamic=False)
