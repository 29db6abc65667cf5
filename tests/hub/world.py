"""A Hub on 127.0.0.1 with a tiny model and a small benchmark, and an environment for its clients."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.hub import tiny
from tests.hub.server import LoopbackHub

MODEL, BENCH, RESULTS = "org/tiny-rm", "allenai/reward-bench-2", "allenai/reward-bench-2-results"
ROOT = Path(__file__).parents[2]
# The libraries wait between attempts; tests do not have to.
WITHOUT_WAITING = "import time; time.sleep = lambda seconds: None\n"


def save_files(folder: Path) -> dict[str, Path]:
    """Save the files to serve: two revisions of the model and of the benchmark."""
    return {
        "model": tiny.save_model(folder / "model"),
        "old": tiny.save_model(folder / "old", tiny.tiny_classifier(seed=5)),
        "bench": tiny.save_benchmark(folder / "bench"),
        "bench2": tiny.save_benchmark(folder / "bench2", tiny.benchmark_rows(9)),
    }


@contextlib.contextmanager
def serve(files: dict[str, Path]) -> Iterator[LoopbackHub]:
    """Serve the files as `MODEL` (tag v1: the old one) and `BENCH` (tag v2: the other one)."""
    with LoopbackHub() as hub:
        fill(hub, files)
        yield hub


def fill(hub: LoopbackHub, files: dict[str, Path]) -> None:
    """Let a Hub have these repositories only, no failures, and no requests so far."""
    for state in (hub.repos, hub.faults, hub.requests):
        state.clear()
    hub.add("models", MODEL, files["old"], ref="v1")
    hub.add("models", MODEL, files["model"])
    hub.add("datasets", BENCH, files["bench2"], ref="v2")
    hub.add("datasets", BENCH, files["bench"])


def environment(url: str, home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process that uses only this Hub, with its cache in `home`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "RMCALIB"))}
    return {
        **kept,
        "HF_ENDPOINT": url,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_ETAG_TIMEOUT": "120",  # seconds; the machine may be busy
        "HF_HUB_DOWNLOAD_TIMEOUT": "120",
        "DISABLE_SAFETENSORS_CONVERSION": "1",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        **more,
    }
