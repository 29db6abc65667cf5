"""Load a reward model by name: its tokenizer, its transformer and its score head, on its device.

If a checkpoint has no head under the expected name, transformers would initialise one at random. This is an
error, whose message says what the checkpoint has instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.files import read_object
from rmcalib._util.hub import PICKLE_ONLY, HubError, has_safe_weights, translated
from rmcalib._util.processes import may_draw, process_rank
from rmcalib.judges import _devices as devices
from rmcalib.judges import _files
from rmcalib.judges._files import ModelFiles
from rmcalib.judges._internlm2 import is_internlm2, llama_tensors
from rmcalib.judges._recognise import HEAD_NAMES, STOCK_HEADS, fitting_recipes
from rmcalib.judges._registry import Recipe, registry
from rmcalib.judges._settings import LoadOptions, checked_settings
from rmcalib.judges._templates import TEMPLATES

if TYPE_CHECKING:
    import torch
    from torch import nn

LONGEST_DEFAULT = 4096
_SHARE_FOR_WEIGHTS = 0.9  # of a device's free memory; the rest is for activations


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
class Prepared:
    """A model that can be loaded: its configuration, weights (and their bytes in memory), device and dtype."""

    config: Any
    weights: list[Path]
    bytes: float
    device: torch.device
    dtype: torch.dtype
    dtype_from: str


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
    from rmcalib.judges._packing import pack_layers

    files = _files.find_files(name, options or checked_settings(LoadOptions, changes))
    recipe = files.recipe
    if files.adapter is not None and recipe.head != "auto":
        raise HubError(
            f"{name}: a PEFT adapter cannot have a recipe with `head`: merge it into its base first"
        )
    prepared = prepare(files)
    tokenizer = load_tokenizer(files)
    more = {} if recipe.attention is None else {"attn_implementation": recipe.attention}
    with translated(name), quietly():
        backbone, head, kind = _build(files, prepared, {**loading_options(files, prepared), **more})
    settle(name, backbone, prepared.device)
    if prepared.device.type == "cpu":
        pack_layers(backbone)
    head.eval().requires_grad_(False)
    # Next to the last layer: a copy back to the first GPU would make it wait for the last one in every pass.
    head.to(_last_device(backbone, prepared.device))
    if recipe.append_token_id is not None:
        token_id = getattr(prepared.config, "reward_token_id", recipe.append_token_id)
        recipe = dataclasses.replace(recipe, append_token_id=token_id)
    return RewardModel(
        name=name,
        revision=files.commit,
        recipe=recipe,
        tokenizer=tokenizer,
        backbone=backbone,
        head=head,
        kind=kind,
        config=prepared.config,
        device=prepared.device,
        dtype=prepared.dtype,
        max_length=longest_text(files, prepared.config, tokenizer, kind),
        sources=files.sources,
        dtype_from=prepared.dtype_from,
    )


def longest_text(files: ModelFiles, config: Any, tokenizer: Any, kind: str) -> int:
    """Return the length of the longest text in tokens: the user's, if the model can read that much."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    longest = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    said: Any = getattr(tokenizer, "model_max_length", None)
    if isinstance(said, int) and 0 < said < 10**6 and (longest is None or kind == "encoder"):
        longest = min(said, longest or said)  # encoders reserve some positions
    return allowed_length(files.options.max_length, files.recipe.max_length or longest, files.name)


def allowed_length(wanted: int | None, limit: int | None, reader: str) -> int:
    """Return the user's length of the longest text, or by default that of the reader, at most 4096.

    >>> allowed_length(None, 512, "org/rm"), allowed_length(None, None, "org/rm")
    (512, 4096)
    """
    if wanted is None:
        return min(limit or LONGEST_DEFAULT, LONGEST_DEFAULT)
    if limit is not None and wanted > limit:
        raise ValueError(f"max_length: {wanted} is more than the {limit} tokens that {reader} can read")
    return wanted


