"""The tensors of checkpoints: score heads that are rebuilt from them, and copies with scaled rewards.

Most custom reward heads are a linear layer, or linear layers with ReLU between them, with a name such as
`regression_head`, `v_head.summary` or `score_head`. The names and shapes of the tensors show which. One class
replaces a dozen model-specific ones. A head that is not in the checkpoint is an error.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rmcalib._util.hub import PICKLE, SMALL_FILES, HubError, translated
from rmcalib.judges._files import ModelFiles, find_files, read_json
from rmcalib.judges._model import adapter_file, stock_head
from rmcalib.judges._registry import Recipe
from rmcalib.judges._settings import LoadOptions

_COPIED = (*SMALL_FILES, "LICENSE*", "NOTICE*")
_LEFT_OUT = ("pytorch_model.bin.index.json", "trainer_state.json")
_INSTEAD = "use the calibrator itself instead"


class Head(nn.Module):
    """Linear layers with ReLU between them: (n, hidden) -> (n,) reward, in float32.

    reward = sign · (output[column] − shift) / scale.
    """

    def __init__(
        self,
        layers: list[nn.Linear],
        *,
        column: int = 0,
        sign: float = 1.0,
        shift: float = 0.0,
        scale: float = 1.0,
    ) -> None:
        """Use the layers, converted to float32."""
        super().__init__()
        self.layers = nn.ModuleList(layer.float() for layer in layers)
        self.column, self.sign, self.shift, self.scale = column, sign, shift, scale

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the rewards of pooled hidden states, which may have any dtype and device."""
        x = hidden.to(device=next(self.layers.parameters()).device, dtype=torch.float32)
        for i, layer in enumerate(self.layers):
            x = layer(torch.relu(x) if i else x)
        return self.sign * (x[..., self.column] - self.shift) / self.scale


class LabelDistributions(nn.Module):
    """A gated mixture of label distributions: (n, hidden) -> (n,) reward, in float32.

    One network gives a distribution over ten grades from 0 to 1 for each of several objectives, another one a
    weight for each objective. The reward is the weighted sum of the expected grades. Both networks are linear
    layers with leaky ReLU between them. With a `temperature`, the weights are a softmax.
    """

    n_grades = 10

    def __init__(
        self,
        labels: list[nn.Linear],
        gate: list[nn.Linear],
        *,
        temperature: float | None = None,
        sign: float = 1.0,
    ) -> None:
        """Use the layers, converted to float32; each objective has a weight."""
        super().__init__()
        n_labels, n_weights = labels[-1].out_features, gate[-1].out_features
        if n_labels != n_weights * self.n_grades:
            raise ValueError(f"{n_labels} labels are not {self.n_grades} for each of {n_weights} weights")
        self.labels = nn.ModuleList(layer.float() for layer in labels)
        self.gate = nn.ModuleList(layer.float() for layer in gate)
        self.temperature, self.sign = temperature, sign

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the rewards of pooled hidden states, which may have any dtype and device."""
        x = hidden.to(device=next(self.labels.parameters()).device, dtype=torch.float32)
        labels, weights = (_leaky(layers, x) for layers in (self.labels, self.gate))
        grades = labels.reshape(*labels.shape[:-1], -1, self.n_grades).softmax(-1)
        expected = grades @ torch.linspace(0, 1, self.n_grades, device=x.device)
        if self.temperature is not None:
            weights = (weights / self.temperature).softmax(-1)
        return self.sign * (weights * expected).sum(-1)


def _leaky(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for i, layer in enumerate(layers):
        x = layer(nn.functional.leaky_relu(x) if i else x)
    return x


class Output(nn.Module):
    """Extracts the rewards (n,) from a model's output: a field such as `logits`, one column, with a sign."""

    def __init__(self, field: str = "logits", *, column: int | None = None, sign: float = 1.0) -> None:
        """Keep the settings."""
        super().__init__()
        self.field, self.column, self.sign = field, column, sign

    def forward(self, outputs: Any) -> torch.Tensor:
        """Return the rewards in `outputs`: a tensor, a tuple that begins with one, or an object."""
        values = outputs if isinstance(outputs, torch.Tensor) else getattr(outputs, self.field, None)
        if values is None and isinstance(outputs, (tuple, list)) and outputs:
            values = outputs[0]
        if not isinstance(values, torch.Tensor) or values.ndim not in (1, 2):
            raise ValueError(
                f"the model returned no rewards in {self.field!r}: give the field in a recipe (`output`)"
            )
        rewards = values.float()
        if rewards.ndim == 2:
            if rewards.shape[1] != 1 and self.column is None:
                raise ValueError(
                    f"the model has {rewards.shape[1]} outputs: choose one in a recipe (`column`)"
                )
            rewards = rewards[:, self.column or 0]
        return self.sign * rewards


