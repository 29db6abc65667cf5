"""Load a reward model by name: its tokenizer, its transformer and its score head, on its device.

If a checkpoint has no head under the expected name, transformers would initialise one at random. This is an
error, whose message says what the checkpoint has instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.hub import PICKLE_ONLY, HubError, has_safe_weights, translated
from rmcalib._util.processes import may_draw, process_rank
from rmcalib.judges._checks import TOKENIZER_FILES, check_config, check_rank, read_json, try_tokenizer
from rmcalib.judges._devices import DTYPES, available_devices, avoid_crashes, choose_device, free_memory
from rmcalib.judges._files import DEMO, find_files
from rmcalib.judges._registry import Recipe
from rmcalib.judges._settings import LoadOptions, checked_settings
from rmcalib.judges._templates import TEMPLATES

if TYPE_CHECKING:
    import torch
    from torch import nn

LONGEST_DEFAULT = 4096
_SHARE_FOR_WEIGHTS = 0.9  # of a device's free memory; the rest is for activations
_HEAD_NAMES = ("score", "classifier", "classification_head", "logits_proj")
_WIDER = "use a GPU with more memory, or a narrower dtype, such as -J dtype=bfloat16"


@dataclass
class RewardModel:
    """A loaded reward model, as `load_model` returns it.

    Attributes
    ----------
    name : str
        Hub id, folder or `"demo"`.
    revision : str
        Commit on the Hub, or the SHA-256 of a local folder's files.
    recipe : Recipe
        How the model is read. The recipe's sign and column are applied to all rewards.
    tokenizer : Any
        The tokenizer.
    backbone : torch.nn.Module
        The transformer.
    head : torch.nn.Module
        The score head.
    kind : str
        How a reward is computed.

        - `causal`: `backbone(...).last_hidden_state` is (n, length, hidden), after the final norm. The
          hidden state of one token per response goes through `head`, in float32: (n, hidden) -> (n,).
        - `encoder`: `score(input_ids, attention_mask)` returns the rewards (n,). Responses cannot share a
          prompt.
        - `opaque`: as `encoder`, with the model's own code.
    config : Any
        The configuration of the checkpoint.
    device, dtype : torch.device, torch.dtype
        The device and the dtype in which it runs.
    max_length : int
        The longest text in tokens.
    sources : dict[str, str]
        Other repositories that were used, as `org/name@commit`, by `base`, `tokenizer` and `code`.
    dtype_from : str
        Where the dtype comes from: `option`, `cpu`, `recipe` or `checkpoint`.

    Examples
    --------
    >>> model = load_model("demo", device="cpu")
    >>> model.kind, model.dtype_from
    ('causal', 'cpu')
    """

    name: str
    revision: str
    recipe: Recipe
    tokenizer: Any
    backbone: Any
    head: Any
    kind: str
    config: Any
    device: torch.device
    dtype: torch.dtype
    max_length: int
    sources: dict[str, str] = field(default_factory=dict)
    dtype_from: str = ""

    def score(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the rewards (n,) of right-padded texts (n, length), for the kinds `encoder` and `opaque`."""
        rewards: torch.Tensor = self.head(self.backbone(input_ids=input_ids, attention_mask=attention_mask))
        return rewards


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


@dataclass(frozen=True)
class Placed:
    """The configuration of a model, its device and dtype, and the options of `from_pretrained`."""

    config: Any
    device: torch.device
    dtype: torch.dtype
    dtype_from: str
    options: dict[str, Any]