def load_tokenizer(files: ModelFiles) -> Any:
    """Load the tokenizer, and check that it or the recipe has a chat template."""
    from transformers import AutoTokenizer

    name, template, have = files.name, files.recipe.template, ", ".join(TEMPLATES)
    if template is not None and template not in TEMPLATES:
        raise HubError(f"{name}: template: unknown {template!r} (have: {have})")
    if files.tokenizer != _files.DEMO and not files.options.trust_remote_code:
        _files.try_tokenizer(name, files.tokenizer)
    with translated(name), quietly():
        tokenizer = _without_code(name, files.tokenizer) if files.is_rebuilt else None
        if tokenizer is None:
            _check_protobuf(name, files.tokenizer)
            tokenizer = AutoTokenizer.from_pretrained(files.tokenizer, **files.code(model=False))
    if not isinstance(
        getattr(tokenizer, "model_max_length", None), int | float
    ):  # it is compared with every length
        tokenizer.model_max_length = sys.maxsize
    if template is None and not getattr(tokenizer, "chat_template", None):
        raise HubError(
            f'{name}: the tokenizer has no chat template; recipes="FILE" takes a recipe of your own, whose `template` '
            f"is one of {have} (docs/models.md){_remedy(files, with_template=True)}"
        )
    return tokenizer


def _check_protobuf(name: str, folder: Path) -> None:
    """Raise a `HubError` if transformers could not read `tokenizer.model`: it would ask for tiktoken instead."""
    if (folder / "tokenizer.json").is_file() or not (folder / "tokenizer.model").is_file():
        return
    try:
        importlib.import_module("google.protobuf")
    except ImportError as error:
        raise HubError(f"{name}: install `protobuf` to read its tokenizer.model") from error


def _without_code(name: str, folder: Path) -> Any:
    """Load a tokenizer with custom code from its data; None if it names none, or has no such data."""
    from transformers import PreTrainedTokenizerFast

    from rmcalib.judges._sentencepiece import read_sentencepiece

    auto_map = read_object(folder / "tokenizer_config.json").get("auto_map")
    if not isinstance(auto_map, dict) or "AutoTokenizer" not in auto_map:
        return None
    if (folder / "tokenizer.json").is_file():
        return PreTrainedTokenizerFast.from_pretrained(folder)
    return read_sentencepiece(name, folder) if (folder / "tokenizer.model").is_file() else None


def prepare(files: ModelFiles) -> Prepared:
    """Check a model's configuration and weights, and choose its device and dtype; nothing is loaded yet."""
    import torch
    import transformers
    from transformers import CONFIG_MAPPING, AutoConfig

    from rmcalib.judges._weights import weight_files

    name, folder, recipe = files.name, files.weights, files.recipe
    weights = weight_files(folder)
    if not weights and not has_safe_weights(folder):
        raise HubError(f"{name}: no weights in {folder} (model.safetensors)")
    if any(file.suffix != ".safetensors" for file in weights) and not files.options.allow_pickle:
        raise HubError(f"{name}: {PICKLE_ONLY}")
    trusted = files.options.trust_remote_code
    _files.check_config(name, folder / "config.json", weights, trust_remote_code=trusted)
    with translated(name), quietly():
        values = _files.read_json(name, folder / "config.json")
        if recipe.architecture is not None:
            config: Any = _as_architecture(recipe.architecture, values)
        elif trusted or values.get("model_type") in (None, *CONFIG_MAPPING):
            config = AutoConfig.from_pretrained(folder, **files.code())
        else:
            raise HubError(
                f"{name}: transformers {transformers.__version__} has no architecture "
                f"{values['model_type']!r}{_remedy(files)}. A recipe can name a similar one (`architecture`), "
                "and own code needs trust_remote_code=True"
            )
    local_rank = int(os.environ.get("LOCAL_RANK", "0")) if process_rank()[1] > 1 else 0
    device = devices.choose_device(files.options.device, local_rank=local_rank)
    devices.avoid_crashes(device)
    dtype, dtype_from = _settle_dtype(files, config, device)
    stored = getattr(config, "dtype", None)
    ratio = dtype.itemsize / stored.itemsize if isinstance(stored, torch.dtype) else 1.0
    size = ratio * sum(file.stat().st_size for file in weights)
    return Prepared(config, weights, size, device, dtype, dtype_from)


def _as_architecture(architecture: str, values: dict[str, Any]) -> Any:
    """Return a configuration as one of another architecture, which shares its fields."""
    from transformers import AutoConfig

    of_its_code = ("model_type", "auto_map", "attn_implementation")
    kept = {key: value for key, value in values.items() if key not in of_its_code}
    if "bias" in kept:  # InternLM2's word for it
        kept.setdefault("attention_bias", kept["bias"])
    make: Any = AutoConfig.for_model
    return make(architecture, **kept)


