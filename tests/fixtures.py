"""Fixtures of a whole session: a Hub with tiny models, and folders with a tiny reward and language model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub import tiny
from tests.hub.server import LoopbackHub
from tests.runs.batch_hub import add_models


@pytest.fixture(scope="session")
def model_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    with LoopbackHub() as hub:
        add_models(hub, tmp_path_factory.mktemp("files"))
        yield hub


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