def load_model(name: str, options: LoadOptions | None = None, **changes: Any) -> RewardModel:
    """Load a reward model.

    Parameters
    ----------
    name : str
        A Hub id (`org/name`) or a local folder, of a model or a PEFT adapter, or `"demo"`.
    options : LoadOptions, optional
        Settings for loading it.
    **changes
        Fields of `LoadOptions`, instead of `options`.

    Returns
    -------
    RewardModel
        The model, in evaluation mode.

    Raises
    ------
    ValueError
        If the model cannot be loaded: the score head is not in the checkpoint, there are several outputs and
        no `column`, there is no chat template, the weights are damaged, and so on.

    Examples
    --------
    >>> load_model("demo", device="cpu").kind
    'causal'
    """
    options = with_recipe(name, options or checked_settings(LoadOptions, changes))
    recipe = options.recipe_for(name)
    files = find_files(name, options, tokenizer=recipe.tokenizer)
    asked = Asked(name, recipe, options, files.code_commit)
    if files.adapter is not None and recipe.head != "auto":
        raise HubError(
            f"{name}: a PEFT adapter cannot have a recipe with `head: {recipe.head}`: merge the adapter into "
            "its base (peft's merge_and_unload), and score the merged model's folder"
        )
    placed = place(asked, files.weights)
    tokenizer = load_tokenizer(asked, files.tokenizer)
    if recipe.attention is not None:
        placed.options["attn_implementation"] = recipe.attention
    with translated(name), quietly():
        backbone, head, kind = _build(asked, files.weights, files.adapter, placed)
    settle(name, backbone, placed)
    head.eval().requires_grad_(False)
    # Next to the last layer: a copy back to the first GPU would make it wait for the last one in every pass.
    head.to(_last_device(backbone, placed.device))
    if recipe.append_token_id is not None:
        own = getattr(placed.config, "reward_token_id", recipe.append_token_id)
        recipe = dataclasses.replace(recipe, append_token_id=own)
    return RewardModel(
        name=name,
        revision=files.commit,
        recipe=recipe,
        tokenizer=tokenizer,
        backbone=backbone,
        head=head,
        kind=kind,
        config=placed.config,
        device=placed.device,
        dtype=placed.dtype,
        max_length=longest_text(asked, placed.config, tokenizer, kind),
        sources=files.sources,
        dtype_from=placed.dtype_from,
    )


def with_recipe(name: str, options: LoadOptions) -> LoadOptions:
    """Return the options for a model with its recipe in them; refuse unsupported models."""
    recipe = options.recipe_for(name)
    if recipe.status == "unsupported":
        raise HubError(f"{name}: not supported: {recipe.reason}")
    return dataclasses.replace(options, recipe=recipe)


def longest_text(asked: Asked, config: Any, tokenizer: Any, kind: str) -> int:
    """Return the length of the longest text in tokens: the user's, if the model can read that much."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    own = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    said = getattr(tokenizer, "model_max_length", None)
    if said is not None and said < 10**6 and (own is None or kind == "encoder"):
        own = min(said, own or said)  # encoders reserve some positions
    limit, wanted = asked.recipe.max_length or own, asked.options.max_length
    if wanted is None:
        return min(limit or LONGEST_DEFAULT, LONGEST_DEFAULT)
    if limit is not None and wanted > limit:
        raise ValueError(f"max_length: {wanted} is more than the {limit} tokens that {asked.name} can read")
    return wanted


def load_tokenizer(asked: Asked, folder: Path) -> Any:
    """Load the tokenizer, and check that it or the recipe has a chat template."""
    name, template = asked.name, asked.recipe.template
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        if not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
            raise HubError(f"{name}: no config.json, so this is not a transformers model")
        raise HubError(
            f"{name}: has no tokenizer: save one beside the weights (tokenizer.save_pretrained), or give "
            "another repository in a recipe (`tokenizer`)"
        )
    if folder != DEMO and not asked.options.trust_remote_code:
        try_tokenizer(name, folder)
    from transformers import AutoTokenizer

    with translated(name), quietly():
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, **asked.code())
    known = ", ".join(TEMPLATES)
    if template is not None and template not in TEMPLATES:
        raise HubError(f"{name}: template: unknown {template!r} (have: {known})")
    if template is None and not getattr(tokenizer, "chat_template", None):
        raise HubError(f"{name}: the tokenizer has no chat template: give one in a recipe (have: {known})")
    return tokenizer


def place(asked: Asked, folder: Path) -> Placed:
    """Check a model's configuration and weights, and choose its device and dtype; nothing is loaded yet."""
    import torch
    from transformers import AutoConfig

    from rmcalib.judges._weights import weight_files

    name, path, files = asked.name, folder / "config.json", weight_files(folder)
    if not path.is_file():
        raise HubError(f"{name}: no config.json, so this is not a transformers model")
    if not files and not has_safe_weights(folder):
        raise HubError(f"{name}: no weights in {folder} (model.safetensors)")
    safe = all(file.suffix == ".safetensors" for file in files)
    if not safe and not asked.options.allow_pickle:
        raise HubError(f"{name}: {PICKLE_ONLY}")
    check_config(name, folder, files, trust_remote_code=asked.options.trust_remote_code)
    with translated(name), quietly():
        if asked.recipe.architecture is None:
            config: Any = AutoConfig.from_pretrained(folder, **asked.code())
        else:
            values = read_json(name, path)
            values.pop("model_type", None)
            config = AutoConfig.for_model(asked.recipe.architecture, **values)
    local_rank = int(os.environ.get("LOCAL_RANK", "0")) if process_rank()[1] > 1 else 0
    device = choose_device(asked.options.device, local_rank=local_rank)
    dtype, dtype_from = settle_dtype(asked, config, device)
    avoid_crashes(device)
    own = getattr(config, "dtype", None)
    ratio = dtype.itemsize / own.itemsize if isinstance(own, torch.dtype) else 1.0
    needed = ratio * sum(file.stat().st_size for file in files)
    options = {"dtype": dtype, **asked.code(), "use_safetensors": safe, **placement(asked, needed, device)}
    return Placed(config, device, dtype, dtype_from, options)


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
    there = f"{about}, and {device} has {free / 1e9:.3g} GB free"
    if process_rank()[1] > 1:
        raise HubError(
            f"{there}. With torchrun, every process loads the whole model: start one process without "
            f"torchrun, which spreads it over all GPUs; or {_WIDER}"
        )
    if asked.options.device != "auto":
        raise HubError(f"{there}: leave out -J device=... to spread it over all GPUs; or {_WIDER}")
    gpus = [gpu for gpu in available_devices() if gpu.type == "cuda"]
    room = {gpu.index: int(_SHARE_FOR_WEIGHTS * free_memory(gpu)) for gpu in gpus}
    if needed > sum(room.values()):
        raise HubError(
            f"{about}, and the {len(gpus)} GPUs of this machine have {sum(room.values()) / 1e9:.3g} GB to "
            f"spare: parts of it would run on the CPU, very slowly. Use more GPUs, or {_WIDER}"
        )
    return {"device_map": "auto", "max_memory": room}


