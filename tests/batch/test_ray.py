"""Batches on a Ray cluster of two nodes on loopback, one of which is killed: the same scores as locally."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmcalib.batch._ray import _connect
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
    told,
)
from tests.hooks import PATIENCE, wait_for
from tests.hub.server import LoopbackHub

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'rmcalib[ray]')"
)

# Two nodes with one processor each, so that every worker of a model has a node of its own.
DRIVER = """
import json, sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster as Nodes
from rmcalib.batch._local import Job, open_batch
from rmcalib.benchmarks._benchmark import load_benchmark
from rmcalib.batch._ray import Cluster, run_ray
from rmcalib.batch._ray_workers import Crew
from rmcalib.batch._plan import make_plan, read_models
from rmcalib.judges import LoadOptions
from rmcalib.runs._folder import Run

output, models = Path(sys.argv[1]), Path(sys.argv[2])
# The head has no processors: it cannot be lost, and no worker runs on it.
nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "node_ip_address": "127.0.0.1"})
lost, kept = (nodes.add_node(num_cpus=1, node_ip_address="127.0.0.1") for _ in range(2))
ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
add, begin, killed = Run.add, Crew.open, []

def open_all(crew, n_workers):
    # The first model's workers are all there before its work begins: else one could do it all alone while the
    # other still loads, and nothing would be lost with a node.
    about = begin(crew, n_workers)
    while crew._busy and not killed:
        list(crew._finished([]))
    return about

def add_and_kill(run, scored):
    # When some prompts of the first model are kept, and not all.
    add(run, scored)
    if not killed:
        killed.append(len(list(output.glob("*/*/parts/part-*.parquet"))))
        nodes.remove_node(lost, allow_graceful=False)
        while sum(node["Alive"] for node in ray.nodes()) > 2:  # the head, and one of two
            time.sleep(0.1)

Crew.open, Run.add = open_all, add_and_kill
bench = load_benchmark("reward-bench-2")
plan = make_plan(read_models(models))
job = Job(bench, "reward-bench-2", options=LoadOptions(device="cpu", token_budget=1024))
with open_batch(output, plan, engine="ray") as batch:
    run_ray(batch, job, plan, Cluster(shards=2))
print(json.dumps({"parts": killed[0], "models": batch.status.content()["models"]}))
ray.shutdown()
nodes.shutdown()
"""


@pytest.fixture(scope="module")
def local(model_hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What the local engine makes of two good models and a broken one; and the Hub's cache."""
    output, home = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("home")
    env = environment(model_hub.url, home)
    models = models_file(home / "m.yaml", (*GOOD[:2], CORRUPT))
    done = batch(env, "--models", models, "--output", output, "--json", "--no-metrics")
    assert told(done)["counts"] == {"done": 2, "failed": 1}, done.stderr
    return output, home


def test_a_node_lost_in_the_middle_changes_nothing(
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
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["parts"] == 1  # of the first model's six: it was not finished yet
    assert states(said) == dict.fromkeys(GOOD[:2], "done")
    assert any("were lost on the way" in text for entry in said["models"] for text in entry["warnings"])
    assert_same_scores(all_scores(output), all_scores(reference))


def test_command_on_a_cluster_of_its_own_tells_failures_as_locally(
    model_hub: LoopbackHub, local: tuple[Path, Path], tmp_path: Path
) -> None:
    reference, home = local
    models = models_file(tmp_path / "m.yaml", (*GOOD[:2], CORRUPT))
    options = ("--models", models, "--output", tmp_path / "runs", "--json", "--no-metrics")
    done = batch(environment(model_hub.url, home), *options, "--engine", "ray")
    assert done.returncode == 1, done.stderr
    expected = json.loads((reference / "batch.json").read_text())
    assert {e["model"]: e["why"] for e in told(done)["models"]} == {
        entry["model"]: entry["why"] for entry in expected["models"]
    }
    assert_same_scores(all_scores(tmp_path / "runs"), all_scores(reference))
    # The local engine takes up what the cluster has left, and finds nothing to do.
    assert told(batch(environment(model_hub.url, home), *options))["counts"] == {"done": 2, "failed": 1}


# Whoever has written a part goes on when the interruption has been noticed, and not before.
HELD = """
from rmcalib.cli import main
from rmcalib.batch import _ray as cluster
from rmcalib.runs._folder import Run

class Room(cluster._Room):
    def __init__(self, ray):
        super().__init__(ray)
        Run.add = lambda run, scored: (add(run, scored), self.stopping.wait(600))

add, cluster._Room = Run.add, Room
main()
"""


def test_interrupted_and_resumed_and_checkpoints_dropped(
    model_hub: LoopbackHub, local: tuple[Path, Path], tmp_path: Path
) -> None:
    reference, _ = local
    output, home = tmp_path / "runs", tmp_path / "home"
    env = environment(model_hub.url, home)
    models = models_file(tmp_path / "m.yaml", GOOD[:2])
    options = ("--models", models, "--output", output, "--json", "--no-metrics", "--engine", "ray")
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
        process.kill()  # a cluster that nobody ends would be in the way of the other tests
    assert (process.returncode, stderr) == (130, "rmcalib: interrupted; the same command goes on from here\n")
    content = json.loads((output / "batch.json").read_text())
    assert content["status"] == "interrupted"
    assert "failed" not in states(content).values(), content["models"]
    parts = list(output.glob("*/*/parts/part-*.parquet"))
    assert parts
    assert not list(output.rglob("*.tmp"))
    assert not list(output.glob("*/*/lock.json"))  # the folders were given back

    done = batch(env, *options, "--free-disk")
    assert done.returncode == 0, done.stderr
    assert_same_scores(all_scores(output), {name: all_scores(reference)[name] for name in all_scores(output)})
    assert len(all_scores(output)) == 2
    freed = {e["model"]: e["bytes"] for e in read_events(output) if e["event"] == "freed"}
    assert set(freed) == set(GOOD[:2])
    assert min(freed.values()) > 10_000
    assert not list((home / "hub").glob("models--*"))


def test_an_address_without_a_cluster_is_one_line() -> None:
    # No real address: "auto" would find whatever cluster runs on the machine of the tests.
    def init(**_: object) -> None:
        raise ConnectionError("Could not find any\nrunning Ray instance")

    nobody = SimpleNamespace(is_initialized=lambda: False, init=init)
    with pytest.raises(ValueError, match="--address auto: no Ray cluster there: Could not find any running"):
        _connect(nobody, "auto")
