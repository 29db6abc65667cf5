"""PEFT adapters, with and without a head."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from rmcalib._util.hub import HubError
from rmcalib.judges import load_model
from tests.judges.folders import adapter_of, rewards

torch.set_num_threads(1)


def test_a_peft_adapter_brings_its_head_to_a_language_model(language_model: Path, tmp_path: Path) -> None:
    folder, expected = adapter_of(language_model, tmp_path)
    model = load_model(str(folder), device="cpu")
    assert model.kind == "causal"
    torch.testing.assert_close(rewards(model), expected, atol=1e-5, rtol=1e-5)
    assert model.sources["base"].startswith(f"{language_model}@")


def test_a_peft_adapter_without_a_head_keeps_the_base_s(plain: Path, tmp_path: Path) -> None:
    folder, expected = adapter_of(plain, tmp_path, with_head=False)
    torch.testing.assert_close(rewards(load_model(str(folder), device="cpu")), expected, atol=1e-5, rtol=1e-5)


def test_a_peft_adapter_with_no_head_anywhere_is_refused(language_model: Path, tmp_path: Path) -> None:
    folder, _ = adapter_of(language_model, tmp_path, with_head=False)
    with pytest.raises(HubError, match="no score head"):
        load_model(str(folder), device="cpu")


def test_a_peft_adapter_whose_base_is_gone(plain: Path, tmp_path: Path) -> None:
    folder, _ = adapter_of(plain, tmp_path, with_head=False)
    settings = json.loads((folder / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = "/gone/base"
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(HubError, match="its base model cannot be loaded: '/gone/base' is neither"):
        load_model(str(folder), device="cpu")
