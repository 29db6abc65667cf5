"""What the scorer must know of an architecture: may prompts be shared, how far do layers look back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmcalib.judges._reward_model import RewardModel

# Architectures whose attention takes ready masks and positions, so that a row may hold several texts: tested,
# and checked again on a few prompts of every run. "one": all layers take the same mask; "by layer": a
# dictionary from the layers' types to masks.
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

# Of the kind "one", only these apply `sliding_window`. The others ignore it if their configuration has one.
_WINDOW_IN_EVERY_LAYER = ("mistral", "mixtral", "phi3")

# These rotary embeddings change with the longest text of a batch: only texts of one length may go together.
_ROTARY_BY_LENGTH = ("dynamic", "longrope")


def running_config(model: RewardModel) -> Any:
    """Return the configuration that the model's layers look at while they run: it knows the attention in use.

    `model.config` is the checkpoint's, as it was published.
    """
    return getattr(model.backbone, "config", model.config)


def can_share(model: RewardModel) -> bool:
    """Tell whether the responses of a prompt may share its computation in this model."""
    config = running_config(model)
    return (
        model.kind == "causal"
        and config.model_type in PACKABLE
        and getattr(config, "_attn_implementation", None) in ("sdpa", "eager")
        and hasattr(model.backbone, "layers")
        and not needs_same_length(model)
    )


def needs_same_length(model: RewardModel) -> bool:
    """Tell whether padding could change a reward, so that only texts of one length may go together.

    That is so for models scored by their own code, which may look at the padding, and for rotary embeddings
    that depend on the longest text of the batch.
    """
    return model.kind == "opaque" or rotary_kind(running_config(model)) in _ROTARY_BY_LENGTH


def rotary_kind(config: Any) -> str | None:
    """Return the `rope_type` of a configuration, if it has one."""
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind: str | None = rotary.get("rope_type")
    return kind


def forget_lengths(backbone: Any) -> None:
    """Make rotary embeddings of the dynamic kind forget the longest text so far."""
    rotary = getattr(backbone, "rotary_emb", None)
    if rotary is not None:
        rotary.inv_freq = rotary.original_inv_freq.to(rotary.inv_freq.device)
        rotary.max_seq_len_cached = rotary.original_max_seq_len


def layer_windows(config: Any) -> dict[str, int | None]:
    """Return for each type of layer how many positions it sees, its own included; None is all of them."""
    window = getattr(config, "sliding_window", None)
    if PACKABLE[config.model_type] == "one":
        return {"full_attention": window if config.model_type in _WINDOW_IN_EVERY_LAYER else None}
    kinds = ("full_attention", *config.layer_types)
    return {kind: window if kind == "sliding_attention" else None for kind in kinds}


def last_window(config: Any) -> int | None:
    """Return how far the last layer looks back."""
    windows = layer_windows(config)
    return windows["full_attention" if len(windows) == 1 else config.layer_types[-1]]


def attends_by_branch(model: RewardModel) -> bool:
    """Tell whether attention goes branch by branch, as pays on a CPU, or with a mask over the whole row."""
    attention = getattr(running_config(model), "_attn_implementation", None)
    return model.device.type == "cpu" and attention == "sdpa"


def attention_crossover(model: RewardModel) -> float:
    """Return the row length at which attention costs as much arithmetic as all products with weights.

    Attention that goes branch by branch does not depend on the row's length.
    """
    if attends_by_branch(model):
        return float("inf")
    layer: Any = model.backbone.layers[-1]  # type: ignore[index]
    weights = sum(parameter.numel() for parameter in layer.parameters())
    config = running_config(model)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return float(weights / (2 * config.num_attention_heads * head))
