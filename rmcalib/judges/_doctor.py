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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmcalib._util.processes import isolated, package_versions
from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import _devices as devices
from rmcalib.judges._judge import scored_chunks
from rmcalib.judges._scoring import Classifier
from rmcalib.judges._settings import LoadOptions, ServedSettings, checked_settings

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges._judge import Judge


# Largest differences of rewards, relative to the largest reward (or to 1).
_EQUAL, _ROUNDING = 1e-3, 5e-2

_ANSWER = "answer: "  # prefix of our own output; libraries may print other lines

Outcome = dict[str, Any]
"""The result for one dtype: `rewards` and `seconds`, or an `error`."""


@dataclass(frozen=True)
class Check:
    """A comparison of rewards: a device with the CPU in float32, or a server with the model loaded here.

    Attributes
    ----------
    where : str
        The device, or the server's address.
    dtype : str
        Dtype of the device, or of the model loaded here.
    status : str
        `right`, `rounding` (the differences are as large as those of a narrower dtype), `differs` or `failed`.
    reward_difference, probability_difference : float, optional
        The largest difference of rewards, and of the probabilities computed from them.
    seconds : float, optional
        Time for scoring, without loading.
    note : str
        Why it failed.
    about : dict[str, Any]
        What else is known about a server: its kind, version and model, and the time that scoring took here.
    """

    where: str
    dtype: str
    status: str = "failed"
    reward_difference: float | None = None
    probability_difference: float | None = None
    seconds: float | None = None
    note: str = ""
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether the rewards are right, up to rounding."""
        return self.status in ("right", "rounding")


@dataclass(frozen=True)
class Diagnosis:
    """The result of `diagnose`.

    Attributes
    ----------
    versions : dict[str, str]
        Versions of Python and of the packages that affect scores.
    devices : dict[str, dict[str, Any]]
        Name, memory and free memory in bytes of each device.
    hub : str
        Address of the Hub, and whether it can be reached.
    checks : tuple[Check, ...]
        One entry per device and dtype.

    Examples
    --------
    >>> Diagnosis(versions={}, devices={}, hub="", checks=()).healthy
    True
    """

    versions: dict[str, str]
    devices: dict[str, dict[str, Any]]
    hub: str
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
    checks = []
    for device, by_dtype in outcomes.items():
        for dtype, outcome in by_dtype.items():
            if "rewards" in outcome and "rewards" in reference:
                difference = compared(outcome["rewards"], reference["rewards"])
                checks.append(Check(device, dtype, **difference, seconds=outcome["seconds"]))
            else:
                checks.append(Check(device, dtype, note=outcome.get("error", "the CPU gave no rewards")))
    described = {str(device): devices.describe_device(device) for device in found}
    return Diagnosis(package_versions(), described, _hub(), tuple(checks))


def compare_served(
    model: str, endpoint: str, *, prompts: int = 8, here: LoadOptions | None = None, **settings: Any
) -> Check:
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
    Check
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
    there, seconds = timed(served, items)
    loaded = Classifier(model, here)
    own, seconds_here = timed(loaded, items)
    about = {
        "model": model,
        "n_responses": sum(map(len, own)),
        "seconds_here": seconds_here,
        **server.identity(),
        **server.about(),
    }
    dtype = str(loaded.model.dtype).removeprefix("torch.")
    return Check(server.client.url, dtype, **compared(there, own), seconds=seconds, about=about)


def timed(judge: Judge, items: Sequence[Item]) -> tuple[list[tuple[float, ...]], float]:
    """Return the rewards of a judge, and the seconds that scoring took."""
    judge.identity()  # loads the model, which is not part of the time
    start = time.perf_counter()
    rewards = [scored.rewards for chunk in scored_chunks(judge, items) for scored in chunk]
    return rewards, time.perf_counter() - start


def compared(some: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the largest differences of two judges' rewards and of their softmax probabilities.

    >>> compared([[0.0, 1.0]], [[0.0, 3.0]])
    {'status': 'differs', 'reward_difference': 2.0, 'probability_difference': 0.22}
    """
    import numpy as np
    from scipy.special import softmax

    pairs = list(zip(some, others, strict=True))
    rewards = max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)
    probabilities = max(float(np.abs(softmax(a) - softmax(b)).max()) for a, b in pairs)
    relative = rewards / max(1.0, *(abs(reward) for _, own in pairs for reward in own))
    status = "right" if relative <= _EQUAL else "rounding" if relative <= _ROUNDING else "differs"
    return {"status": status, "reward_difference": rewards, "probability_difference": probabilities}


def _hub(timeout: float = 5.0) -> str:
    """Return the address of the Hub, and whether it can be reached."""
    import httpx
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return f"{constants.ENDPOINT}: not checked: HF_HUB_OFFLINE is set"
    try:
        answer = httpx.get(f"{constants.ENDPOINT}/api/models?limit=1", timeout=timeout)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"{constants.ENDPOINT}: not reachable ({error})"
    return f"{constants.ENDPOINT}: reachable (status {answer.status_code})"


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


def main() -> None:
    """Score the demo in the process that `diagnose` starts for a device, and print the outcomes."""
    device, prompts = sys.argv[1:]
    items = load_benchmark("demo", limit=int(prompts)).items
    for dtype in devices.DTYPES:
        outcome: Outcome
        try:
            judge = Classifier("demo", LoadOptions(device=device, dtype=dtype))
            timed(judge, items[:1])  # the first pass loads the device's code, which is not timed
            rewards, seconds = timed(judge, items)
            outcome = {"rewards": rewards, "seconds": seconds}
        except Exception as error:
            outcome = {"error": " ".join(f"{type(error).__name__}: {error}".split())}
        print(_ANSWER + json.dumps({dtype: outcome}), flush=True)