def loading_options(files: ModelFiles, prepared: Prepared) -> dict[str, Any]:
    """Return the options of `from_pretrained`, which put a model on its device.

    A model is loaded directly to its CUDA device. A model that is too large for it is spread over all CUDA
    devices, if no other process of this run uses them. A model that does not fit on these either is refused
    before anything is loaded: parts of it would run on the CPU, very slowly.
    """
    safe = all(file.suffix == ".safetensors" for file in prepared.weights)
    options = {"config": prepared.config, "dtype": prepared.dtype, "use_safetensors": safe, **files.code()}
    device = prepared.device
    if device.type != "cuda":
        return options
    spread = files.options.device == "auto" and process_rank()[1] == 1
    gpus = devices.cuda_devices() if spread else [device]
    room = {gpu.index: int(_SHARE_FOR_WEIGHTS * devices.memory_of(gpu)[1]) for gpu in gpus}
    if prepared.bytes <= room[device.index]:
        return {**options, "device_map": {"": device}}
    if prepared.bytes <= sum(room.values()):
        return {**options, "device_map": "auto", "max_memory": room}
    raise HubError(
        f"{files.name}: the weights need about {prepared.bytes / 1e9:.3g} GB, and {', '.join(map(str, gpus))} "
        f"can take {sum(room.values()) / 1e9:.3g} GB: use more GPUs in one process (without torchrun and "
        'without device=...), or a narrower dtype, such as dtype="bfloat16"'
    )


def settle(name: str, model: nn.Module, device: torch.device) -> None:
    """Set a loaded model to evaluation mode on its device; refuse one that is partly in main memory."""
    model.eval().requires_grad_(False)
    if device.type != "cuda":  # others were loaded to their device
        model.to(device)
    elif {part.device.type for part in model.parameters()} - {"cuda"}:
        raise HubError(f"{name}: does not fit on the GPUs, and parts of it would run on the CPU, very slowly")


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
    weights = [adapter / adapter_file(adapter)]
    _files.check_config(name, adapter / "adapter_config.json", weights, trust_remote_code=False)
    with translated(name):
        return PeftModel.from_pretrained(model, str(adapter), is_trainable=False)


def stock_head(names: Iterable[str]) -> list[str]:
    """Return the names of those tensors that are the weight of a stock classifier's last layer.

    >>> stock_head(["model.norm.weight", "base_model.model.score.weight"])
    ['base_model.model.score.weight']
    """
    return [name for name in names if _plain_name(name) in STOCK_HEADS]


def adapter_file(adapter: Path) -> str:
    """Return the name of the file with the weights of a PEFT adapter."""
    safe = "adapter_model.safetensors"
    return safe if (adapter / safe).is_file() else "adapter_model.bin"


def _settle_dtype(files: ModelFiles, config: Any, device: torch.device) -> tuple[torch.dtype, str]:
    """Return the dtype, and where it comes from: `option`, `cpu`, `recipe` or `checkpoint`.

    It is the user's; with `auto`, float32 on a CPU, and otherwise the recipe's or the checkpoint's.
    """
    import torch

    if files.options.dtype != "auto":
        return getattr(torch, files.options.dtype), "option"
    if device.type == "cpu":
        return torch.float32, "cpu"
    if files.recipe.dtype is not None:
        return getattr(torch, files.recipe.dtype), "recipe"
    stored = getattr(config, "dtype", None)
    dtype = stored if isinstance(stored, torch.dtype) else torch.float32
    if dtype == torch.float32:
        warnings.warn(
            f"{files.name}: the checkpoint is in float32 and runs in float32, which is several times slower "
            'than bfloat16 on a GPU: consider dtype="bfloat16"',
            stacklevel=2,
        )
    return dtype, "checkpoint"


def _last_device(backbone: Any, device: torch.device) -> torch.device:
    """Return the device of the last layer, which has the hidden states at the end of a pass."""
    layers: Any = getattr(backbone, "layers", None)
    parameter = next(layers[-1].parameters(), None) if layers else None
    return parameter.device if parameter is not None and parameter.device.type == device.type else device


def _build(files: ModelFiles, prepared: Prepared, options: dict[str, Any]) -> tuple[Any, Any, str]:
    """Return the transformer, its head, and the kind of model: `causal`, `encoder` or `opaque`."""
    from transformers import AutoModel, AutoModelForSequenceClassification

    from rmcalib.judges._weights import Output

    recipe = files.recipe
    if recipe.head == "auto":
        return _classifier(files, prepared.config, options)
    if recipe.head != "own-code":
        return _with_head(files, prepared.config, options)
    has_class = "AutoModelForSequenceClassification" in (getattr(prepared.config, "auto_map", None) or {})
    model = complete(files, AutoModelForSequenceClassification if has_class else AutoModel, options)
    return model, Output(recipe.output, column=recipe.column, sign=recipe.sign), "opaque"


