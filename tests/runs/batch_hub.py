"""A Hub on 127.0.0.1 with tiny reward models, some of them broken, and `rmcalib batch` run against it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from rmcalib.scores import Scores
from tests.hooks import PATIENCE
from tests.hub import tiny, world
from tests.hub.server import LoopbackHub
from tests.processes import run_python

ROOT = Path(__file__).parents[2]
GOOD = ("org/rm-10m", "org/rm-20m")
GATED, CORRUPT, NAN = "org/gated-15m", "org/corrupt-25m", "org/nan-35m"
BROKEN = (GATED, CORRUPT, NAN)
KINDS = ("llama", "qwen2")
BENCH = "allenai/reward-bench-2"


def add_models(hub: LoopbackHub, folder: Path) -> None:
    """Put two good models and three broken ones on the Hub, and a benchmark that is scored in two parts."""
    import torch

    for number, (name, kind) in enumerate(zip(GOOD, KINDS, strict=True)):
        model = tiny.tiny_classifier(kind, seed=number)
        hub.add("models", name, tiny.save_model(folder / name, model))
    hub.add("models", GATED, folder / GOOD[0], gated=True)
    files = {path.name: path.read_bytes() for path in (folder / GOOD[1]).iterdir()}
    cut = files["model.safetensors"]
    hub.add("models", CORRUPT, {**files, "model.safetensors": cut[: len(cut) // 2]})
    model = tiny.tiny_classifier(seed=9)
    with torch.no_grad():
        model.score.weight.fill_(float("nan"))
    hub.add("models", NAN, tiny.save_model(folder / NAN, model))
    hub.add("datasets", BENCH, tiny.save_benchmark(folder / "bench", tiny.benchmark_rows(40)))


def models_file(path: Path, names: tuple[str, ...] = GOOD + BROKEN) -> Path:
    """Write the models as YAML, in no particular order."""
    path.write_text(json.dumps([{"model": name} for name in sorted(names)]))  # JSON is YAML
    return path


def environment(url: str, home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a batch that sees this Hub only, with its cache in `home`."""
    # By default, Ray gives its workers a low priority, kills them if memory is short, and considers slow ones
    # dead. Other tests run on this machine at the same time, so these limits are relaxed.
    ray = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_worker_niceness": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_gcs_server_port_wait_time_s": f"{PATIENCE:.0f}",
        "RAY_worker_register_timeout_seconds": f"{PATIENCE:.0f}",
        "RAY_agent_register_timeout_ms": f"{1000 * PATIENCE:.0f}",
        "RAY_health_check_timeout_ms": f"{1000 * PATIENCE:.0f}",
    }
    return world.environment(url, home, **ray, **more)


def command(*options: object) -> list[str]:
    running = () if "published" in options else ("-J", "device=cpu", "-J", "token_budget=1024")
    judging = () if "--no-metrics" in options else ("--resamples", "20")
    return ["-m", "rmcalib", "batch", *map(str, (*judging, *running, *options))]


def batch(env: dict[str, str], *options: object) -> subprocess.CompletedProcess[str]:
    """Run `rmcalib batch` to its end; a traceback on its standard error fails the test."""
    done = run_python(command(*options), env=env)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def status_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the output of `--json`."""
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def states(content: dict[str, Any]) -> dict[str, str]:
    return {entry["model"]: entry["state"] for entry in content["models"]}


def all_scores(output: Path) -> dict[str, Scores]:
    """Return the scores of all finished runs, by the name of the folder."""
    return {path.parts[-3]: Scores.from_parquet(path) for path in output.glob("*/*/scores.parquet")}
