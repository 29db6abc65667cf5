"""Find out how the responses of a prompt can share its computation in a model.

There is no list of architectures. The configuration says which masks the layers take. A forward pass over a
few tokens shows whether a window is applied, and whether every layer uses the attention interface of
transformers. `verifying` compares rewards while a benchmark is scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

    from rmcalib.judges._reward_model import RewardModel

Attention = Literal["branches", "flex", "mask"]
"""How attention over packed texts is computed.

- `branches`: separately for the prompt and for each response; the fastest way on a CPU.
- `flex`: one FlexAttention kernel that skips blocks without attention; for CUDA.
- `mask`: a dense mask over whole rows; works for most models, but does unneeded work.
"""

FULL, SLIDING = "full_attention", "sliding_attention"

# These rotary embeddings depend on the longest text of a batch, so a batch may have texts of one length only.
_ROTARY_BY_LENGTH = ("dynamic", "longrope")
_PROBE = "rmcalib_probe"
_PROBE_TOKENS = 4


class CannotShare(Exception):
    """Responses cannot share the computation of their prompt in this model. The message says why."""


@dataclass(frozen=True)
class Sharing:
    """How a model shares prompts.

    Parameters
    ----------
    attention : Attention
        How attention over packed texts is computed.
    windows : Mapping[str, int | None]
        Number of positions that each type of layer attends to, the token's own included; None for all.
    layer_types : tuple[str, ...]
        Type of each layer; empty if all layers take the same mask.
    """

    attention: Attention
    windows: Mapping[str, int | None]
    layer_types: tuple[str, ...] = ()

    @property
    def last_window(self) -> int | None:
        """Number of positions that the last layer attends to; None for all."""
        return self.windows[self.layer_types[-1] if self.layer_types else FULL]

    def with_masks(self) -> Sharing:
        """Return the same with dense masks, which work for most models."""
        return replace(self, attention="mask")


def running_config(model: RewardModel) -> Any:
    """Return the configuration that the layers use while they run, with the attention in use.

    `model.config` is the configuration of the checkpoint.
    """
    return getattr(model.backbone, "config", model.config)


def how_to_share(model: RewardModel) -> Sharing:
    """Find out how the responses of a prompt can share its computation in this model.

    If the configuration has `layer_types`, layers take one mask per type, otherwise one mask for all. A
    single window counts only if the model's output shows that it is applied, because many architectures
    ignore the window in their configuration.

    Raises
    ------
    CannotShare
        If they cannot. The message says why.
    """
    config = running_config(model)
    if model.kind != "causal":
        raise CannotShare("it is not a causal model, or it runs its own code")
    if needs_same_length(model):
        raise CannotShare("its rotary embeddings depend on the longest text of a batch")
    attention = getattr(config, "_attn_implementation", None)
    if attention not in ("sdpa", "eager"):
        raise CannotShare(f"its attention is {attention!r}, not 'sdpa' or 'eager'")
    if len(getattr(model.backbone, "layers", ())) == 0:
        raise CannotShare("it has no list of layers")
    layer_types = tuple(getattr(config, "layer_types", None) or ())
    unknown = sorted({*layer_types} - {FULL, SLIDING})
    if unknown:
        raise CannotShare(f"it has layers of type {unknown[0]!r}")
    try:
        window = getattr(config, "sliding_window", None)
        if layer_types:
            windows = {FULL: None, **{kind: window if kind == SLIDING else None for kind in layer_types}}
        else:
            windows = {FULL: window if window is not None and _applies_window(model) else None}
        sharing = Sharing("mask", windows, layer_types)
        if attention == "sdpa" and model.device.type == "cpu" and _uses_interface(model, sharing):
            return replace(sharing, attention="branches")
        if model.device.type == "cuda" and _uses_interface(model, sharing):
            return replace(sharing, attention="flex")
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, RuntimeError) as error:
        raise CannotShare(f"{type(error).__name__}: {error}") from error
    if not hasattr(config, "num_attention_heads"):  # with transformers 4.57, Mamba names no types of layers
        raise CannotShare("its configuration names no attention heads")
    return sharing


def lengths_to_check(model: RewardModel) -> list[int]:
    """Return the lengths beyond which layers may attend differently: all windows in the configuration.

    >>> from types import SimpleNamespace as Part
    >>> config = Part(sliding_window=512, attention_chunk_size=None)
    >>> lengths_to_check(Part(backbone=Part(config=config), config=config))
    [512]
    """
    config = running_config(model)
    names = ("sliding_window", "attention_chunk_size", "window_size", "attention_window_size")
    values = (getattr(config, name, None) for name in names)
    return sorted({value for value in values if isinstance(value, int) and value > 0})


def needs_same_length(model: RewardModel) -> bool:
    """Return whether padding could change a reward, so that a batch may have texts of one length only.

    This is the case for models that run their own code, which may not ignore the padding, and for rotary
    embeddings that depend on the longest text of the batch.
    """
    return model.kind == "opaque" or not rotary_kinds(running_config(model)).isdisjoint(_ROTARY_BY_LENGTH)


def rotary_kinds(config: Any) -> set[str]:
    """Return the `rope_type` of a configuration, or those of all its types of layers.

    >>> from types import SimpleNamespace as Config
    >>> rotary_kinds(Config(rope_parameters={"rope_type": "dynamic"}))
    {'dynamic'}
    """
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    parts = [rotary, *(part for part in rotary.values() if isinstance(part, Mapping))]
    return {part["rope_type"] for part in parts if part.get("rope_type")}


def forget_lengths(backbone: Any) -> None:
    """Reset dynamic rotary embeddings, which remember the longest text so far."""
    rotary = getattr(backbone, "rotary_emb", None)
    if rotary is not None:
        rotary.inv_freq = rotary.original_inv_freq.to(rotary.inv_freq.device)
        rotary.max_seq_len_cached = rotary.original_max_seq_len


def attention_crossover(model: RewardModel, sharing: Sharing) -> float:
    """Return the row length at which attention costs as much as all products with weights.

    It is infinite without dense masks, because the cost then does not depend on the length of the row.
    """
    if sharing.attention != "mask":
        return float("inf")
    layer: Any = model.backbone.layers[-1]  # type: ignore[index]
    weights = sum(parameter.numel() for parameter in layer.parameters())
    config = running_config(model)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return float(weights / (2 * config.num_attention_heads * head))


@contextmanager
def attending_by(config: Any, name: str) -> Iterator[None]:
    """Within this block, the model of `config` uses the attention function registered as `name`."""
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


def _run_probe(model: RewardModel, **options: Any) -> torch.Tensor:
    """Run the model on a few tokens; return the hidden state of the last one."""
    import torch

    ids = torch.arange(_PROBE_TOKENS, device=model.device)[None] + 1
    places = torch.arange(_PROBE_TOKENS, device=model.device)[None]
    with torch.inference_mode():
        outputs = model.backbone(input_ids=ids, position_ids=places, use_cache=False, **options)
    state: torch.Tensor = outputs.last_hidden_state[0, -1].float()
    return state


def _applies_window(model: RewardModel) -> bool:
    """Return whether a window of one position changes the output by more than rounding."""
    config = running_config(model)
    before = config.sliding_window
    states = []
    try:
        for window in (1, 10**6):
            config.sliding_window = window
            states.append(_run_probe(model))
    finally:
        config.sliding_window = before
    return bool((states[0] - states[1]).norm() > 0.01 * states[1].norm())


def _uses_interface(model: RewardModel, sharing: Sharing) -> bool:
    """Return whether every layer calls the attention interface once, with the expected window.

    Models that compute attention in their own code would ignore a replaced attention function.
    """
    import torch
    from transformers import AttentionInterface

    config = running_config(model)
    key = object()
    seen: list[tuple[int, int | None]] = []

    def record(
        module: Any, query: Any, keys: Any, values: Any, _mask: Any, scaling: Any = None, **kwargs: Any
    ) -> tuple[torch.Tensor, None]:
        if kwargs.get("tree") is key and kwargs.get("s_aux") is None:  # attention sinks need their own kernel
            seen.append((id(module), kwargs.get("sliding_window")))
        groups = query.shape[1] // keys.shape[1]
        keys, values = (part.repeat_interleave(groups, dim=1) for part in (keys, values))
        output = torch.nn.functional.scaled_dot_product_attention(query, keys, values, scale=scaling)
        return output.transpose(1, 2).contiguous(), None

    AttentionInterface.register(_PROBE, record)
    n_layers = len(model.backbone.layers)  # type: ignore[arg-type]
    kinds = sharing.layer_types or (FULL,) * n_layers
    try:
        with attending_by(config, _PROBE):
            _run_probe(model, tree=key)
    except (TypeError, ValueError, AttributeError, KeyError, RuntimeError):
        return False
    found = [window for _, window in seen]
    return len({module for module, _ in seen}) == n_layers and found == [sharing.windows[k] for k in kinds]
