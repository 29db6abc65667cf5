"""In narrow dtypes, batching changes rewards a little, and sharing is still accepted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.processes import run_python

# In its own process: the instructions must be chosen before the first matrix product, and instructions that a
# CPU reports but does not have end the process.
WORKER = """
import json, sys, warnings
import numpy as np, torch
from rmcalib.judges._scoring import score_items
from tests.judges.tiny import tiny_items, tiny_model

warnings.simplefilter("error")
torch.set_num_threads(1)
dtype = getattr(torch, sys.argv[1])
items = tiny_items(24)
worst = {}
for architecture in ("llama", "qwen3", "gemma2", "gpt_neox"):
    model, _ = tiny_model(architecture)
    def rewards(**way):
        scored = [item for chunk in score_items(model, items, **way) for item in chunk]
        return np.array([reward for item in scored for reward in item.rewards])
    exact = rewards()
    model.backbone.to(dtype)
    model.dtype = dtype
    ways = [rewards(), rewards(share=False), rewards(token_budget=64), rewards(share=False, token_budget=1)]
    scale = max(1.0, np.abs(exact).max())
    worst[architecture] = [
        max(np.abs(way - exact).max() for way in ways) / scale,
        max(np.abs(way - ways[0]).max() for way in ways) / scale,
    ]
print(json.dumps(worst))
"""


@pytest.mark.parametrize(("dtype", "bound"), [("bfloat16", 0.1), ("float16", 0.01)])
def test_the_drift_of_narrow_dtypes_is_small(dtype: str, bound: float) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    # One process for each, so that a crash of one dtype does not affect the other.
    done = run_python(["-c", WORKER, dtype], env=environment)
    if done.returncode < 0:
        pytest.skip(f"this processor cannot multiply in {dtype} (signal {-done.returncode})")
    assert done.returncode == 0, done.stderr
    worst = json.loads(done.stdout.splitlines()[-1])
    for architecture, (from_exact, among_ways) in worst.items():
        assert 0 < from_exact < bound, architecture
        assert among_ways < bound, architecture
