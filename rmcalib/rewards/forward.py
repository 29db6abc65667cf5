"""One forward pass: a batch of texts in, their rewards out, by the plain way or with shared prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib.rewards.packing import Row, Text, pack, tree_mask

if TYPE_CHECKING:
    import torch

    from rmcalib.rewards.models import RewardModel

# Architectures whose attention takes a ready mask and positions, so that a row may hold several texts:
# tested, and checked again on the first batch of every run. "one": all layers take the same mask, with the
# window in it where the configuration has one; "by layer": a dictionary from the layers' types to masks.
PACKABLE = {
    "llama": "one",
    "gpt_neox": "one",
    "gemma": "one",
    "olmo2": "one",
    "mistral": "one",
    "mixtral": "one",
    "phi3": "one",
    "qwen2": "by layer",
    "qwen3": "by layer",
    "gemma2": "by layer",
}

# These rotary embeddings change with the longest text of a batch: only texts of one length may go together.
_ROTARY_BY_LENGTH = ("dynamic", "longrope")


def can_share(model: RewardModel) -> bool:
    """Tell whether the responses of a prompt may share its computation in this model."""
    return (
        model.kind == "causal"
        and model.recipe.pooling != "mean"
        and model.config.model_type in PACKABLE
        and getattr(model.config, "_attn_implementation", None) in ("sdpa", "eager")
        and hasattr(model.backbone, "layers")
        and not needs_same_length(model)
    )


def needs_same_length(model: RewardModel) -> bool:
    """Tell whether padding could change a reward, so that only texts of one length may go together.

    That is so for models scored by their own code, which may look at the padding, and for rotary embeddings
    that depend on the longest text of the batch.
    """
    rotary = (
        getattr(model.config, "rope_parameters", None) or getattr(model.config, "rope_scaling", None) or {}
    )
    return model.kind == "opaque" or rotary.get("rope_type") in _ROTARY_BY_LENGTH


def attention_crossover(model: RewardModel) -> float:
    """Return the row length at which attention costs as much arithmetic as all products with weights."""
    layer: Any = model.backbone.layers[-1]  # type: ignore[index]
    weights = sum(parameter.numel() for parameter in layer.parameters())
    config = model.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return float(weights / (2 * config.num_attention_heads * head))


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
    with torch.inference_mode():
        if model.kind != "causal":
            rewards = model.score(input_ids, attention_mask)
        else:
            outputs = model.backbone(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
            states = outputs.last_hidden_state
            if model.recipe.pooling == "mean":
                weights = attention_mask.to(states.device)[:, :, None].float()
                pooled = (states.float() * weights).sum(1) / weights.sum(1)
            else:
                rows = torch.arange(len(texts), device=states.device)
                pooled = states[rows, torch.tensor([text.pooled for text in texts], device=states.device)]
            rewards = _head(model, pooled)
    return [text.index for text in texts], rewards.float().cpu()


def shared_rewards(model: RewardModel, rows: Sequence[Row]) -> tuple[list[int], torch.Tensor]:
    """Score the texts of packed `rows`; returns their places in the chunk, and the rewards."""
    import torch

    packed = pack(rows)
    positions = torch.from_numpy(packed.positions).to(model.device)
    trees = torch.from_numpy(packed.trees).to(model.device)
    branches = torch.from_numpy(packed.branches).to(model.device)
    window = getattr(model.config, "sliding_window", None)

    def mask(window: int | None) -> torch.Tensor:
        return tree_mask(trees, branches, positions, dtype=model.dtype, window=window)

    masks: torch.Tensor | dict[str, torch.Tensor]
    if PACKABLE[model.config.model_type] == "one":
        masks = mask(window)
    else:
        kinds = {"full_attention", *model.config.layer_types}
        masks = {kind: mask(window if kind == "sliding_attention" else None) for kind in kinds}
    with torch.inference_mode(), _pooled_only(model.backbone, torch.from_numpy(packed.pooled)):
        outputs = model.backbone(
            input_ids=torch.from_numpy(packed.input_ids).to(model.device),
            attention_mask=masks,
            position_ids=positions,
            use_cache=False,
        )
        states = outputs.last_hidden_state
        rewards = _head(model, states[torch.from_numpy(packed.valid).to(states.device)])
    return packed.order.tolist(), rewards.float().cpu()


def _head(model: RewardModel, states: torch.Tensor) -> torch.Tensor:
    """Apply the head in float32, where it is."""
    place = next(model.head.parameters(), None)
    states = states.float()
    rewards: torch.Tensor = model.head(states if place is None else states.to(place.device))
    return rewards


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
def _pooled_only(backbone: torch.nn.Module, pooled: torch.Tensor) -> Iterator[None]:
    """Within this block the last layer of `backbone` works only on the tokens at `pooled` (rows, texts).

    Nothing after the last layer's keys and values looks at the other tokens. So the stock layer runs twice:
    on all tokens until it hands its keys and values to its cache, and on the pooled tokens, whose cache
    returns those. The layer's own code does all the arithmetic, so this holds for any architecture whose
    attention asks its cache for keys and values.
    """
    layer: Any = backbone.layers[-1]  # type: ignore[index]

    def narrow(
        _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        import torch

        states, *rest = args
        cache = "layer_past" if "layer_past" in kwargs else "past_key_values"
        kwargs[cache] = keys = _KeptKeys()
        try:
            layer.forward(states, *rest, **kwargs)  # not layer(...): that would come back here
        except _KeysKept:
            assert keys.kept is not None
        else:
            raise TypeError(f"the layers of {type(backbone).__name__} do not ask a cache for keys and values")
        at = pooled.to(states.device)
        rows = torch.arange(len(at), device=states.device)[:, None]
        kwargs["attention_mask"] = kwargs["attention_mask"][rows, 0, at][:, None]
        kwargs["position_ids"] = kwargs["position_ids"][rows, at]
        kwargs["position_embeddings"] = tuple(part[rows, at] for part in kwargs["position_embeddings"])
        return (states[rows, at], *rest), kwargs

    handle = layer.register_forward_pre_hook(narrow, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
