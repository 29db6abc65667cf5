"""Start a real vLLM server on this machine's CPU, and stop it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 900.0  # seconds: compiling for a busy CPU takes minutes


@contextlib.contextmanager
def vllm_server(model: Path, name: str, *options: str, log: Path) -> Iterator[str]:
    """Serve a model in float32 under a name, and yield the address. `options` are those of vLLM."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [os.environ["VLLM_PYTHON"], "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", name, "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *options], env=kept | own, stdout=output, stderr=output, start_new_session=True
        )
        try:
            _wait_for(process, f"http://127.0.0.1:{port}", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait_for(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
            return
        time.sleep(1)
    raise RuntimeError(
        f"vLLM does not answer; the end of its log:\n{log.read_text(errors='replace')[-3000:]}"
    )
