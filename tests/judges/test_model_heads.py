"""Heads whose tensors have other names, or are in their own files, are rebuilt."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rmcalib._util.hub import HubError
from rmcalib.judges import Recipe, load_model
from rmcalib.judges._weights import DistributionHead, Output, linear_layers
from tests.judges.folders import IDS, CustomHead, copied, rewards

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("prefix", "widths", "bias"),
    [
        ("regression_head", (32, 1), False),
        ("v_head.summary", (32, 16, 1), True),
        ("score", (32, 32, 1), True),
        ("score_head", (32, 1), True),
    ],
)
def test_heads_are_rebuilt_from_their_tensors(
    prefix: str, widths: tuple[int, ...], bias: bool, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    custom = CustomHead([nn.Linear(a, b, bias=bias) for a, b in pairwise(widths)])
    folder = str(custom.save(tmp_path, prefix))
    with pytest.raises(HubError, match=r"no score head|score"):
        load_model(folder, device="cpu")
    model = load_model(folder, device="cpu", recipe=Recipe(folder, status="rebuilt", head=prefix, sign=-1.0))
    assert model.kind == "causal"
    torch.testing.assert_close(rewards(model), -custom(IDS), atol=1e-5, rtol=1e-5)


def test_a_transformer_under_another_prefix(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    folder = str(custom.save(tmp_path, "v_head", backbone="transformer"))
    recipe = Recipe(folder, head="v_head", backbone_prefix="transformer")
    torch.testing.assert_close(rewards(load_model(folder, device="cpu", recipe=recipe)), custom(IDS))
    with pytest.raises(HubError, match=r"the checkpoint lacks .* and \d+ more"):
        load_model(folder, device="cpu", recipe=Recipe(folder, head="v_head"))


def test_a_model_type_of_its_own_is_read_as_the_named_architecture(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1)])
    folder = str(custom.save(tmp_path, "out_proj", model_type="llama_reward_model", pooling="last"))
    recipe = Recipe(folder, head="out_proj", architecture="llama")
    torch.testing.assert_close(rewards(load_model(folder, device="cpu", recipe=recipe)), custom(IDS))
    with pytest.raises(HubError, match="llama_reward_model"):
        load_model(folder, device="cpu")


def test_safe_rlhf_s_normaliser_is_applied(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    config: dict[str, Any] = {"do_normalize": True, "score_type": "cost", "mean": [5.0], "var": [4.0]}
    folder = str(custom.save(tmp_path, "score_head", **config))
    model = load_model(folder, device="cpu", recipe=Recipe(folder, head="score_head", sign=-1.0))
    torch.testing.assert_close(rewards(model), -custom(IDS) / 2.0)


def test_a_head_in_a_file_of_its_own(plain: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    folder = copied(plain, tmp_path / "m")
    layer = nn.Linear(32, 1)
    save_file(
        {f"v_head.summary.{k}": v for k, v in layer.state_dict().items()}, folder / "value_head.safetensors"
    )
    recipe = Recipe(str(folder), head="v_head.summary", head_file="value_head.safetensors")
    model = load_model(str(folder), device="cpu", recipe=recipe)
    assert torch.equal(next(model.head.parameters()), layer.weight)
    (folder / "value_head.safetensors").unlink()
    with pytest.raises(HubError, match=r"no tensors v_head\.summary\.\* in the checkpoint"):
        load_model(str(folder), device="cpu", recipe=recipe)


def test_the_distribution_head_is_the_mixture_s_mean(plain: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    values = nn.Sequential(nn.Linear(32, 8), nn.LeakyReLU(), nn.Linear(8, 30))
    gates = nn.Sequential(nn.Linear(32, 8), nn.LeakyReLU(), nn.Dropout(0.0), nn.Linear(8, 3))
    folder = copied(plain, tmp_path / "m")
    torch.save({f"network.{k}": v for k, v in values.state_dict().items()}, folder / "values.pt")
    torch.save({f"network.{k}": v for k, v in gates.state_dict().items()}, folder / "gates.pt")
    recipe = Recipe(str(folder), head="ldl", head_file="values.pt gates.pt")
    head = load_model(str(folder), device="cpu", recipe=recipe, allow_pickle=True).head
    assert isinstance(head, DistributionHead)
    state = torch.randn(1, 32)
    expected = 0.0
    with torch.no_grad():
        for objective in range(3):
            grades = values(state)[0, 10 * objective : 10 * objective + 10].softmax(0)
            expected += float(gates(state)[0, objective] * sum(g * i / 9 for i, g in enumerate(grades)))
    assert float(head(state)) == pytest.approx(expected, abs=1e-5)


def test_layers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="3 outputs is followed by one with 4 inputs"):
        linear_layers({"0.weight": torch.ones(3, 8), "1.weight": torch.ones(1, 4)}, "x")
    with pytest.raises(ValueError, match=r"'norm\.weight' is not the weight or bias of a linear layer"):
        linear_layers({"norm.weight": torch.ones(3)}, "x")


@pytest.mark.parametrize(
    "outputs", [torch.ones(2), torch.ones(2, 1), (torch.ones(2, 1), None), {"x": torch.ones(2)}]
)
def test_rewards_are_found_in_what_own_code_returns(outputs: Any) -> None:
    assert torch.equal(Output()(outputs), torch.ones(2))


def test_several_outputs_of_own_code_need_a_column() -> None:
    with pytest.raises(ValueError, match="5 outputs"):
        Output()(torch.ones(2, 5))
    with pytest.raises(ValueError, match="no rewards in 'score'"):
        Output("score")(object())
