"""Copy a reward model so that its rewards are divided by a number.

A linear layer gives the rewards, so its weights and bias are divided. Nothing else changes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmcalib._util.files import write_json
from rmcalib._util.hub import SMALL_FILES, HubError, translated
from rmcalib.judges._checks import read_json
from rmcalib.judges._files import locate
from rmcalib.judges._model import adapter_file, stock_head, with_recipe
from rmcalib.judges._settings import LoadOptions

if TYPE_CHECKING:
    import torch

    from rmcalib.judges._registry import Recipe

_COPIED = (*SMALL_FILES, "LICENSE*", "NOTICE*")
_LEFT_OUT = ("pytorch_model.bin.index.json", "trainer_state.json")
_MEAN = "normalizer.mean"  # the mean reward that Safe-RLHF's models subtract


@dataclass(frozen=True)
class Rescaled:
    """The result of `write_rescaled`.

    Attributes
    ----------
    tensors : tuple[str, ...]
        Names of the tensors that were divided.
    recipe : Recipe
        The recipe of the copy: the model's, with the names of the copy's files.
    revision : str
        The model's commit, or the SHA-256 of a local folder's files.
    """

    tensors: tuple[str, ...]
    recipe: Recipe
    revision: str


@dataclass(frozen=True)
class _Layer:
    """The last linear layer: its file, its weight and bias by name, and which output is the reward."""

    file: Path
    tensors: tuple[str, ...]
    row: int | None


def write_rescaled(name: str, divisor: float, target: Path, options: LoadOptions | None = None) -> Rescaled:
    """Copy a model to `target` so that its rewards are divided by `divisor`.

    Weights are written as safetensors; the divided layer is in float32. Large files that do not change are
    hard links where the file system allows it, so do not change them in place.

    Parameters
    ----------
    name : str
        A Hub id, a local folder (of a model, or of a PEFT adapter that contains its head), or `"demo"`.
    divisor : float
        A positive number.
    target : Path
        An existing empty folder.
    options : LoadOptions, optional
        Options for loading the model.

    Returns
    -------
    Rescaled
        `.tensors` names the divided tensors, `.recipe` is the recipe of the copy, and `.revision` is the
        model's commit, or the SHA-256 of a local folder's files.

    Raises
    ------
    ValueError
        If no linear layer gives the rewards. The message says why.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_rescaled("demo", 2.0, Path(folder)).tensors
    ('score.weight',)
    """
    options = with_recipe(name, options or LoadOptions())
    recipe = options.recipe_for(name)
    if recipe.head == "own-code":
        raise HubError(_own_code(name))
    folder, commit = locate(name, options)
    with translated(name):
        weights, layer = _find(name, folder, options)
        config = read_json(name, folder / "config.json") if (folder / "config.json").is_file() else {}
        if options.trust_remote_code and config.get("auto_map"):
            raise HubError(_own_code(name))
        written = [
            _write_weights(file, layer, divisor, target, allow_pickle=options.allow_pickle)
            for file in weights
        ]
    _copy_small(folder, target)
    if any(file.name.startswith("pytorch_model-") for file in weights):
        _write_index(folder, target)
    if config.get("do_normalize") and config.get("mean"):
        config["mean"] = [value / divisor for value in config["mean"]]
        write_json(target / "config.json", config)
    head_file = None if recipe.head_file is None else " ".join(map(_safe_name, recipe.head_file.split()))
    changed = tuple(tensor for tensors in written for tensor in tensors)
    return Rescaled(changed, dataclasses.replace(recipe, head_file=head_file), commit)


def _find(name: str, folder: Path, options: LoadOptions) -> tuple[list[Path], _Layer]:
    """Return the files with weights, and the last layer."""
    from rmcalib.judges._weights import tensor_names, weight_files

    recipe, pickle = options.recipe_for(name), options.allow_pickle
    if (folder / "adapter_config.json").is_file():
        file = adapter_file(folder)
        names = tensor_names(folder, file, allow_pickle=pickle)
        found = stock_head(names)
        if not found:
            raise HubError(
                f"{name}: a PEFT adapter whose score head is in its base model: merge the adapter into its "
                "base (peft's merge_and_unload), and calibrate the merged model"
            )
        return [folder / file], _layer(found[0].removesuffix(".weight"), names, recipe.column)
    extra = [folder / file for file in (recipe.head_file or "").split()]
    files = list(dict.fromkeys([*weight_files(folder), *extra]))
    if recipe.head == "ldl":  # the mixture is linear in its gates
        names = tensor_names(folder, extra[1].name, allow_pickle=pickle)
        return files, _last_of("network", names, None, name)
    names = tensor_names(folder, recipe.head_file, allow_pickle=pickle)
    if recipe.head != "auto":
        return files, _last_of(recipe.head, names, recipe.column, name)
    found = stock_head(names)
    if not found:
        raise HubError(f"{name}: no linear layer that gives the rewards was found in its weights")
    return files, _layer(found[0].removesuffix(".weight"), names, recipe.column)


def _last_of(prefix: str, names: Mapping[str, Path], row: int | None, model: str) -> _Layer:
    """Return the last of the linear layers `prefix.weight` or `prefix.0.weight`, `prefix.2.weight`, ..."""
    matches = [re.fullmatch(rf"{re.escape(prefix)}(?:\.(\d+))?\.weight", name) for name in names]
    found = sorted((int(match[1] or 0), match[0]) for match in matches if match)
    if not found:
        raise HubError(f"{model}: no tensors {prefix}.* in its weights, so it has no score head")
    return _layer(found[-1][1].removesuffix(".weight"), names, row)


def _layer(stem: str, names: Mapping[str, Path], row: int | None) -> _Layer:
    weight, bias = f"{stem}.weight", f"{stem}.bias"
    if bias in names and names[bias] != names[weight]:
        raise HubError(f"{stem}: its weight and bias are in different files, which is not supported")
    return _Layer(names[weight], (weight, bias) if bias in names else (weight,), row)


def _write_weights(
    file: Path, layer: _Layer, divisor: float, target: Path, *, allow_pickle: bool
) -> tuple[str, ...]:
    """Link a file, or write it with the last layer divided; return the names of the divided tensors."""
    from safetensors.torch import save_file

    from rmcalib.judges._weights import file_tensors, tensor_names

    safe = file.suffix == ".safetensors"
    names = tensor_names(file.parent, file.name, allow_pickle=allow_pickle)
    ours = [
        name for name in (*layer.tensors, _MEAN) if name in names and (name == _MEAN or file == layer.file)
    ]
    copy = target / _safe_name(file.name)
    if safe and not ours:
        _link(file, copy)
        return ()
    tensors = file_tensors(file, allow_pickle=allow_pickle)
    for name in ours:
        tensors[name] = _divided(tensors[name], divisor, layer.row)
    if not safe:  # pickled tensors may share memory, which safetensors refuses
        tensors = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    save_file(tensors, copy, metadata={"format": "pt"})
    copy.chmod(0o644)  # safetensors lets only the owner read it
    return tuple(ours)


def _divided(tensor: torch.Tensor, divisor: float, row: int | None) -> torch.Tensor:
    """Divide a tensor, or one row of it. The result is in float32, because bfloat16 would round it."""
    exact = tensor.double()
    if row is None:
        exact /= divisor
    else:
        exact[row] /= divisor
    return exact.float().contiguous()


def _link(file: Path, copy: Path) -> None:
    try:
        os.link(file.resolve(), copy)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(file, copy)


def _copy_small(folder: Path, target: Path) -> None:
    for path in sorted(folder.iterdir()):
        wanted = any(path.match(pattern) for pattern in _COPIED) and path.name not in _LEFT_OUT
        if wanted and path.is_file():
            shutil.copyfile(path, target / path.name)


def _write_index(folder: Path, target: Path) -> None:
    """Write the index of a checkpoint whose pickle files were converted to safetensors."""
    index = folder / "pytorch_model.bin.index.json"
    content = json.loads(index.read_text(encoding="utf-8"))
    content["weight_map"] = {name: _safe_name(file) for name, file in content["weight_map"].items()}
    write_json(target / "model.safetensors.index.json", content)


def _safe_name(file: str) -> str:
    """Return the name of a weight file after conversion to safetensors.

    >>> _safe_name("pytorch_model-00001-of-00002.bin"), _safe_name("gating_layer.pt")
    ('model-00001-of-00002.safetensors', 'gating_layer.safetensors')
    """
    return f"{Path(file).stem.replace('pytorch_model', 'model')}.safetensors"


def _own_code(name: str) -> str:
    return (
        f"{name}: the model's own code computes the rewards, so no layer can be scaled safely: use the "
        "calibrator file with --calibrator instead"
    )
