"""One forward pass: the rewards of a batch of texts, with one text per row or with shared prompts.

A pass does not wait for the device. Its inputs are copied in one transfer from pinned memory, and its rewards
stay on the device until the caller collects them, so that the next pass is prepared while this one runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import IntArray
from rmcalib.judges._inference.architectures import (
    Sharing,
    forget_lengths,
    rotary_kinds,
    running_config,
)
from rmcalib.judges._inference.attention import Branches, DenseMask, tree_attention
from rmcalib.judges._inference.devices import kernels, upload
from rmcalib.judges._inference.flex import BLOCK, FlexTree
from rmcalib.judges._inference.packing import PackedRows, Row, Text, pack, tree_mask

if TYPE_CHECKING:
    import torch

    from rmcalib.judges._reward_model import RewardModel

Narrow = Callable[[dict[str, Any]], None]
"""Changes the keyword arguments of the last layer to those for the pooled tokens."""


def plain_rewards(model: RewardModel, texts: Sequence[Text]) -> tuple[list[int], torch.Tensor]:
    """Score texts padded on the right; return their indices in the chunk, and the rewards on the device."""
    import torch

    longest = max(len(text) for text in texts)
    ids = np.zeros((len(texts), longest), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text.encoded.input_ids
        mask[row, : len(text)] = 1
    # The id of the padding does not matter: the mask hides it, and the pooled positions are known.
    pooled = np.array([row * longest + text.pooled for row, text in enumerate(texts)], dtype=np.int64)
    input_ids, attention_mask = upload([ids, mask], model.device)
    if "dynamic" in rotary_kinds(running_config(model)):
        forget_lengths(model.backbone)
    with torch.inference_mode(), kernels(model.device):
        if model.kind != "causal":
            rewards = model.score(input_ids, attention_mask)
        else:
            outputs = model.backbone(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
            states = outputs.last_hidden_state.flatten(0, 1)
            (at,) = upload([pooled], states.device)
            rewards = model.head(states.index_select(0, at).float())
    return [text.index for text in texts], rewards.float()


def shared_rewards(
    model: RewardModel, rows: Sequence[Row], sharing: Sharing, *, bucket: int = BLOCK
) -> tuple[list[int], torch.Tensor]:
    """Score the texts of packed `rows`; return their indices in the chunk, and the rewards on the device.

    With FlexAttention, the number of tokens is rounded up to a multiple of `bucket`, so that kernels are
    compiled for few different shapes.
    """
    import torch

    config = running_config(model)
    flex = sharing.attention == "flex"
    packed = pack(rows, multiple=bucket, texts_multiple=BLOCK) if flex else pack(rows)
    valid = np.flatnonzero(packed.valid.ravel())
    arrays = [packed.input_ids, packed.positions, packed.pooled, packed.trees, packed.branches]
    ids, positions, pooled, trees, branches = upload(arrays, model.device)

    def mask(window: int | None, queries: torch.Tensor | None = None) -> torch.Tensor:
        return tree_mask(trees, branches, positions, dtype=model.dtype, window=window, queries=queries)

    inputs: dict[str, Any] = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    if sharing.attention == "mask":
        masks: Any = {kind: mask(window) for kind, window in sharing.windows.items()}
        inputs["attention_mask"] = masks if sharing.layer_types else masks.popitem()[1]
        narrow = _narrow_mask(mask(sharing.last_window, pooled))
    else:
        eager = getattr(config, "_attn_implementation", None) == "eager"
        inputs["tree"], narrow = _narrow_tree(rows, packed, eager, mask, sharing, pooled)
    with torch.inference_mode(), kernels(model.device), pooled_only(model.backbone, packed.pooled, narrow):
        if sharing.attention == "mask":
            states = model.backbone(**inputs).last_hidden_state
        else:
            with tree_attention(config):
                states = model.backbone(**inputs).last_hidden_state
        (used,) = upload([valid], states.device)
        rewards = model.head(states.flatten(0, 1).index_select(0, used).float())
    return packed.order.tolist(), rewards.float()


def _narrow_mask(mask: torch.Tensor) -> Narrow:
    def narrow(kwargs: dict[str, Any]) -> None:
        kwargs["attention_mask"] = mask

    return narrow


def _narrow_tree(
    rows: Sequence[Row],
    packed: PackedRows,
    eager: bool,
    mask: Callable[..., torch.Tensor],
    sharing: Sharing,
    pooled: torch.Tensor,
) -> tuple[Any, Narrow]:
    """Return the attention of a pass, and a function that changes it to that of the pooled tokens."""
    tree: Any
    last: Any
    if sharing.attention == "flex":
        tree = FlexTree(packed, softcap=eager)
        last = tree.at_pooled()
    else:
        tree, last = Branches(rows), DenseMask(mask(sharing.last_window, pooled))

    def narrow(kwargs: dict[str, Any]) -> None:
        kwargs["tree"] = last

    return tree, narrow


class _KeysKept(Exception):
    """Raised when the last layer has passed its keys and values to the cache, to stop the layer."""


class _KeptKeys:
    """Replaces the last layer's cache: stores the keys and values of all tokens, and returns them later."""

    def __init__(self) -> None:
        self.kept: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the first keys and values and stop the layer; in later calls, return them."""
        if self.kept is None:
            self.kept = (keys, values)
            raise _KeysKept
        return self.kept


@contextmanager
def pooled_only(backbone: torch.nn.Module, pooled: IntArray, narrow: Narrow) -> Iterator[None]:
    """Within this block, the last layer of `backbone` runs only for the tokens at `pooled` (rows, texts).

    `narrow` sets which tokens these attend to. Of the other tokens, only the last layer's keys and values are
    needed. So the layer runs twice: on all tokens, until it passes its keys and values to its cache, and on
    the pooled tokens, with a cache that returns those keys and values. The layer's own code does all the
    arithmetic, so this works for any architecture whose attention uses a cache.
    """
    layer: Any = backbone.layers[-1]  # type: ignore[index]

    def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        import torch

        states, *rest = args
        keys = _KeptKeys()
        kwargs["layer_past" if "layer_past" in kwargs else "past_key_values"] = keys
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

        def take(tensor: torch.Tensor) -> torch.Tensor:
            tensor = tensor.to(states.device, non_blocking=True)
            return (tensor.expand(len(at), *tensor.shape[1:]) if len(tensor) == 1 else tensor)[rows, at]

        # position_ids, position_embeddings, and in some models embeddings per type of layer
        for name in [name for name in kwargs if name.startswith("position_")]:
            part = kwargs[name]
            if isinstance(part, tuple):
                kwargs[name] = tuple(take(one) for one in part)
            elif part is not None:
                kwargs[name] = take(part)
        narrow(kwargs)
        return (take(states), *rest), kwargs

    handle = layer.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
