"""Is this machine fit for scoring, and are its devices right?

`diagnose` scores some of the demo benchmark with the demo model on every device and in every dtype there is,
and compares with the CPU in float32. Each runs in a process of its own: a device that crashes is a finding,
not the end of the examination.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from rmcalib.rewards import devices

_PACKAGES = ("rmcalib", "torch", "transformers", "tokenizers", "datasets", "huggingface_hub", "numpy")

# How far the demo's rewards, which lie within about ±10, may be from those of the CPU in float32.
_TOLERANCE = {"float32": 1e-3, "float16": 5e-2, "bfloat16": 5e-1}

# oneDNN picks instructions that some (virtual) processors announce and do not have; this setting avoids them.
_SAFE_INSTRUCTIONS = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@dataclass(frozen=True)
class DeviceInfo:
    """A device and its memory in bytes."""

    device: str
    name: str
    memory: int
    free: int


@dataclass(frozen=True)
class Check:
    """One device and dtype against the CPU in float32.

    `status` is `right`, `differs` or `failed`; the differences are the largest ones, of rewards and of the
    probabilities that they give; `seconds` is the time for scoring alone.
    """

    device: str
    dtype: str
    status: str
    reward_difference: float | None = None
    probability_difference: float | None = None
    seconds: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found."""

    versions: dict[str, str]
    devices: tuple[DeviceInfo, ...]
    hub: str
    hub_reachable: bool
    checks: tuple[Check, ...]

    @property
    def healthy(self) -> bool:
        """Tell whether float32 is right on every device; the narrower dtypes are a choice."""
        return all(check.status == "right" for check in self.checks if check.dtype == "float32")


def diagnose(*, prompts: int = 24, timeout: float = 300.0) -> Diagnosis:
    """Examine this machine: versions, devices, the Hub, the demo's rewards on all devices, in all dtypes."""
    found = devices.available_devices()
    reference = _examine("cpu", "float32", prompts, timeout)
    checks = [_compare("cpu", "float32", reference, reference)]
    for device in found:
        for dtype in devices.DTYPES:
            if (device.type, dtype) != ("cpu", "float32"):
                outcome = _examine(str(device), dtype, prompts, timeout)
                checks.append(_compare(str(device), dtype, outcome, reference))
    reachable, hub = _hub()
    return Diagnosis(
        versions=versions(),
        devices=tuple(
            DeviceInfo(str(d), devices.describe_device(d), devices.total_memory(d), devices.free_memory(d))
            for d in found
        ),
        hub=hub,
        hub_reachable=reachable,
        checks=tuple(checks),
    )


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that make a score."""
    import platform
    from importlib import metadata

    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _hub(timeout: float = 5.0) -> tuple[bool, str]:
    """Ask the Hub for a sign of life."""
    import urllib.error
    import urllib.request

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return (
            False,
            f"{constants.ENDPOINT}: not asked, HF_HUB_OFFLINE is set; only cached models can be scored",
        )
    try:
        with urllib.request.urlopen(f"{constants.ENDPOINT}/api/models?limit=1", timeout=timeout) as answer:
            return True, f"{constants.ENDPOINT}: reachable (status {answer.status})"
    except urllib.error.HTTPError as error:
        return True, f"{constants.ENDPOINT}: reachable, but answers with status {error.code}"
    except (OSError, ValueError) as error:
        return False, f"{constants.ENDPOINT}: not reachable ({getattr(error, 'reason', error)})"


def _examine(device: str, dtype: str, prompts: int, timeout: float) -> dict[str, Any]:
    """Score the demo in a process of its own; `error` is in the result if that did not work."""
    outcome = _run(device, dtype, prompts, timeout, {})
    if outcome.get("crashed") and device == "cpu" and _SAFE_INSTRUCTIONS[0] not in os.environ:
        second = _run(device, dtype, prompts, timeout, dict([_SAFE_INSTRUCTIONS]))
        if "rewards" in second:
            second["note"] = f"crashes ({outcome['error']}) unless {'='.join(_SAFE_INSTRUCTIONS)} is set"
            return second
    return outcome


def _run(device: str, dtype: str, prompts: int, timeout: float, extra: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "rmcalib.rewards.doctor", device, dtype, str(prompts)]
    path = os.pathsep.join(part for part in sys.path if part)
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", **extra}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {timeout:.0f} s"}
    if done.returncode < 0:
        return {"error": f"signal {-done.returncode}", "crashed": True}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    outcome: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return outcome


def _compare(device: str, dtype: str, outcome: dict[str, Any], reference: dict[str, Any]) -> Check:
    import numpy as np

    if "rewards" not in reference or "rewards" not in outcome:
        return Check(
            device, dtype, "failed", note=outcome.get("error", "no answer of the CPU to compare with")
        )

    def probabilities(rewards: list[float]) -> Any:
        weights = np.exp(np.array(rewards) - max(rewards))
        return weights / weights.sum()

    pairs = list(zip(outcome["rewards"], reference["rewards"], strict=True))
    rewards = max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)
    chances = max(float(np.abs(probabilities(a) - probabilities(b)).max()) for a, b in pairs)
    status = "right" if rewards <= _TOLERANCE[dtype] else "differs"
    return Check(device, dtype, status, rewards, chances, outcome["seconds"], outcome.get("note", ""))


def _score_demo(device: str, dtype: str, prompts: int) -> dict[str, Any]:
    from rmcalib.rewards.benchmarks import load_benchmark
    from rmcalib.rewards.models import load_model
    from rmcalib.rewards.scoring import score_items

    model = load_model("demo", device=device, dtype=dtype)
    items = load_benchmark("demo", limit=prompts).items
    next(score_items(model, items[:1]))  # the first pass pays for loading the device's code
    start = time.perf_counter()
    rewards = [item.rewards for chunk in score_items(model, items) for item in chunk]
    return {"rewards": rewards, "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    print(json.dumps(_score_demo(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
