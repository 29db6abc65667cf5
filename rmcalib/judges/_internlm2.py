"""InternLM2's checkpoints as stock Llama models, so that the model's own code need not run.

The two architectures compute the same. InternLM2 has other names, and keeps the projections of queries, keys
and values in one matrix: for each key head, the rows of its query heads, then its key's, then its value's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_PACKED = re.compile(r"(?P<layer>.*)\.attention\.wqkv\.(?P<kind>weight|bias)")
_LLAMA_NAMES = {
    "tok_embeddings": "embed_tokens",
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def is_internlm2(names: Iterable[str]) -> bool:
    """Return whether a checkpoint has InternLM2's tensors.

    >>> is_internlm2(["model.layers.0.attention.wqkv.weight"]), is_internlm2(["model.norm.weight"])
    (True, False)
    """
    return any(_PACKED.fullmatch(name) for name in names)


def llama_tensors(tensors: Mapping[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """Return InternLM2's tensors with the names and the layout of Llama's; `config` is a Llama configuration.

    >>> import torch
    >>> from types import SimpleNamespace
    >>> config = SimpleNamespace(num_attention_heads=2, num_key_value_heads=1)
    >>> packed = torch.arange(8.0)[:, None]  # two heads of queries, one of keys, one of values
    >>> parts = llama_tensors({"layers.0.attention.wqkv.weight": packed}, config)
    >>> {name.split(".")[3]: part[:, 0].tolist() for name, part in parts.items()}
    {'q_proj': [0.0, 1.0, 2.0, 3.0], 'k_proj': [4.0, 5.0], 'v_proj': [6.0, 7.0]}
    """
    n_key_heads = config.num_key_value_heads
    n_per_key = config.num_attention_heads // n_key_heads  # query heads that share a key head
    result: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        match = _PACKED.fullmatch(name)
        if match is None:
            result[_llama_name(name)] = tensor
            continue
        heads = tensor.reshape(n_key_heads, n_per_key + 2, -1, *tensor.shape[1:])
        parts = {"q": heads[:, :n_per_key], "k": heads[:, -2], "v": heads[:, -1]}
        for part, rows in parts.items():
            stacked = rows.reshape(-1, *tensor.shape[1:]).contiguous()
            result[f"{match['layer']}.self_attn.{part}_proj.{match['kind']}"] = stacked
    return result


def _llama_name(name: str) -> str:
    module, _, kind = name.rpartition(".")
    for old, new in _LLAMA_NAMES.items():
        if module == old or module.endswith(f".{old}"):
            return f"{module.removesuffix(old)}{new}.{kind}"
    return name
