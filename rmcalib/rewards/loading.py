"""The weights of a reward model: transformer, score head, tokenizer, checked to be what they should be.

Everything is read from one folder. A head that transformers would initialise at random, because the
checkpoint has none under the expected name, is an error that says what the checkpoint has instead.
"""

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

from rmcalib.rewards.devices import DTYPES, avoid_crashes, choose_device, free_memory
from rmcalib.rewards.heads import (
    DistributionHead,
    Head,
    Output,
    linear_layers,
    read_tensors,
    tensor_names,
    weight_files,
)
from rmcalib.rewards.hub import PICKLE_ONLY, HubError, has_safe_weights, translated
from rmcalib.rewards.processes import may_draw
from rmcalib.rewards.registry import Recipe

_HEAD_NAMES = ("score", "classifier", "classification_head", "logits_proj")

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
class Asked:
    """What the caller wants of a model."""

    name: str
    recipe: Recipe
    device: str
    dtype: str
    trust_remote_code: bool
    allow_pickle: bool
    code_revision: str | None = None  # commit of the code, where it is in another repository

    def code(self) -> dict[str, Any]:
        """Return what transformers' loaders need to know about the model's own code."""
        return {"trust_remote_code": self.trust_remote_code, "code_revision": self.code_revision}


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

    from rmcalib.rewards.templates import TEMPLATES

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
    device = choose_device(asked.device, local_rank=int(os.environ.get("LOCAL_RANK", "0")))
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
    head = asked.recipe.head
    with translated(asked.name), _quietly():
        if head == "remote":
            backbone, module, kind = _remote(asked, folder, config, options)
        elif head == "auto":
            backbone, module, kind = _classifier(asked, folder, adapter, config, options)
        else:
            backbone, module, kind = _with_head(asked, folder, config, options)
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
    if not safe and not asked.allow_pickle:
        raise HubError(f"{asked.name}: {PICKLE_ONLY}")
    return safe


def _classifier(
    asked: Asked, folder: Path, adapter: Path | None, config: Any, options: dict[str, Any]
) -> tuple[nn.Module, nn.Module, str]:
    """The stock `AutoModelForSequenceClassification`, with one output or a named one."""
    from transformers import AutoModelForSequenceClassification

    names = tensor_names(folder, allow_pickle=asked.allow_pickle)
    _settle_labels(asked, folder, adapter, config)
    model, info = AutoModelForSequenceClassification.from_pretrained(
        folder, config=config, output_loading_info=True, **options
    )
    missing = set(info["missing_keys"])
    if adapter is not None:
        model, supplied = _merge(asked, model, adapter)
        missing -= supplied
    if missing:
        raise HubError(f"{asked.name}: {_what_is_missing(missing, set(names), config, asked)}")
    if type(model).__module__.startswith("transformers_modules"):
        return (
            model,
            Output(asked.recipe.output, column=asked.recipe.column, sign=asked.recipe.sign),
            "opaque",
        )
    score = getattr(model, "score", None)
    if isinstance(score, nn.Linear) and getattr(config, "is_causal", True):
        stored = {} if adapter is not None else read_tensors(folder, "score", allow_pickle=asked.allow_pickle)
        layers = (
            linear_layers(stored, asked.name) if stored else [score]
        )  # the file's precision, not the dtype's
        head = Head(layers, column=asked.recipe.column or 0, sign=asked.recipe.sign)
        return model.base_model, head, "causal"
    for name in _HEAD_NAMES:
        _in_float32(getattr(model, name, None))
    return model, Output("logits", column=asked.recipe.column, sign=asked.recipe.sign), "encoder"


def _with_head(
    asked: Asked, folder: Path, config: Any, options: dict[str, Any]
) -> tuple[nn.Module, nn.Module, str]:
    """A stock transformer with the head rebuilt from the tensors that the recipe names."""
    from transformers import AutoModel

    recipe = asked.recipe
    if getattr(config, "pooling", None) == "mean":
        raise HubError(f"{asked.name}: averages over all tokens, which is not supported")
    head = _distribution_head(asked, folder) if recipe.head == "ldl" else _linear_head(asked, folder, config)
    if recipe.backbone_prefix is not None:
        options = {**options, "key_mapping": {rf"^{recipe.backbone_prefix}\.": ""}}
    model, info = AutoModel.from_pretrained(folder, config=config, output_loading_info=True, **options)
    if info["missing_keys"]:
        raise HubError(f"{asked.name}: the checkpoint lacks {_some(info['missing_keys'])}")
    return getattr(model, "language_model", model), head, "causal"


def _linear_head(asked: Asked, folder: Path, config: Any) -> Head:
    recipe = asked.recipe
    tensors = read_tensors(folder, recipe.head, recipe.head_file, allow_pickle=asked.allow_pickle)
    if not tensors:
        raise HubError(f"{asked.name}: no tensors {recipe.head}.* in the checkpoint, so it has no score head")
    layers = linear_layers(tensors, f"{asked.name}: {recipe.head}")
    outputs = layers[-1].out_features
    if outputs != 1 and recipe.column is None:
        raise HubError(f"{asked.name}: its head gives {outputs} outputs (a recipe's `column` picks one)")
    shift, scale = _normaliser(config)
    return Head(layers, column=recipe.column or 0, sign=recipe.sign, shift=shift, scale=scale)


def _normaliser(config: Any) -> tuple[float, float]:
    """Return the shift and scale that Safe-RLHF's models may apply (rewards: both; costs: the scale)."""
    if not getattr(config, "do_normalize", False):
        return 0.0, 1.0
    mean, var = getattr(config, "mean", None) or [0.0], getattr(config, "var", None) or [1.0]
    kind = getattr(config, "score_type", "reward")
    shift = float(mean[0]) if kind == "reward" else 0.0
    scale = 1.0 if kind == "critic" else float(var[0]) ** 0.5 + 1e-8
    return shift, scale


