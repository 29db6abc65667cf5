"""Scoring on simulated CUDA devices: every code path runs, and nothing in a pass waits for the device."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from tests.processes import run_python


@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build of torch asks for a real driver")
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler for torch's device guard")
def test_passes_run_on_simulated_gpus_without_waiting() -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    # In its own process, because the device guard stays registered.
    done = run_python(["-m", "tests.judges.fake_cuda"], env=environment, cwd=root)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert len(results) == 2 * (3 + 7)
    assert {case: result for case, result in results.items() if "error" in result} == {}
    for case, result in results.items():
        assert result["passes"] >= 1, case
        assert result["collected"] == 1, case  # the only wait, once per chunk
        assert result["waits"] == [], case
    assert any(result["passes"] > 1 for result in results.values())
