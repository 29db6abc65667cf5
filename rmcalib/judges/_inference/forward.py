"""One forward pass: a batch of texts in, their rewards out, by the plain way or with shared prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib.judges._inference.architectures import (
    PACKABLE,
    attends_by_branch,
    forget_lengths,
    last_window,
    layer_windows,
    rotary_kind,
    running_config,
)
from rmcalib.judges._inference.attention import Branches, by_branch
from rmcalib.judges._inference.packing import Row, Text, pack, tree_mask

if TYPE_CHECKING:
    import torch

    from rmcalib.judges._reward_model import RewardModel


def plain_rewards(model: RewardModel, texts: Sequence[Text]) -> tuple[list[int], torch.Tensor]:
    """Score `texts` padded on the right; returns their places in the chunk, and the rewards."""
    import torch

    longest = max(len(text) for text in texts)
    ids = np.zeros((len(texts), longest), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text.encoded.input_ids
        mask[row, : len(text)] = 1
    # Any id will do for padding: the mask hides it, and the pooled positions are known.
    input_ids = torch.from_numpy(ids).to(model.device)
    attention_mask = torch.from_numpy(mask).to(model.device)
    if rotary_kind(running_config(model)) == "dynamic":
        forget_lengths(model.backbone)
    with torch.inference_mode():
        if model.kind != "causal":
            rewards = model.score(input_ids, attention_mask)
        else:
            outputs = model.backbone(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
            states = outputs.last_hidden_state
            rows = torch.arange(len(texts), device=states.device)
            pooled = torch.tensor([text.pooled for text in texts], device=states.device)
            rewards = model.head(states[rows, pooled].float())
    return [text.index for text in texts], rewards.float().cpu()


def shared_rewards(model: RewardModel, rows: Sequence[Row]) -> tuple[list[int], torch.Tensor]:
    """Score the texts of packed `rows`; returns their places in the chunk, and the rewards."""
    import torch

    config = running_config(model)
    packed = pack(rows)
    arrays = (packed.input_ids, packed.positions, packed.trees, packed.branches, packed.pooled, packed.valid)
    ids, positions, trees, branches, pooled, valid = (torch.from_numpy(a).to(model.device) for a in arrays)

    def mask(window: int | None, queries: torch.Tensor | None = None) -> torch.Tensor:
        return tree_mask(trees, branches, positions, dtype=model.dtype, window=window, queries=queries)

    inputs: dict[str, Any] = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    narrowed = pooled_only(model.backbone, pooled, mask(last_window(config), pooled))
    with torch.inference_mode(), narrowed:
        if attends_by_branch(model):
            with by_branch(config):
                states = model.backbone(**inputs, branches=Branches(rows)).last_hidden_state
        else:
            masks: Any = {kind: mask(window) for kind, window in layer_windows(config).items()}
            if PACKABLE[config.model_type] == "one":
                (masks,) = masks.values()
            states = model.backbone(**inputs, attention_mask=masks).last_hidden_state
        rewards = model.head(states[valid.to(states.device)].float())
    return packed.order.tolist(), rewards.float().cpu()


class _KeysKept(Exception):
    """The last layer has handed over its keys and values; the rest of its work is not wanted."""


class _KeptKeys:
    """Stands in for the last layer's cache: keeps the keys and values of all tokens, then hands them out."""

    def __init__(self) -> None:
        self.kept: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep what comes first, and stop the layer; afterwards return it whatever comes."""
        if self.kept is None:
            self.kept = (keys, values)
            raise _KeysKept
        return self.kept


@contextmanager
def pooled_only(backbone: torch.nn.Module, pooled: torch.Tensor, mask: torch.Tensor) -> Iterator[None]:
    """Within this block the last layer of `backbone` works only on the tokens at `pooled` (rows, texts).

    `mask` (rows, 1, texts, tokens) says what these tokens see. Nothing after the last layer's keys and values
    looks at the other tokens. So the stock layer runs twice: on all tokens until it hands its keys and values
    to its cache, and on the pooled tokens, whose cache returns those. The layer's own code does all the
    arithmetic, so this holds for any architecture whose attention asks its cache for keys and values.
    """
    layer: Any = backbone.layers[-1]  # type: ignore[index]

    def narrow(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        import torch

        states, *rest = args
        keys = _KeptKeys()
        kwargs["layer_past" if "layer_past" in kwargs else "past_key_values"] = keys
        try:
            layer.forward(states, *rest, **kwargs)  # not layer(...): that would come back here
        except _KeysKept:
            pass
        else:
            raise TypeError(f"the layers of {type(backbone).__name__} do not ask a cache for keys and values")
        # A model spread over several devices has its tensors here and there; the layer's states lead.
        at = pooled.to(states.device)
        rows = torch.arange(len(at), device=states.device)[:, None]

        def take(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(states.device)[rows, at]

        kwargs.pop("branches", None)
        kwargs["attention_mask"] = mask.to(states.device)
        kwargs["position_ids"] = take(kwargs["position_ids"])
        kwargs["position_embeddings"] = tuple(take(part) for part in kwargs["position_embeddings"])
        return (take(states), *rest), kwargs

    handle = layer.register_forward_pre_hook(narrow, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
