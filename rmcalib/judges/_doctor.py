"""Check whether the devices of this machine, or a server, compute the right rewards.

`diagnose` scores a part of the demo benchmark with the demo model on every device, in every dtype, and
compares with the CPU in float32. Each device is checked in its own process, which may crash. `compare_served`
compares a server with the model loaded here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmcalib._util.processes import isolated
from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import _devices as devices
from rmcalib.judges._judge import scored_chunks
from rmcalib.judges._model import load_model
from rmcalib.judges._scoring import Classifier, score_items
from rmcalib.judges._settings import LoadOptions, ServedSettings, checked_settings

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges._judge import Judge

_PACKAGES = ("rmcalib", "torch", "transformers", "tokenizers", "datasets", "huggingface_hub", "numpy")

# Largest allowed difference from the CPU in float32. The demo's rewards lie within about ±10.
_TOLERANCE = {"float32": 1e-3, "float16": 5e-2, "bfloat16": 5e-1}

# Differences of a server's rewards, relative to the largest reward (or to 1).
_EQUAL, _ROUNDING = 1e-3, 5e-2

_ANSWER = "answer: "  # prefix of our own output; libraries may print other lines

Outcome = dict[str, Any]
"""The result for one dtype: `rewards` and `seconds`, or an `error`."""

Rewards = Sequence[Sequence[float]]
"""The rewards of each prompt's responses."""


@dataclass(frozen=True)
class DeviceInfo:
    """A device and its memory in bytes."""

    device: str
    name: str
    memory: int
    free: int


@dataclass(frozen=True)
class Check:
    """The comparison of one device and dtype with the CPU in float32.

    Attributes
    ----------
    device, dtype : str
        What was checked.
    status : str
        `right`, `differs` or `failed`.
    reward_difference, probability_difference : float, optional
        The largest difference of rewards, and of the probabilities computed from them.
    seconds : float, optional
        Time for scoring, without loading.
    note : str
        Why it failed.
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
    """The result of `diagnose`.

    Attributes
    ----------
    versions : dict[str, str]
        Versions of Python and of the packages that affect scores.
    devices : tuple[DeviceInfo, ...]
        Each device with its `device`, `name`, `memory` and `free` memory in bytes.
    hub : str
        Address of the Hub, and whether it can be reached.
    hub_reachable : bool
        Whether it can be reached.
    checks : tuple[Check, ...]
        One entry per device and dtype, with `device`, `dtype`, `status` (`right`, `differs` or `failed`),
        `reward_difference`, `probability_difference`, `seconds` and `note`.

    Examples
    --------
    >>> Diagnosis(versions={}, devices=(), hub="", hub_reachable=False, checks=()).healthy
    True
    """

    versions: dict[str, str]
    devices: tuple[DeviceInfo, ...]
    hub: str
    hub_reachable: bool
    checks: tuple[Check, ...]

    @property
    def healthy(self) -> bool:
        """Whether float32 is right on every device. Narrower dtypes may differ."""
        return all(check.status == "right" for check in self.checks if check.dtype == "float32")


def diagnose(*, prompts: int = 24, timeout: float = 300.0) -> Diagnosis:
    """Check this machine: versions, devices, the Hub, and the demo's rewards on every device in every dtype.

    Parameters
    ----------
    prompts : int
        Number of prompts of the demo benchmark to score.
    timeout : float
        Seconds to wait for each process.

    Returns
    -------
    Diagnosis
        What was found. `.healthy` is True if float32 is right on every device.

    Examples
    --------
    It starts one process per device, which takes some seconds::

        found = rmcalib.judges.diagnose()
        print(found.healthy, [check.status for check in found.checks])
    """
    found = devices.available_devices()
    outcomes = {str(device): _run(str(device), prompts, timeout) for device in found}
    reference = outcomes["cpu"]["float32"]
    checks = [
        _compare(device, dtype, outcome, reference)
        for device, by_dtype in outcomes.items()
        for dtype, outcome in by_dtype.items()
    ]
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


@dataclass(frozen=True)
class ServedCheck:
    """The result of `compare_served`.

    Attributes
    ----------
    model : str
        The model's name.
    endpoint, endpoint_kind, server_version, served_model
        The server, its kind and version, and the name that it has for the model.
    n_responses : int
        Number of responses that were scored by both.
    dtype : str
        Dtype of the model loaded here.
    reward_difference, probability_difference : float
        The largest difference of rewards, and of the probabilities computed from them.
    seconds_served, seconds_here : float
        Time for scoring.
    status : str
        `right`, `rounding` (the differences are as large as those of a narrower dtype) or `differs`.
    """

    model: str
    endpoint: str
    endpoint_kind: str
    server_version: str | None
    served_model: str | None
    n_responses: int
    dtype: str
    reward_difference: float
    probability_difference: float
    seconds_served: float
    seconds_here: float
    status: str

    @property
    def healthy(self) -> bool:
        """Whether the server returns this model's rewards, up to rounding."""
        return self.status != "differs"


