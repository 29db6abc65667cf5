"""Everything that depends on the device: which there are, what is free, how running out looks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bfloat16", "float16")

# How much of the free memory one forward pass may claim. The estimate below is rough, and running out is
# caught.
_SHARE_OF_FREE_MEMORY = 0.5
_MOST_TOKENS_ACCELERATOR = 32_768
_MOST_TOKENS_CPU = 8_192
_USUAL_TOKENS_CPU = 1_024


def available_devices() -> list[torch.device]:
    """List the devices of this machine, the best first; the CPU is always there and last."""
    import torch

    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append(torch.device("mps"))
    return [*devices, torch.device("cpu")]


def choose_device(name: str = "auto", *, local_rank: int = 0) -> torch.device:
    """Turn `--device` into a device; `auto` is CUDA, then MPS, then the CPU.

    Under several processes each takes the CUDA device of its `local_rank`.
    """
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", local_rank % torch.cuda.device_count())
        return available_devices()[0]
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device: unknown {name!r} (try auto, cpu, cuda, cuda:1 or mps)") from None
    found = {d.type for d in available_devices()}
    if device.type not in found:
        raise ValueError(f"device: no {name!r} on this machine (have: {', '.join(sorted(found))})")
    return device


def describe_device(device: torch.device) -> str:
    """Name the device as its maker does."""
    import platform

    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"Apple {platform.machine()}"
    return f"{platform.machine()}, {torch.get_num_threads()} threads"


def total_memory(device: torch.device) -> int:
    """Return the memory of `device` in bytes."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory())
    return int(main_memory().total)


def free_memory(device: torch.device) -> int:
    """Return how many bytes are free on `device` now."""
    import torch

    if device.type == "cuda":
        # What torch holds in its own pool without using it is free for us too.
        pooled = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + pooled)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return int(main_memory().available)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether `error` means that the device's memory was not enough.

    >>> is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    True
    >>> is_out_of_memory(RuntimeError("shapes do not match"))
    False
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    words = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)


def avoid_crashes(device: torch.device) -> None:
    """Keep oneDNN from instructions that crash some virtual processors; call it before anything is computed.

    Some announce matrix instructions (AMX), which oneDNN takes for half precision, and do not have them.
    Whoever has them can set `ONEDNN_MAX_CPU_ISA=DEFAULT`.
    """
    if device.type == "cpu":
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


def release_memory(device: torch.device) -> None:
    """Give back what a failed forward pass left behind."""
    import gc

    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()


def token_budget(config: Any, device: torch.device, itemsize: int, longest: int) -> int:
    """Estimate how many tokens one forward pass can hold in the free memory of `device`: a power of two.

    Counted per token: the activations that live at once within a layer, and for texts of `longest` tokens the
    attention mask and, where attention is `eager`, the attention weights. A power of two, so that small
    changes of the free memory do not change the batches.
    """
    most = _MOST_TOKENS_CPU if device.type == "cpu" else _MOST_TOKENS_ACCELERATOR
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    hidden = int(getattr(text, "hidden_size", 4096))
    inner = int(getattr(text, "intermediate_size", None) or 4 * hidden)
    heads = int(getattr(text, "num_attention_heads", 32))
    linear = itemsize * (8 * hidden + 3 * inner)
    quadratic = 2 * itemsize
    if getattr(text, "_attn_implementation", "eager") == "eager":
        quadratic += heads * (2 * itemsize + 4)
    fits = _SHARE_OF_FREE_MEMORY * free_memory(device) / (linear + quadratic * min(longest, most))
    return max(1, min(most, 1 << max(0, int(fits).bit_length() - 1)))


def usual_tokens(device: torch.device) -> int:
    """Return how many tokens a forward pass on `device` should have, where there is a choice.

    An accelerator is the faster the more there are. A processor needs enough for all its cores, and little
    enough for what a layer computes to stay in its caches.
    """
    import torch

    if device.type != "cpu":
        return _MOST_TOKENS_ACCELERATOR
    return _USUAL_TOKENS_CPU * max(1, torch.get_num_threads() // 4)


def main_memory() -> Any:
    """Return `total` and `available` bytes of this machine's own memory."""
    import psutil

    return psutil.virtual_memory()