def linear_layers(tensors: Mapping[str, torch.Tensor], where: str) -> list[nn.Linear]:
    """Build linear layers from tensors named `weight`, `bias` or `0.weight`, `0.bias`, `2.weight`, and so on.

    >>> tensors = {"0.weight": torch.ones(3, 4), "0.bias": torch.zeros(3), "2.weight": torch.ones(1, 3)}
    >>> linear_layers(tensors, "head")
    [Linear(in_features=4, out_features=3, bias=True), Linear(in_features=3, out_features=1, bias=False)]
    """
    by_number: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r"(?:(\d+)\.)?(weight|bias)", name)
        if match is None:
            raise ValueError(f"{where}: tensor {name!r} is not the weight or bias of a linear layer")
        by_number.setdefault(int(match[1] or 0), {})[match[2]] = tensor
    layers: list[nn.Linear] = []
    for _, parts in sorted(by_number.items()):
        if "weight" not in parts or parts["weight"].ndim != 2:
            raise ValueError(f"{where}: a layer has no weight matrix")
        n_out, n_in = parts["weight"].shape
        if layers and layers[-1].out_features != n_in:
            raise ValueError(
                f"{where}: a layer of {layers[-1].out_features} outputs, then one of {n_in} inputs"
            )
        layer = nn.Linear(n_in, n_out, bias="bias" in parts)
        layer.load_state_dict(parts)
        layers.append(layer)
    return layers


def tensor_names(folder: Path, file: str | None = None, *, allow_pickle: bool = False) -> dict[str, Path]:
    """Return the tensors of a checkpoint folder, or of one file in it, with the file of each."""
    file_of: dict[str, Path] = {}
    for path in weight_files(folder, file):
        with _opened(path, allow_pickle) as (names, _):
            file_of |= dict.fromkeys(names, path)
    return file_of


def read_tensors(
    folder: Path, prefix: str, file: str | None = None, *, allow_pickle: bool = False
) -> dict[str, torch.Tensor]:
    """Read the tensors whose names begin with `prefix` and a dot (all for ""); remove the prefix."""
    start = f"{prefix}." if prefix else ""
    result: dict[str, torch.Tensor] = {}
    for path in weight_files(folder, file):
        with _opened(path, allow_pickle) as (names, get):
            result |= {name.removeprefix(start): get(name) for name in names if name.startswith(start)}
    return result


def weight_files(folder: Path, file: str | None = None) -> list[Path]:
    """Return the files with a checkpoint's weights: safetensors if they are complete, otherwise pickle."""
    if file is not None:
        return [folder / file] if (folder / file).is_file() else []
    for index, single in (
        ("model.safetensors.index.json", "model.safetensors"),
        ("pytorch_model.bin.index.json", "pytorch_model.bin"),
    ):
        if (folder / single).is_file():
            return [folder / single]
        if (folder / index).is_file():
            table = read_json(folder.name, folder / index).get("weight_map")
            shards = {str(shard) for shard in table.values()} if isinstance(table, dict) else set()
            if shards and all(Path(shard).name == shard and (folder / shard).is_file() for shard in shards):
                return sorted(folder / shard for shard in shards)
    return []


