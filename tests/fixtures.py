"""Fixtures of a whole session: folders with a tiny reward and language model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hub import tiny


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny.tiny_config())
    return tiny.save_model(tmp_path_factory.mktemp("lm"), model)
