"""Load the tokenizer, the configuration and the weights of a model, in its dtype, on its device."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rmcalib._util.hub import PICKLE_ONLY, HubError, has_safe_weights, translated
from rmcalib._util.processes import may_draw, process_rank
from rmcalib.judges._inference.building import Asked, build
from rmcalib.judges._inference.devices import (
    DTYPES,
    available_devices,
    avoid_crashes,
    choose_device,
    free_memory,
)
from rmcalib.judges._inference.heads import weight_files

__all__ = ["Asked", "Parts", "load_causal", "load_parts", "load_tokenizer"]

_SHARE_FOR_WEIGHTS = 0.9  # of a device's free memory; the rest is for activations

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
    """The parts of a `RewardModel`, without the tokenizer."""

    backbone: nn.Module
    head: nn.Module
    kind: str
    config: Any
    device: torch.device
    dtype: torch.dtype
    dtype_from: str


def load_tokenizer(asked: Asked, folder: Path) -> Any:
    """Load the tokenizer, and check that it or the recipe has a chat template."""
    from transformers import AutoTokenizer

    from rmcalib.judges._inference.templates import TEMPLATES

    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise HubError(f"{asked.name}: no config.json, so this is not a transformers model")
        raise HubError(
            f"{asked.name}: has no tokenizer: save one beside the weights (tokenizer.save_pretrained), or "
            "give another repository in a recipe (`tokenizer`)"
        )
    with translated(asked.name), _quietly():
        tokenizer = AutoTokenizer.from_pretrained(folder, **asked.code())
    template = asked.recipe.template
    known = ", ".join(TEMPLATES)
    if template is not None and template not in TEMPLATES:
        raise HubError(f"{asked.name}: template: unknown {template!r} (have: {known})")
    if template is None and not getattr(tokenizer, "chat_template", None):
        raise HubError(
            f"{asked.name}: the tokenizer has no chat template: give one in a recipe (have: {known})"
        )
    return tokenizer


def load_parts(asked: Asked, folder: Path, adapter: Path | None) -> Parts:
    """Load transformer and head from `folder`, with the PEFT `adapter` merged into them if there is one."""
    if adapter is not None and asked.recipe.head != "auto":
        raise HubError(
            f"{asked.name}: a PEFT adapter cannot have a recipe with `head: {asked.recipe.head}`: merge the "
            "adapter into its base (peft's merge_and_unload), and score the merged model's folder"
        )
    config, device, dtype, dtype_from, options = _settings(asked, folder)
    if asked.recipe.attention is not None:
        options["attn_implementation"] = asked.recipe.attention
    with translated(asked.name), _quietly():
        backbone, module, kind = build(asked, folder, adapter, config, options)
    _place(asked.name, backbone, device, options)
    module.eval().requires_grad_(False)
    # Next to the last layer: a copy back to the first GPU would make it wait for the last one in every pass.
    module.to(last_device(backbone, device))
    if asked.options.compile and kind == "causal":
        compile_layers(backbone)
    return Parts(backbone, module, kind, config, device, dtype, dtype_from)


def load_causal(asked: Asked, folder: Path) -> tuple[Any, torch.device, torch.dtype]:
    """Load a causal language model from `folder`; return it with its device and dtype."""
    from transformers import AutoModelForCausalLM

    config, device, dtype, _, options = _settings(asked, folder)
    make: Any = AutoModelForCausalLM
    with translated(asked.name), _quietly():
        model, report = make.from_pretrained(folder, config=config, output_loading_info=True, **options)
    missing = sorted(report["missing_keys"])
    if missing:  # transformers would initialise them at random
        raise HubError(f"{asked.name}: not a language model: the checkpoint has no {missing[0]}")
    _place(asked.name, model, device, options)
    return model, device, dtype


def _settings(asked: Asked, folder: Path) -> tuple[Any, torch.device, torch.dtype, str, dict[str, Any]]:
    """Return configuration, device, dtype, where the dtype comes from, and options of `from_pretrained`."""
    config = _load_config(asked, folder)
    local_rank = int(os.environ.get("LOCAL_RANK", "0")) if process_rank()[1] > 1 else 0
    device = choose_device(asked.options.device, local_rank=local_rank)
    dtype, dtype_from = settle_dtype(asked, config, device)
    avoid_crashes(device)
    options: dict[str, Any] = {"dtype": dtype, **asked.code(), "use_safetensors": _are_safe(asked, folder)}
    options |= placement(asked, needed_bytes(folder, config, dtype), device)
    return config, device, dtype, dtype_from, options


def _place(name: str, model: nn.Module, device: torch.device, options: dict[str, Any]) -> None:
    """Set a loaded model to evaluation mode on its device."""
    model.eval().requires_grad_(False)
    if "device_map" not in options:
        model.to(device)
    refuse_offloading(name, model, device)


def _are_safe(asked: Asked, folder: Path) -> bool:
    """Return whether the weights are safetensors; raise a `HubError` for pickle if it is not allowed."""
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
        raise HubError(f"{asked.name}: no config.json, so this is not a transformers model")
    with translated(asked.name), _quietly():
        if asked.recipe.architecture is None:
            return AutoConfig.from_pretrained(folder, **asked.code())
        values = json.loads(path.read_text(encoding="utf-8"))
        values.pop("model_type", None)
        return AutoConfig.for_model(asked.recipe.architecture, **values)


def settle_dtype(asked: Asked, config: Any, device: torch.device) -> tuple[torch.dtype, str]:
    """Return the dtype, and where it comes from: `option`, `cpu`, `recipe` or `checkpoint`.

    It is the user's; with `auto`, float32 on a CPU, and otherwise the recipe's or the checkpoint's.
    """
    if asked.options.dtype != "auto":
        return _named_dtype(asked.options.dtype, "dtype", ("auto", *DTYPES)), "option"
    if device.type == "cpu":
        return torch.float32, "cpu"
    if asked.recipe.dtype is not None:
        return _named_dtype(asked.recipe.dtype, f"{asked.name}: dtype", DTYPES), "recipe"
    own = getattr(config, "dtype", None)
    dtype = own if isinstance(own, torch.dtype) else torch.float32
    if dtype == torch.float32:
        warnings.warn(
            f"{asked.name}: the checkpoint is in float32 and runs in float32, which is several times slower "
            "than bfloat16 on a GPU: consider --dtype bfloat16",
            stacklevel=2,
        )
    return dtype, "checkpoint"


def _named_dtype(name: str, where: str, allowed: tuple[str, ...]) -> torch.dtype:
    if name not in allowed:
        raise ValueError(f"{where}: unknown {name!r} (have: {', '.join(allowed)})")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def needed_bytes(folder: Path, config: Any, dtype: torch.dtype) -> float:
    """Estimate the memory of the weights in `dtype`, from the sizes of the files."""
    own = getattr(config, "dtype", None)
    ratio = dtype.itemsize / own.itemsize if isinstance(own, torch.dtype) else 1.0
    return ratio * sum(path.stat().st_size for path in weight_files(folder))


def placement(asked: Asked, needed: float, device: torch.device) -> dict[str, Any]:
    """Return the options of `from_pretrained` that put a model of `needed` bytes on its device.

    A model is loaded directly to its CUDA device. A model that is too large for it is spread over all CUDA
    devices, if no other process of this run uses them. A model that does not fit on these either is refused
    before anything is loaded.
    """
    if device.type != "cuda":
        return {}
    free = free_memory(device)
    if needed <= _SHARE_FOR_WEIGHTS * free:
        return {"device_map": {"": device}}
    about = f"{asked.name}: the weights need about {needed / 1e9:.3g} GB"
    remedy = "use a GPU with more memory, or a narrower --dtype such as bfloat16"
    if process_rank()[1] > 1:
        raise HubError(
            f"{about}, and {device} has {free / 1e9:.3g} GB free. With torchrun, every process loads the "
            f"whole model: start one process without torchrun, which spreads it over all GPUs; or {remedy}"
        )
    if asked.options.device != "auto":
        raise HubError(
            f"{about}, and {device} has {free / 1e9:.3g} GB free: leave out --device to spread it over all "
            f"GPUs; or {remedy}"
        )
    gpus = [gpu for gpu in available_devices() if gpu.type == "cuda"]
    room = {gpu.index: int(_SHARE_FOR_WEIGHTS * free_memory(gpu)) for gpu in gpus}
    if needed > sum(room.values()):
        raise HubError(
            f"{about}, and the {len(gpus)} GPUs of this machine have {sum(room.values()) / 1e9:.3g} GB to "
            f"spare: parts of it would run on the CPU, very slowly. Use more GPUs, or {remedy}"
        )
    return {"device_map": "auto", "max_memory": room}


def refuse_offloading(name: str, model: nn.Module, device: torch.device) -> None:
    """Raise a `HubError` if parts of a model for GPUs are in main memory or on disk."""
    places = {parameter.device.type for parameter in model.parameters()}
    if device.type == "cuda" and places - {"cuda"}:
        raise HubError(
            f"{name}: does not fit on the GPUs, and parts of it would run on the CPU, very slowly: use more "
            "GPUs, or a narrower --dtype such as bfloat16"
        )


def last_device(backbone: nn.Module, device: torch.device) -> torch.device:
    """Return the device of the last layer, which has the hidden states at the end of a pass."""
    layers: Any = getattr(backbone, "layers", None)
    parameter = next(layers[-1].parameters(), None) if isinstance(layers, nn.ModuleList) and layers else None
    return parameter.device if parameter is not None and parameter.device.type == device.type else device


def compile_layers(backbone: nn.Module, *, backend: str = "inductor") -> None:
    """Compile the layers of a model one by one. They are alike, so one compilation is enough for all.

    The last layer is not compiled, because it runs for the pooled tokens only (`forward.pooled_only`).
    """
    layers: Any = getattr(backbone, "layers", ())
    for layer in layers[:-1]:
        layer.compile(dynamic=True, backend=backend)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Hide the warnings of transformers, which are errors here, and progress bars in logs."""
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
