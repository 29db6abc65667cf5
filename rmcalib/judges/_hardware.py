"""The devices of this machine, and the speed that `bench` measured on them."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmcalib._util.files import write_json
from rmcalib.judges._inference import devices

__all__ = ["Hardware", "find_hardware", "keep_rate", "measured_rate"]


class Hardware(NamedTuple):
    """The devices that a model runs on.

    Attributes
    ----------
    device : str
        Type of the devices: `cpu`, `cuda` or `mps`.
    n_devices : int
        Number of devices.
    memory : float
        Memory of all of them together, in bytes.
    rate : float, optional
        Operations per second of one device, as `bench` measured them. None if `bench` never ran here.

    Examples
    --------
    >>> Hardware("cuda", 8, 640e9).n_devices
    8
    """

    device: str
    n_devices: int
    memory: float
    rate: float | None = None


def find_hardware(device: str = "auto") -> Hardware:
    """Return the devices of this machine that a model runs on.

    Parameters
    ----------
    device : str
        `auto`, `cpu`, `cuda`, `cuda:1` or `mps`, as in `LoadOptions`.

    Returns
    -------
    Hardware
        With `auto`, all CUDA devices together if there are any, because a large model is spread over them.
        Otherwise one device.

    Examples
    --------
    >>> find_hardware("cpu").device
    'cpu'
    """
    if device == "cpu":  # known without torch, which takes seconds to import
        return Hardware("cpu", 1, float(devices.main_memory().total), _rate("cpu", ""))
    chosen = devices.choose_device(device)
    used = [chosen]
    if chosen.type == "cuda" and device == "auto":
        used = [gpu for gpu in devices.available_devices() if gpu.type == "cuda"]
    memory = float(sum(devices.total_memory(each) for each in used))
    return Hardware(chosen.type, len(used), memory, _rate(chosen.type, devices.describe_device(chosen)))


def keep_rate(result: Mapping[str, Any]) -> None:
    """Write the fields of a `Benchmarked` to the user's cache folder. A failure is a warning."""
    file = _cache_file()
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    kind = _kind(result["device"].partition(":")[0], result["device_name"])
    known = {**(known if isinstance(known, dict) else {}), kind: dict(result)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, known)
    except OSError as error:
        warnings.warn(f"{file}: cannot store the measured rate ({error})", stacklevel=3)


def measured_rate(device: str, name: str = "") -> tuple[float, str] | None:
    """Return the operations per second that `bench` measured, and the date; None if it never ran here.

    `device` is the type of the device, such as `cuda`, and `name` the maker's name for it (not for the CPU).
    """
    try:
        known = json.loads(_cache_file().read_text(encoding="utf-8"))
        found = known[_kind(device, name)]
        return float(found["operations_per_second"]), str(found["measured"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _rate(device: str, name: str) -> float | None:
    found = measured_rate(device, name)
    return None if found is None else found[0]


def _kind(device: str, name: str) -> str:
    return device if device == "cpu" else f"{device}: {name}"


def _cache_file() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "rmcalib" / "bench.json"