@contextlib.contextmanager
def _opened(path: Path, allow_pickle: bool) -> Iterator[tuple[list[str], Callable[[str], torch.Tensor]]]:
    """Open a file with weights: the names of its tensors, and a function that reads one.

    Pickle files are read with torch's restricted unpickler, if this is allowed.
    """
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            yield list(file.keys()), file.get_tensor
    elif allow_pickle:
        tensors: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        yield list(tensors), tensors.__getitem__
    else:
        raise HubError(f"{path}: a pickle file, {PICKLE}")


@dataclass(frozen=True)
class Rescaled:
    """The result of `write_rescaled`: the names of the divided tensors, and the copy's recipe.

    `revision` is the model's commit, or the SHA-256 of a local folder's files.
    """

    tensors: tuple[str, ...]
    recipe: Recipe
    revision: str


def write_rescaled(name: str, divisor: float, target: Path, options: LoadOptions | None = None) -> Rescaled:
    """Copy a model to the empty folder `target` so that its rewards are divided by `divisor`.

    A linear layer gives the rewards, so its weights and bias are divided, in float32. Nothing else changes.
    Large files that do not change are hard links where the file system allows it, so do not change them in
    place. A `HubError` says why a model cannot be scaled.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_rescaled("demo", 2.0, Path(folder)).tensors
    ('score.weight',)
    """
    files = find_files(name, options or LoadOptions())
    recipe, folder = files.recipe, files.adapter or files.weights
    head_file = recipe.head_file if files.adapter is None else adapter_file(folder)
    with translated(name):
        weights = {*weight_files(folder), *weight_files(folder, head_file)}
        if any(each.suffix != ".safetensors" for each in weights):
            raise HubError(f"{name}: its weights are pickle files: save it as safetensors, or {_INSTEAD}")
        file, changed = _last_layer(files, tensor_names(folder, head_file))
        for each in weights - {file}:
            _link(each, target / each.name)
        _write_divided(file, changed, divisor, recipe.column, target / file.name)
    for path in sorted(folder.iterdir()):
        if path.is_file() and any(path.match(pattern) for pattern in _COPIED) and path.name not in _LEFT_OUT:
            shutil.copyfile(path, target / path.name)
    return Rescaled(changed, recipe, files.commit)


def _last_layer(files: ModelFiles, names: Mapping[str, Path]) -> tuple[Path, tuple[str, ...]]:
    """Return the file with the linear layer that gives the rewards, and the names of its tensors."""
    name, head, adapter = files.name, files.recipe.head, files.adapter
    if adapter or head == "auto":
        weights = stock_head(names)
    else:
        matches = [re.fullmatch(rf"{re.escape(head)}(?:\.(\d+))?\.weight", tensor) for tensor in names]
        numbered = sorted((int(match[1] or 0), match[0]) for match in matches if match)
        weights = [tensor for _, tensor in numbered]
    if not weights:
        remedy = "merge the adapter into its base (peft's merge_and_unload), or " if adapter else ""
        raise HubError(
            f"{name}: no linear layer that gives the rewards is in its weights: {remedy}{_INSTEAD}"
        )
    weight, bias = weights[-1], f"{weights[-1].removesuffix('.weight')}.bias"
    if names.get(bias, names[weight]) != names[weight]:
        raise HubError(f"{name}: the weight and bias of its head are in different files")
    return names[weight], (weight, bias) if bias in names else (weight,)


def _link(file: Path, copy: Path) -> None:
    try:
        os.link(file.resolve(), copy)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(file, copy)


def _write_divided(file: Path, names: Iterable[str], divisor: float, row: int | None, copy: Path) -> None:
    """Write a file of weights with some tensors, or one row of them, divided."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    for name in names:
        exact = tensors[name].double()
        exact[... if row is None else row] /= divisor
        tensors[name] = exact.float().contiguous()  # bfloat16 would round it
    save_file(tensors, copy, metadata={"format": "pt"})
    copy.chmod(0o644)  # safetensors lets only the owner read it
