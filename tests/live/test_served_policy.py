"""A policy behind a real vLLM: log-probabilities are those of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import rmcalib
from rmcalib.judges import load_judge
from tests.judges.tiny import tiny_tokenizer
from tests.live.backend import rewards_of, running


def language_model(folder: Path, seed: int) -> Path:
    """Save a small llama with heads of a size that vLLM supports on CPUs."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"num_hidden_layers": 2, "intermediate_size": 256, "max_position_embeddings": 2048}
    make: Any = AutoModelForCausalLM
    model = make.from_config(AutoConfig.for_model("llama", vocab_size=400, **sizes)).float()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1) if parameter.ndim > 1 else None
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def items() -> Any:
    return rmcalib.load_benchmark("demo", limit=12).items


def test_implicit_rewards_are_those_of_transformers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, base = (language_model(tmp_path / name, seed) for seed, name in enumerate(("policy", "base")))
    with running(policy, reference=str(base), beta=0.1) as judge:
        there = rewards_of(judge, items())
    here = rewards_of(load_judge(str(policy), reference=str(base), beta=0.1, device="cpu"), items())
    show(capsys, "DPO rewards", here, there)
    assert np.abs(np.subtract(here, there)).max() < 1e-4


def show(capsys: pytest.CaptureFixture[str], what: str, here: list[float], there: list[float]) -> None:
    difference = float(np.abs(np.subtract(here, there)).max())
    with capsys.disabled():
        print(
            f"\n{len(here)} {what} from {min(here):.4g} to {max(here):.4g} differ by up to {difference:.2g}"
        )