def settle(name: str, model: nn.Module, placed: Placed) -> None:
    """Set a loaded model to evaluation mode on its device; refuse one that is partly in main memory."""
    model.eval().requires_grad_(False)
    if "device_map" not in placed.options:
        model.to(placed.device)
    if placed.device.type == "cuda" and {part.device.type for part in model.parameters()} - {"cuda"}:
        raise HubError(
            f"{name}: does not fit on the GPUs, and parts of it would run on the CPU, very slowly: {_WIDER}"
        )


@contextlib.contextmanager
def quietly() -> Iterator[None]:
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


def with_adapter(name: str, model: Any, adapter: Path) -> Any:
    """Put a PEFT adapter on its base model."""
    try:
        from peft import PeftModel
    except ImportError as error:
        raise HubError(f"{name}: a PEFT adapter; install `peft` to load it") from error
    check_rank(name, adapter, adapter / adapter_file(adapter))
    try:
        return PeftModel.from_pretrained(model, str(adapter), is_trainable=False)
    except Exception as error:  # whatever is wrong with its files
        reason = " ".join(str(error).split())[:200]
        raise HubError(f"{name}: the adapter does not fit its base: {reason}") from error


def stock_head(names: Iterable[str]) -> list[str]:
    """Return the names of those tensors that are the weight of a stock classifier's last layer.

    >>> stock_head(["model.norm.weight", "base_model.model.score.weight"])
    ['base_model.model.score.weight']
    """
    expected = {f"{head}{end}" for head in _HEAD_NAMES for end in (".weight", ".out_proj.weight")}
    return [name for name in names if _plain_name(name) in expected]


def adapter_file(adapter: Path) -> str:
    """Return the name of the file with the weights of a PEFT adapter."""
    safe = "adapter_model.safetensors"
    return safe if (adapter / safe).is_file() else "adapter_model.bin"


def settle_dtype(asked: Asked, config: Any, device: torch.device) -> tuple[torch.dtype, str]:
    """Return the dtype, and where it comes from: `option`, `cpu`, `recipe` or `checkpoint`.

    It is the user's; with `auto`, float32 on a CPU, and otherwise the recipe's or the checkpoint's.
    """
    import torch

    named = asked.options.dtype if asked.options.dtype != "auto" else asked.recipe.dtype
    if named not in (None, *DTYPES):
        raise ValueError(f"dtype: unknown {named!r} (have: auto, {', '.join(DTYPES)})")
    if asked.options.dtype != "auto":
        return getattr(torch, asked.options.dtype), "option"
    if device.type == "cpu":
        return torch.float32, "cpu"
    if named is not None:
        return getattr(torch, named), "recipe"
    own = getattr(config, "dtype", None)
    dtype = own if isinstance(own, torch.dtype) else torch.float32
    if dtype == torch.float32:
        warnings.warn(
            f"{asked.name}: the checkpoint is in float32 and runs in float32, which is several times slower "
            "than bfloat16 on a GPU: consider -J dtype=bfloat16",
            stacklevel=2,
        )
    return dtype, "checkpoint"


