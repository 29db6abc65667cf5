"""Batches on a Ray cluster of two local nodes, one of which is killed: the same scores as locally."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmcalib.batch._ray_cluster import _connect
from rmcalib.batch._status import read_events
from tests.batch.batch_hub import (
    CORRUPT,
    GOOD,
    all_scores,
    assert_same_scores,
    batch,
    command,
    environment,
    models_file,
    states,
    status_of,
)
from tests.hooks import PATIENCE, wait_for
from tests.hub.server import LoopbackHub

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'rmcalib[ray]')"
)

# Two nodes with one CPU each, so that each worker of a model has its own node.
DRIVER = """
import json, sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster as Nodes
from rmcalib.batch import BatchRequest, Cluster, Scoring, run_batch
from rmcalib.batch import _ray
from rmcalib.batch._ray_cluster import silenced
from rmcalib.judges import LoadOptions
from rmcalib.runs import Run

output, models = Path(sys.argv[1]), Path(sys.argv[2])
# The head has no CPUs, so that no worker runs on it.
nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "node_ip_address": "127.0.0.1"})
lost, kept = (nodes.add_node(num_cpus=1, node_ip_address="127.0.0.1") for _ in range(2))
ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
add, begin, killed = Run.add, _ray.wait_for_first, []

def wait_for_all(ray, workers, look):
    # All workers of the first model are ready before scoring starts. Otherwise one could do all the work
    # while the other still loads, and losing a node would have no effect.
    if not killed:
        ray.get([worker.origin.remote() for worker in workers])
    return begin(ray, workers, look)

def add_and_kill(run, scored):
    # Kill the node when some but not all prompts of the first model are written.
    add(run, scored)
    if not killed:
        killed.append(len(list(output.glob("*/*/parts/part-*.parquet"))))
        nodes.remove_node(lost, allow_graceful=False)
        while sum(node["Alive"] for node in ray.nodes()) > 2:  # the head, and one of two
            time.sleep(0.1)

_ray.wait_for_first, Run.add = wait_for_all, add_and_kill
how = Scoring(options=LoadOptions(device="cpu", token_budget=1024), cluster=Cluster(shards=2))
with silenced(ray):
    status = run_batch(BatchRequest(models, how=how, output=output))
    ray.shutdown()
print(json.dumps({"parts": killed[0], "models": status.content()["models"]}))
nodes.shutdown()
"""


@pytest.fixture(scope="module")
def local(model_hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Run two good models and a broken one locally; return the output and the Hub's cache."""
    output, home = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("home")
    env = environment(model_hub.url, home)
    models = models_file(home / "m.yaml", (*GOOD[:2], CORRUPT))
    done = batch(env, "--models", models, "--output", output, "--json", "--no-metrics")
    assert status_of(done)["counts"] == {"done": 2, "failed": 1}, done.stderr
    return output, home


def test_losing_a_node_does_not_change_the_scores(
    model_hub: LoopbackHub, local: tuple[Path, Path], tmp_path: Path
) -> None:
    reference, home = local
    script, output = tmp_path / "driver.py", tmp_path / "runs"
    script.write_text(DRIVER)
    done = subprocess.run(
        [sys.executable, str(script), str(output), str(models_file(tmp_path / "m.yaml", GOOD[:2]))],
        env=environment(model_hub.url, home),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout.splitlines()[-1])
    assert reported["parts"] == 1  # of six: the first model was not finished yet
    assert states(reported) == dict.fromkeys(GOOD[:2], "done")
    warned = [text for entry in reported["models"] for text in entry["warnings"]]
    assert "1 worker lost while scoring; Ray replaced it" in warned
    assert len(done.stdout.splitlines()) == 1, done.stdout  # no output of Ray
    assert_same_scores(all_scores(output), all_scores(reference))


# After writing a part, wait until the interruption has been noticed.
HELD = """
from rmcalib.cli import main
from rmcalib.batch import _ray
from rmcalib.runs import Run

def patience(ray, need, stopping, *, patience=_ray.patience):
    Run.add = lambda run, scored: (add(run, scored), stopping.wait(600))
    return patience(ray, need, stopping)

add, _ray.patience = Run.add, patience
main()
"""


def test_interrupted_and_resumed_on_a_local_cluster(
    model_hub: LoopbackHub, local: tuple[Path, Path], tmp_path: Path
) -> None:
    reference, _ = local
    output, home = tmp_path / "runs", tmp_path / "home"
    env = environment(model_hub.url, home)
    models = models_file(tmp_path / "m.yaml", (*GOOD[:2], CORRUPT))
    common = ("--models", models, "--output", output, "--json", "--no-metrics")
    options = (*common, "--engine", "ray")
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, *command(*options)[3:]],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: list(output.glob("*/*/parts/part-*.parquet")), lambda: process.poll() is None)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()  # a leftover cluster would disturb other tests
    assert (process.returncode, stderr) == (
        130,
        "rmcalib: interrupted; run the same command again to continue\n",
    )
    content = json.loads((output / "batch.json").read_text())
    assert content["status"] == "interrupted"
    assert not {states(content)[name] for name in GOOD[:2]} & {"failed"}, content["models"]
    parts = list(output.glob("*/*/parts/part-*.parquet"))
    assert parts
    assert not list(output.rglob("*.tmp"))
    assert not list(output.glob("*/*/lock.json"))  # the folders were released

    done = batch(env, *options, "--free-disk")
    assert done.returncode == 1, done.stderr
    expected = json.loads((reference / "batch.json").read_text())
    assert {entry["model"]: entry["why"] for entry in status_of(done)["models"]} == {
        entry["model"]: entry["why"] for entry in expected["models"]
    }
    assert_same_scores(all_scores(output), all_scores(reference))
    freed = {e["model"]: e["bytes"] for e in read_events(output) if e["event"] == "freed"}
    assert set(freed) == set(GOOD[:2])
    assert min(freed.values()) > 10_000
    assert [path.name for path in (home / "hub").glob("models--*")] == [
        f"models--{CORRUPT.replace('/', '--')}"
    ]
    # The local engine finds that everything is done.
    assert status_of(batch(env, *common))["counts"] == {"done": 2, "failed": 1}


def test_an_address_without_a_cluster_is_refused_in_one_line() -> None:
    # Not a real address: "auto" would find any cluster that runs on this machine.
    def init(**_: object) -> None:
        raise ConnectionError("Could not find any\nrunning Ray instance")

    nobody = SimpleNamespace(is_initialized=lambda: False, init=init)
    with pytest.raises(ValueError, match="--address auto: no Ray cluster there: Could not find any running"):
        _connect(nobody, "auto")
