"""Copies of models with divided rewards: every kind of head, and models that are refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save_file
from torch import nn

from rmcalib._util.hub import HubError
from rmcalib.judges import LoadOptions, Recipe, load_model
from rmcalib.judges._weights import write_rescaled
from tests.hub import tiny
from tests.judges.folders import CustomHead, adapter_of, copied, rewards

torch.set_num_threads(1)
T = 2.7
Make = Callable[[Path], tuple[Path, dict[str, Any]]]


def stock(model_type: str, **changes: Any) -> Make:
    def make(folder: Path) -> tuple[Path, dict[str, Any]]:
        return tiny.save_model(folder, tiny.tiny_classifier(model_type, **changes)), {}

    return make


def with_head(prefix: str, widths: tuple[int, ...], recipe: dict[str, Any], **config: Any) -> Make:
    def make(folder: Path) -> tuple[Path, dict[str, Any]]:
        torch.manual_seed(3)
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
        return CustomHead(layers).save(folder, prefix, **config), {"head": prefix, **recipe}

    return make


def in_parts(folder: Path) -> tuple[Path, dict[str, Any]]:
    tiny.save_model(folder)
    tiny.tiny_classifier().save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink()
    return folder, {}


def in_bfloat16(folder: Path) -> tuple[Path, dict[str, Any]]:
    return tiny.save_model(folder, tiny.tiny_classifier().bfloat16()), {}


def beside(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The head in its own file."""
    path, recipe = with_head("v_head", (32, 1), {})(folder)
    tensors = load((path / "model.safetensors").read_bytes())  # a mapped file would change when it is written
    head = {name: tensors.pop(name) for name in [*tensors] if name.startswith("v_head")}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    save_file(head, path / "head.safetensors")
    return path, {**recipe, "head_file": "head.safetensors"}


KINDS: dict[str, Make] = {
    "llama": stock("llama"),
    "bert": stock("bert"),
    "head": with_head("regression_head", (32, 1), {}),
    "layers": with_head("v_head.summary", (32, 16, 1), {"sign": -1.0}),
    "column": with_head("score_head", (32, 3), {"column": 1}),
    "parts": in_parts,
    "bfloat16": in_bfloat16,
    "file": beside,
}


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_are_divided_for_every_kind_of_head(kind: str, tmp_path: Path) -> None:
    folder, fields = KINDS[kind](tmp_path / "model")
    options = LoadOptions(device="cpu", recipe=Recipe(str(folder), **fields))
    (copy := tmp_path / "copy").mkdir()
    done = write_rescaled(str(folder), T, copy, options)
    before = rewards(load_model(str(folder), options))
    after = rewards(load_model(str(copy), device="cpu", recipe=done.recipe))
    torch.testing.assert_close(after, before / T, rtol=1e-5, atol=1e-6)
    assert before.abs().max() > 1e-3


def test_only_the_last_layer_changes_and_other_outputs_stay(tmp_path: Path) -> None:
    folder, fields = KINDS["column"](tmp_path / "model")
    (copy := tmp_path / "copy").mkdir()
    done = write_rescaled(str(folder), T, copy, LoadOptions(recipe=Recipe(str(folder), **fields)))
    assert done.tensors == ("score_head.weight", "score_head.bias")
    before, after = (load_file(path / "model.safetensors") for path in (folder, copy))
    for name in before:
        same = [0, 2] if name.startswith("score_head") else slice(None)
        assert torch.equal(before[name][same], after[name][same]), name
    torch.testing.assert_close(after["score_head.weight"][1], before["score_head.weight"][1] / T)


def test_files_that_stay_the_same_are_links(tmp_path: Path) -> None:
    folder, _ = in_parts(tmp_path / "model")
    (copy := tmp_path / "copy").mkdir()
    write_rescaled(str(folder), T, copy)
    same = [path for path in folder.glob("*.safetensors") if path.samefile(copy / path.name)]
    assert len(same) == len(list(folder.glob("*.safetensors"))) - 1
    assert not (folder / "config.json").samefile(copy / "config.json")


def test_adapters_that_carry_the_head(language_model: Path, plain: Path, tmp_path: Path) -> None:
    folder, expected = adapter_of(language_model, tmp_path / "adapter")
    (copy := tmp_path / "copy").mkdir()
    done = write_rescaled(str(folder), T, copy, LoadOptions(base=str(language_model)))
    assert all("score" in name for name in done.tensors)
    torch.testing.assert_close(
        rewards(load_model(str(copy), device="cpu", base=str(language_model))),
        expected / T,
        rtol=1e-5,
        atol=1e-5,
    )
    without, _ = adapter_of(plain, tmp_path / "without", with_head=False)
    with pytest.raises(HubError, match="merge_and_unload"):
        write_rescaled(str(without), T, tmp_path, LoadOptions(base=str(plain)))


def test_models_that_cannot_be_scaled_are_refused(plain: Path, language_model: Path, tmp_path: Path) -> None:
    own = Recipe(str(plain), head="own-code", trust_remote_code=True)
    with pytest.raises(HubError, match="calibrator"):
        write_rescaled(str(plain), T, tmp_path, LoadOptions(recipe=own, trust_remote_code=True))
    pickled = copied(plain, tmp_path / "pickled")
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    with pytest.raises(HubError, match="calibrator"):
        write_rescaled(str(pickled), T, tmp_path, LoadOptions(allow_pickle=True))
    with pytest.raises(HubError, match="linear layer"):
        write_rescaled(str(language_model), T, tmp_path)
    options = LoadOptions(recipe=Recipe(str(plain), status="unsupported", reason="too odd"))
    with pytest.raises(HubError, match="too odd"):
        write_rescaled(str(plain), T, tmp_path, options)
    assert not list(tmp_path.glob("*.safetensors"))
