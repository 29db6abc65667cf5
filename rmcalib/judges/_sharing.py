"""Compute a prompt once for all its responses.

A prompt and its responses form a tree: the tokens that the responses have in common, followed by the rest of
each response as a branch. A token attends to the earlier tokens of its own prompt and its own branch, and its
position is that in its own text. On a CPU, attention is computed branch by branch; elsewhere, with a mask
over whole rows. `how_to_share` finds out whether a model allows this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
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

    @property
    def last_window(self) -> int | None:
        """Number of positions that the last layer attends to; None for all."""
        return self.windows[self.layer_types[-1] if self.layer_types else FULL]


def how_to_share(model: Any) -> Sharing | None:
    """Return how the responses of a prompt can share it in `model`; None if they cannot.

    `model` has `kind`, `backbone`, `config`, `device`, `dtype` and `max_length`, as a `RewardModel`.
    """
    config = running_config(model)
    attention = getattr(config, "_attn_implementation", None)
    has_layers = len(getattr(model.backbone, "layers", ())) > 0 and hasattr(config, "num_attention_heads")
    layer_types = tuple(getattr(config, "layer_types", None) or ())
    known = attention in ("sdpa", "eager") and {*layer_types} <= {FULL, SLIDING}
    if model.kind != "causal" or needs_same_length(model) or not (has_layers and known):
        return None
    window = getattr(config, "sliding_window", None)
    one = window if getattr(config, "model_type", "") in _WINDOWED and not layer_types else None
    windows = {FULL: one, **{kind: window if kind == SLIDING else None for kind in layer_types}}
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
    own: slice


@dataclass(frozen=True)
class Packed:
    """Rows as arrays of shape (rows, tokens); `pooled` has shape (rows, texts), padded with 0."""

    input_ids: IntArray
    positions: IntArray
    trees: IntArray  # the tree of each token; -1 for padding
    branches: IntArray  # the branch of each token; 0 for tokens that a prompt's responses share
    pooled: IntArray
    used: IntArray  # the flat indices of `pooled` that belong to texts
    order: tuple[int, ...]  # the indices of these texts in the chunk
    parts: tuple[Part, ...]  # all prompts and responses


def pack(rows: Sequence[Row]) -> Packed:
    """Return `rows` as arrays, padded on the right."""
    length = max(row_length(row) for row in rows)
    n_texts = max(sum(len(tree.texts) for tree in row) for row in rows)
    input_ids, positions, branches = (np.zeros((len(rows), length), dtype=np.int64) for _ in range(3))
    tree_ids = np.full((len(rows), length), -1, dtype=np.int64)
    pooled = np.zeros((len(rows), n_texts), dtype=np.int64)
    used, order, parts = [], [], []
    for r, row in enumerate(rows):
        at = column = 0
        for t, tree in enumerate(row):
            shared = tree.prefix_len
            prompt = slice(at, at + shared)
            parts.append(Part(r, slice(at, at), prompt))
            input_ids[r, prompt] = tree.texts[0].encoded.input_ids[:shared]
            positions[r, prompt] = np.arange(shared)
            tree_ids[r, at : at + len(tree)] = t
            at = prompt.stop
            for text in tree.texts:
                own = slice(at, at + len(text) - shared)
                parts.append(Part(r, prompt, own))
                input_ids[r, own] = text.encoded.input_ids[shared:]
                positions[r, own] = np.arange(shared, len(text))
                branches[r, own] = column + 1
                # If a response adds no tokens, its pooled token is one that all responses share.
                start = prompt.start if text.pooled < shared else own.start - shared
                pooled[r, column] = start + text.pooled
                used.append(r * n_texts + column)
                order.append(text.index)
                at, column = own.stop, column + 1
    return Packed(
        input_ids, positions, tree_ids, branches, pooled, np.array(used), tuple(order), tuple(parts)
    )


def row_length(row: Row) -> int:
    """Return the number of tokens in a row."""
    return sum(map(len, row))


def packed_states(model: Any, packed: Packed, sharing: Sharing) -> Any:
    """Run packed rows through the model; return the hidden states of the pooled tokens."""
    ids, positions, trees, branches, at = upload(
        [packed.input_ids, packed.positions, packed.trees, packed.branches, packed.pooled], model.device
    )

    def mask(window: int | None, queries: torch.Tensor | None = None) -> torch.Tensor:
        return tree_mask(trees, branches, positions, dtype=model.dtype, window=window, queries=queries)

    inputs: dict[str, Any] = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    last = mask(sharing.last_window, at)
    if sharing.branches:
        inputs["tree"] = branch_attention(packed.parts)
        changed: dict[str, Any] = {"tree": _masked_attention(last)}
    else:
        masks: Any = {kind: mask(window) for kind, window in sharing.windows.items()}
        inputs["attention_mask"] = masks if sharing.layer_types else masks[FULL]
        changed = {"attention_mask": last}
    replaced = _attending_by_branches(running_config(model)) if sharing.branches else nullcontext()
    with replaced, _pooled_only(model.backbone, packed.pooled, changed):
        return model.backbone(**inputs).last_hidden_state


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

    With a `window`, a token attends only to the last `window` positions, itself included. With `queries`
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

        key, value = _repeated(query, key, value)
        output = query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
        for row, prompt, own in parts:
            keys, values = key[row, None, :, own], value[row, None, :, own]
            n_prompt = prompt.stop - prompt.start
            if n_prompt:
                keys = torch.cat([key[row, None, :, prompt], keys], dim=2)
                values = torch.cat([value[row, None, :, prompt], values], dim=2)
            for start in range(own.start, own.stop, _BLOCK):
                stop = min(start + _BLOCK, own.stop)
                n_seen = n_prompt + stop - own.start
                part = torch.nn.functional.scaled_dot_product_attention(
                    query[row, None, :, start:stop],
                    keys[:, :, :n_seen],
                    values[:, :, :n_seen],
                    attn_mask=mask(stop - start, n_seen, window, query),
                    scale=scaling,
                )
                output[row, start:stop] = part[0].transpose(0, 1)
        return output

    return attend


def _masked_attention(mask: torch.Tensor) -> Attend:
    """Return attention with a given additive mask, which contains the window."""

    def attend(query: Any, key: Any, value: Any, scaling: float | None, _window: int | None) -> Any:
        import torch

        key, value = _repeated(query, key, value)
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask.to(query.device), scale=scaling
        )
        return output.transpose(1, 2).contiguous()

    return attend


def _repeated(query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """Return keys and values with those of grouped heads repeated, one for each query head."""
    groups = query.shape[1] // key.shape[1]
    if groups == 1:
        return key, value
    return key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)


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


class _KeysKept(Exception):
    """Raised when the last layer has passed its keys and values to the cache, to stop the layer."""


class _KeptKeys:
    """Replaces the last layer's cache: stores the keys and values of all tokens, and returns them later."""

    kept: Any = None

    def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> Any:
        """Store the first keys and values and stop the layer; in later calls, return them."""
        if self.kept is None:
            self.kept = (keys, values)
            raise _KeysKept
        return self.kept


