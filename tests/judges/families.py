"""Tiny random models of every causal family that transformers can build, without a tokenizer."""

from __future__ import annotations

import random
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoConfig, AutoModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from rmcalib.judges import Recipe, RewardModel
from rmcalib.judges._templates import Encoded
from rmcalib.judges._weights import Head

VOCABULARY = 64
WINDOW = 6
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "sliding_window": WINDOW,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "n_shared_experts": 1,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "n_layer": 2,
    "n_layers": 2,
    "num_layers": 2,
    "n_embd": 32,
    "n_head": 4,
    "n_positions": 64,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# Families that take many seconds or hundreds of megabytes, whatever the sizes.
_TOO_SLOW = {
    "afmoe",
    "blt",
    "falcon_h1",
    "gemma4_unified_assistant",
    "moshi",
    "musicgen",
    "musicgen_melody",
    "nemotron_h",
    "trocr",
    "whisper",
    "zamba",
    "zamba2",
}
_MOST_PARAMETERS = 2_000_000


def families() -> list[str]:
    """Return the names of all causal families that read nothing but text."""
    names = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - _TOO_SLOW
    return sorted(name for name in names if not CONFIG_MAPPING[name].sub_configs)


def family_model(family: str, *, seed: int = 0, **changes: Any) -> RewardModel:
    """Build a random reward model; raise transformers' own error if it cannot be built."""
    make: Any = AutoConfig.for_model
    default = make(family)
    if default.is_encoder_decoder:
        raise ValueError("not a causal model")
    known = default.to_dict()
    sizes = {name: value for name, value in {**_SIZES, **changes}.items() if name in known}
    if "kv_lora_rank" in known:
        sizes["num_key_value_heads"] = _SIZES["num_attention_heads"]
    if known.get("layer_types"):
        sizes["layer_types"] = known["layer_types"][-sizes.get("num_hidden_layers", 2) :]
        if "num_hidden_layers" not in known:
            raise ValueError("layers under another name")
    config = make(family, **sizes)
    if sum(config.to_dict().get(name) or 0 for name in ("num_hidden_layers", "n_layer", "num_layers")) > 8:
        raise ValueError("too many layers")
    with torch.device("meta"):
        empty: Any = AutoModel.from_config(config)
    if sum(parameter.numel() for parameter in empty.parameters()) > _MOST_PARAMETERS:
        raise ValueError("too many parameters")
    torch.manual_seed(seed)
    backbone: Any = AutoModel.from_config(config)
    backbone = getattr(backbone, "language_model", backbone).eval().float()
    with torch.no_grad():
        for parameter in backbone.parameters():  # far from zero, so that mistakes are visible
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    torch.manual_seed(seed)
    hidden = backbone.get_input_embeddings().weight.shape[1]
    return RewardModel(
        name=f"tiny/{family}",
        revision="",
        recipe=Recipe(model=f"tiny/{family}"),
        tokenizer=None,
        backbone=backbone,
        head=Head([torch.nn.Linear(hidden, 1)]),
        kind="causal",
        config=config,
        device=torch.device("cpu"),
        dtype=torch.float32,
        max_length=64,
    )


def family_texts(n_prompts: int = 4, *, seed: int = 0) -> list[tuple[Encoded, ...]]:
    """Draw prompts with responses; some are longer than the window."""
    rng = random.Random(seed)

    def ids(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.randrange(3, VOCABULARY) for _ in range(rng.randint(low, high)))

    prompts = []
    for _ in range(n_prompts):
        prompt = ids(2, 9)
        prompts.append(
            tuple(Encoded((*prompt, *ids(1, 14)), len(prompt), False) for _ in range(rng.randint(2, 3)))
        )
    return prompts
