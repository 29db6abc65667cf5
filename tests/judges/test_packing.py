"""Packed layers give the same rewards as plain ones, or are not used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import load_judge
from rmcalib.judges._model import load_model
from rmcalib.judges._packing import PackedLinear, PackedSwiGLU, count_packed, pack_layers
from rmcalib.judges._scoring import ItemScorer
from tests.judges.tiny import ARCHITECTURES, tiny_items, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


def rewards(model: Any, **options: Any) -> list[float]:
    chunks = ItemScorer(model, **options).chunks(tiny_items(5, longest=40))
    return [reward for chunk in chunks for item in chunk for reward in item.rewards]


def fused(model: Any) -> int:
    return sum(isinstance(part, PackedSwiGLU) for part in model.backbone.modules())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rewards_are_those_of_plain_layers(architecture: str) -> None:
    model, _ = tiny_model(architecture)
    expected = rewards(model)
    linear = sum(type(part) is nn.Linear for part in getattr(model.backbone, "layers", nn.Module()).modules())
    pack_layers(model.backbone)
    assert count_packed(model.backbone) == linear > 0 or architecture == "deberta-v2"
    assert fused(model) == (3 if architecture.startswith(("llama", "qwen", "mistral", "olmo2")) else 0)
    for share in (True, False):
        np.testing.assert_allclose(rewards(model, share=share), expected, atol=1e-5)


@pytest.mark.parametrize("change", ["missing", "wrong"])
def test_layers_stay_plain_where_the_operators_are_missing_or_wrong(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(self: Any, inputs: torch.Tensor, *_: Any) -> torch.Tensor:
        if change == "missing":
            raise RuntimeError("no such operator")
        return nn.functional.linear(inputs, self.weight, self.bias) * 1.001

    model, _ = tiny_model("llama")
    expected = rewards(model)
    monkeypatch.setattr(PackedLinear, "forward", forward)
    assert pack_layers(model.backbone) == count_packed(model.backbone) == 0
    assert rewards(model) == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    model, _ = tiny_model("llama")
    model.dtype = dtype
    model.backbone.to(dtype)
    expected = rewards(model)
    pack_layers(model.backbone)  # packs nothing where the CPU cannot multiply such numbers
    np.testing.assert_allclose(rewards(model), expected, atol=4 * torch.finfo(dtype).eps * np.ptp(expected))


def test_a_packed_layer_takes_the_place_of_its_weight() -> None:
    model, _ = tiny_model("llama")
    plain = model.backbone.layers[0].self_attn.q_proj.weight.detach().clone()
    pack_layers(model.backbone)
    layer: Any = model.backbone.layers[0].self_attn.q_proj
    assert torch.equal(layer.weight, plain)
    assert not any("proj" in name for name, _ in model.backbone.named_parameters())
    assert pack_layers(model.backbone) == 0  # nothing is left to pack


def test_a_model_of_other_code_is_left_as_it_is() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3)])

    assert pack_layers(Own()) == 0


def test_loaded_again_gives_the_same_rewards_to_the_last_bit() -> None:
    items = load_benchmark("demo").items[:8]
    first, second = (
        [item.rewards for chunk in load_judge("demo", device="cpu").score(items) for item in chunk]
        for _ in range(2)
    )
    assert first == second
    assert count_packed(load_model("demo", device="cpu").backbone) > 0
