"""Linear layers packed for a CPU: weights in the blocks that its matrix products read, SwiGLU fused into them.

`torch.compile` uses these operators of oneDNN when it freezes a model. Called directly, they need no compiler,
and no minutes of compiling. They are not public in torch, so each packed layer is compared with the plain one,
and is used only if both agree up to rounding. A packed weight takes the place of the plain one, so memory stays
as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_ROWS = 16  # of the comparison
_EPSILONS = 8.0  # the largest difference allowed, as root mean squares
_SWIGLU = {"gate_proj", "up_proj", "down_proj", "act_fn"}


class PackedLinear(nn.Module):
    """A linear layer with a packed weight."""

    def __init__(self, linear: nn.Linear) -> None:
        """Pack the weight of `linear`."""
        super().__init__()
        self.bias = linear.bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)

    @property
    def weight(self) -> torch.Tensor:
        """The plain weight, made anew at every access."""
        plain: torch.Tensor = self.packed.to_dense()
        return plain

    def forward(self, inputs: torch.Tensor, activation: str = "none") -> torch.Tensor:
        """Apply the layer to (..., features)."""
        product: Any = torch.ops.mkldnn._linear_pointwise
        outputs: torch.Tensor = product(inputs, self.packed, self.bias, activation, [], "")
        return outputs

    def times(self, inputs: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        """Apply the layer, and multiply its outputs by `factors`."""
        product: Any = torch.ops.mkldnn._linear_pointwise.binary
        outputs: torch.Tensor = product(inputs, factors, self.packed, self.bias, "mul")
        return outputs


class PackedSwiGLU(nn.Module):
    """`down(silu(gate(x)) * up(x))`, as three matrix products that do the rest on their way."""

    def __init__(self, mlp: Any) -> None:
        """Pack the weights of `mlp`."""
        super().__init__()
        self.gate_proj = PackedLinear(mlp.gate_proj)
        self.up_proj = PackedLinear(mlp.up_proj)
        self.down_proj = PackedLinear(mlp.down_proj)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Apply the layers to (..., features)."""
        gate = self.gate_proj(inputs, "swish")
        outputs: torch.Tensor = self.down_proj(self.up_proj.times(inputs, gate))
        return outputs


def pack_layers(model: nn.Module) -> int:
    """Pack the linear layers in the blocks of a stock transformer on a CPU; return the number of packed modules.

    Other models are left as they are, as are layers that torch cannot pack here, or whose outputs would change.
    """
    blocks = getattr(getattr(model, "base_model", model), "layers", None)
    if not (type(model).__module__.startswith("transformers.models.") and isinstance(blocks, nn.ModuleList)):
        return 0
    with torch.inference_mode():
        return _pack_children(blocks)


def count_packed(model: nn.Module) -> int:
    """Return the number of packed linear layers of a model."""
    return sum(isinstance(part, PackedLinear) for part in model.modules())


def _pack_children(module: nn.Module) -> int:
    packed = 0
    for name, child in list(module.named_children()):
        replacement = _packed(child)
        if replacement is None:
            packed += _pack_children(child)
        else:
            setattr(module, name, replacement)
            packed += 1
    return packed


def _packed(layer: Any) -> nn.Module | None:
    """Return a packed layer in place of a linear one or a SwiGLU; None for others, or if outputs would change."""
    is_swiglu = {name for name, _ in layer.named_children()} == _SWIGLU and _is_silu(layer.act_fn)
    if not is_swiglu and type(layer) is not nn.Linear:
        return None
    weight = layer.gate_proj.weight if is_swiglu else layer.weight
    inputs = torch.randn(_ROWS, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight.dtype)
    try:
        packed = PackedSwiGLU(layer) if is_swiglu else PackedLinear(layer)
        expected, outputs = layer(inputs).float(), packed(inputs).float()
    except (AttributeError, RuntimeError):  # not in this version of torch, or not for this CPU or dtype
        return None
    allowed = _EPSILONS * torch.finfo(weight.dtype).eps * expected.norm()
    return packed if bool((outputs - expected).norm() <= allowed) else None


def _is_silu(activation: Any) -> bool:
    inputs = torch.linspace(-8, 8, 65)
    return torch.allclose(activation(inputs), nn.functional.silu(inputs))
