"""A batch on a Ray cluster of two local nodes, one of which is killed: the same scores as locally."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rmcalib
from tests.hooks import PATIENCE
from tests.runs.batch_hub import ROOT, environment
from tests.runs.small_runs import Plugin, install, same

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'rmcalib[ray]')"
)

# Two nodes with one CPU each, so that each worker of the judge has its own node.
DRIVER = """
import json, sys
import ray
from ray.cluster_utils import Cluster as Nodes
from rmcalib.benchmarks import load_benchmark
from rmcalib.runs import Batch, Cluster, run_batch
from tests.runs.small_runs import listed

node = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
nodes = Nodes(initialize_head=True, head_node_args=node)
lost = nodes.add_node(**node)
ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
done = []

def lose_a_node(status):
    done.append(status.models["slow"].responses_done)
    if done[-1] and not done[-2]:
        nodes.remove_node(lost, allow_graceful=False)

bench = load_benchmark("demo", limit=224)
models = [listed(delay=0.2), listed("broken", fault="the judge is broken", at=bench.items[100].id)]
two = Batch(models, bench, sys.argv[1], cluster=Cluster(shards=2))
status = run_batch(two, on_change=lose_a_node)
failed = run_batch(Batch([listed("large")], "demo", sys.argv[1], limit=32, cluster=Cluster(gpus=64)))
ray.shutdown()
nodes.shutdown()
entries = [*status.content()["models"], *failed.content()["models"]]
print(json.dumps({entry["model"]: [entry["state"], entry["why"]] for entry in entries}))
"""


def test_losing_a_node_does_not_change_the_scores(tmp_path: Path) -> None:
    install(tmp_path / "site", "slow", "broken", "large")
    paths = os.pathsep.join((str(ROOT), str(tmp_path / "site")))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path / "runs")],
        env=environment("", tmp_path / "home") | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()  # and nothing of Ray
    found = json.loads(line)
    assert found["slow"] == ["done", ""]
    assert found["broken"] == ["failed", "the judge is broken"]
    assert found["large"][0] == "failed"
    assert "64 GPUs" in found["large"][1]
    (file,) = (tmp_path / "runs").glob("*/*/scores.parquet")
    alone = rmcalib.score(Plugin(), rmcalib.load_benchmark("demo", limit=224))
    assert same(rmcalib.load_scores(file), alone)