def _classifier(files: ModelFiles, config: Any, options: dict[str, Any]) -> tuple[Any, Any, str]:
    """The stock `AutoModelForSequenceClassification`, with one output or a named one."""
    from torch import nn
    from transformers import AutoModelForSequenceClassification

    from rmcalib.judges._weights import Head, Output, linear_layers, read_tensors, tensor_names

    recipe, adapter, pickle = files.recipe, files.adapter, files.options.allow_pickle
    auto_map = getattr(config, "auto_map", None) or {}
    if not (files.options.trust_remote_code and "AutoModelForSequenceClassification" in auto_map):
        _settle_labels(files, config)  # a custom class defines what its outputs are
    model, report = AutoModelForSequenceClassification.from_pretrained(
        files.weights, output_loading_info=True, **options
    )
    missing = set(report["missing_keys"])
    if adapter is not None:
        model = with_adapter(files.name, model, adapter).merge_and_unload(safe_merge=True)
        names = tensor_names(adapter, adapter_file(adapter), allow_pickle=pickle)
        missing -= {_plain_name(name) for name in names if "lora_" not in name}
    _check_complete(files, missing)
    if type(model).__module__.startswith("transformers_modules"):
        return model, Output(recipe.output, column=recipe.column, sign=recipe.sign), "opaque"
    score = getattr(model, "score", None)
    if isinstance(score, nn.Linear) and getattr(config, "is_causal", True):
        stored_head = {} if adapter is not None else read_tensors(files.weights, "score", allow_pickle=pickle)
        # the file's precision, not the dtype's
        layers = linear_layers(stored_head, files.name) if stored_head else [score]
        return model.base_model, Head(layers, column=recipe.column or 0, sign=recipe.sign), "causal"
    for name in HEAD_NAMES:
        _in_float32(getattr(model, name, None))
    return model, Output("logits", column=recipe.column, sign=recipe.sign), "encoder"


def _with_head(files: ModelFiles, config: Any, options: dict[str, Any]) -> tuple[Any, Any, str]:
    """A stock transformer with the head rebuilt from the tensors that the recipe names."""
    from transformers import AutoModel

    from rmcalib.judges._weights import tensor_names

    if getattr(config, "pooling", None) == "mean":
        raise HubError(f"{files.name}: its head averages over all tokens, which is not supported")
    head = _gated_head(files, config) if files.recipe.gate_file is not None else _linear_head(files, config)
    if files.recipe.backbone_prefix is not None:
        options["key_mapping"] = {rf"^{re.escape(files.recipe.backbone_prefix)}\.": ""}
    if is_internlm2(tensor_names(files.weights, allow_pickle=files.options.allow_pickle)):
        model = _from_internlm2(files, config, options)
    else:
        model = complete(files, AutoModel, options)
    return getattr(model, "language_model", model), head, "causal"


def complete(files: ModelFiles, builder: Any, options: dict[str, Any]) -> Any:
    """Build a model, all of whose tensors must be in the checkpoint."""
    model, report = builder.from_pretrained(files.weights, output_loading_info=True, **options)
    _check_complete(files, report["missing_keys"])
    return model


def _check_complete(files: ModelFiles, missing: Iterable[str]) -> None:
    """Raise a `HubError` for tensors that transformers would initialise at random."""
    names = sorted(missing)
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise HubError(
            f"{files.name}: the checkpoint lacks {', '.join(names[:3])}{more}, so it cannot be used as it "
            f"stands{_remedy(files)}. A head with another name needs a recipe (`head`), and own code "
            "trust_remote_code=True"
        )


def _remedy(files: ModelFiles, *, with_template: bool = False) -> str:
    """Return which recipes would fit a model, or how a language model judges, for the end of a sentence."""
    recipes = registry(files.options.recipes)
    fitting = fitting_recipes(files.weights, recipes)
    if with_template:
        fitting = [model for model in fitting if recipes[model].template is not None]
    if fitting:
        names = [f'recipe="{model}"' for model in fitting]
        return f"; try {' or '.join(names)}"
    config = files.weights / "config.json"
    classes = _files.read_json(files.name, config).get("architectures") if config.is_file() else None
    if any(str(name).endswith(("CausalLM", "LMHeadModel")) for name in classes or ()):
        return (
            '; it is a language model without a score head: judging="letter" lets it judge (docs/judges.md)'
        )
    return ""