def compare_served(
    model: str, endpoint: str, *, prompts: int = 8, here: LoadOptions | None = None, **settings: Any
) -> ServedCheck:
    """Score prompts of the demo with a server and with the same model loaded here, and compare the rewards.

    Parameters
    ----------
    model : str
        Hub id or folder of the model.
    endpoint : str
        Address of the server.
    prompts : int
        Number of prompts, with four responses each.
    here : LoadOptions, optional
        Settings for loading the model on this machine.
    **settings
        More fields of `ServedSettings`.

    Returns
    -------
    ServedCheck
        The largest differences. `.healthy` is True if they are only rounding.

    Examples
    --------
    With a running server::

        check = rmcalib.judges.compare_served("org/name", "http://localhost:8000")
        print(check.status, check.reward_difference)
    """
    from rmcalib.judges._served import EndpointJudge

    items = load_benchmark("demo", limit=prompts).items
    served = EndpointJudge(model, checked_settings(ServedSettings, {"endpoint": endpoint, **settings}))
    server = served.server  # an unsuitable server is reported before the model is loaded
    there, seconds_served = _timed(served, items)
    loaded = Classifier(model, here)
    own, seconds_here = _timed(loaded, items)
    difference, probabilities = largest_differences(there, own)
    largest = max(1.0, *(abs(reward) for rewards in own for reward in rewards))
    status = "right" if difference <= _EQUAL * largest else "rounding"
    return ServedCheck(
        model=model,
        endpoint=served.client.url,
        endpoint_kind=server.kind,
        server_version=server.version,
        served_model=server.model,
        n_responses=sum(map(len, own)),
        dtype=str(loaded.model.dtype).removeprefix("torch."),
        reward_difference=difference,
        probability_difference=probabilities,
        seconds_served=seconds_served,
        seconds_here=seconds_here,
        status=status if difference <= _ROUNDING * largest else "differs",
    )


def _timed(judge: Judge, items: Sequence[Item]) -> tuple[list[tuple[float, ...]], float]:
    """Return the rewards of a judge, and the seconds that scoring took."""
    judge.identity()  # loads the model, which is not part of the time
    start = time.perf_counter()
    rewards = [scored.rewards for chunk in scored_chunks(judge, items) for scored in chunk]
    return rewards, time.perf_counter() - start


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect scores."""
    import platform
    from importlib import metadata

    return {"python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}}


def _hub(timeout: float = 5.0) -> tuple[bool, str]:
    """Return whether the Hub can be reached, and a text for the report."""
    import httpx
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False, f"{constants.ENDPOINT}: not checked: HF_HUB_OFFLINE is set"
    try:
        answer = httpx.get(f"{constants.ENDPOINT}/api/models?limit=1", timeout=timeout)
        return True, f"{constants.ENDPOINT}: reachable (status {answer.status_code})"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return False, f"{constants.ENDPOINT}: not reachable ({error})"


def _run(device: str, prompts: int, timeout: float) -> dict[str, Outcome]:
    """Score the demo in each dtype, in one process, because starting a process takes most of the time.

    If the process ends early, the outcomes of the dtypes that it did not finish are errors.
    """
    code = "from rmcalib.judges._doctor import main; main()"
    # The demo is so small that several threads would be slower.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "HF_HUB_OFFLINE": "1"}
    command = isolated(code, device, str(prompts))
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, env=environment, check=False)
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        said, ending = done.stdout, (last or [f"the process ended with code {done.returncode}"])[0]
    except subprocess.TimeoutExpired as expired:
        said, ending = expired.stdout or b"", f"no answer within {timeout:.0f} s"
    outcomes: dict[str, Outcome] = {dtype: {"error": ending} for dtype in devices.DTYPES}
    for line in said.decode(errors="replace").splitlines():
        if line.startswith(_ANSWER):
            outcomes |= json.loads(line.removeprefix(_ANSWER))
    return outcomes


def largest_differences(some: Rewards, others: Rewards) -> tuple[float, float]:
    """Return the largest difference of two judges' rewards, and of their softmax probabilities.

    >>> largest_differences([[0.0, 1.0]], [[0.0, 3.0]])
    (2.0, 0.22)
    """
    import numpy as np
    from scipy.special import softmax

    pairs = list(zip(some, others, strict=True))
    rewards = max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)
    chances = max(float(np.abs(softmax(a) - softmax(b)).max()) for a, b in pairs)
    return rewards, chances


def _compare(device: str, dtype: str, outcome: Outcome, reference: Outcome) -> Check:
    if "rewards" not in reference or "rewards" not in outcome:
        return Check(device, dtype, "failed", note=outcome.get("error", "the CPU gave no rewards"))
    rewards, chances = largest_differences(outcome["rewards"], reference["rewards"])
    status = "right" if rewards <= _TOLERANCE[dtype] else "differs"
    return Check(device, dtype, status, rewards, chances, outcome["seconds"])


def _score_demo(device: str, dtype: str, prompts: int) -> Outcome:
    try:
        model = load_model("demo", device=device, dtype=dtype)
        items = load_benchmark("demo", limit=prompts).items
        next(score_items(model, items[:1]))  # the first pass loads the device's code, which is not timed
        start = time.perf_counter()
        rewards = [item.rewards for chunk in score_items(model, items) for item in chunk]
    except Exception as error:
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())}
    return {"rewards": rewards, "seconds": time.perf_counter() - start}


def main() -> None:
    """Score the demo in the process that `diagnose` starts for a device, and print the outcomes."""
    device, prompts = sys.argv[1:]
    for dtype in devices.DTYPES:
        print(_ANSWER + json.dumps({dtype: _score_demo(device, dtype, int(prompts))}), flush=True)
