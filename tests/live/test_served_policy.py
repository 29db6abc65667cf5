"""A policy behind a real vLLM: log-probabilities are those of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import rmcalib
from rmcalib.judges import Judge, load_judge, scored_chunks
from tests.judges.tiny import tiny_tokenizer
from tests.live.vllm import vllm_server


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


def rewards(judge: Judge) -> list[float]:
    items = rmcalib.load_benchmark("demo", limit=12).items
    return [reward for chunk in scored_chunks(judge, items) for one in chunk for reward in one.rewards]


def test_log_probabilities_are_those_of_transformers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = language_model(tmp_path / "policy", 0)
    with vllm_server(policy, "mine", log=tmp_path / "log") as url:
        there = rewards(load_judge(str(policy), reference_free="sum", endpoint=url, served_name="mine"))
    here = rewards(load_judge(str(policy), reference_free="sum", device="cpu"))
    difference = float(np.abs(np.subtract(here, there)).max())
    with capsys.disabled():
        print(f"\n{len(here)} sums from {min(here):.4g} to {max(here):.4g} differ by up to {difference:.2g}")
    assert difference < 1e-3
