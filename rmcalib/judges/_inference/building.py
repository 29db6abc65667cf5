"""Build a transformer and its score head from a checkpoint, in one of three ways.

If the checkpoint has no head under the expected name, transformers would initialise one at random. This is an
error, whose message says what the checkpoint has instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rmcalib._util.hub import HubError
from rmcalib.judges._inference.heads import (
    DistributionHead,
    Head,
    Output,
    linear_layers,
    read_tensors,
    tensor_names,
)
from rmcalib.judges._options import LoadOptions
from rmcalib.judges._registry import Recipe

__all__ = ["Asked", "adapter_file", "build", "stock_head"]

Built = tuple[nn.Module, nn.Module, str]
"""The transformer, its head, and the kind of model: `causal`, `encoder` or `opaque`."""

_HEAD_NAMES = ("score", "classifier", "classification_head", "logits_proj")


@dataclass(frozen=True)
class Asked:
    """The name, recipe and options of the model to load."""

    name: str
    recipe: Recipe
    options: LoadOptions
    code_revision: str | None = None  # commit of the code, if it is in another repository

    def code(self) -> dict[str, Any]:
        """Return the options of `from_pretrained` for the model's own code."""
        return {"trust_remote_code": self.options.trust_remote_code, "code_revision": self.code_revision}


def build(asked: Asked, folder: Path, adapter: Path | None, config: Any, options: dict[str, Any]) -> Built:
    """Build the model with the recipe's `head`. `options` are those of `from_pretrained`."""
    head = asked.recipe.head
    if head == "own-code":
        return _with_own_code(asked, folder, config, options)
    if head == "auto":
        return _classifier(asked, folder, adapter, config, options)
    return _with_head(asked, folder, config, options)


def _classifier(
    asked: Asked, folder: Path, adapter: Path | None, config: Any, options: dict[str, Any]
) -> Built:
    """The stock `AutoModelForSequenceClassification`, with one output or a named one."""
    from transformers import AutoModelForSequenceClassification

    names = tensor_names(folder, allow_pickle=asked.options.allow_pickle)
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
        stored = (
            {}
            if adapter is not None
            else read_tensors(folder, "score", allow_pickle=asked.options.allow_pickle)
        )
        layers = (
            linear_layers(stored, asked.name) if stored else [score]
        )  # the file's precision, not the dtype's
        head = Head(layers, column=asked.recipe.column or 0, sign=asked.recipe.sign)
        return model.base_model, head, "causal"
    for name in _HEAD_NAMES:
        _in_float32(getattr(model, name, None))
    return model, Output("logits", column=asked.recipe.column, sign=asked.recipe.sign), "encoder"


def _with_head(asked: Asked, folder: Path, config: Any, options: dict[str, Any]) -> Built:
    """A stock transformer with the head rebuilt from the tensors that the recipe names."""
    from transformers import AutoModel

    recipe = asked.recipe
    if getattr(config, "pooling", None) == "mean":
        raise HubError(f"{asked.name}: its head averages over all tokens, which is not supported")
    head = _distribution_head(asked, folder) if recipe.head == "ldl" else _linear_head(asked, folder, config)
    if recipe.backbone_prefix is not None:
        options = {**options, "key_mapping": {rf"^{recipe.backbone_prefix}\.": ""}}
    model, info = AutoModel.from_pretrained(folder, config=config, output_loading_info=True, **options)
    if info["missing_keys"]:
        raise HubError(f"{asked.name}: the checkpoint lacks {_some(info['missing_keys'])}")
    return getattr(model, "language_model", model), head, "causal"


def _linear_head(asked: Asked, folder: Path, config: Any) -> Head:
    recipe = asked.recipe
    tensors = read_tensors(folder, recipe.head, recipe.head_file, allow_pickle=asked.options.allow_pickle)
    if not tensors:
        raise HubError(f"{asked.name}: no tensors {recipe.head}.* in the checkpoint, so it has no score head")
    layers = linear_layers(tensors, f"{asked.name}: {recipe.head}")
    outputs = layers[-1].out_features
    if outputs != 1 and recipe.column is None:
        raise HubError(f"{asked.name}: its head has {outputs} outputs: choose one in a recipe (`column`)")
    shift, scale = _normaliser(config)
    return Head(layers, column=recipe.column or 0, sign=recipe.sign, shift=shift, scale=scale)


def _normaliser(config: Any) -> tuple[float, float]:
    """Return the shift and scale of Safe-RLHF's models (rewards use both, costs only the scale)."""
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
        read_tensors(folder, "network", file, allow_pickle=asked.options.allow_pickle)
        for file in (values_file, gates_file)
    )
    if not values or not gates:
        raise HubError(f"{asked.name}: no head in {values_file} or {gates_file} (needs --allow-pickle)")
    return DistributionHead(
        linear_layers(values, f"{asked.name}: {values_file}"),
        linear_layers(gates, f"{asked.name}: {gates_file}"),
    )