def _from_internlm2(files: ModelFiles, config: Any, options: dict[str, Any]) -> Any:
    """Build a stock Llama from InternLM2's tensors."""
    from transformers import LlamaModel

    from rmcalib.judges._weights import read_tensors

    tensors = read_tensors(files.weights, "model", allow_pickle=files.options.allow_pickle)
    left_out = ("use_safetensors", "trust_remote_code", "code_revision")  # these are about files
    options = {key: value for key, value in options.items() if key not in left_out}
    make: Any = LlamaModel.from_pretrained
    model, report = make(None, state_dict=llama_tensors(tensors, config), output_loading_info=True, **options)
    _check_complete(files, report["missing_keys"])
    if report["unexpected_keys"]:
        raise HubError(f"{files.name}: a Llama has no {', '.join(sorted(report['unexpected_keys'])[:3])}")
    return model


def _head_layers(files: ModelFiles, file: str | None) -> list[nn.Linear]:
    """Return the layers of a score head: from a file, or from the checkpoint."""
    from rmcalib.judges._weights import linear_layers, read_tensors

    name, head = files.name, files.recipe.head
    tensors = read_tensors(files.weights, head, file, allow_pickle=files.options.allow_pickle)
    if not tensors:
        where = file or "the checkpoint"
        raise HubError(f"{name}: no tensors {head}.* in {where}, so it has no score head")
    return linear_layers(tensors, f"{name}: {file or head}")


def _gated_head(files: ModelFiles, config: Any) -> Any:
    from rmcalib.judges._weights import LabelDistributions

    recipe = files.recipe
    networks = [_head_layers(files, file) for file in (recipe.head_file, recipe.gate_file)]
    temperature = float(getattr(config, "temperature", 1.0)) if getattr(config, "softmax", False) else None
    return LabelDistributions(*networks, temperature=temperature, sign=recipe.sign)


def _linear_head(files: ModelFiles, config: Any) -> Any:
    from rmcalib.judges._weights import Head

    recipe = files.recipe
    layers = _head_layers(files, recipe.head_file)
    outputs = layers[-1].out_features
    if outputs != 1 and recipe.column is None:
        raise HubError(f"{files.name}: its head has {outputs} outputs: choose one in a recipe (`column`)")
    shift, scale = 0.0, 1.0
    if getattr(config, "do_normalize", False):  # Safe-RLHF: rewards use both, costs only the scale
        kind = getattr(config, "score_type", "reward")
        shift = float((getattr(config, "mean", None) or [0.0])[0]) if kind == "reward" else 0.0
        scale = 1.0 if kind == "critic" else float((getattr(config, "var", None) or [1.0])[0]) ** 0.5 + 1e-8
    return Head(layers, column=recipe.column or 0, sign=recipe.sign, shift=shift, scale=scale)


def _settle_labels(files: ModelFiles, config: Any) -> None:
    """Set the number of outputs of the head; raise an error for several if the recipe does not choose one.

    Without a number in the configuration, transformers assumes two labels. The head's tensor, which may be in
    an adapter, has the real number.
    """
    from rmcalib.judges._weights import read_tensors, tensor_names

    name, pickle = files.name, files.options.allow_pickle
    places: list[tuple[Path, str | None]] = [(files.weights, None)]
    if files.adapter is not None:
        places.insert(0, (files.adapter, adapter_file(files.adapter)))
    for folder, file in places:
        if stored := stock_head(tensor_names(folder, file, allow_pickle=pickle)):
            head = read_tensors(folder, stored[0].rpartition(".")[0], file, allow_pickle=pickle)
            config.num_labels = head["weight"].shape[0]
            break
    else:
        return  # a missing head is reported after loading
    labels, column = config.num_labels, files.recipe.column
    if labels != 1 and column is None:
        raise HubError(
            f"{name}: {labels} outputs (num_labels), but a reward model has one: if one of them is the "
            "reward, choose it in a recipe (`column: 0`)"
        )
    if column is not None and not 0 <= column < labels:
        raise HubError(f"{name}: column: must be from 0 to {labels - 1}, got {column}")


def _plain_name(name: str) -> str:
    """Return the name of an adapter's tensor in the model itself."""
    return name.removeprefix("base_model.model.").replace(".modules_to_save", "")


def _in_float32(module: Any) -> None:
    """Make a head compute in float32, whatever the dtype of the model is."""
    from torch import nn

    if isinstance(module, nn.Module):
        module.float()
        module.register_forward_pre_hook(
            lambda _, args: tuple(arg.float() if arg.is_floating_point() else arg for arg in args)
        )
