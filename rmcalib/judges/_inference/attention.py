"""Attention over packed trees, without computing pairs of tokens that do not attend to each other.

With a mask over the whole row, attention is computed for every pair of tokens and then masked. There are two
ways to avoid that. `Branches` computes attention separately for the prompt and for each response, which is
fast on a CPU. `flex.FlexTree` passes the trees to one FlexAttention kernel, which is fast on a GPU.
`tree_attention` replaces the attention of a model by one of them, through the attention interface of
transformers.
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
_BLOCK = 64  # queries at a time; keys after the last of them are left out


@dataclass(frozen=True)
class AttentionInputs:
    """What a layer passes to its attention.

    Parameters
    ----------
    query : torch.Tensor (rows, heads, queries, head size)
        The queries.
    key, value : torch.Tensor (rows, key heads, tokens, head size)
        The keys and the values.
    scaling : float, optional
        Factor of the scores; None for the default.
    window : int, optional
        Number of positions that a token attends to, itself included; None for all.
    softcap : float, optional
        Limit of the scores; None for no limit.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scaling: float | None = None
    window: int | None = None
    softcap: float | None = None

    def repeated(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values with those of grouped heads repeated, one for each query head."""
        groups = self.query.shape[1] // self.key.shape[1]
        if groups == 1:
            return self.key, self.value
        return self.key.repeat_interleave(groups, dim=1), self.value.repeat_interleave(groups, dim=1)


class TreeAttention(Protocol):
    """A way to compute attention over packed trees."""

    def attend(self, inputs: AttentionInputs) -> torch.Tensor:
        """Return the attended values (rows, queries, heads, head size)."""
        ...


@dataclass(frozen=True)
class _Branch:
    """A prompt or a response. Its tokens attend to its prompt and to earlier tokens of its own part."""

    row: int
    prompt: slice
    own: slice

    def blocks(self) -> Iterator[tuple[slice, int]]:
        """Yield blocks of queries, and how many tokens of prompt and own part the last of them attends to."""
        n_prompt = self.prompt.stop - self.prompt.start
        for start in range(self.own.start, self.own.stop, _BLOCK):
            stop = min(start + _BLOCK, self.own.stop)
            yield slice(start, stop), n_prompt + stop - self.own.start


class Branches:
    """Computes attention for the prompts and responses of packed rows, one after the other.

    Soft-capping is ignored, as in the `sdpa` attention of transformers: models that need it use `eager`.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        """Find the parts of `rows`, in the layout of `packing.pack`."""
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

    def attend(self, inputs: AttentionInputs) -> torch.Tensor:
        """Return the attended values (rows, queries, heads, head size)."""
        import torch

        query, (key, value) = inputs.query, inputs.repeated()
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
                    attn_mask=self._mask(queries.stop - queries.start, n_seen, inputs.window, query),
                    scale=inputs.scaling,
                )
                output[row, queries] = part[0].transpose(0, 1)
        return output

    def _mask(self, n_queries: int, n_seen: int, window: int | None, like: torch.Tensor) -> torch.Tensor:
        """Return the additive mask of the last `n_queries` of `n_seen` tokens: 0, or the smallest number."""
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
    """Computes attention with a given additive mask: in the last layer, for the pooled tokens."""

    def __init__(self, mask: torch.Tensor) -> None:
        """Take a mask of shape (rows, 1, queries, tokens)."""
        self.mask = mask

    def attend(self, inputs: AttentionInputs) -> torch.Tensor:
        """Return the attended values (rows, queries, heads, head size). The mask contains the window."""
        import torch

        query, (key, value) = inputs.query, inputs.repeated()
        output: torch.Tensor = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=self.mask.to(query.device), scale=inputs.scaling
        )
        return output.transpose(1, 2).contiguous()


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
    """Call the `tree` that was passed to the forward pass, in the attention interface of transformers."""
    if tree is None:
        raise TypeError("the model does not pass keyword arguments to its attention")
    return tree.attend(AttentionInputs(query, key, value, scaling, sliding_window, softcap)), None


@contextmanager
def tree_attention(config: Any) -> Iterator[None]:
    """Within this block, the model of `config` uses the `tree` of its forward pass as attention."""
    import torch
    from transformers import AttentionInterface

    # Attention is never compiled with the layers, because `tree` is different in each pass.
    outside: Any = torch.compiler.disable
    AttentionInterface.register(_NAME, outside(_attend, recursive=False))
    with attending_by(config, _NAME):
        yield