def _with_own_code(asked: Asked, folder: Path, config: Any, options: dict[str, Any]) -> Built:
    """A model whose own code computes rewards from token ids."""
    from transformers import AutoModel, AutoModelForSequenceClassification

    auto_map = getattr(config, "auto_map", None) or {}
    name = "AutoModelForSequenceClassification"
    builder = AutoModelForSequenceClassification if name in auto_map else AutoModel
    model, info = builder.from_pretrained(folder, config=config, output_loading_info=True, **options)
    if info["missing_keys"]:
        raise HubError(f"{asked.name}: the checkpoint lacks {_some(info['missing_keys'])}")
    head = Output(asked.recipe.output, column=asked.recipe.column, sign=asked.recipe.sign)
    return model, head, "opaque"


def _settle_labels(asked: Asked, folder: Path, adapter: Path | None, config: Any) -> None:
    """Set the number of outputs of the head; raise an error for several if the recipe does not choose one.

    Without a number in the configuration, transformers assumes two labels. The head's tensor has the real
    number.
    """
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    where = folder if adapter is None else adapter
    file = None if adapter is None else adapter_file(adapter)
    stored = stock_head(tensor_names(where, file, allow_pickle=asked.options.allow_pickle))
    if stored:
        prefix, _, _ = stored[0].rpartition(".")
        config.num_labels = read_tensors(where, prefix, file, allow_pickle=asked.options.allow_pickle)[
            "weight"
        ].shape[0]
    elif "num_labels" not in said and "id2label" not in said:
        return  # the number is unknown; a missing head is reported after loading
    labels, column = config.num_labels, asked.recipe.column
    if labels != 1 and column is None:
        raise HubError(
            f"{asked.name}: {labels} outputs (num_labels), but a reward model has one: if one of them is the "
            "reward, choose it in a recipe (`column: 0`)"
        )
    if column is not None and not 0 <= column < labels:
        raise HubError(f"{asked.name}: column: must be from 0 to {labels - 1}, got {column}")


def _merge(asked: Asked, model: Any, adapter: Path) -> tuple[nn.Module, set[str]]:
    """Merge a PEFT adapter into `model`; also return the parameters that the adapter replaces."""
    try:
        from peft import PeftModel
    except ImportError as error:
        raise HubError(f"{asked.name}: a PEFT adapter; install `peft` to load it") from error

    names = tensor_names(adapter, adapter_file(adapter), allow_pickle=asked.options.allow_pickle)
    supplied = {_plain_name(name) for name in names if "lora_" not in name}
    wrapped = PeftModel.from_pretrained(model, str(adapter), is_trainable=False)
    return wrapped.merge_and_unload(safe_merge=True), supplied


def stock_head(names: Iterable[str]) -> list[str]:
    """Return the names of those tensors that are the weight of a stock classifier's last layer.

    >>> stock_head(["model.norm.weight", "base_model.model.score.weight"])
    ['base_model.model.score.weight']
    """
    expected = {f"{head}{end}" for head in _HEAD_NAMES for end in (".weight", ".out_proj.weight")}
    return [name for name in names if _plain_name(name) in expected]


def _plain_name(name: str) -> str:
    """Return the name of an adapter's tensor in the model itself."""
    return name.removeprefix("base_model.model.").replace(".modules_to_save", "")


def adapter_file(adapter: Path) -> str:
    """Return the name of the file with the weights of a PEFT adapter."""
    safe = "adapter_model.safetensors"
    return safe if (adapter / safe).is_file() else "adapter_model.bin"


def _what_is_missing(missing: set[str], stored: set[str], config: Any, asked: Asked) -> str:
    """Return what is missing in a checkpoint, and a remedy."""
    lacks = f"the checkpoint lacks {_some(missing)}"
    if not any(name.split(".")[0] in _HEAD_NAMES for name in missing):
        return lacks
    text = f"no score head: {lacks}, which would be initialised at random"
    if getattr(config, "auto_map", None) and not asked.options.trust_remote_code:
        return f"{text}; the model has its own code: try --trust-remote-code if you trust it"
    heads = sorted(name for name in stored if "head" in name and not name.startswith("lm_head"))
    if heads:
        prefix = heads[0].rpartition(".")[0]
        return f"{text}; it has {_some(heads)} instead: try a recipe with `head: {prefix}`"
    return f"{text}; this is a language model, not a reward model"


def _some(names: Any) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")


def _in_float32(module: Any) -> None:
    """Make a head compute in float32, whatever the dtype of the model is."""
    if isinstance(module, nn.Module):
        module.float()
        module.register_forward_pre_hook(
            lambda _, args: tuple(arg.float() if torch.is_floating_point(arg) else arg for arg in args)
        )