def _last_device(backbone: Any, device: torch.device) -> torch.device:
    """Return the device of the last layer, which has the hidden states at the end of a pass."""
    layers: Any = getattr(backbone, "layers", None)
    parameter = next(layers[-1].parameters(), None) if layers else None
    return parameter.device if parameter is not None and parameter.device.type == device.type else device


def _build(asked: Asked, folder: Path, adapter: Path | None, placed: Placed) -> tuple[Any, Any, str]:
    """Return the transformer, its head, and the kind of model: `causal`, `encoder` or `opaque`."""
    if asked.recipe.head == "own-code":
        return _with_own_code(asked, folder, placed)
    if asked.recipe.head == "auto":
        return _classifier(asked, folder, adapter, placed)
    return _with_head(asked, folder, placed)


def _classifier(asked: Asked, folder: Path, adapter: Path | None, placed: Placed) -> tuple[Any, Any, str]:
    """The stock `AutoModelForSequenceClassification`, with one output or a named one."""
    from torch import nn
    from transformers import AutoModelForSequenceClassification

    from rmcalib.judges._weights import Head, Output, linear_layers, read_tensors, tensor_names

    recipe, config, pickle = asked.recipe, placed.config, asked.options.allow_pickle
    _settle_labels(asked, folder, adapter, config)
    model, missing = _from_pretrained(AutoModelForSequenceClassification, folder, placed)
    if adapter is not None:
        model = with_adapter(asked.name, model, adapter).merge_and_unload(safe_merge=True)
        names = tensor_names(adapter, adapter_file(adapter), allow_pickle=pickle)
        missing -= {_plain_name(name) for name in names if "lora_" not in name}
    if missing:
        stored = set(tensor_names(folder, allow_pickle=pickle))
        raise HubError(f"{asked.name}: {_what_is_missing(missing, stored, config, asked)}")
    if type(model).__module__.startswith("transformers_modules"):
        return model, Output(recipe.output, column=recipe.column, sign=recipe.sign), "opaque"
    score = getattr(model, "score", None)
    if isinstance(score, nn.Linear) and getattr(config, "is_causal", True):
        stored_head = {} if adapter is not None else read_tensors(folder, "score", allow_pickle=pickle)
        # the file's precision, not the dtype's
        layers = linear_layers(stored_head, asked.name) if stored_head else [score]
        return model.base_model, Head(layers, column=recipe.column or 0, sign=recipe.sign), "causal"
    for name in _HEAD_NAMES:
        _in_float32(getattr(model, name, None))
    return model, Output("logits", column=recipe.column, sign=recipe.sign), "encoder"


def _with_head(asked: Asked, folder: Path, placed: Placed) -> tuple[Any, Any, str]:
    """A stock transformer with the head rebuilt from the tensors that the recipe names."""
    from transformers import AutoModel

    recipe = asked.recipe
    if getattr(placed.config, "pooling", None) == "mean":
        raise HubError(f"{asked.name}: its head averages over all tokens, which is not supported")
    build = _distribution_head if recipe.head == "ldl" else _linear_head
    head = build(asked, folder, placed.config)
    if recipe.backbone_prefix is not None:
        placed.options["key_mapping"] = {rf"^{re.escape(recipe.backbone_prefix)}\.": ""}
    model, missing = _from_pretrained(AutoModel, folder, placed)
    if missing:
        raise HubError(f"{asked.name}: the checkpoint lacks {_some(missing)}")
    return getattr(model, "language_model", model), head, "causal"


def _with_own_code(asked: Asked, folder: Path, placed: Placed) -> tuple[Any, Any, str]:
    """A model whose own code computes rewards from token ids."""
    from transformers import AutoModel, AutoModelForSequenceClassification

    from rmcalib.judges._weights import Output

    auto_map = getattr(placed.config, "auto_map", None) or {}
    own = "AutoModelForSequenceClassification" in auto_map
    model, missing = _from_pretrained(
        AutoModelForSequenceClassification if own else AutoModel, folder, placed
    )
    if missing:
        raise HubError(f"{asked.name}: the checkpoint lacks {_some(missing)}")
    return model, Output(asked.recipe.output, column=asked.recipe.column, sign=asked.recipe.sign), "opaque"


