"""Compute a prompt once for all its responses.

A prompt and its responses form a tree: the tokens that the responses have in common, followed by the rest of
each response as a branch. A token attends to the earlier tokens of its own prompt and its own branch, and its
position is that in its own text. On a CPU, attention is computed branch by branch; elsewhere, with a mask
over whole rows. `how_to_share` finds out whether a model allows this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmcalib._util.arrays import IntArray
from rmcalib.judges._devices import upload
from rmcalib.judges._templates import Encoded

if TYPE_CHECKING:
    import torch

FULL, SLIDING = "full_attention", "sliding_attention"
# Families without `layer_types` that apply the window in their configuration; all others ignore it.
_WINDOWED = ("doge", "ministral3", "mistral", "mixtral", "phi3", "phimoe", "qwen3_moe", "starcoder2")
# These rotary embeddings depend on the longest text of a batch, so a batch may have texts of one length only.
_ROTARY_BY_LENGTH = ("dynamic", "longrope")
_NAME = "rmcalib_tree"
_STEP = 32  # tokens: rows are padded to a multiple, because oneDNN prepares matrix products by shape, and keeps them
_BLOCK = 64  # queries at a time; keys after the last of them are left out

Attend = Callable[..., Any]
"""Attention over a packed pass: (query, key, value, scaling, window) -> (rows, queries, heads, head size)."""


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
    """Responses of one prompt, with the tokens that they have in common only once."""

    texts: tuple[Text, ...]

    @property
    def prefix_len(self) -> int:
        """Number of tokens at the beginning that all responses have in common."""
        return self.texts[0].encoded.prefix_len

    def __len__(self) -> int:
        """Return the number of tokens."""
        return self.prefix_len + sum(len(text) - self.prefix_len for text in self.texts)


Row = tuple[Tree, ...]


@dataclass(frozen=True)
class Sharing:
    """How a model shares prompts.

    `branches`: attention is computed branch by branch, not with a mask. `windows`: the number of positions
    that each type of layer attends to, the token's own included; None for all. `layer_types` is empty if all
    layers take the same mask.
    """

    branches: bool
    windows: Mapping[str, int | None]
    layer_types: tuple[str, ...] = ()


def how_to_share(model: Any) -> Sharing | None:
    """Return how the responses of a prompt can share it in `model`; None if they cannot.

    `model` has `kind`, `backbone`, `config`, `device`, `dtype` and `max_length`, as a `RewardModel`.
    """
    config = running_config(model)
    attention = getattr(config, "_attn_implementation", None)
    has_layers = len(getattr(model.backbone, "layers", ())) > 0 and hasattr(config, "num_attention_heads")
    layer_types = tuple(getattr(config, "layer_types", None) or ())
    supported = attention in ("sdpa", "eager") and {*layer_types} <= {FULL, SLIDING}
    if model.kind != "causal" or needs_same_length(model) or not (has_layers and supported):
        return None
    window = getattr(config, "sliding_window", None)
    of_all = window if getattr(config, "model_type", "") in _WINDOWED and not layer_types else None
    windows = {FULL: of_all, **{kind: window if kind == SLIDING else None for kind in layer_types}}
    return Sharing(attention == "sdpa" and model.device.type == "cpu", windows, layer_types)


def running_config(model: Any) -> Any:
    """Return the configuration that the layers use while they run; `model.config` is the checkpoint's."""
    return getattr(model.backbone, "config", model.config)


def needs_same_length(model: Any) -> bool:
    """Return whether padding could change a reward, so that a batch may have texts of one length only.

    This is the case for models that run their own code, which may not ignore the padding, and for rotary
    embeddings that depend on the longest text of the batch. Dynamic ones change only beyond the positions of
    the configuration, so most models never read such a text.
    """
    config = running_config(model)
    by_length = rotary_kinds(config) & {*_ROTARY_BY_LENGTH}
    if model.max_length <= getattr(config, "max_position_embeddings", 0):
        by_length -= {"dynamic"}
    return model.kind == "opaque" or bool(by_length)


def rotary_kinds(config: Any) -> set[str]:
    """Return the `rope_type` of a configuration, or those of all its types of layers.

    >>> from types import SimpleNamespace as Config
    >>> rotary_kinds(Config(rope_parameters={"rope_type": "dynamic"}))
    {'dynamic'}
    """
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    parts = [rotary, *(part for part in rotary.values() if isinstance(part, Mapping))]
    return {part["rope_type"] for part in parts if part.get("rope_type")}


class Part(NamedTuple):
    """A prompt or a response in packed rows: its row, its prompt's tokens (none for a prompt), and its own."""

    row: int
    prompt: slice
    span: slice


@dataclass(frozen=True)
class Packed:
    """Rows as arrays of shape (rows, tokens); `pooled` has the flat indices of the texts' pooled tokens."""

    input_ids: IntArray
    positions: IntArray
    trees: IntArray  # the tree of each token; -1 for padding
    branches: IntArray  # the branch of each token; 0 for tokens that a prompt's responses share
    pooled: IntArray
    order: tuple[int, ...]  # the texts of `pooled`: their indices in the chunk
    parts: tuple[Part, ...]  # all prompts and responses


