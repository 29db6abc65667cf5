"""Rebuild score heads from a checkpoint's tensors, in float32.

Most custom reward heads are a linear layer, or linear layers with ReLU between them, with a name such as
`regression_head`, `v_head.summary` or `score_head`. The names and shapes of the tensors show which. One class
replaces a dozen model-specific ones. A head that is not in the checkpoint is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rmcalib._util.hub import PICKLE, HubError
from rmcalib.judges._checks import read_json


class Head(nn.Module):
    """Linear layers with an activation between them: (n, hidden) -> (n,) reward, in float32.

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
        activation: Callable[[torch.Tensor], torch.Tensor] = torch.relu,
    ) -> None:
        """Use the layers, converted to float32."""
        super().__init__()
        self.layers = nn.ModuleList(layer.float() for layer in layers)
        self.column, self.sign, self.shift, self.scale = column, sign, shift, scale
        self.activation = activation

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the rewards of pooled hidden states, which may have any dtype and device."""
        weight = next(self.parameters())
        x = hidden.to(device=weight.device, dtype=torch.float32)
        for i, layer in enumerate(self.layers):
            x = layer(self.activation(x) if i else x)
        return self.sign * (x[..., self.column] - self.shift) / self.scale


class DistributionHead(nn.Module):
    """The head of LDL-Reward: the mean of a gated mixture of label distributions over [0, 1].

    `values` maps (n, hidden) to (n, objectives · k). A softmax over the k grades of each objective gives its
    distribution, and `gates` gives the weights of the objectives. The grades are equally spaced on [0, 1].
    """

    def __init__(self, values: list[nn.Linear], gates: list[nn.Linear], *, grades: int = 10) -> None:
        """Use the layers of both networks, converted to float32."""
        super().__init__()
        self.values = nn.ModuleList(layer.float() for layer in values)
        self.gates = nn.ModuleList(layer.float() for layer in gates)
        self.grades = grades

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the rewards of pooled hidden states, which may have any dtype and device."""
        weight = next(self.parameters())
        x = hidden.to(device=weight.device, dtype=torch.float32)
        values, gates = self._run(self.values, x), self._run(self.gates, x)
        distribution = values.reshape(len(x), -1, self.grades).softmax(-1)
        mixture: torch.Tensor = (gates.unsqueeze(-1) * distribution).sum(-2)
        return mixture @ torch.linspace(0, 1, self.grades, device=weight.device)

    @staticmethod
    def _run(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
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
        found = outputs if isinstance(outputs, torch.Tensor) else getattr(outputs, self.field, None)
        if found is None and isinstance(outputs, (tuple, list, Mapping)) and outputs:
            found = next(iter(outputs.values())) if isinstance(outputs, Mapping) else outputs[0]
        if not isinstance(found, torch.Tensor) or found.ndim not in (1, 2):
            raise ValueError(
                f"the model's own code returned no rewards in {self.field!r}: give the field in a recipe "
                "(`output`)"
            )
        rewards = found.float()
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
    found: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r"(?:(\d+)\.)?(weight|bias)", name)
        if match is None:
            raise ValueError(f"{where}: tensor {name!r} is not the weight or bias of a linear layer")
        found.setdefault(int(match[1] or 0), {})[match[2]] = tensor
    layers: list[nn.Linear] = []
    for _, parts in sorted(found.items()):
        if "weight" not in parts or parts["weight"].ndim != 2:
            raise ValueError(f"{where}: a layer has no weight matrix")
        n_out, n_in = parts["weight"].shape
        if layers and layers[-1].out_features != n_in:
            raise ValueError(
                f"{where}: a layer with {layers[-1].out_features} outputs is followed by one with {n_in} "
                "inputs"
            )
        layer = nn.Linear(n_in, n_out, bias="bias" in parts)
        layer.load_state_dict(parts)
        layers.append(layer)
    return layers


def tensor_names(folder: Path, file: str | None = None, *, allow_pickle: bool = False) -> dict[str, Path]:
    """Return the tensors of a checkpoint folder, or of one file in it, with the file of each."""
    files = weight_files(folder, file)
    return {name: path for path in files for name in _names(path, allow_pickle)}


def read_tensors(
    folder: Path, prefix: str, file: str | None = None, *, allow_pickle: bool = False
) -> dict[str, torch.Tensor]:
    """Read the tensors whose names begin with `prefix` and a dot (all for ""); remove the prefix."""
    start = f"{prefix}." if prefix else ""
    result: dict[str, torch.Tensor] = {}
    for name, path in tensor_names(folder, file, allow_pickle=allow_pickle).items():
        if name.startswith(start):
            result[name.removeprefix(start)] = _read(path, name, allow_pickle)
    return result


def file_tensors(path: Path, *, allow_pickle: bool = False) -> dict[str, torch.Tensor]:
    """Read all tensors of one file."""
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return _pickled(path, allow_pickle)


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


def _names(path: Path, allow_pickle: bool) -> Iterator[str]:
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            yield from file.keys()
    else:
        yield from _pickled(path, allow_pickle)


def _read(path: Path, name: str, allow_pickle: bool) -> torch.Tensor:
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor
    return _pickled(path, allow_pickle)[name]


def _pickled(path: Path, allow_pickle: bool) -> dict[str, torch.Tensor]:
    """Read pickle weights with torch's restricted unpickler, if this is allowed."""
    if not allow_pickle:
        raise HubError(f"{path}: a pickle file, {PICKLE}")
    tensors: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return tensors