def _from_pretrained(builder: Any, folder: Path, placed: Placed) -> tuple[Any, set[str]]:
    """Build a model; also return the names of the tensors that the checkpoint lacks."""
    model, info = builder.from_pretrained(
        folder, config=placed.config, output_loading_info=True, **placed.options
    )
    return model, set(info["missing_keys"])


def _linear_head(asked: Asked, folder: Path, config: Any) -> Any:
    from rmcalib.judges._weights import Head, linear_layers, read_tensors

    recipe = asked.recipe
    tensors = read_tensors(folder, recipe.head, recipe.head_file, allow_pickle=asked.options.allow_pickle)
    if not tensors:
        raise HubError(f"{asked.name}: no tensors {recipe.head}.* in the checkpoint, so it has no score head")
    layers = linear_layers(tensors, f"{asked.name}: {recipe.head}")
    outputs = layers[-1].out_features
    if outputs != 1 and recipe.column is None:
        raise HubError(f"{asked.name}: its head has {outputs} outputs: choose one in a recipe (`column`)")
    shift, scale = 0.0, 1.0
    if getattr(config, "do_normalize", False):  # Safe-RLHF: rewards use both, costs only the scale
        kind = getattr(config, "score_type", "reward")
        shift = float((getattr(config, "mean", None) or [0.0])[0]) if kind == "reward" else 0.0
        scale = 1.0 if kind == "critic" else float((getattr(config, "var", None) or [1.0])[0]) ** 0.5 + 1e-8
    return Head(layers, column=recipe.column or 0, sign=recipe.sign, shift=shift, scale=scale)


def _distribution_head(asked: Asked, folder: Path, _config: Any) -> Any:
    from rmcalib.judges._weights import DistributionHead, linear_layers, read_tensors

    files = (asked.recipe.head_file or "").split()
    if len(files) != 2:
        raise HubError(f"{asked.name}: `head: ldl` needs two files in `head_file`")
    parts = [read_tensors(folder, "network", file, allow_pickle=asked.options.allow_pickle) for file in files]
    if not all(parts):
        raise HubError(f"{asked.name}: no head in {' or '.join(files)} (needs -J allow_pickle=yes)")
    values, gates = (
        linear_layers(part, f"{asked.name}: {file}") for part, file in zip(parts, files, strict=True)
    )
    return DistributionHead(values, gates)


def _settle_labels(asked: Asked, folder: Path, adapter: Path | None, config: Any) -> None:
    """Set the number of outputs of the head; raise an error for several if the recipe does not choose one.

    Without a number in the configuration, transformers assumes two labels. The head's tensor has the real
    number.
    """
    from rmcalib.judges._weights import read_tensors, tensor_names

    said, pickle = read_json(asked.name, folder / "config.json"), asked.options.allow_pickle
    where = folder if adapter is None else adapter
    file = None if adapter is None else adapter_file(adapter)
    stored = stock_head(tensor_names(where, file, allow_pickle=pickle))
    if stored:
        prefix = stored[0].rpartition(".")[0]
        config.num_labels = read_tensors(where, prefix, file, allow_pickle=pickle)["weight"].shape[0]
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


def _plain_name(name: str) -> str:
    """Return the name of an adapter's tensor in the model itself."""
    return name.removeprefix("base_model.model.").replace(".modules_to_save", "")


def _what_is_missing(missing: set[str], stored: set[str], config: Any, asked: Asked) -> str:
    """Return what is missing in a checkpoint, and a remedy."""
    lacks = f"the checkpoint lacks {_some(missing)}"
    if not any(name.split(".")[0] in _HEAD_NAMES for name in missing):
        return lacks
    text = f"no score head: {lacks}, which would be initialised at random"
    if getattr(config, "auto_map", None) and not asked.options.trust_remote_code:
        return f"{text}; the model has its own code: try -J trust_remote_code=yes if you trust it"
    heads = sorted(name for name in stored if "head" in name and not name.startswith("lm_head"))
    if heads:
        prefix = heads[0].rpartition(".")[0]
        return f"{text}; it has {_some(heads)} instead: try a recipe with `head: {prefix}`"
    return f"{text}; this is a language model, not a reward model"


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")


def _in_float32(module: Any) -> None:
    """Make a head compute in float32, whatever the dtype of the model is."""
    from torch import nn

    if isinstance(module, nn.Module):
        module.float()
        module.register_forward_pre_hook(
            lambda _, args: tuple(arg.float() if arg.is_floating_point() else arg for arg in args)
        )
