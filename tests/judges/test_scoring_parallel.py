"""Two processes with torchrun score each prompt once, with the same rewards as one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rmcalib._util.processes import process_rank
from rmcalib.judges._scoring import score_items
from tests.hooks import PATIENCE
from tests.judges.tiny import tiny_items, tiny_model

# Without this, gloo uses the machine's host name, which may not resolve.
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"

WORKER = """
import json, sys
from pathlib import Path
import torch
import torch.distributed as dist
from rmcalib._util.processes import joined, process_rank
from rmcalib.judges._scoring import score_items
from rmcalib.runs._score import shard
from tests.judges.tiny import tiny_items, tiny_model

torch.set_num_threads(1)
with joined() as team:
    assert (team.rank, team.world) == process_rank() == (dist.get_rank(), dist.get_world_size())
    model, _ = tiny_model("llama")
    own = shard(tiny_items(20), team.rank, team.world)
    scored = [item for chunk in score_items(model, own) for item in chunk]
    gathered = team.gather([(item.id, item.rewards) for item in scored])
if team.rank == 0:
    Path(sys.argv[1]).write_text(json.dumps(gathered))
"""


def test_two_gloo_processes_score_each_prompt_once(tmp_path: Path) -> None:
    script, result = tmp_path / "worker.py", tmp_path / "rewards.json"
    script.write_text(WORKER)
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": _LOOPBACK,
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*command, str(script), str(result)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    by_rank = json.loads(result.read_text())
    assert [len(own) for own in by_rank] == [10, 10]
    pairs = [pair for own in by_rank for pair in own]
    together = dict(pairs)
    assert len(together) == len(pairs) == 20
    model, _ = tiny_model("llama")
    for chunk in score_items(model, tiny_items(20)):
        for item in chunk:
            np.testing.assert_allclose(together[item.id], item.rewards, atol=1e-5)


def test_one_process_is_rank_0_of_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert process_rank() == (0, 1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert process_rank() == (1, 4)
