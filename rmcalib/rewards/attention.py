"""Attention over packed trees, branch by branch.

With a mask over the whole row, attention does the work for every pair of tokens, also for those that do not
see each other. On a processor, where that work is not free, attention is better computed for the prompt and
for each of its responses by itself. `by_branch` puts this in the place of a model's attention for one forward
pass, by the interface that transformers has for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmcalib.rewards.packing import Row

if TYPE_CHECKING:
    import torch

_NAME = "rmcalib_by_branch"


_BLOCK = 128  # queries at a time: what comes after them is not even computed


@dataclass(frozen=True)
class _Block:
    """Neighbouring tokens of one text, which see its prompt, and its own part up to themselves."""

    row: int
    prompt: slice
    own: slice  # from the beginning of the text's own part to the end of the block
    queries: slice


class Branches:
    """Where the prompts and responses of packed rows begin and end, and the masks attention needs there."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Lay out `rows` as `rmcalib.rewards.packing.pack` does."""
        self.blocks: list[_Block] = []
        self._masks: dict[tuple[int, int, int, int | None], torch.Tensor] = {}
        for number, row in enumerate(rows):
            at = 0
            for tree in row:
                prompt = slice(at, at + tree.prefix_len)
                self._add(number, slice(at, at), prompt)
                at = prompt.stop
                for text in tree.texts:
                    own = slice(at, at + len(text) - tree.prefix_len)
                    self._add(number, prompt, own)
                    at = own.stop

    def _add(self, row: int, prompt: slice, own: slice) -> None:
        for start in range(own.start, own.stop, _BLOCK):
            stop = min(start + _BLOCK, own.stop)
            self.blocks.append(_Block(row, prompt, slice(own.start, stop), slice(start, stop)))

    def mask(self, block: _Block, window: int | None, like: torch.Tensor) -> torch.Tensor:
        """Return what the queries of `block` see: (queries, prompt + own), 0 or very small."""
        import torch

        n_prompt, n_own, n = (s.stop - s.start for s in (block.prompt, block.own, block.queries))
        key = (n_prompt, n_own, n, window)
        if key not in self._masks:
            seen = torch.arange(n_prompt + n_own, device=like.device)
            distance = seen[-n:, None] - seen
            hidden = distance < 0
            if window is not None:
                hidden |= distance >= window
            mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
            self._masks[key] = mask.masked_fill_(hidden, torch.finfo(like.dtype).min)
        return self._masks[key]


def branch_attention(
    _module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    branches: Branches | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within the `branches` of packed rows (or, without them, by `attention_mask`).

    The shapes are those of transformers' attention interface: (rows, heads, tokens, head size) in, (rows,
    tokens, heads, head size) out.
    """
    import torch

    attend = torch.nn.functional.scaled_dot_product_attention
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    if branches is None:
        output = attend(query, key, value, attn_mask=attention_mask, scale=scaling)
        return output.transpose(1, 2).contiguous(), None
    output = query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
    for block in branches.blocks:
        row, queries = block.row, block.queries
        keys, values = key[row, None, :, block.own], value[row, None, :, block.own]
        if block.prompt.stop > block.prompt.start:
            keys = torch.cat([key[row, None, :, block.prompt], keys], dim=2)
            values = torch.cat([value[row, None, :, block.prompt], values], dim=2)
        mask = branches.mask(block, sliding_window, query)
        part = attend(query[row, None, :, queries], keys, values, attn_mask=mask, scale=scaling)
        output[row, queries] = part[0].transpose(0, 1)
    return output, None


@contextmanager
def by_branch(config: Any) -> Iterator[None]:
    """Within this block the model of `config` attends by `branch_attention`."""
    from transformers import AttentionInterface

    AttentionInterface.register(_NAME, branch_attention)
    before = config._attn_implementation
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = before
