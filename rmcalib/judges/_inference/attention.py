"""Attention over packed trees, without the pairs of tokens that do not see each other.

With a mask over the whole row, attention does the work for every pair of tokens, also for those that do not
see each other. Two ways avoid that. `Branches` computes attention for the prompt and for each of its
responses by itself, which is fast on a CPU. `flex.FlexTree` describes the trees to one FlexAttention kernel,
which is fast on a GPU. `tree_attention` puts either in the place of a model's attention for one forward pass,
by the interface that transformers has for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rmcalib.judges._inference.architectures import attending_by
from rmcalib.judges._inference.packing import Row

if TYPE_CHECKING:
    import torch

_NAME = "rmcalib_tree"
_BLOCK = 64  # queries at a time: keys after the last of them are not read


class TreeAttention(Protocol):
    """A way to attend over packed trees."""

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float | None,
        window: int | None,
        softcap: float | None,
    ) -> torch.Tensor:
        """Map (rows, heads, tokens, head size) to (rows, tokens, heads, head size)."""
        ...


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
    """Attends within the prompts and responses of packed rows, one after the other.

    Soft-capping is left out, as in transformers' own `sdpa` attention: models that need it run as `eager`.
    """

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

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float | None,
        window: int | None,
        softcap: float | None = None,  # noqa: ARG002 (see above)
    ) -> torch.Tensor:
        """Attend; the shapes are those of `TreeAttention`."""
        import torch

        key, value = repeated(query, key, value)
        output = query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
        for branch in self.parts:
            row = branch.row
            keys, values = key[row, None, :, branch.own], value[row, None, :, branch.own]
            if branch.prompt.stop > branch.prompt.start:
                keys = torch.cat([key[row, None, :, branch.prompt], keys], dim=2)
                values = torch.cat([value[row, None, :, branch.prompt], values], dim=2)
            for queries, n_seen in branch.blocks():
                part = torch.nn.functional.scaled_dot_product_attention(
                    query[row, None, :, queries],
                    keys[:, :, :n_seen],
                    values[:, :, :n_seen],
                    attn_mask=self._mask(queries.stop - queries.start, n_seen, window, query),
                    scale=scaling,
                )
                output[row, queries] = part[0].transpose(0, 1)
        return output

    def _mask(self, n_queries: int, n_seen: int, window: int | None, like: torch.Tensor) -> torch.Tensor:
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


class DenseMask:
    """Attends with a given additive mask, as the last layer does for the pooled tokens."""

    def __init__(self, mask: torch.Tensor) -> None:
        """Take a mask of shape (rows, 1, queries, tokens)."""
        self.mask = mask

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float | None,
        window: int | None,  # noqa: ARG002 (the mask has it)
        softcap: float | None = None,  # noqa: ARG002 (as in `Branches`)
    ) -> torch.Tensor:
        """Attend; the shapes are those of `TreeAttention`."""
        import torch

        key, value = repeated(query, key, value)
        attend = torch.nn.functional.scaled_dot_product_attention
        output: torch.Tensor = attend(query, key, value, attn_mask=self.mask.to(query.device), scale=scaling)
        return output.transpose(1, 2).contiguous()


def repeated(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Repeat the keys and values of grouped heads, so that there is one for each query head."""
    groups = query.shape[1] // key.shape[1]
    if groups == 1:
        return key, value
    return key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)


def _attend(
    _module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    tree: TreeAttention | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as the `tree` that came with the forward pass does, in transformers' attention interface."""
    if tree is None:
        raise TypeError("the model does not pass keyword arguments to its attention")
    output = tree.attend(query, key, value, scaling=scaling, window=sliding_window, softcap=softcap)
    return output, None


@contextmanager
def tree_attention(config: Any) -> Iterator[None]:
    """Within this block, the model of `config` attends by the `tree` that is passed to its forward pass."""
    import torch
    from transformers import AttentionInterface

    # Where layers are compiled, attention is not part of it: its `tree` differs from pass to pass.
    outside: Any = torch.compiler.disable
    AttentionInterface.register(_NAME, outside(_attend, recursive=False))
    with attending_by(config, _NAME):
        yield