def _distribution_head(asked: Asked, folder: Path) -> DistributionHead:
    values_file, gates_file = (asked.recipe.head_file or "").split()
    values, gates = (
        read_tensors(folder, "network", file, allow_pickle=asked.allow_pickle)
        for file in (values_file, gates_file)
    )
    if not values or not gates:
        raise HubError(f"{asked.name}: {values_file} or {gates_file} holds no head (needs --allow-pickle)")
    return DistributionHead(
        linear_layers(values, f"{asked.name}: {values_file}"),
        linear_layers(gates, f"{asked.name}: {gates_file}"),
    )


def _remote(
    asked: Asked, folder: Path, config: Any, options: dict[str, Any]
) -> tuple[nn.Module, nn.Module, str]:
    """A model whose own code turns token ids into rewards."""
    from transformers import AutoModel, AutoModelForSequenceClassification

    auto_map = getattr(config, "auto_map", None) or {}
    name = "AutoModelForSequenceClassification"
    builder = AutoModelForSequenceClassification if name in auto_map else AutoModel
    model, info = builder.from_pretrained(folder, config=config, output_loading_info=True, **options)
    if info["missing_keys"]:
        raise HubError(f"{asked.name}: the checkpoint lacks {_some(info['missing_keys'])}")
    head = Output(asked.recipe.output, column=asked.recipe.column, sign=asked.recipe.sign)
    return model, head, "opaque"


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


def _settle_labels(asked: Asked, folder: Path, adapter: Path | None, config: Any) -> None:
    """Find how many outputs the head has, and refuse several unless the recipe picks one.

    A config that says nothing means two labels to transformers; the head's tensor knows better.
    """
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    where = folder if adapter is None else adapter
    file = None if adapter is None else _adapter_file(adapter)
    expected = {f"{head}{end}" for head in _HEAD_NAMES for end in (".weight", ".out_proj.weight")}
    names = tensor_names(where, file, allow_pickle=asked.allow_pickle)
    stored = [name for name in names if _plain_name(name) in expected]
    if stored:
        prefix, _, _ = stored[0].rpartition(".")
        config.num_labels = read_tensors(where, prefix, file, allow_pickle=asked.allow_pickle)[
            "weight"
        ].shape[0]
    elif "num_labels" not in said and "id2label" not in said:
        return  # nothing to go by: what is missing is said after loading
    labels, column = config.num_labels, asked.recipe.column
    if labels != 1 and column is None:
        raise HubError(
            f"{asked.name}: {labels} outputs (num_labels), a reward model has one; "
            "if one of them is the reward, name it in a recipe (`column: 0`)"
        )
    if column is not None and not 0 <= column < labels:
        raise HubError(f"{asked.name}: column: {column} is not among its {labels} outputs")


def _merge(asked: Asked, model: Any, adapter: Path) -> tuple[nn.Module, set[str]]:
    """Merge a PEFT adapter into `model`; also name the parameters that the adapter brings whole."""
    try:
        from peft import PeftModel
    except ImportError as error:
        raise HubError(f"{asked.name}: a PEFT adapter; install `peft` to load it") from error

    names = tensor_names(adapter, _adapter_file(adapter), allow_pickle=asked.allow_pickle)
    supplied = {_plain_name(name) for name in names if "lora_" not in name}
    wrapped = PeftModel.from_pretrained(model, str(adapter), is_trainable=False)
    return wrapped.merge_and_unload(safe_merge=True), supplied


def _plain_name(name: str) -> str:
    """Return the name that a tensor of a PEFT adapter has in the model itself."""
    return name.removeprefix("base_model.model.").replace(".modules_to_save", "")


def _adapter_file(adapter: Path) -> str:
    safe = "adapter_model.safetensors"
    return safe if (adapter / safe).is_file() else "adapter_model.bin"


def _what_is_missing(missing: set[str], stored: set[str], config: Any, asked: Asked) -> str:
    """Say what a checkpoint lacks, and what would help."""
    lacks = f"the checkpoint lacks {_some(missing)}"
    if not any(name.split(".")[0] in _HEAD_NAMES for name in missing):
        return lacks
    text = f"no score head: {lacks}, which would be random numbers"
    if getattr(config, "auto_map", None) and not asked.trust_remote_code:
        return f"{text}; the model has code of its own: try --trust-remote-code if you trust it"
    heads = sorted(name for name in stored if "head" in name and not name.startswith("lm_head"))
    if heads:
        prefix = heads[0].rpartition(".")[0]
        return f"{text}; it has {_some(heads)} instead: try a recipe with `head: {prefix}`"
    return f"{text}; this is a language model, not a reward model"


def _some(names: Any) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")


def _dtype(asked: Asked, config: Any, device: torch.device) -> torch.dtype:
    """Settle the dtype: as asked for; else float32 on a CPU, the recipe's or the checkpoint's elsewhere."""
    if asked.dtype != "auto":
        return _named_dtype(asked.dtype, "dtype", ("auto", *DTYPES))
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
    if device.type != "cuda" or asked.device != "auto" or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return None
    own = getattr(config, "dtype", None)
    ratio = dtype.itemsize / own.itemsize if isinstance(own, torch.dtype) else 1.0
    stored = sum(path.stat().st_size for path in weight_files(folder))
    return "auto" if stored * ratio > 0.9 * free_memory(device) else None


def _in_float32(module: Any) -> None:
    """Let a head compute in float32 whatever the rest does."""
    if isinstance(module, nn.Module):
        module.float()
        module.register_forward_pre_hook(
            lambda _, args: tuple(arg.float() if torch.is_floating_point(arg) else arg for arg in args)
        )


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
