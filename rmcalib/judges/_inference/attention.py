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

from rmcalib.judges._inference.packing import Row

if TYPE_CHECKING:
    import torch

_NAME = "rmcalib_by_branch"


_BLOCK = 64  # queries at a time: what comes after them is not even computed


@dataclass(frozen=True)
class _Branch:
    """The own part of a text, whose tokens see its prompt and what comes before them in the part."""

    row: int
    prompt: slice
    own: slice

    def blocks(self) -> Iterator[tuple[slice, int]]:
        """Yield some queries at a time, and how many of the prompt's and the own tokens they see at most."""
        n_prompt = self.prompt.stop - self.prompt.start
        for start in range(self.own.start, self.own.stop, _BLOCK):
            stop = min(start + _BLOCK, self.own.stop)
            yield slice(start, stop), n_prompt + stop - self.own.start


class Branches:
    """Where the prompts and responses of packed rows begin and end, and the masks attention needs there."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Lay out `rows` as `rmcalib.judges._inference.packing.pack` does."""
        self.parts: list[_Branch] = []
        self._masks: dict[tuple[int, int, int | None], torch.Tensor] = {}
        for number, row in enumerate(rows):
            at = 0
            for tree in row:
                prompt = slice(at, at + tree.prefix_len)
                self.parts.append(_Branch(number, slice(at, at), prompt))
                at = prompt.stop
                for text in tree.texts:
                    own = slice(at, at + len(text) - tree.prefix_len)
                    self.parts.append(_Branch(number, prompt, own))
                    at = own.stop

    def mask(self, n_queries: int, n_seen: int, window: int | None, like: torch.Tensor) -> torch.Tensor:
        """Return what the last `n_queries` of `n_seen` tokens see: 0 or very small."""
        import torch

        key = (n_queries, n_seen, window)
        if key not in self._masks:
            seen = torch.arange(n_seen, device=like.device)
            distance = seen[-n_queries:, None] - seen
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
    for branch in branches.parts:
        row = branch.row
        keys, values = key[row, None, :, branch.own], value[row, None, :, branch.own]
        if branch.prompt.stop > branch.prompt.start:
            keys = torch.cat([key[row, None, :, branch.prompt], keys], dim=2)
            values = torch.cat([value[row, None, :, branch.prompt], values], dim=2)
        for queries, n_seen in branch.blocks():
            mask = branches.mask(queries.stop - queries.start, n_seen, sliding_window, query)
            part = attend(
                query[row, None, :, queries],
                keys[:, :, :n_seen],
                values[:, :, :n_seen],
                attn_mask=mask,
                scale=scaling,
            )
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
