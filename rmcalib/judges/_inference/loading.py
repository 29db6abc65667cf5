"""A reward model's files into memory: tokenizer, config, weights, in the dtype and on the device to use."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rmcalib._util.hub import PICKLE_ONLY, HubError, has_safe_weights, translated
from rmcalib._util.processes import may_draw
from rmcalib.judges._inference.building import Asked, build
from rmcalib.judges._inference.devices import DTYPES, avoid_crashes, choose_device, free_memory
from rmcalib.judges._inference.heads import weight_files

__all__ = ["Asked", "Parts", "load_parts", "load_tokenizer"]

_TOKENIZER_FILES = (
    *(
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "sentencepiece.bpe.model",
        "spiece.model",
    ),
    *("spm.model", "vocab.json", "vocab.txt", "merges.txt", "tekken.json"),
)


@dataclass(frozen=True)
class Parts:
    """What a `RewardModel` is made of, apart from the tokenizer."""

    backbone: nn.Module
    head: nn.Module
    kind: str
    config: Any
    device: torch.device
    dtype: torch.dtype


def load_tokenizer(asked: Asked, folder: Path) -> Any:
    """Load the tokenizer and see to it that there is a way to write a conversation."""
    from transformers import AutoTokenizer

    from rmcalib.judges._inference.templates import TEMPLATES

    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise HubError(f"{asked.name}: no config.json, so this is no transformers model")
        raise HubError(
            f"{asked.name}: no tokenizer in it: save it beside the weights (tokenizer.save_pretrained), or "
            "name the repository that has it in a recipe (`tokenizer`)"
        )
    with translated(asked.name), _quietly():
        tokenizer = AutoTokenizer.from_pretrained(folder, **asked.code())
    template = asked.recipe.template
    known = ", ".join(TEMPLATES)
    if template is not None and template not in TEMPLATES:
        raise HubError(f"{asked.name}: template: unknown {template!r} (have: {known})")
    if template is None and not getattr(tokenizer, "chat_template", None):
        raise HubError(
            f"{asked.name}: the tokenizer has no chat template: name one in a recipe (have: {known})"
        )
    return tokenizer


def load_parts(asked: Asked, folder: Path, adapter: Path | None) -> Parts:
    """Load transformer and head from `folder`, with the PEFT `adapter` merged into it if there is one."""
    if adapter is not None and asked.recipe.head != "auto":
        raise HubError(
            f"{asked.name}: a PEFT adapter, and a recipe with `head: {asked.recipe.head}`, which would leave "
            "it out: merge it into its base (peft's merge_and_unload), and score the merged model's folder"
        )
    config = _load_config(asked, folder)
    device = choose_device(asked.options.device, local_rank=int(os.environ.get("LOCAL_RANK", "0")))
    dtype = _dtype(asked, config, device)
    avoid_crashes(device)
    options: dict[str, Any] = {
        "dtype": dtype,
        **asked.code(),
        "use_safetensors": _are_safe(asked, folder),
    }
    if asked.recipe.attention is not None:
        options["attn_implementation"] = asked.recipe.attention
    device_map = _device_map(asked, folder, config, device, dtype)
    if device_map is not None:
        options["device_map"] = device_map
    with translated(asked.name), _quietly():
        backbone, module, kind = build(asked, folder, adapter, config, options)
    backbone.eval().requires_grad_(False)
    module.eval().requires_grad_(False)
    if device_map is None:
        backbone.to(device)
    module.to(device)
    return Parts(backbone, module, kind, config, device, dtype)


def _are_safe(asked: Asked, folder: Path) -> bool:
    """Tell whether the weights that will be loaded are safetensors; pickle ones must be allowed."""
    files = weight_files(folder)
    if not files and not has_safe_weights(folder):
        raise HubError(f"{asked.name}: no weights in {folder} (model.safetensors)")
    safe = all(file.suffix == ".safetensors" for file in files)
    if not safe and not asked.options.allow_pickle:
        raise HubError(f"{asked.name}: {PICKLE_ONLY}")
    return safe


def _load_config(asked: Asked, folder: Path) -> Any:
    from transformers import AutoConfig

    path = folder / "config.json"
    if not path.is_file():
        raise HubError(f"{asked.name}: no config.json, so this is no transformers model")
    with translated(asked.name), _quietly():
        if asked.recipe.architecture is None:
            return AutoConfig.from_pretrained(folder, **asked.code())
        values = json.loads(path.read_text(encoding="utf-8"))
        values.pop("model_type", None)
        return AutoConfig.for_model(asked.recipe.architecture, **values)


def _dtype(asked: Asked, config: Any, device: torch.device) -> torch.dtype:
    """Settle the dtype: as asked for; else float32 on a CPU, the recipe's or the checkpoint's elsewhere."""
    if asked.options.dtype != "auto":
        return _named_dtype(asked.options.dtype, "dtype", ("auto", *DTYPES))
    if device.type == "cpu":
        return torch.float32
    if asked.recipe.dtype is not None:
        return _named_dtype(asked.recipe.dtype, f"{asked.name}: dtype", DTYPES)
    own = getattr(config, "dtype", None)
    return own if isinstance(own, torch.dtype) else torch.float32


def _named_dtype(name: str, where: str, allowed: tuple[str, ...]) -> torch.dtype:
    if name not in allowed:
        raise ValueError(f"{where}: unknown {name!r} (have: {', '.join(allowed)})")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _device_map(asked: Asked, folder: Path, config: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Spread the model over all CUDA devices if one is too small and this process has them to itself."""
    if device.type != "cuda" or asked.options.device != "auto" or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return None
    own = getattr(config, "dtype", None)
    ratio = dtype.itemsize / own.itemsize if isinstance(own, torch.dtype) else 1.0
    stored = sum(path.stat().st_size for path in weight_files(folder))
    return "auto" if stored * ratio > 0.9 * free_memory(device) else None


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep transformers' reports off the screen (they become errors here), and bars out of logs."""
    from transformers.utils import logging

    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(40)  # errors only
    if not may_draw():
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