def pack(rows: Sequence[Row]) -> Packed:
    """Return `rows` as arrays, padded on the right."""
    length = -(-max(row_length(row) for row in rows) // _STEP) * _STEP
    input_ids, positions, branches = (np.zeros((len(rows), length), dtype=np.int64) for _ in range(3))
    tree_ids = np.full((len(rows), length), -1, dtype=np.int64)
    pooled, order, parts = [], [], []
    for r, row in enumerate(rows):
        at = branch = 0
        for t, tree in enumerate(row):
            shared = tree.prefix_len
            prompt = slice(at, at + shared)
            parts.append(Part(r, slice(at, at), prompt))
            input_ids[r, prompt] = tree.texts[0].encoded.input_ids[:shared]
            positions[r, prompt] = np.arange(shared)
            tree_ids[r, at : at + len(tree)] = t
            at = prompt.stop
            for text in tree.texts:
                span = slice(at, at + len(text) - shared)
                parts.append(Part(r, prompt, span))
                input_ids[r, span] = text.encoded.input_ids[shared:]
                positions[r, span] = np.arange(shared, len(text))
                branch += 1
                branches[r, span] = branch
                # If a response adds no tokens, its pooled token is one that all responses share.
                start = prompt.start if text.pooled < shared else span.start - shared
                pooled.append(r * length + start + text.pooled)
                order.append(text.index)
                at = span.stop
    return Packed(input_ids, positions, tree_ids, branches, np.array(pooled), tuple(order), tuple(parts))


def row_length(row: Row) -> int:
    """Return the number of tokens in a row."""
    return sum(map(len, row))


def packed_states(model: Any, packed: Packed, sharing: Sharing) -> Any:
    """Run packed rows through the model; return the hidden states (texts, hidden) of the pooled tokens."""
    ids, positions, trees, branches = upload(
        [packed.input_ids, packed.positions, packed.trees, packed.branches], model.device
    )
    inputs: dict[str, Any] = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    if sharing.branches:
        with _attending_by_branches(running_config(model)):
            states = model.backbone(**inputs, tree=branch_attention(packed.parts)).last_hidden_state
    else:
        masks: Any = {
            kind: tree_mask(trees, branches, positions, dtype=model.dtype, window=window)
            for kind, window in sharing.windows.items()
        }
        mask = masks if sharing.layer_types else masks[FULL]
        states = model.backbone(**inputs, attention_mask=mask).last_hidden_state
    # Indices come from the CPU: a copy from another GPU would make that GPU wait for this one.
    (at,) = upload([packed.pooled], states.device)
    return states.flatten(0, 1).index_select(0, at)


def tree_mask(
    trees: torch.Tensor,
    branches: torch.Tensor,
    positions: torch.Tensor,
    *,
    dtype: torch.dtype,
    window: int | None = None,
) -> torch.Tensor:
    """Return the additive attention mask (rows, 1, tokens, tokens): 0 where a token attends to another.

    With a `window`, a token attends only to the last `window` positions, itself included.
    """
    import torch

    trees, branches, positions = (part.int() for part in (trees, branches, positions))  # half the memory
    distance = positions[:, :, None] - positions[:, None, :]
    sees = (trees[:, :, None] == trees[:, None, :]) & (distance >= 0)
    sees &= (branches[:, None, :] == 0) | (branches[:, :, None] == branches[:, None, :])
    if window is not None:
        sees &= distance < window
    mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min)[:, None]


def branch_attention(parts: Sequence[Part]) -> Attend:
    """Return attention that is computed for the prompts and responses of packed rows one after the other."""
    masks: dict[tuple[int, int, int | None], torch.Tensor] = {}

    def mask(n_queries: int, n_seen: int, window: int | None, like: torch.Tensor) -> torch.Tensor:
        """Return the additive mask of the last `n_queries` of `n_seen` tokens."""
        import torch

        if (n_queries, n_seen, window) not in masks:
            seen = torch.arange(n_seen, device=like.device)
            distance = seen[-n_queries:, None] - seen
            hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
            empty = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
            masks[n_queries, n_seen, window] = empty.masked_fill_(hidden, torch.finfo(like.dtype).min)
        return masks[n_queries, n_seen, window]

    def attend(query: Any, key: Any, value: Any, scaling: float | None, window: int | None) -> Any:
        import torch

        grouped = query.shape[1] != key.shape[1]
        output = query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
        for row, prompt, span in parts:
            keys, values = key[row, None, :, span], value[row, None, :, span]
            n_prompt = prompt.stop - prompt.start
            if n_prompt:
                keys = torch.cat([key[row, None, :, prompt], keys], dim=2)
                values = torch.cat([value[row, None, :, prompt], values], dim=2)
            for start in range(span.start, span.stop, _BLOCK):
                stop = min(start + _BLOCK, span.stop)
                n_seen = n_prompt + stop - span.start
                part = torch.nn.functional.scaled_dot_product_attention(
                    query[row, None, :, start:stop],
                    keys[:, :, :n_seen],
                    values[:, :, :n_seen],
                    attn_mask=mask(stop - start, n_seen, window, query),
                    scale=scaling,
                    enable_gqa=grouped,
                )
                output[row, start:stop] = part[0].transpose(0, 1)
        return output

    return attend


def _attend(
    _module: Any,
    query: Any,
    key: Any,
    value: Any,
    _mask: Any,
    scaling: float | None = None,
    sliding_window: int | None = None,
    tree: Attend | None = None,
    **_: Any,
) -> tuple[Any, None]:
    """Call the `tree` that was passed to the forward pass, in the attention interface of transformers."""
    if tree is None:
        raise TypeError("the model does not pass keyword arguments to its attention")
    return tree(query, key, value, scaling, sliding_window), None


@contextmanager
def _attending_by_branches(config: Any) -> Iterator[None]:
    """Within this block, the model of `config` uses `_attend` as its attention."""
    from transformers import AttentionInterface

    AttentionInterface.register(_NAME, _attend)
    before = config._attn_implementation
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = before
