"""Devices: which are available, their memory, and how running out of memory is noticed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from rmcalib._util.display import count

if TYPE_CHECKING:
    import torch

    from rmcalib._util.arrays import IntArray

DTYPES: tuple[Literal["float32", "bfloat16", "float16"], ...] = ("float32", "bfloat16", "float16")


class Hardware(NamedTuple):
    """The devices that a model runs on: their type, and their memory together in bytes."""

    device: str
    memory: float


def find_hardware(device: str = "auto") -> Hardware:
    """Return the devices that a model runs on: with `auto`, all CUDA devices together if there are any."""
    if device == "cpu":  # known without torch, which takes seconds to import
        return Hardware("cpu", float(main_memory().total))
    chosen = choose_device(device)
    used = cuda_devices() if chosen.type == "cuda" and device == "auto" else [chosen]
    return Hardware(chosen.type, float(sum(memory_of(each)[0] for each in used)))


def available_devices() -> list[torch.device]:
    """Return the devices of this machine, the fastest first. The CPU is always the last."""
    import torch

    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append(torch.device("mps"))
    return [*devices, torch.device("cpu")]


def cuda_devices() -> list[torch.device]:
    """Return the CUDA devices of this machine."""
    return [device for device in available_devices() if device.type == "cuda"]


def choose_device(name: str = "auto", *, local_rank: int = 0) -> torch.device:
    """Return the device of a name. `auto` is CUDA if available, otherwise MPS, otherwise the CPU.

    With `auto` and `cuda`, each of several processes gets the CUDA device of its `local_rank`.
    """
    import torch

    available = available_devices()
    with suppress(RuntimeError):  # not the name of a device
        wanted = torch.device(available[0].type if name == "auto" else name)
        fitting = [device for device in available if device.type == wanted.type]
        if fitting and wanted.index is None:
            return fitting[local_rank % len(fitting)]
        if wanted in fitting:
            return wanted
    have = ", ".join(map(str, available))
    raise ValueError(f"device: no {name!r} on this machine (have: auto, {have})")


def describe_device(device: torch.device) -> dict[str, Any]:
    """Return the maker's name of a device, and its memory in bytes."""
    import platform

    import torch

    name = f"{platform.machine()}, {count(torch.get_num_threads(), 'thread')}"
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    elif device.type == "mps":
        name = f"Apple {platform.machine()}"
    memory, free = memory_of(device)
    return {"name": name, "memory": memory, "free": free}


def upload(arrays: Sequence[IntArray], device: torch.device) -> list[torch.Tensor]:
    """Copy integer arrays to `device` in one transfer, without waiting for it.

    >>> import torch
    >>> parts = upload([np.zeros((2, 3), np.int64), np.ones(4, np.int64)], torch.device("cpu"))
    >>> [tuple(part.shape) for part in parts]
    [(2, 3), (4,)]
    """
    import torch

    buffer = torch.from_numpy(np.concatenate([array.ravel() for array in arrays]))
    if device.type == "cuda" and torch.cuda.is_available():
        buffer = buffer.pin_memory()
    parts = torch.split(buffer.to(device, non_blocking=True), [array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def kernels(device: torch.device) -> AbstractContextManager[Any]:
    """Within this block, attention on CUDA does not use cuDNN.

    cuDNN makes a plan for every new shape, which takes longer than many passes, and most batches differ in
    shape.
    """
    if device.type != "cuda":
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def memory_of(device: torch.device) -> tuple[int, int]:
    """Return the memory of `device` and how much of it is free, in bytes."""
    import torch

    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        # Memory that torch has reserved and does not use is free too.
        return total, free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type == "mps":
        total = torch.mps.recommended_max_memory()
        return total, total - torch.mps.driver_allocated_memory()
    return main_memory().total, main_memory().available


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device ran out of memory.

    >>> is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    True
    >>> is_out_of_memory(RuntimeError("shapes do not match"))
    False
    """
    words = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)


def avoid_crashes(device: torch.device) -> None:
    """Prevent oneDNN from using instructions that crash some virtual CPUs. Call it before any computation.

    Some virtual CPUs report matrix instructions (AMX) that they do not have, and oneDNN uses them for half
    precision. If your CPU has them, set `ONEDNN_MAX_CPU_ISA=DEFAULT`.
    """
    if device.type == "cpu":
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


def main_memory() -> Any:
    """Return the main memory of this machine: an object with `total` and `available` bytes."""
    import psutil

    return psutil.virtual_memory()