@contextmanager
def _pooled_only(backbone: Any, pooled: IntArray, changed: Mapping[str, Any]) -> Iterator[None]:
    """Within this block, the last layer of `backbone` runs only for the tokens at `pooled` (rows, texts).

    Of the other tokens, only the last layer's keys and values are needed. So the layer runs twice: on all
    tokens, until it passes its keys and values to its cache, and on the pooled tokens with the `changed`
    arguments, with a cache that returns those keys and values. The layer's own code does all the arithmetic,
    so this works for any architecture whose attention uses a cache.
    """
    layer: Any = backbone.layers[-1]

    def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        import torch

        states, *rest = args
        kwargs["layer_past" if "layer_past" in kwargs else "past_key_values"] = _KeptKeys()
        try:
            layer.forward(states, *rest, **kwargs)  # not layer(...), which would call this hook again
        except _KeysKept:
            pass
        else:
            raise TypeError(f"the layers of {type(backbone).__name__} do not use a cache for keys and values")
        # A model that is spread over several devices has its tensors on all of them; use the device of the
        # states. Indices come from the CPU: a copy from another GPU would make that GPU wait for this one.
        (at,) = upload([pooled], states.device)
        rows = torch.arange(len(at), device=states.device)[:, None]

        def take(tensor: Any) -> Any:
            if isinstance(tensor, tuple):
                return tuple(map(take, tensor))
            tensor = tensor.to(states.device, non_blocking=True)
            return (tensor.expand(len(at), *tensor.shape[1:]) if len(tensor) == 1 else tensor)[rows, at]

        # position_ids, position_embeddings, and in some models embeddings per type of layer
        for name in [name for name in kwargs if name.startswith("position_") and kwargs[name] is not None]:
            kwargs[name] = take(kwargs[name])
        return (take(states), *rest), {**kwargs, **changed}

    handle = layer.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
